"""Distributed trust: every client adds a share of the noise, and the server sees only the sum.

Of n clients that are announced for a round, up to s may drop out (``tolerated_dropouts``) and up to t may
tell the server their shares (``tolerated_collusion``). Each share has the standard deviation

    z Δ / √h,   h = n - t - s

so that the h honest shares that are in the sum for certain have z Δ together, which is what the ledger
charges. The other shares only add independent noise, which is post-processing. With c clients left (n - s ≤ c
≤ n) the sum gets noise of standard deviation z Δ √(c/h). With fewer than n - s clients nothing is released.

Sampling the cohort does not amplify privacy, because the server sees who takes part. The neighbouring data
set has zeros in the place of one client's upload. Lots that a client samples in secret do amplify, because
the server does not see the sum of a single client.

:class:`SharedGaussian` is the continuous idealisation: real numbers, which no secure aggregation adds up. It
draws one Gaussian with the distribution of the sum. The mechanisms on integers are
:mod:`~fedpriv.privacy.mechanisms.discrete_gaussian` and :mod:`~fedpriv.privacy.mechanisms.skellam`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.privacy.core.names import CLIENT
from fedpriv.privacy.core.sampling import Sampling
from fedpriv.privacy.mechanisms.discrete import (
    LARGEST_SHARE,
    DiscreteQuery,
    largest_cells,
    padded,
)
from fedpriv.privacy.mechanisms.discrete_count import DiscreteCount
from fedpriv.privacy.mechanisms.discrete_gaussian import DiscreteGaussianQuery
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import GRADIENT, JointQuery
from fedpriv.privacy.mechanisms.mechanism import Mechanism
from fedpriv.privacy.mechanisms.query import Noising, Query
from fedpriv.privacy.mechanisms.randomized_response import RandomizedBit
from fedpriv.privacy.mechanisms.round import OpenRound
from fedpriv.privacy.mechanisms.skellam import SkellamQuery

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.common.secret_streams import SecretStreams, Stream
    from fedpriv.privacy.mechanisms.bounded import Bounded

COLUMNS = ("dropped", "aborted", "bits_per_coordinate", "bytes_per_client")
"""Columns of a round's row that only these runs have."""


@dataclass(frozen=True)
class Tolerance:
    """Numbers of dropouts and colluding clients that the noise allows for.

    Attributes:
        dropouts: s, clients that may drop out of a round.
        collusion: t, clients that may tell the server their shares.
    """

    dropouts: int = 0
    collusion: int = 0

    def honest(self, clients: int) -> int:
        """Return h = n - t - s, the number of shares that protect for certain.

        Args:
            clients: n.

        Raises:
            ArgumentError: No honest client would be left.
        """
        honest = clients - self.dropouts - self.collusion
        if honest >= 1:
            return honest
        name, value, other = "tolerated_dropouts", self.dropouts, self.collusion
        if self.collusion > self.dropouts:
            name, value, other = "tolerated_collusion", self.collusion, self.dropouts
        allowed = f"at most {max(0, clients - 1 - other)}"
        hint = f"of {clients} clients one at least must be honest and stay"
        raise ArgumentError(name, value, allowed, hint)


FAMILIES = {kind.family: kind for kind in (DiscreteGaussianQuery, SkellamQuery)}


