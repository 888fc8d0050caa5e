"""``audit/canaries.json``: the scores that observers of a run gave to its canaries."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.store.saved import saved_json, unreadable

RELEASES, FINAL, SIZES, BLACK_BOX = "releases", "final_model", "sizes", "black_box"
"""The observers. They see every release; the final weights alone; only the norm of the last release; or only
the answers of the final model to queries."""
HEADLINES = {DIRECTION: RELEASES, MISLABELLED: BLACK_BOX}
"""The observer whose number is the result of the audit, by kind of canary. It is fixed before the run,
because choosing the best observer afterwards would invalidate the confidence of the bound."""


@dataclass(frozen=True)
class CanaryFile:
    """The observations of m canaries.

    Attributes:
        coins: Fair coin of each canary [m]: True if the canary took part in the run.
        scores: Score of each canary [m], by observer; a high score speaks for participation.
        released: Each kind of release of a canary, with its count.
        rounds: Number of rounds of the run.
        independent: True if each canary was in a run of its own.
        canary: Kind of the canaries.
    """

    coins: list[bool]
    scores: dict[str, list[float]]
    released: list[dict[str, Any]]
    rounds: int
    independent: bool
    canary: str = DIRECTION

    def plain(self) -> dict[str, object]:
        """Return the content of the JSON file."""
        return asdict(self)


def read_canaries(path: Path) -> CanaryFile:
    """Read ``canaries.json``. The scores of observers that this version does not know are left out.

    Raises:
        ConfigError: The file cannot be read, or is no list of canaries with their scores.
    """
    values: Any = saved_json(path)
    try:
        coins, scores, kind = values["coins"], values["scores"], values["canary"]
        good = HEADLINES[kind] in scores and all(
            len(of_observer) == len(coins) and all(map(math.isfinite, of_observer))
            for of_observer in scores.values()
        )
        known = {name: s for name, s in scores.items() if name in (RELEASES, FINAL, BLACK_BOX)}
        independent = values["independent"] is True
        file = CanaryFile(coins, known, values["released"], values["rounds"], independent, kind)
    except (KeyError, TypeError, AttributeError):
        good = False
    if not good:
        raise unreadable(path, "it is no list of canaries and their scores")
    return file
