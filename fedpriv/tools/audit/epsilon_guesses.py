"""Scores of canaries, and the guesses that an auditor makes from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scores:
    """Scores and coins of canaries.

    Attributes:
        values: Score of each canary [m]; the higher, the likelier that the canary was included.
        included: Coin of each canary [m] (bool). Where the coin chose +v or -v, whether it chose +v.

    Example:
        >>> scores = Scores(np.array([3.0, 1.0, -1.0, -2.0]), np.array([True, False, False, False]))
        >>> scores.guesses(each=1)
        Guesses(canaries=4, made=2, right=2)
    """

    values: np.ndarray
    included: np.ndarray

    def __post_init__(self) -> None:
        if self.values.shape != self.included.shape or self.values.ndim != 1:
            raise ValueError("one score and one coin of each canary")

    def __len__(self) -> int:
        return len(self.values)

    def guesses(self, each: int) -> Guesses:
        """Guess that the ``each`` highest scores are of included canaries and the ``each`` lowest of others.

        A group of equal scores that reaches across a cut counts as wrong guesses. Only the order of the
        canaries could say which of the group are guessed, and in a file that order may follow the coins. So
        the result never depends on the order. A score that is not a number counts as 0.
        """
        each = min(each, len(self) // 2)
        if not each:
            return Guesses(len(self), 0, 0)
        values = np.nan_to_num(self.values, nan=0.0)
        ordered = np.sort(values)
        # Each side has the scores strictly beyond the first score that makes no guess.
        highest, lowest = values > ordered[-each - 1], values < ordered[each]
        right = self.included[highest].sum() + (~self.included[lowest]).sum()
        return Guesses(len(self), 2 * each, int(right))

    @property
    def tied(self) -> int:
        """The number of canaries that share their score with another."""
        counts = np.unique(np.nan_to_num(self.values, nan=0.0), return_counts=True)[1]
        return int(counts[counts > 1].sum())

    def split(self, stream: np.random.Generator) -> tuple[Scores, Scores]:
        """Return two random halves: one to choose a threshold on, one to test it on."""
        first, second = np.split(stream.permutation(len(self)), [len(self) // 2])
        return (
            Scores(self.values[first], self.included[first]),
            Scores(self.values[second], self.included[second]),
        )


@dataclass(frozen=True)
class Guesses:
    """Guesses about the coins of canaries.

    Attributes:
        canaries: Number of canaries.
        made: Number of guesses.
        right: Number of right guesses.
    """

    canaries: int
    made: int
    right: int


def counts_of_guesses(canaries: int) -> list[int]:
    """Return the numbers of guesses on either side that an auditor tries.

    They are fixed before the scores are seen. Each number is tested at its share of the significance.
    """
    return sorted({max(1, round(canaries / 2 * share)) for share in (0.06, 0.12, 0.25, 0.8)})
