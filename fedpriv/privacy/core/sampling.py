"""Sampling of records and of clients, and the privacy event of a release on a sample.

One object samples and makes the event, so that the two cannot disagree. Records and clients are sampled by
the same kind of object. A sample may be empty (its sum still gets noise). Sums are divided by the declared
``expected_size``, never by the realised size, which is private.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from itertools import pairwise
from typing import Any, TypeVar, cast

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.errors import FedprivError
from fedpriv.common.secret_streams import SecretStreams, Stream, below
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE

Source = Stream | np.random.Generator
Draw = TypeVar("Draw", bound=Callable[..., Any])


class Sampling(ABC):
    """One way to sample. Samplings are hashable: clients with equal samplings have equal events.

    Attributes:
        neighbours: The neighbouring relation under which :meth:`event` holds.

    Example:
        >>> import numpy as np
        >>> sampling = PoissonSampling(sample_rate=0.25)
        >>> sampling.event(noise_multiplier=2.0)
        PoissonSampledDpEvent(sampling_probability=0.25, event=GaussianDpEvent(noise_multiplier=2.0))
        >>> sampling.expected_size(count=8)
        2.0
        >>> sample = sampling.sample(np.random.default_rng(0), count=8)
        >>> sample.tolist() == sorted(set(sample.tolist()))
        True
    """

    neighbours: str = ADD_OR_REMOVE

    @abstractmethod
    def sample(self, stream: Source, count: int) -> np.ndarray:
        """Draw a sample of the positions 0, …, ``count`` - 1, ascending.

        Args:
            stream: The source of random numbers; a secret stream in a run.
            count: Number of records or clients to sample from.
        """

    @abstractmethod
    def expected_size(self, count: int) -> float:
        """Return the public denominator of a sum over a sample of ``count``."""

    @abstractmethod
    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        """Return the event of one Gaussian on one sample.

        Args:
            noise_multiplier: Standard deviation of the noise ÷ sensitivity under add/remove.
        """

    @property
    def whole(self) -> bool:
        """True if everyone is in every sample; False unless a subclass says otherwise."""
        return False

    @property
    def poisson_rate(self) -> float:
        """Probability with which each joins independently of the others; 1 for other ways to sample."""
        return 1.0

    def sample_among(self, stream: Source, eligible: np.ndarray) -> np.ndarray:
        """Draw a sample of all K positions; return those in it where ``eligible`` [K] (bool) is true.

        Positions count from 0 to K - 1 and are returned in ascending order. Those who may not take part any
        more are sampled too and then left out, so that the others join with the same probability as before.
        """
        sampled = self.sample(stream, len(eligible))
        return sampled[eligible[sampled]]


@dataclass(frozen=True)
class PoissonSampling(Sampling):
    """Each joins the sample independently with probability q.

    Neighbours differ by one record (or client) more or less; the sensitivity of a clipped sum is the clip
    norm C.

    Attributes:
        sample_rate: q.
    """

    sample_rate: float

    def sample(self, stream: Source, count: int) -> np.ndarray:
        return _joining(stream, count, self.sample_rate)

    def expected_size(self, count: int) -> float:
        """Return L = q·n."""
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
    """A sample of fixed size without replacement, as much public FL code draws it.

    Neighbours differ by one record (or client) that is replaced. This moves a clipped sum by up to 2C, so the
    Gaussian's multiplier is halved inside the event.

    Attributes:
        records: n, the number to sample from.
        lot_size: L, the size of a sample.

    Example:
        >>> sampling = FixedSizeSampling(records=100, lot_size=10)
        >>> sampling.event(noise_multiplier=2.0).event
        GaussianDpEvent(noise_multiplier=1.0)
    """

    records: int
    lot_size: int
    neighbours = REPLACE_ONE

    def sample(self, stream: Source, count: int) -> np.ndarray:
        return np.sort(stream.choice(count, self.lot_size, replace=False, shuffle=False))

    def sample_among(self, stream: Source, eligible: np.ndarray) -> np.ndarray:
        """Draw ``lot_size`` of those eligible, or take all of them where there are no more."""
        candidates = np.flatnonzero(eligible)
        if len(candidates) <= self.lot_size:
            return candidates
        return candidates[self.sample(stream, len(candidates))]

    def expected_size(self, count: int) -> float:
        """Return L, the lot size."""
        return float(self.lot_size)

    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        return dp_event.SampledWithoutReplacementDpEvent(
            self.records, self.lot_size, dp_event.GaussianDpEvent(noise_multiplier / 2.0)
        )


@dataclass(frozen=True)
class TruncatedPoissonSampling(Sampling):
    """A Poisson sample that is cut to at most ``max_lot_size``, chosen uniformly among those sampled.

    One more record can push another one out, which moves a clipped sum by up to 2C. The cap therefore costs
    privacy (Ganesh et al. 2025, arXiv 2508.15089); PLD accounts for it.

    Attributes:
        sample_rate: q.
        records: n, the number to sample from.
        max_lot_size: The cap.
    """

    sample_rate: float
    records: int
    max_lot_size: int

    @property
    def poisson_rate(self) -> float:
        return self.sample_rate

    def sample(self, stream: Source, count: int) -> np.ndarray:
        lot = _joining(stream, count, self.sample_rate)
        if len(lot) <= self.max_lot_size:
            return lot
        return np.sort(stream.choice(lot, self.max_lot_size, replace=False, shuffle=False))

    def expected_size(self, count: int) -> float:
        """Return L = q·n."""
        return self.sample_rate * count

    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        return dp_event.TruncatedSubsampledGaussianDpEvent(
            self.records, self.sample_rate, self.max_lot_size, noise_multiplier
        )


@dataclass(frozen=True)
class WholeData(Sampling):
    """Everyone takes part every time: no sampling, no amplification.

    Under ``replace_one`` a sum clipped at C moves by up to 2C, so the multiplier is halved.

    Attributes:
        neighbours: The neighbouring relation under which the event holds.
    """

    neighbours: str = ADD_OR_REMOVE

    def sample(self, stream: Source, count: int) -> np.ndarray:
        return np.arange(count)

    def expected_size(self, count: int) -> float:
        """Return n, all of them."""
        return float(count)

    def event(self, noise_multiplier: float) -> dp_event.DpEvent:
        replaced = self.neighbours == REPLACE_ONE
        return dp_event.GaussianDpEvent(noise_multiplier / 2.0 if replaced else noise_multiplier)

    @property
    def whole(self) -> bool:
        return True


def _joining(stream: Source, count: int, probability: float) -> np.ndarray:
    """Return those of 0, …, ``count`` - 1 that join, each with this probability, ascending."""
    if isinstance(stream, Stream):
        return np.flatnonzero(below(stream.bits(count), probability))
    return np.flatnonzero(stream.random(count) < probability)


SAMPLING_NAMES = ("poisson", "fixed_size")


def make_sampling(
    name: str, sample_rate: float, records: int, max_lot_size: int | None = None
) -> Sampling:
    """Return the sampling of a client with ``records`` records.

    Args:
        name: ``poisson``; any other name, which the configuration allows only as ``fixed_size``, gives that.
        sample_rate: q; a fixed size is L = q·n, rounded, at least 1.
        records: n.
        max_lot_size: Cap of a Poisson lot; None for no cap. A fixed size ignores it.
    """
    if name == "poisson" and max_lot_size is not None:
        return TruncatedPoissonSampling(sample_rate, records, max_lot_size)
    if name == "poisson":
        return PoissonSampling(sample_rate)
    return FixedSizeSampling(records, max(1, round(sample_rate * records)))


def samplings_of(
    sampling_of: Callable[[int], Sampling], records_per_client: np.ndarray
) -> list[Sampling]:
    """Return the sampling of each client's lots [K], made once for each number of records.

    Args:
        sampling_of: Number of records → sampling.
        records_per_client: Number of records of each client [K].
    """
    sizes, size_of_client = np.unique(records_per_client, return_inverse=True)
    of_sizes = [sampling_of(int(size)) for size in sizes]
    return [of_sizes[place] for place in size_of_client.tolist()]


class ChunkDraws:
    """The draws of one chunk of clients, in the place of the secret streams.

    The process that has the streams makes the draws, which are noted under their names. Another process gets
    the notes, and neither a stream nor a key.

    Args:
        streams: The secret streams; None where the notes are all that there is.
        notes: Draws by (function, step, client or clients).
    """

    def __init__(self, streams: SecretStreams | None, notes: dict[tuple[Any, ...], Any]):
        self.streams, self.notes = streams, notes

    def sampling(self, purpose: str, *coordinates: int) -> Stream:
        """Raise FedprivError: the draw was not noted."""
        raise FedprivError(
            f"a draw ({purpose}) was made where a chunk is computed, and no key is there: uploads of your "
            "own that draw need a method draw(round_index, clients), which makes the same draws before; or "
            "set runtime.workers=1"
        )


def _noted(draw: Draw) -> Draw:
    """Let a draw be noted in :class:`ChunkDraws`, or be taken from there."""

    @wraps(draw)
    def drawn(streams: SecretStreams | ChunkDraws, *arguments: Any) -> Any:
        if isinstance(streams, SecretStreams):
            return draw(streams, *arguments)
        *_, step, who = arguments
        key = draw.__name__, int(step), who.tobytes() if isinstance(who, np.ndarray) else int(who)
        if key not in streams.notes:
            streams.notes[key] = draw(streams.streams or streams, *arguments)
        return streams.notes[key]

    return cast(Draw, drawn)


def sample_lot(
    streams: SecretStreams,
    sampling: Sampling,
    records: np.ndarray,
    round_index: int,
    step: int,
    client: int,
) -> np.ndarray:
    """Draw one client's lot of one local step.

    Args:
        streams: The run's secret streams.
        sampling: The client's sampling.
        records: Indices of the client's records [n], ascending.
        round_index: The round.
        step: The local step within the round.
        client: Number of the client, which has streams of its own.

    Returns:
        Indices of the sampled records, ascending.
    """
    if isinstance(sampling, WholeData):
        # Indexed like a sampled lot: `fedpriv verify` passes records whose indexing leaves one out.
        return records[:]
    return _sampled_lot(streams, sampling, records, round_index, step, client)


@_noted
def _sampled_lot(
    streams: SecretStreams,
    sampling: Sampling,
    records: np.ndarray,
    round_index: int,
    step: int,
    client: int,
) -> np.ndarray:
    stream = streams.sampling("lot", round_index, step, client)
    return records[sampling.sample(stream, len(records))]


@_noted
def poisson_lots(
    streams: SecretStreams,
    sampling: PoissonSampling,
    records: Sequence[np.ndarray],
    round_index: int,
    step: int,
    clients: np.ndarray,
) -> list[np.ndarray]:
    """Draw the lots of many clients that sample alike, in half the time of :func:`sample_lot` for each.

    Every client has the stream that it has there. The numbers of all streams are compared with q at once.

    Args:
        streams: The run's secret streams.
        sampling: The sampling of all of them.
        records: Indices of each client's records [c].
        round_index: The round.
        step: The local step within the round.
        clients: Numbers of the clients [c].

    Returns:
        Indices of the sampled records of each client [c].
    """
    ends = np.cumsum([0, *map(len, records)])
    words = np.empty(ends[-1], dtype="<u8")
    into = words.data.cast("B")
    for client, (start, end) in zip(clients.tolist(), pairwise((8 * ends).tolist()), strict=True):
        stream = streams.sampling("lot", round_index, step, client)
        stream.write_words(into[start:end])
    sampled = np.flatnonzero(below(words, sampling.sample_rate))
    indices = np.concatenate(records)[sampled]
    return [indices[a:b] for a, b in pairwise(np.searchsorted(sampled, ends).tolist())]


@_noted
def draws_of_copies(
    streams: SecretStreams,
    records: np.ndarray,
    lot: np.ndarray,
    copies: int,
    round_index: int,
    step: int,
    client: int,
) -> np.ndarray:
    """Return uniform words for the copies of each record of a client's ``lot``.

    The words of a record are drawn by its position among the client's ``records``. They are therefore the
    same whoever else is in the lot. They are independent of all data, so that a record's copies are a
    function of this record alone.

    Args:
        streams: The run's secret streams.
        records: Indices of the client's records [n].
        lot: Indices of the sampled records [m].
        copies: Number of copies of each record.
        round_index: The round.
        step: The local step within the round.
        client: Number of the client.

    Returns:
        Words of 64 bits, uint64 [m, copies].
    """
    client_records = np.asarray(records)
    stream = streams.sampling("augmentation", round_index, step, client)
    draws = stream.bits(len(client_records) * copies).reshape(len(client_records), copies)
    order = np.argsort(client_records, kind="stable")
    return draws[order[np.searchsorted(client_records, np.asarray(lot), sorter=order)]]


def sample_cohort(
    streams: SecretStreams, sampling: Sampling, eligible: np.ndarray, round_index: int
) -> np.ndarray:
    """Draw the clients of a round.

    Args:
        streams: The run's secret streams.
        sampling: The sampling of clients.
        eligible: Whether each client may take part [K] (bool).
        round_index: The round.

    Returns:
        Numbers of the sampled clients, ascending.
    """
    if isinstance(sampling, WholeData):
        return np.flatnonzero(eligible)
    return sampling.sample_among(streams.sampling("cohort", round_index), eligible)


@_noted
def sample_buckets(
    streams: SecretStreams, buckets: int, round_index: int, step: int, clients: np.ndarray
) -> np.ndarray:
    """Sample the bucket of each client in a local step.

    Each client has a stream of its own, so its bucket does not depend on who else takes part. A neighbouring
    data set therefore moves one client's vector in one bucket, and no other client.

    Args:
        streams: Secret streams of the run.
        buckets: Number of buckets B.
        round_index: The round.
        step: The local step of the round.
        clients: Numbers of the clients [c].

    Returns:
        Bucket numbers [c], each uniform on 0 … B-1.
    """
    drawn = [streams.sampling("bucket", round_index, step, int(k)).random() for k in clients]
    return np.floor(np.array(drawn, dtype=np.float64) * buckets).astype(np.int64)


@_noted
def shuffle(
    streams: SecretStreams, records: np.ndarray, round_index: int, epoch: int, client: int
) -> np.ndarray:
    """Return a client's records in the order in which plain training visits them in one epoch.

    Args:
        streams: Secret streams of the run.
        records: Indices of the client's records [n_k].
        round_index: The round, 0-based.
        epoch: The epoch within the round, 0-based.
        client: The client's number.
    """
    stream = streams.sampling("batches", round_index, epoch, client)
    return records[stream.permutation(len(records))]
