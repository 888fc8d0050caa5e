"""Scores of canaries, and guesses made from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Scores:
    """``values`` [m]: the higher, the likelier that the canary was included; ``included`` [m] (bool): its
    coin. Where the coin chose +v or -v instead, whether it chose +v."""

    values: np.ndarray
    included: np.ndarray

    def __post_init__(self) -> None:
        if self.values.shape != self.included.shape or self.values.ndim != 1:
            raise ValueError("one score and one coin of each canary")

    def __len__(self) -> int:
        return len(self.values)

    def guesses(self, each: int) -> Guesses:
        """Guess the ``each`` highest scores to be of included canaries, the ``each`` lowest of others.

        A group of equal scores that reaches across a cut counts as wrong guesses: only the order of the
        canaries could say which of the group are guessed, and in a file that order may follow the coins.
        So the result never depends on the order. A score that is not a number counts as 0.
        """
        each = min(each, len(self) // 2)
        if not each:
            return Guesses(len(self), 0, 0)
        values = np.nan_to_num(self.values, nan=0.0)
        ordered = np.sort(values)
        # each side keeps the scores strictly beyond the first one that makes no guess
        highest, lowest = values > ordered[-each - 1], values < ordered[each]
        right = self.included[highest].sum() + (~self.included[lowest]).sum()
        return Guesses(len(self), 2 * each, int(right))

    @property
    def tied(self) -> int:
        """The number of canaries that share their score with another."""
        counts = np.unique(np.nan_to_num(self.values, nan=0.0), return_counts=True)[1]
        return int(counts[counts > 1].sum())

    def split(self, stream: np.random.Generator) -> tuple[Scores, Scores]:
        """Two halves at random: one to choose a threshold on, one to test it on."""
        order = stream.permutation(len(self))
        halves = order[: len(self) // 2], order[len(self) // 2 :]
        first, second = (Scores(self.values[own], self.included[own]) for own in halves)
        return first, second


@dataclass(frozen=True)
class Guesses:
    """``made`` guesses about ``canaries`` coins, ``right`` of them right."""

    canaries: int
    made: int
    right: int


def counts_of_guesses(canaries: int) -> list[int]:
    """How many guesses an auditor may make on either side, fixed before the scores are seen; each number is
    tested at its share of the significance."""
    found = {max(1, round(canaries / 2 * share)) for share in _SHARES}
    return sorted(found)


_SHARES = (0.06, 0.12, 0.25, 0.8)
