"""Who takes part in a round, such that every client keeps to a participation. No amplification is claimed of
the choice, but for :class:`CyclicPoisson` and :class:`BMinSep`.

Orders and choices are secret streams' (:mod:`fedpriv.common.secret_streams`), and no data decides them.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np

from fedpriv.common.errors import ArgumentError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.matrix.participation import (
    Cyclic,
    MinSeparation,
    OncePerEpoch,
    Participation,
)


class Cohorts(ABC):
    """A choice of the clients of each round.

    Attributes:
        participation: What every choice keeps to.
        rate: The probability with which a client joins a round in which it may; 1: no secret coin decides.
        warm_start: Whether rests begin before the first round; None: no client rests by a coin.
    """

    participation: Participation
    rate: float = 1.0
    warm_start: bool | None = None

    @abstractmethod
    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        """Ascending positions of clients among those ``allowed`` [K] (bool)."""

    @abstractmethod
    def expected(self, clients: float) -> float:
        """How many of K clients take part in a round on average: the public denominator."""

    @abstractmethod
    def describe(self, clients: int | None) -> str:
        """Who takes part, in words."""

    def refuse_too_few(self, clients: int, rounds: int) -> None:
        """Raise ArgumentError where K clients cannot keep to it for so many rounds."""
        separation = self.participation.separation
        if clients < separation:
            raise ArgumentError(
                "min_separation", separation, f"<= {clients}, the number of clients"
            )

    def _refuse_too_seldom(self, rounds: int) -> None:
        most = self.participation.most
        needed = math.ceil(rounds / self.participation.separation)
        if most is not None and most < needed:
            raise ArgumentError(
                "max_participations",
                most,
                f">= {needed}, the turns of a client in {rounds} rounds, or null",
            )


class Turns(Cohorts):
    """Group t mod b of b groups, in an order fixed at random for the run."""

    def __init__(self, separation: int, most: int | None):
        self.participation = Cyclic(separation, most)

    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        return _group(
            streams, ("cohort_order",), self.participation.separation, round_index, allowed
        )

    def expected(self, clients: float) -> float:
        return clients / self.participation.separation

    def describe(self, clients: int | None) -> str:
        return f"one of {self.participation.separation} groups{_about(self, clients)}, in turn"

    def refuse_too_few(self, clients: int, rounds: int) -> None:
        super().refuse_too_few(clients, rounds)
        self._refuse_too_seldom(rounds)


class ShuffledEpochs(Turns):
    """The same with another order in each epoch of b rounds."""

    def __init__(self, separation: int, most: int | None):
        self.participation = OncePerEpoch(separation, most)

    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        epoch = round_index // self.participation.separation
        key = ("cohort_order", epoch)
        return _group(streams, key, self.participation.separation, round_index, allowed)

    def describe(self, clients: int | None) -> str:
        return (
            f"one of {self.participation.separation} groups{_about(self, clients)}, dealt out anew in every "
            f"epoch of {self.participation.separation} rounds"
        )


class Rested(Cohorts):
    """m at random of those whose last round is at least b back and who have rounds left."""

    def __init__(self, separation: int, most: int | None, size: int):
        self.participation, self.size = MinSeparation(separation, most), size

    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        candidates = np.flatnonzero(allowed)
        if len(candidates) <= self.size:
            return candidates
        stream = streams.sampling("cohort", round_index)
        return np.sort(stream.choice(candidates, self.size, replace=False, shuffle=False))

    def expected(self, clients: float) -> float:
        return float(self.size)

    def describe(self, clients: int | None) -> str:
        return f"{self.size} clients at random, {self.participation.describe()}"

    def refuse_too_few(self, clients: int, rounds: int) -> None:
        super().refuse_too_few(clients, rounds)
        separation, most = self.participation.separation, self.participation.most
        resting = min(separation, rounds)
        if self.size * resting > clients:
            raise ArgumentError(
                "clients_per_round",
                self.size,
                f"<= {clients // resting}, of {clients} clients with min_separation={separation}",
            )
        if most is not None and most * clients < self.size * rounds:
            raise ArgumentError(
                "max_participations",
                most,
                f">= {math.ceil(self.size * rounds / clients)}, for {rounds} rounds of {self.size} of "
                f"{clients} clients",
            )


class CyclicPoisson(Turns):
    """Each client of the group whose turn it is, independently with probability q: a banded strategy's rounds
    b apart are then independent Poisson-sampled Gaussians (Choquette-Choo et al. 2023, theorem 4)."""

    def __init__(self, separation: int, rate: float):
        super().__init__(separation, None)
        self.rate = rate

    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        group = super().choose(streams, round_index, allowed)
        drawn = streams.sampling("cohort", round_index).random(len(allowed))
        return group[drawn[group] < self.rate]

    def expected(self, clients: float) -> float:
        return self.rate * super().expected(clients)

    def describe(self, clients: int | None) -> str:
        return (
            f"each client of one of {self.participation.separation} groups, in turn, with probability "
            f"{self.rate:g}{_about(self, clients)}"
        )


class BMinSep(Cohorts):
    """Each client that has rested for b - 1 rounds, independently with probability q (Dong & Ganesh 2026,
    arXiv 2602.09338).

    ``warm_start``: at the beginning each rests for 0 to b - 1 rounds, as likely as after many rounds, so that
    all rounds have cohorts of one expected size; else all may join the first round.
    """

    def __init__(self, separation: int, rate: float, warm_start: bool):
        self.participation = MinSeparation(separation)
        self.rate, self.warm_start = rate, warm_start

    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        drawn = streams.sampling("cohort", round_index).random(len(allowed)) < self.rate
        return np.flatnonzero(drawn & allowed & (self._rests(streams, len(allowed)) <= round_index))

    def _rests(self, streams: SecretStreams, clients: int) -> np.ndarray:
        """In which round each client may join for the first time [K]."""
        if not self.warm_start:
            return np.zeros(clients, dtype=np.int64)
        ready = 1.0 / (1.0 + (self.participation.separation - 1) * self.rate)
        place = streams.sampling("cohort_start").random(clients) - ready
        return np.where(place < 0, 0, 1 + np.floor(place / (self.rate * ready)).astype(np.int64))

    def expected(self, clients: float) -> float:
        """In the long run; with ``warm_start`` of every round."""
        return clients / (self.participation.separation - 1 + 1 / self.rate)

    def describe(self, clients: int | None) -> str:
        return (
            f"each client with probability {self.rate:g}{_about(self, clients)}, then it rests for "
            f"{self.participation.separation - 1} rounds"
        )


def _group(
    streams: SecretStreams,
    key: tuple[str, *tuple[int, ...]],
    groups: int,
    round_index: int,
    allowed: np.ndarray,
) -> np.ndarray:
    order = streams.sampling(*key).permutation(len(allowed))
    own = np.sort(order[round_index % groups :: groups])
    return own[allowed[own]]


def _about(cohorts: Cohorts, clients: int | None) -> str:
    return "" if clients is None else f" (about {cohorts.expected(clients):.3g} clients)"
