"""The base of all robust rules: how many malicious clients a rule tolerates, and what comes before it.

    f = tolerated, or ⌈tolerated · c⌉ for a share and the c uploads of a round

A rule states its condition on f, such as n > 2f, for the n vectors that reach it. A run none of whose rounds
could meet it is refused before its first round. In a round with too few uploads, f is the largest number that
the condition admits: an upload that was sent has been charged, so a round is never given up.

An upload that is not finite is left out. If all are, the result is zero.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.aggregation.base import Aggregation, Root
from fedpriv.aggregation.before import STEPS, bucket_count
from fedpriv.aggregation.vectors import Vectors
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import declared, field, own_check, random_seed, whole
from fedpriv.common.groups import option_of

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.engine import FlatModel

_ROUNDING = 1e-9  # 0.1 · 30 is above 3 in floating point


def _tolerated(name: str, value: Any) -> float:
    number = checks.number(name, value, at_least=0)
    if number >= 1 and not number.is_integer():
        raise ArgumentError(name, value, "a whole number, or a share >= 0 and < 1")
    return number


def _before(name: str, value: Any) -> tuple[str, ...]:
    steps = (value,) if isinstance(value, str) else value
    if not isinstance(steps, (list, tuple)) or any(step not in tuple(STEPS) for step in steps):
        raise ArgumentError(name, value, f"a list of {', '.join(STEPS)}")
    if len(set(steps)) < len(steps):
        raise ArgumentError(name, value, f"a list of {', '.join(STEPS)}, each at most once")
    return tuple(steps)


@dataclass(frozen=True)
class RoundOfRule:
    """The facts of a round that a rule knows beside the vectors.

    Attributes:
        index: The round, 0-based.
        tolerated: f.
        clients: Number of the client of each vector [m]; after bucketing, the numbers of the buckets.
        shares: Share p_k of each vector in the mean [m], which add up to 1; equal after other steps.
        memory: What the rule keeps between rounds, by name. Values are replaced, never changed.
        root: Trains on public records, for a rule that reads them.
    """

    index: int
    tolerated: int
    clients: np.ndarray
    shares: np.ndarray
    memory: dict[str, Tensor]
    root: Root | None = None


@declared
class RobustAggregation(Aggregation):
    """A rule that withstands f malicious clients. Subclasses define :meth:`aggregate`.

    Attributes:
        needs: (a, b) of the rule's condition n > a·f + b.
        tolerated: f, or f as a share of a round's clients.
        before: Steps before the rule, in order.
        bucket_size: Number s of uploads in a bucket.
        seed: Seed of all randomness of the rule.

    Example:
        >>> class LeaveOutTheLongest(RobustAggregation):
        ...     def aggregate(self, vectors, of_round):
        ...         shortest = np.argsort(vectors.norms)[: len(vectors) - of_round.tolerated]
        ...         weights = np.zeros(len(vectors))
        ...         weights[shortest] = 1 / len(shortest)
        ...         return vectors.combination(weights)
        >>> LeaveOutTheLongest(tolerated=2).condition
        'n > 2f'
    """

    needs: tuple[int, int] = (2, 0)

    tolerated: float = field(
        own_check(_tolerated, "whole number, or share >= 0 and < 1"),
        default=0.2,
        unit="f",
        help="malicious clients that the rule tolerates; below 1: a share of a round's clients, rounded up",
    )
    before: tuple[str, ...] = field(
        own_check(_before, f"list of {', '.join(STEPS)}"),
        default=(),
        help="steps before the rule, in order",
    )
    bucket_size: int = field(
        whole(at_least=1), default=2, unit="s", help="uploads that before=[bucketing] averages"
    )
    seed: int = field(random_seed, default=0, help="seed of the rule's own random numbers")

    @abstractmethod
    def aggregate(self, vectors: Vectors, of_round: RoundOfRule) -> Tensor:
        """Return the combination of the vectors [d]; there is at least one.

        Args:
            vectors: The vectors [m, d].
            of_round: The round, with f as the condition admits it.
        """

    def start(self, model: FlatModel) -> RobustRule:
        return RobustRule(self)

    # ---- f

    @property
    def condition(self) -> str:
        """The rule's condition on the number n of vectors, in words."""
        factor, more = self.needs
        if not factor:
            return "none"
        of_f = "f" if factor == 1 else f"{factor}f"
        return f"n > {of_f}" + (f" + {more}" if more else "")

    def tolerated_of(self, clients: int) -> int:
        """Return f for a round with so many uploads, before the condition is looked at."""
        if self.tolerated < 1:
            return math.ceil(self.tolerated * clients - _ROUNDING)
        return int(self.tolerated)

    def most_tolerated(self, vectors: int) -> int:
        """Return the largest f that the condition admits for so many vectors, at least 0."""
        factor, more = self.needs
        return max(0, (vectors - more - 1) // factor) if factor else vectors

    def check_cohort(self, clients: int) -> None:
        f, vectors, what = self.tolerated_of(clients), clients, "uploads"
        if "bucketing" in self.before:
            vectors, what = bucket_count(clients, self.bucket_size), "buckets"
        most, name = self.most_tolerated(vectors), option_of("aggregation", self)
        if f > most == 0 and self.tolerated < 1:  # the default, which nobody typed
            need = f"{name} needs {self.condition}, and a round has n = {vectors} and f = {f}"
            raise ConfigError("aggregation", name, f"mean: {need}")
        if f > most:
            allowed = f"at most {most}: {name} needs {self.condition}, and a round has n = {vectors} {what}"
            given = f if self.tolerated >= 1 else f"{self.tolerated:g} (f = {f})"
            raise ArgumentError("tolerated", given, allowed)

    def describe(self) -> str:
        name = option_of("aggregation", self)
        share = f"{self.tolerated:g}" + (" of a round's clients" if 0 < self.tolerated < 1 else "")
        before = f" after {', '.join(self.before)}" if self.before else ""
        return f"{name}{before}, f = {share}"


class RobustRule:
    """A robust rule of one run: what is the same for all of them, round by round.

    Args:
        settings: The rule's settings, which compute its results.
    """

    def __init__(self, settings: RobustAggregation):
        self._settings = settings
        self._memory: dict[str, Tensor] = {}
        self._root: Root | None = None

    def trust(self, root: Root) -> None:
        """Take the server's update on public records, which a rule may ask for in a round."""
        self._root = root

    def combine(self, t: int, clients: np.ndarray, uploads: Tensor, weights: Tensor) -> Tensor:
        """Return the rule's result [d]; see :class:`~fedpriv.aggregation.base.Rule`."""
        settings = self._settings
        vectors = Vectors(uploads)
        if not len(vectors):
            return uploads.new_zeros(uploads.shape[1])
        wanted = settings.tolerated_of(len(uploads))
        clients = clients[vectors.kept]
        shares = weights.detach().double().cpu().numpy()[vectors.kept]
        for name in settings.before:
            f = min(wanted, (len(vectors) - 1) // 2)
            vectors = vectors.mixed(STEPS[name](vectors, f, t, settings))
            if len(vectors) < len(clients):
                clients = np.arange(len(vectors))
            shares = np.ones(len(vectors))
        f = min(wanted, settings.most_tolerated(len(vectors)))
        total = shares.sum()
        shares = shares / total if total > 0 else np.full(len(shares), 1.0 / len(shares))
        return settings.aggregate(
            vectors, RoundOfRule(t, f, clients, shares, self._memory, self._root)
        )

    def state_dict(self) -> dict[str, object]:
        """Return what the rule keeps between rounds."""
        return dict(self._memory)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the state that ``state_dict`` returned."""
        self._memory = dict(state)
