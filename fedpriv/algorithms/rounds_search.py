"""Which T is the best: what "CDP with the optimal T" of Wei et al. searches, and how."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError

WITHOUT = "wei_cdp"
"""The algorithm whose runs a search makes, and finds again."""
METHODS = ("grid", "golden")
CRITERIA = ("test_loss", "test_accuracy")


@dataclass(frozen=True)
class RoundsSearch:
    """The T with the best mean of ``criterion`` over runs with ``seeds``.

    ``grid``: every T of ``rounds``. ``golden``: golden-section search of whole numbers from the smallest
    to the largest of ``rounds``, for a mean that falls and then rises; some 10 of 300 are tried.
    """

    method: str
    rounds: tuple[int, ...]
    seeds: tuple[int, ...]
    criterion: str

    @classmethod
    def of(
        cls,
        method: str = "grid",
        rounds: Iterable[int] = (),
        seeds: Iterable[int] = (0,),
        criterion: str = "test_loss",
    ) -> RoundsSearch:
        """Checked. Raises ArgumentError that names the argument below ``search``."""
        words = "a list of whole numbers >= 1"
        candidates = checks.sequence("search.rounds", rounds, words)
        tried = sorted({checks.whole("search.rounds", t, at_least=1) for t in candidates})
        if not tried or (method == "golden" and len(tried) < 2):
            raise ArgumentError("search.rounds", rounds, f"{words}, two at least with golden")
        numbers = checks.sequence("search.seeds", seeds, "a list of seeds")
        if not numbers or len(set(numbers)) != len(numbers):
            raise ArgumentError("search.seeds", seeds, "one seed or several different ones")
        return cls(
            method=checks.one_of("search.method", method, METHODS),
            rounds=tuple(tried),
            seeds=tuple(checks.seed("search.seeds", s) for s in numbers),
            criterion=checks.one_of("search.criterion", criterion, CRITERIA),
        )

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
