"""How records, or clients, are sampled, and the event of a release on that sample.

What samples also makes the event, so the two cannot disagree; records and clients are sampled by the same
kind of object. Samples may be empty (they still get noise) and sums are divided by the declared
``expected_size``, never by the realised one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.secret_streams import SecretStreams, Stream
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE

Source = Stream | np.random.Generator


class Sampling(ABC):
    """One way to sample. Hashable: clients that sample alike release alike.

    Attributes:
        neighbours: The adjacency under which :meth:`event` holds.
    """

    neighbours: str = ADD_OR_REMOVE

    @abstractmethod
    def sample(self, stream: Source, count: int) -> np.ndarray:
        """Positions in ``0 … count-1`` that are sampled, ascending."""

    @abstractmethod
    def expected_size(self, count: int) -> float:
        """The public denominator of a sum over a sample of ``count``."""

    @abstractmethod
    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        """The event of one Gaussian (noise std ÷ add/remove sensitivity) on one sample."""

    @property
    def whole(self) -> bool:
        """Whether everyone is in every sample."""
        return False

    @property
    def poisson_rate(self) -> float:
        """The probability with which each joins independently of the others; 1 for other ways to sample."""
        return 1.0

    def sample_among(self, stream: Source, eligible: np.ndarray) -> np.ndarray:
        """Positions sampled among those where ``eligible`` [K] (bool), ascending: as if the others, who may
        not take part any more, had been sampled in vain."""
        sampled = self.sample(stream, len(eligible))
        return sampled[eligible[sampled]]


@dataclass(frozen=True)
class PoissonSampling(Sampling):
    """Each joins the sample independently with probability q.

    Neighbours differ by one more or less; the sensitivity of a clipped sum is C.
    """

    sample_rate: float

    def sample(self, stream: Source, count: int) -> np.ndarray:
        return np.flatnonzero(stream.random(count) < self.sample_rate)

    def expected_size(self, count: int) -> float:
        """L = q·n."""
        return self.sample_rate * count

    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        gaussian = dp_event.GaussianDpEvent(noise_multiplier)
        if self.sample_rate == 1.0:  # everyone every time: no sampling
            return gaussian
        return dp_event.PoissonSampledDpEvent(self.sample_rate, gaussian)

    @property
    def whole(self) -> bool:
        return self.sample_rate == 1.0

    @property
    def poisson_rate(self) -> float:
        return self.sample_rate


@dataclass(frozen=True)
class FixedSizeSampling(Sampling):
    """A sample of fixed size without replacement (what much public FL code runs).

    Neighbours differ by one replaced, which moves a clipped sum by up to 2C: the Gaussian's multiplier is
    halved inside the event.
    """

    records: int
    lot_size: int
    neighbours = REPLACE_ONE

    def sample(self, stream: Source, count: int) -> np.ndarray:
        return np.sort(stream.choice(count, self.lot_size, replace=False, shuffle=False))

    def sample_among(self, stream: Source, eligible: np.ndarray) -> np.ndarray:
        """``lot_size`` of those eligible, or all where there are no more."""
        candidates = np.flatnonzero(eligible)
        if len(candidates) <= self.lot_size:
            return candidates
        return candidates[self.sample(stream, len(candidates))]

    def expected_size(self, count: int) -> float:
        """L, the lot size."""
        return float(self.lot_size)

    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        return dp_event.SampledWithoutReplacementDpEvent(
            self.records, self.lot_size, dp_event.GaussianDpEvent(noise_multiplier / 2.0)
        )


@dataclass(frozen=True)
class TruncatedPoissonSampling(Sampling):
    """A Poisson sample cut to at most ``max_lot_size``, chosen uniformly among those sampled.

    One more can then push another one out, which moves a clipped sum by up to 2C: capping is not free
    (Ganesh et al. 2025, arXiv 2508.15089; PLD accounts for it).
    """

    sample_rate: float
    records: int
    max_lot_size: int

    @property
    def poisson_rate(self) -> float:
        return self.sample_rate

    def sample(self, stream: Source, count: int) -> np.ndarray:
        lot = np.flatnonzero(stream.random(count) < self.sample_rate)
        if len(lot) <= self.max_lot_size:
            return lot
        return np.sort(stream.choice(lot, self.max_lot_size, replace=False, shuffle=False))

    def expected_size(self, count: int) -> float:
        """L = q·n."""
        return self.sample_rate * count

    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        return dp_event.TruncatedSubsampledGaussianDpEvent(
            self.records, self.sample_rate, self.max_lot_size, noise_multiplier
        )


@dataclass(frozen=True)
class WholeData(Sampling):
    """Everyone takes part every time: no sampling, no amplification.

    Under ``replace_one`` a sum clipped at C moves by up to 2C, so the multiplier is halved.
    """

    neighbours: str = ADD_OR_REMOVE

    def sample(self, stream: Source, count: int) -> np.ndarray:
        return np.arange(count)

    def expected_size(self, count: int) -> float:
        """n, all of them."""
        return float(count)

    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        replaced = self.neighbours == REPLACE_ONE
        return dp_event.GaussianDpEvent(noise_multiplier / 2.0 if replaced else noise_multiplier)

    @property
    def whole(self) -> bool:
        return True


SAMPLING_NAMES = ("poisson", "fixed_size")


def make_sampling(
    name: str, sample_rate: float, records: int, max_lot_size: int | None = None
) -> Sampling:
    """The sampling of a client with ``records`` records (fixed L = q·n, rounded, ≥ 1)."""
    if name == "poisson" and max_lot_size is not None:
        return TruncatedPoissonSampling(sample_rate, records, max_lot_size)
    if name == "poisson":
        return PoissonSampling(sample_rate)
    return FixedSizeSampling(records, max(1, round(sample_rate * records)))


def sample_lot(
    streams: SecretStreams,
    sampling: Sampling,
    records: np.ndarray,
    round_index: int,
    step: int,
    client: int,
) -> np.ndarray:
    """One client's lot in one local step: some of its ``records`` (indices, ascending)."""
    if isinstance(sampling, WholeData):
        return records[:]  # as sampled records are: who reads them may leave one out
    stream = streams.sampling("lot", round_index, step, client)
    return records[sampling.sample(stream, len(records))]


def draws_of_copies(
    streams: SecretStreams,
    records: np.ndarray,
    lot: np.ndarray,
    copies: int,
    round_index: int,
    step: int,
    client: int,
) -> np.ndarray:
    """Uniform words of 64 bits for the copies of each record of a client's ``lot``: uint64 [m, copies].

    A record's are drawn by its place among the client's ``records``: the same whoever else is in the lot.
    They are independent of all data, so that a record's copies are a function of it and of nobody else.
    """
    own = np.asarray(records)
    stream = streams.sampling("augmentation", round_index, step, client)
    words = stream.bits(len(own) * copies).reshape(len(own), copies)
    order = np.argsort(own, kind="stable")
    return words[order[np.searchsorted(own, np.asarray(lot), sorter=order)]]


def sample_cohort(
    streams: SecretStreams, sampling: Sampling, eligible: np.ndarray, round_index: int
) -> np.ndarray:
    """Who takes part in a round, of those ``eligible`` [K], ascending."""
    if isinstance(sampling, WholeData):
        return np.flatnonzero(eligible)
    return sampling.sample_among(streams.sampling("cohort", round_index), eligible)


def shuffle(
    streams: SecretStreams, records: np.ndarray, round_index: int, epoch: int, client: int
) -> np.ndarray:
    """The order in which a client's plain training visits its records in one epoch."""
    stream = streams.sampling("batches", round_index, epoch, client)
    return records[stream.permutation(len(records))]
