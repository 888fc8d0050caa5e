"""Scores that another framework found: ``fedpriv audit epsilon --scores FILE``."""

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
_LARGEST = 1 << 28
_SQUARED = 1e100  # larger scores have no variance in float64; no method depends on their unit


def read_scores(path: str | Path) -> Scores:
    """Read a CSV with the columns ``score`` (higher: likelier included) and ``included`` (0 or 1), a row for
    each canary.

    The canaries are returned in an order that only the ranks of their scores and their coins decide, so that
    no number depends on the order of the file, which may follow the coins.

    Raises ConfigError that names the row.
    """
    path = Path(path)
    refuse_no_file(path, _LARGEST)
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
    coins = table["included"].str.strip().str.lower()
    good = coins.isin(["0", "1", "true", "false"]).to_numpy()
    _refuse(path, "included", table["included"], good, "0 or 1")
    included = coins.isin(["1", "true"]).to_numpy()
    if not 0 < included.sum() < len(included):
        raise ConfigError(f"{path} needs canaries that were included and others that were not")
    ascending = np.lexsort((included, values))
    digest = zlib.crc32(included[ascending].tobytes())  # of ranks: no unit of the scores matters
    order = ascending[numpy_stream(digest, "audit_scores_file").permutation(len(values))]
    values, included = values[order], included[order]
    largest = np.abs(values).max()
    return Scores(values / largest if largest > _SQUARED else values, included)


def _refuse(path: Path, column: str, texts: pd.Series, good: np.ndarray, allowed: str) -> None:
    if not good.all():
        first = int(np.flatnonzero(~good)[0])
        raise ConfigError(f"{path}, row {first + 2}: {column}", texts.iloc[first], allowed)


def evaluate_scores(
    scores: Scores, delta: float, confidence: float, independent: bool, seed: int
) -> list[AuditedEpsilon]:
    """What they show; nothing is known of the mechanism."""
    return evaluate({"scores": scores}, AuditSetup(delta, confidence, independent, Counter(), seed))