@dataclass
class DiscreteShares:
    """Settings of the encoding of uploads as integers.

    Attributes:
        family: ``discrete_gaussian`` or ``skellam``.
        bits: b of the modulus 2^b.
        cells: k, grid steps in a clip norm; None means the finest grid that ``wrap_limit`` allows.
        wrap_limit: The largest probability that some coordinate of a round's sum wraps around.
        rounding: ``vectors`` or ``sums``, which decides the sensitivity.
        size: Number of weights of the model, known before anything is planned.
        masked: Always False. It is in the digests behind random streams, which must not change.
    """

    family: str
    bits: int
    cells: float | None
    wrap_limit: float
    rounding: str
    size: int = 0
    masked: bool = False

    def query(
        self, gaussian: GaussianQuery, clients: int | None, honest: int | None, forecast: bool
    ) -> DiscreteQuery:
        """Return the query with integer shares in place of a Gaussian query.

        Args:
            gaussian: The Gaussian query.
            clients: n, the number of clients announced for a round; None if unknown.
            honest: h, the number of shares that protect for certain.
            forecast: Whether the noise multiplier is only tried out, by a calibration.

        Raises:
            ConfigError: There is no noise, the number of clients is unknown, or the modulus is too small.
        """
        if not gaussian.protects:
            raise ConfigError(
                "algorithm.shares", self.family, "continuous where the noise multiplier is 0"
            )
        if clients is None:
            raise ConfigError(
                "algorithm.clients_per_round",
                None,
                f"a whole number with shares={self.family} and partition=natural",
                "how many clients add a share decides about their noise",
            )
        assert honest is not None  # known wherever the number of clients is known
        dimension = padded(self.size)
        setting = (gaussian.noise_multiplier, clients, honest, dimension, self.bits)
        cells = self.cells
        if cells is None:
            cells = largest_cells(self.family, *setting, self.wrap_limit)
            if cells < 1.0 and not (forecast and cells > 0.0):
                raise ConfigError(
                    "algorithm.bits",
                    self.bits,
                    f"more, for the sum of {clients} clients",
                    f"modulus too small: even with one step in a clip norm a round's sum wraps around with "
                    f"a probability above algorithm.wrap_limit, {self.wrap_limit:g}",
                )
        query = FAMILIES[self.family](
            gaussian.name,
            gaussian.noise_multiplier,
            cells,
            clients,
            honest,
            dimension,
            self.bits,
            self.rounding,
        )
        if forecast:
            return query
        if query.wrap_probability > self.wrap_limit:
            raise ConfigError(
                "algorithm.bits",
                self.bits,
                f"more, or a smaller algorithm.scale than {cells:g}",
                f"modulus too small: a round's sum wraps around with probability up to "
                f"{query.wrap_probability:.1g}, above algorithm.wrap_limit, {self.wrap_limit:g}",
            )
        if query.variance > LARGEST_SHARE**2:
            raise ConfigError(
                "algorithm.scale",
                cells,
                f"less: a share's noise is at most {LARGEST_SHARE:g} steps",
                "a finer grid gains nothing",
            )
        return query


@dataclass(frozen=True)
class SharedGaussian(GaussianQuery):
    """Gaussian shares, ``honest`` of which together have ``noise_multiplier``: an idealisation.

    Attributes:
        honest: h, the number of shares that protect for certain. See :class:`GaussianQuery` for the others.
    """

    honest: int = 1

    def noised_by(self, by: str) -> SharedGaussian:
        if by == CLIENT:
            return self
        raise ConfigError(f"{self.name} is noised by the clients' shares, and by nobody else")

    def release(self, answer: Bounded, noise: Noising) -> Tensor:
        # h shares together have multiplier z, so the sum of m shares has z √(m/h). One Gaussian is
        # drawn for all.
        of_sum = self.noise_multiplier * math.sqrt(noise.shares / self.honest)
        std = super().release(answer, replace(noise, multipliers=of_sum, shares=1))
        return std / math.sqrt(noise.shares)


