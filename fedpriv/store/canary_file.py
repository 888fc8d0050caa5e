"""``audit/canaries.json``: what observers of a run saw of its canaries."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from fedpriv.common.errors import ConfigError
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.store.saved import saved_json

RELEASES, FINAL, SIZES, BLACK_BOX = "releases", "final_model", "sizes", "black_box"
"""Who looks: at every release; at the last model's weights alone; only at how long the last release is; or
who asks the last model and sees nothing of it but its answers."""
HEADLINES = {DIRECTION: RELEASES, MISLABELLED: BLACK_BOX}
"""Of each kind of canary the observer whose number stands for the audit, chosen beforehand."""
_LARGEST = 1 << 26  # bytes


@dataclass(frozen=True)
class CanaryFile:
    """``coins`` [m]; ``scores`` [m] of each observer; ``released``: of a canary's releases each kind with its
    count; ``independent``: whether each canary was in a run of its own; ``canary``: of which kind."""

    coins: list[bool]
    scores: dict[str, list[float]]
    released: list[dict[str, Any]]
    rounds: int
    independent: bool
    canary: str = DIRECTION

    def plain(self) -> dict[str, object]:
        """As values for JSON."""
        return asdict(self)


def read_canaries(path: Path) -> CanaryFile:
    """Raises ConfigError for a file that is not one."""
    values = saved_json(path, _LARGEST)
    found: list[Any] = [values.get(key) for key in ("coins", "scores", "released")]
    coins, scores, released = found
    canary = values.get("canary", DIRECTION)
    good = (
        canary in HEADLINES
        and isinstance(coins, list)
        and len(coins) >= 2
        and all(type(coin) is bool for coin in coins)
        and isinstance(scores, dict)
        and HEADLINES[canary] in scores
        and all(isinstance(own, list) and len(own) == len(coins) for own in scores.values())
        and all(_is_number(x) for own in scores.values() for x in own)
        and isinstance(released, list)
        and all(isinstance(kind, dict) and type(kind.get("count")) is int for kind in released)
        and type(values.get("rounds")) is int
    )
    if not good:
        raise ConfigError(f"{path} cannot be read: it is no list of canaries and their scores")
    known = {name: own for name, own in scores.items() if name in (RELEASES, FINAL, BLACK_BOX)}
    apart = values.get("independent") is True
    return CanaryFile(coins, known, released, values["rounds"], apart, canary)


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and math.isfinite(value)
