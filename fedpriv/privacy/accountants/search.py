"""The largest number of steps whose epsilon stays within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

MANY_STEPS = 10**9
"""The answer for events that cost nothing."""


def most_steps(
    epsilon_of: Callable[[int], float], epsilon: float, at_most: int = MANY_STEPS, start: int = 1
) -> int:
    """The largest n ≤ ``at_most`` with ``epsilon_of(n) <= epsilon``, for an epsilon that never falls.

    ``start`` is a guess of n. Between a number that fits and one that does not, the next is found
    as if ε were a power of n, so that few values are asked for.
    """
    low, low_epsilon = 0, 0.0
    high, high_epsilon = None, math.inf
    guess = min(max(1, start), at_most)
    while high is None or high - low > 1:
        value = epsilon_of(guess)
        if value <= epsilon:
            low, low_epsilon = guess, value
            if low >= at_most:
                return at_most
        else:
            high, high_epsilon = guess, value
        if high is None:
            growth = (epsilon / low_epsilon) ** 2 if low_epsilon > 0 else math.inf
            guess = min(at_most, math.ceil(low * min(max(growth * 1.02, 2.0), 4.0)))
        elif high - low > 1:
            guess = _between(low, low_epsilon, high, high_epsilon, epsilon)
    return low


def _between(low: int, low_epsilon: float, high: int, high_epsilon: float, epsilon: float) -> int:
    """A whole number strictly between ``low`` and ``high``, likely close to the answer."""
    middle = (low + high) // 2
    if not (0 < low_epsilon < epsilon < high_epsilon < math.inf) or high - low < 8:
        return middle
    slope = math.log(high / low) / math.log(high_epsilon / low_epsilon)
    likely = low * math.exp(slope * math.log(epsilon / low_epsilon))
    margin = max(1, (high - low) // 64)  # a little aside, so that the bracket closes on both sides
    likely += margin if likely < middle else -margin
    return min(max(math.floor(likely), low + 1), high - 1)
