"""Choice of the clients of each round such that every client keeps to a participation.

No amplification is claimed of the choice, except for :class:`CyclicPoisson`. Orders and choices come from
secret streams (:mod:`fedpriv.common.secret_streams`), and no data decides them.
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

DEFAULT_SEPARATION = 10
"""Default of ``algorithm.min_separation``."""


class Cohorts(ABC):
    """One way to choose the clients of each round.

    Attributes:
        participation: The rounds in which one client may take part; every choice keeps to it.
        rate: Probability with which a client joins a round in which it may; 1 where no secret coin decides.
    """

    participation: Participation
    rate: float = 1.0

    @abstractmethod
    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        """Return the positions of the clients chosen for a round, ascending.

        Args:
            streams: Secret streams of the run. The choice is a function of the streams and the arguments
                below.
            round_index: t = 0, 1, …
            allowed: Whether each client may take part in the round [K] (bool). Nobody else is chosen.
        """

    @abstractmethod
    def expected(self, clients: float) -> float:
        """Return how many of K clients take part in a round on average: the public denominator."""

    @abstractmethod
    def describe(self, clients: int | None) -> str:
        """Describe the clients of a round; ``clients`` is None where their number is unknown."""

    def refuse_too_few(self, clients: int, rounds: int) -> None:
        """Check that K clients can keep to the participation for so many rounds.

        The default compares K with the separation b alone.

        Args:
            clients: K.
            rounds: Number of rounds of the run.

        Raises:
            ArgumentError: They cannot. The message names the setting to change.
        """
        separation = self.participation.separation
        if clients < separation:
            is_default = separation == DEFAULT_SEPARATION
            origin = f"{separation} is its default: " if is_default else ""
            raise ArgumentError(
                "min_separation",
                separation,
                f"<= {clients}, the number of clients",
                f"{origin}set algorithm.min_separation={clients} or less, or have more clients",
            )


class Turns(Cohorts):
    """Groups in turn: group t mod b of b groups, in an order that is random but fixed for the run.

    Args:
        separation: b, the number of groups; a client may take part in every b-th round.
        most: Largest number of rounds of a client; None for as many as b allows.
    """

    def __init__(self, separation: int, most: int | None):
        self.participation: Participation = Cyclic(separation, most)
        self._order = (b"", np.zeros(0, dtype=np.int64))

    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        return self._group(streams, ("cohort_order",), round_index, allowed)

    def _group(
        self,
        streams: SecretStreams,
        key: tuple[str, *tuple[int, ...]],
        round_index: int,
        allowed: np.ndarray,
    ) -> np.ndarray:
        """Return the allowed clients of the group whose turn it is, ascending.

        The order of the clients is kept for the next round: sorting a million clients takes longer than a
        round of a thousand. It is made again for a stream that begins otherwise.

        Args:
            streams: Secret streams of the run.
            key: Purpose and coordinates of the stream of the order.
            round_index: t = 0, 1, …
            allowed: Whether each client may take part in the round [K] (bool).
        """
        groups, clients = self.participation.separation, len(allowed)
        begins = streams.sampling(*key).bits(4).tobytes()
        if begins != self._order[0] or clients != len(self._order[1]):
            self._order = (begins, streams.sampling(*key).permutation(clients))
        group = np.sort(self._order[1][round_index % groups :: groups])
        return group[allowed[group]]

    def expected(self, clients: float) -> float:
        return clients / self.participation.separation

    def describe(self, clients: int | None) -> str:
        return f"one of {self.participation.separation} groups{_about(self, clients)}, in turn"

    def refuse_too_few(self, clients: int, rounds: int) -> None:
        super().refuse_too_few(clients, rounds)
        most = self.participation.most
        needed = math.ceil(rounds / self.participation.separation)
        if most is not None and most < needed:
            raise ArgumentError(
                "max_participations",
                most,
                f">= {needed}, the turns of a client in {rounds} rounds, or null",
            )


class ShuffledEpochs(Turns):
    """Groups in turn, with another random order in each epoch of b rounds.

    Args:
        separation: b, the number of groups and of rounds in an epoch. Two rounds of a client may be
            neighbours.
        most: Largest number of rounds of a client; None for one in each epoch.
    """

    def __init__(self, separation: int, most: int | None):
        super().__init__(separation, most)
        self.participation = OncePerEpoch(separation, most)

    def choose(self, streams: SecretStreams, round_index: int, allowed: np.ndarray) -> np.ndarray:
        epoch = round_index // self.participation.separation
        return self._group(streams, ("cohort_order", epoch), round_index, allowed)

    def describe(self, clients: int | None) -> str:
        return (
            f"one of {self.participation.separation} groups{_about(self, clients)}, dealt out anew in every "
            f"epoch of {self.participation.separation} rounds"
        )


class Rested(Cohorts):
    """A random choice of m clients that rested for b - 1 rounds and have rounds left.

    Where at most m clients are allowed, all of them are chosen.

    Args:
        separation: b, the least distance of two rounds of a client.
        most: Largest number of rounds of a client; None for as many as b allows.
        size: m.

    Attributes:
        size: m.
    """

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
    """Groups in turn, where each client of the group joins independently with probability q.

    The rounds of a banded strategy that are b apart are then independent Poisson-sampled Gaussians
    (Choquette-Choo et al. 2023, arXiv 2306.08153, theorem 4).

    Args:
        separation: b, the number of groups.
        rate: q.
    """

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


def _about(cohorts: Cohorts, clients: int | None) -> str:
    return "" if clients is None else f" (about {cohorts.expected(clients):.3g} clients)"
