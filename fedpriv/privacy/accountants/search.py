"""The largest number of steps whose ε stays within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable

MANY_STEPS = 10**9
"""Number of steps that stands for "unlimited": the answer for events that cost nothing."""


def most_steps(
    epsilon_of: Callable[[int], float], epsilon: float, at_most: int = MANY_STEPS, start: int = 1
) -> int:
    """Return the largest n ≤ ``at_most`` with ``epsilon_of(n) <= epsilon``; 0 if a single step costs more.

    Each evaluation may take a second, so the search asks for few of them. Between a number that fits and one
    that does not fit, the next number is interpolated as if ε were a power of n.

    Args:
        epsilon_of: ε after n steps; it never falls in n.
        epsilon: ε of the budget.
        at_most: The largest answer.
        start: A guess of n.
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
    """Return a whole number strictly between ``low`` and ``high`` that is likely close to the answer."""
    middle = (low + high) // 2
    if not (0 < low_epsilon < epsilon < high_epsilon < math.inf) or high - low < 8:
        return middle
    slope = math.log(high / low) / math.log(high_epsilon / low_epsilon)
    likely = low * math.exp(slope * math.log(epsilon / low_epsilon))
    margin = max(1, (high - low) // 64)  # a little aside, so that the bracket closes on both sides
    likely += margin if likely < middle else -margin
    return min(max(math.floor(likely), low + 1), high - 1)
