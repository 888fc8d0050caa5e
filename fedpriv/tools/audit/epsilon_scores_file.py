"""Scores that another framework computed: ``fedpriv audit epsilon --scores FILE``."""

from __future__ import annotations

import zlib
from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.store.saved import refuse_no_file
from fedpriv.tools.audit.epsilon_evaluate import AuditedEpsilon, AuditSetup, evaluate
from fedpriv.tools.audit.epsilon_guesses import Scores

COLUMNS = ("score", "included")
_SQUARED = (
    1e100  # larger scores have no variance in float64, so they are scaled: no method needs the unit
)


def read_scores(path: str | Path) -> Scores:
    """Read a CSV with the columns ``score`` and ``included``, a row for each canary.

    A higher score means that the canary is likelier included; ``included`` is 0 or 1. The canaries are
    returned in an order that only the ranks of their scores and their coins decide. So no number depends on
    the order of the file, which may follow the coins.

    Args:
        path: The file.

    Returns:
        Scores and coins.

    Raises:
        ConfigError: The file is no such table; the message names the row.
    """
    path = Path(path)
    refuse_no_file(path)
    try:
        table = pd.read_csv(path, dtype=str)
    except (OSError, ValueError):
        raise ConfigError(f"{path} cannot be read: it is not a table") from None
    if not isinstance(table.index, pd.RangeIndex):
        raise ConfigError(f"{path} has rows with more values than its first row has names")
    if missing := [column for column in COLUMNS if column not in table]:
        raise ConfigError(f"{path} has no column {missing[0]}; it needs score and included")
    values = pd.to_numeric(table["score"], errors="coerce").to_numpy(dtype=float)
    _refuse(path, "score", table["score"], np.isfinite(values), "a finite number")
    good = table["included"].isin(["0", "1"]).to_numpy()
    _refuse(path, "included", table["included"], good, "0 or 1")
    included = (table["included"] == "1").to_numpy()
    if not 0 < included.sum() < len(included):
        raise ConfigError(f"{path} needs canaries that were included and others that were not")
    ascending = np.lexsort((included, values))
    # The seed follows from ranks alone: the unit of the scores must not matter.
    digest = zlib.crc32(included[ascending].tobytes())
    order = ascending[numpy_stream(digest, "audit_scores_file").permutation(len(values))]
    values, included = values[order], included[order]
    largest = np.abs(values).max()
    return Scores(values / largest if largest > _SQUARED else values, included)


def _refuse(path: Path, column: str, texts: pd.Series, good: np.ndarray, allowed: str) -> None:
    """Raise ConfigError for the first row of a column that is not good."""
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        raise ConfigError(f"{path}, row {first + 2}: {column}", texts.iloc[first], allowed)


def evaluate_scores(
    scores: Scores, delta: float, confidence: float, independent: bool, seed: int
) -> list[AuditedEpsilon]:
    """Return the numbers that the scores of an unknown mechanism allow.

    Args:
        scores: Scores and coins.
        delta: δ of the audited guarantee.
        confidence: Confidence of all bounds together.
        independent: Whether each canary was in a run of its own.
        seed: Seed of everything that is drawn.
    """
    return evaluate({"scores": scores}, AuditSetup(delta, confidence, independent, Counter(), seed))
