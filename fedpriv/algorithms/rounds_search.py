"""The search for the best number of rounds T, as "CDP with the optimal T" of Wei et al. does it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, one_of, own_check

WITHOUT = "wei_cdp"
"""Name of the algorithm whose runs a search makes, and finds again."""
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
    """A search for the T with the best mean of ``criterion`` over runs with ``seeds``.

    Attributes:
        method: ``grid`` tries every T of ``rounds``. ``golden`` is a golden-section search of whole numbers
            from the smallest to the largest of ``rounds``, for a mean that falls and then rises; it tries
            about 10 of 300.
        rounds: Numbers of rounds that are tried, ascending.
        seeds: Seeds of the runs of each T.
        criterion: Metric whose mean over the seeds decides, ``test_loss`` or ``test_accuracy``.

    Example:
        >>> search = RoundsSearch(method="golden", rounds=[1, 100])
        >>> search.best(lambda rounds: (rounds - 37) ** 2)
        37
    """

    method: str = field(
        one_of(METHODS),
        default="grid",
        help="search: every number of rounds (grid), or golden section (golden)",
    )
    rounds: tuple[int, ...] = field(
        own_check(_rounds, _ROUNDS), default=(), help="numbers of rounds T that are tried"
    )
    seeds: tuple[int, ...] = field(
        own_check(_seeds, "list of seeds"), default=(0,), help="seeds of the runs of each T"
    )
    criterion: str = field(
        one_of(CRITERIA), default="test_loss", help="metric whose mean over the seeds decides"
    )

    def __attrs_post_init__(self) -> None:
        if len(self.rounds) < (2 if self.method == "golden" else 1):
            allowed = f"{_ROUNDS}, at least two with method=golden"
            raise ArgumentError("rounds", list(self.rounds), allowed)

    def best(self, cost: Callable[[int], float]) -> int:
        """Return the T of least cost, the smaller one of two that are equal.

        Args:
            cost: Cost of a number of rounds; called once for each T that is tried.
        """
        known: dict[int, float] = {}

        def remembered_cost(rounds: int) -> float:
            if rounds not in known:
                known[rounds] = cost(rounds)
            return known[rounds]

        if self.method == "grid":
            return min(self.rounds, key=remembered_cost)
        _golden_section(remembered_cost, self.rounds[0], self.rounds[-1])
        return min(sorted(known), key=known.__getitem__)

    def describe(self) -> str:
        """Describe the search for the plan."""
        grid = self.method == "grid"
        how = f"{len(self.rounds)} values" if grid else "golden section"
        runs = f"{len(self.rounds) * len(self.seeds)} runs" if grid else "its runs"
        return (
            f"{how} of T from {self.rounds[0]} to {self.rounds[-1]}, best mean {self.criterion} over "
            f"{len(self.seeds)} seeds: {runs} come first, and the sound epsilon counts them all. Rounds and "
            "noise shown here are those before the search"
        )


def _golden_section(cost: Callable[[int], float], low: int, high: int) -> None:
    """Search whole numbers by golden sections; the caller remembers each cost that was asked for."""
    golden = (5**0.5 - 1) / 2
    while high - low > 2:
        # two whole numbers strictly between low and high, different from each other
        left = high - round(golden * (high - low))
        right = low + high - left
        if left == right:
            right += 1
        left, right = min(left, right), max(left, right)
        if cost(left) <= cost(right):
            high = right
        else:
            low = left
    for rounds in range(low, high + 1):
        cost(rounds)