class SharedMechanism(Mechanism):
    """One sum for all clients of a round. With distributed trust each client adds a share of its noise."""

    algorithm: Any  # one of fedpriv.algorithms, which this room must not import
    _forecasts = False

    @property
    def most_noise(self) -> str:
        discrete: DiscreteShares | None = self.algorithm.discrete
        if discrete is None:
            return ""
        return (
            f"modulus too small: more noise needs a coarser grid, and sums modulo 2^{discrete.bits} have no "
            "room for it (algorithm.bits)"
        )

    def plan(
        self, sampling: Sampling, noise_multiplier: float, rounds: int, samples: int | None = None
    ) -> Counter[JointQuery]:
        self._forecasts = True  # a calibration also tries noise that no modulus has room for
        try:
            return super().plan(sampling, noise_multiplier, rounds, samples)
        finally:
            self._forecasts = False

    def _noised_by_whom(self, query: Query) -> Query:
        algorithm = self.algorithm
        if not algorithm.distributed:
            return super()._noised_by_whom(query)
        if isinstance(query, RandomizedBit):
            raise ConfigError(
                "clipper.bit_mechanism", "randomized_response", "gaussian with distributed trust"
            )
        if not isinstance(query, GaussianQuery):
            return query.noised_by(CLIENT)
        discrete = algorithm.discrete
        if discrete is not None:
            if query.name != GRADIENT:
                return self._counted(query)
            return discrete.query(query, algorithm.announced, algorithm.honest, self._forecasts)
        if not query.protects:
            return query.noised_by(CLIENT)
        return SharedGaussian(
            query.name, query.noise_multiplier, query.replaced, CLIENT, algorithm.honest or 1
        )

    def _counted(self, query: GaussianQuery) -> DiscreteCount:
        """Return the clipper's query with integer shares.

        Raises:
            ConfigError: The clipper's statistic is no integer, or has no noise.
        """
        algorithm = self.algorithm
        steps = self.clipper.whole_steps
        if steps is None or not query.protects:
            raise ConfigError(
                f"algorithm.shares={algorithm.shares} goes with clippers that ask nothing or a noised "
                "count; take clipper=quantile, adap (reading sound), constant, poly or automatic, or "
                "algorithm.shares=continuous"
            )
        return DiscreteCount(
            query.name, query.noise_multiplier, algorithm.shares, steps, algorithm.honest or 1
        )

    def _round_class(self, cohort: np.ndarray) -> Callable[..., OpenRound]:
        announced, least = len(cohort), 0
        if self.algorithm.distributed:
            announced, least = self.algorithm.announced, self.algorithm.fewest_clients
        return partial(SharedRound, announced=announced, least=least)


class SharedRound(OpenRound):
    """A round with one answer for its whole cohort. It is aborted if fewer than ``least`` are left.

    Args:
        args: Arguments of :class:`OpenRound`.
        announced: Number of clients that the round was announced to.
        least: Fewest clients with which it releases anything.
        settings: Further arguments of :class:`OpenRound`.
    """

    def __init__(self, *args: Any, announced: int, least: int, **settings: Any):
        super().__init__(*args, **settings)
        self.aborted = len(self.cohort) < least
        self._announced = announced

    @property
    def facts(self) -> Mapping[str, object]:
        if not self._trust.noised_by_clients or self._trust.sees_each_upload:
            return {}
        query = self._query(GRADIENT)
        discrete = query if isinstance(query, DiscreteQuery) else None
        return {
            "dropped": self._announced - len(self.cohort),
            "aborted": int(self.aborted),
            "bits_per_coordinate": None if discrete is None else discrete.bits,
            "bytes_per_client": None if discrete is None else discrete.bytes_per_client,
        }

    def begin_step(self, size: int) -> None:
        if not isinstance(self._query(GRADIENT), DiscreteQuery):
            super().begin_step(size)

    def charges(self) -> list[tuple[JointQuery, int, np.ndarray]]:
        return [] if self.aborted else super().charges()

    def close(self) -> tuple:
        """Return the records of the round. An aborted round released nothing, so nothing is charged."""
        return () if self.aborted else super().close()

    def _streams_of(self, query: Query, of_reports: bool = False) -> list[Stream]:
        noise, t = self.streams.noise, self.round_index
        if isinstance(query, DiscreteCount):
            return [noise(query.name, t, 0, client) for client in self.cohort]
        if not isinstance(query, DiscreteQuery):
            return super()._streams_of(query, of_reports)
        # The rotation is public. Shares of noise are secrets of single clients.
        rotation = self.streams.sampling("rotation", t)
        return [rotation, *(noise(query.name, t, 0, client) for client in self.cohort)]


def left_over(
    streams: SecretStreams, cohort: np.ndarray, dropout: float, round_index: int
) -> np.ndarray:
    """Return the clients of a cohort that do not drop out, ascending.

    This is a simulation that reads no data.

    Args:
        streams: Secret streams of the run.
        cohort: Positions of the clients [c].
        dropout: Probability with which each client drops out.
        round_index: t.
    """
    if dropout == 0:
        return cohort
    drawn = streams.sampling("dropout", round_index).random(len(cohort))
    return cohort[drawn >= dropout]
