"""Which T is the best: what "CDP with the optimal T" of Wei et al. searches, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from fedpriv.common import checks
from fedpriv.common.conflicts import Combination
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import declared, field, one_of, own_check

WITHOUT = "wei_cdp"
"""The algorithm whose runs a search makes, and finds again."""
METHODS = ("grid", "golden")
CRITERIA = ("test_loss", "test_accuracy")


_ROUNDS = "a list of whole numbers >= 1"


def _rounds(name: str, value: Any) -> tuple[int, ...]:
    numbers = checks.sequence(name, value, _ROUNDS)
    return tuple(sorted({checks.whole(name, t, at_least=1) for t in numbers}))


def _seeds(name: str, value: Any) -> tuple[int, ...]:
    numbers = checks.sequence(name, value, "a list of seeds")
    if not numbers or len(set(numbers)) != len(numbers):
        raise ArgumentError(name, value, "one seed or several different ones")
    return tuple(checks.seed(name, s) for s in numbers)


@declared
class RoundsSearch:
    """The T with the best mean of ``criterion`` over runs with ``seeds``.

    ``grid``: every T of ``rounds``. ``golden``: golden-section search of whole numbers from the smallest
    to the largest of ``rounds``, for a mean that falls and then rises; some 10 of 300 are tried.
    """

    method: str = field(one_of(METHODS), default="grid", help="which of the rounds are tried")
    rounds: tuple[int, ...] = field(
        own_check(_rounds, _ROUNDS), default=(), help="numbers of rounds T that are tried"
    )
    seeds: tuple[int, ...] = field(
        own_check(_seeds, "list of seeds"), default=(0,), help="seeds of the runs of each T"
    )
    criterion: str = field(
        one_of(CRITERIA), default="test_loss", help="metric whose mean over the seeds decides"
    )

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse noise that depends on more than T."""
        if not parts.noise_schedule.spread_evenly or parts.clipper.asks_ever():
            yield ConfigError(
                f"algorithm={parts.algorithm.name} takes noise_schedule=uniform_budget and a clipper that "
                "asks nothing (constant, poly, automatic)"
            )

    def __attrs_post_init__(self) -> None:
        if len(self.rounds) < (2 if self.method == "golden" else 1):
            allowed = f"{_ROUNDS}, two at least with golden"
            raise ArgumentError("rounds", list(self.rounds), allowed)

    def best(self, cost: Callable[[int], float]) -> int:
        """The T of least ``cost``, which is asked once for each T tried; the smaller T if equal."""
        known: dict[int, float] = {}

        def of(rounds: int) -> float:
            if rounds not in known:
                known[rounds] = cost(rounds)
            return known[rounds]

        if self.method == "grid":
            return min(self.rounds, key=of)
        _narrow(of, self.rounds[0], self.rounds[-1])
        return min(sorted(known), key=known.__getitem__)

    def describe(self) -> str:
        """The search in a few words."""
        grid = self.method == "grid"
        how = f"{len(self.rounds)} values" if grid else "golden section"
        runs = f"{len(self.rounds) * len(self.seeds)} runs" if grid else "its runs"
        return (
            f"{how} of T from {self.rounds[0]} to {self.rounds[-1]}, best mean {self.criterion} over "
            f"{len(self.seeds)} seeds: {runs} come first, and the sound epsilon counts them all. What is "
            "said of rounds and noise here is for T not yet searched"
        )


def _narrow(cost: Callable[[int], float], low: int, high: int) -> None:
    """Golden-section search of whole numbers; what was asked is in the caller's memory."""
    golden = (5**0.5 - 1) / 2
    left, right = _inner(low, high, golden)
    while high - low > 2:
        if cost(left) <= cost(right):
            high = right
        else:
            low = left
        left, right = _inner(low, high, golden)
    for rounds in range(low, high + 1):
        cost(rounds)


def _inner(low: int, high: int, golden: float) -> tuple[int, int]:
    """Two whole numbers strictly between, the left one below the right one where there is room."""
    left = high - round(golden * (high - low))
    right = low + high - left
    if left == right:
        right += 1
    return min(left, right), max(left, right)
