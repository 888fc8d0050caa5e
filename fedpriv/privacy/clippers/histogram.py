"""Adaptive median clipping (LDP-FedSGD and the clipping size, DEIM 2023, section 4.5.2).

Every client one-hot encodes the bin of its gradient norm. A trusted aggregator (a trusted execution
environment, simulated here) sums the vectors, adds Gaussian noise and releases the histogram. The new C is
the upper edge of the bin that holds the median.

    bins  [0, e_1], (e_1, e_2], …, (e_{B-1}, e_B];   norms above e_B count as the last bin

A replaced unit moves one count down and another up, so the sensitivity is √2; it is 1 when a unit joins or
leaves. The noise is calibrated so that all ``updates`` planned histograms together are (ε, δ)-DP for a unit
that enters every one of them:

    μ = GDP parameter of (ε, δ),   std of the noise on every count = √2 √updates / μ
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number, or_null, own_check, when, whole
from fedpriv.common.words import counted
from fedpriv.privacy.accountants.gaussian import GdpAccountant
from fedpriv.privacy.clippers.base import CLIP_NORM, LARGEST, StoredNorms
from fedpriv.privacy.core.names import AGGREGATOR
from fedpriv.privacy.mechanisms.bounded import ONE_HOT, histogram
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import CLIP_STATISTIC
from fedpriv.privacy.mechanisms.visible import Visible, seen

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.privacy.mechanisms.bounded import Bounded

_MOST_BINS = 1000


def geometric_edges(smallest_exponent: float, largest_exponent: float, bins: int) -> list[float]:
    """Return the upper edges 2^a … 2^b of ``bins`` bins, evenly spaced in the exponent.

    The first bin is [0, 2^a]. A single bin ends at 2^b.

    Args:
        smallest_exponent: a.
        largest_exponent: b.
        bins: Number of bins.
    """
    if bins == 1:
        return [2.0**largest_exponent]
    step = (largest_exponent - smallest_exponent) / (bins - 1)
    return [2.0 ** (smallest_exponent + step * i) for i in range(bins)]


def median_bin(counts: Sequence[float]) -> int | None:
    """Return the index of the bin that holds the median of a noised histogram, or None without counts.

    Negative counts are noise and are taken as 0. The median is the lower one: the first bin at which the
    running count reaches half of the total, so that a tie between two bins goes to the smaller norm.
    """
    positive_counts = [max(0.0, float(count)) for count in counts]
    total = math.fsum(positive_counts)
    if not total > 0:
        return None
    half = total / 2.0
    running = 0.0
    for index, count in enumerate(positive_counts):
        running += count
        if count > 0 and running >= half * (1.0 - 1e-12):
            return index
    return len(positive_counts) - 1


def _edges(name: str, edges: Any) -> list[float]:
    if isinstance(edges, str) or not isinstance(edges, Sequence) or not edges:
        raise ArgumentError(name, edges, "a list of upper edges, such as [0.01,0.1,1]")
    values = [checks.number(name, edge, above=0, at_most=LARGEST) for edge in edges]
    if any(a >= b for a, b in itertools.pairwise(values)):
        raise ArgumentError(name, list(edges), "in ascending order, each once")
    if len(values) > _MOST_BINS:
        raise ArgumentError(name, f"{len(values)} edges", f"at most {_MOST_BINS}")
    return values


def _without_edges(part: MedianHistogramClipper, value: Any) -> bool:
    return part.edges is None


@declared
class MedianHistogramClipper(StoredNorms):
    """Clipping at the median of the norms, read from a noised histogram every ``update_interval`` rounds.

    Give ``update_interval``, ``updates`` or both. Bins are ``edges``, or geometric bins. The module has the
    noise.

    Attributes:
        initial: Clip norm before the first histogram, ``initial_clip_norm`` in the configuration.
        epsilon: ε of all planned histograms together.
        delta: δ of all planned histograms together.
        update_interval: Rounds from one histogram to the next.
        updates: Number of planned histograms.
        rounds: Rounds of the run.
        edges: Upper edges of the bins, ascending; computed from the next three if None.
        smallest_exponent: a, where the first bin is [0, 2^a].
        largest_exponent: b, where the last bin ends at 2^b.
        bins: B, the number of geometric bins.
        noise_std: Standard deviation of the noise on every count.

    Example:
        >>> clipper = MedianHistogramClipper(1.0, update_interval=5, updates=2, edges=[0.5, 1.0, 2.0])
        >>> clipper.query(4, noise_multiplier=1.0) is not None, clipper.query(5, 1.0)
        (True, None)
    """

    one_query_a_round = True

    initial: float = field(
        CLIP_NORM, alias="initial_clip_norm", help="clip norm before the first histogram"
    )
    epsilon: float = field(number(above=0), default=0.8, help="ε of all planned updates together")
    delta: float = field(
        number(above=0, below=1), default=1e-8, help="δ of all planned updates together"
    )
    update_interval: int = field(
        or_null(whole(at_least=1)),
        default=None,
        unit="rounds",
        help="rounds from one update to the next; null: follows from updates",
    )
    updates: int = field(
        or_null(whole(at_least=1)),
        default=None,
        help="number of updates in the whole run; null: follows from update_interval",
    )
    rounds: int | None = field(or_null(whole(at_least=1)), default=None, help="rounds of the run")
    edges: Sequence[float] = field(
        or_null(own_check(_edges, "list")),
        default=None,
        help=(
            "upper edges of the bins, such as [0.01,0.1,1]; null: bins, smallest_exponent "
            "and largest_exponent give them"
        ),
    )
    smallest_exponent: float = field(
        when(_without_edges, number(at_least=-60, at_most=39)),
        default=-7.0,
        help="a: the first bin is [0, 2^a]",
    )
    largest_exponent: float = field(
        when(_without_edges, number(at_least=-60, at_most=39)),
        default=5.0,
        help="b: the last bin ends at 2^b and also counts larger norms",
    )
    bins: int = field(
        when(_without_edges, whole(at_least=1, at_most=_MOST_BINS)),
        default=13,
        help="number of geometric bins",
    )

    def __attrs_post_init__(self) -> None:
        self.update_interval, self.updates = _schedule(
            self.update_interval, self.updates, self.rounds
        )
        if self.edges is None:
            smallest, largest = self.smallest_exponent, self.largest_exponent
            if self.bins > 1 and not smallest < largest:
                allowed = f"> {smallest:g}, smallest_exponent"
                raise ArgumentError("largest_exponent", largest, allowed)
            self.edges = geometric_edges(smallest, largest, self.bins)
        # The sum of z^-2 that (ε, δ) allows is μ²; each of the updates takes an equal part of it.
        mu = math.sqrt(GdpAccountant().largest_sum(self.epsilon, self.delta))
        self.noise_std = ONE_HOT * math.sqrt(self.updates) / mu
        self.aggregator_caveat = (
            "The histogram of norms is summed and noised by a trusted aggregator (such as a trusted "
            "execution environment), which is simulated: whoever runs it sees every client's exact "
            f"bin. All {self.updates} planned histograms together are ({self.epsilon:g}, "
            f"{self.delta:g})-DP for everyone else."
        )

    def query(self, round_index: int, noise_multiplier: float) -> GaussianQuery | None:
        update, after = divmod(round_index + 1, self.update_interval)
        if after or not 0 < update <= self.updates:
            return None
        return GaussianQuery(CLIP_STATISTIC, self.noise_std, replaced=ONE_HOT, by=AGGREGATOR)

    def kinds_of_rounds(self, rounds: int) -> dict[int, int]:
        asking = min(self.updates, rounds // self.update_interval)
        first_silent = 0 if self.update_interval > 1 else self.updates
        # The first round that asks is the last one of the first interval.
        kinds = {self.update_interval - 1: asking, first_silent: rounds - asking}
        return {index: count for index, count in kinds.items() if count}

    def statistic(self, norms: Tensor, owners: Tensor, clip_norms: Tensor) -> Bounded:
        edges = norms.double().new_tensor(self.edges)
        bins_of = (norms.double()[:, None] > edges).sum(1)
        return histogram(bins_of, len(self.edges), owners, clip_norms)

    def observe(
        self, holders: Tensor, statistic: Visible | None, gradients: Visible, denominators: Tensor
    ) -> None:
        if statistic is None:
            return
        noised = seen(statistic, "a clipper")
        for holder, counts in zip(holders.tolist(), noised.tolist(), strict=True):
            index = median_bin(counts)
            if index is not None:
                self._norms[holder] = self.edges[index]

    def describe(self) -> str:
        return (
            f"the median bin of a noised histogram ({len(self.edges)} bins up to {self.edges[-1]:g}), "
            f"{counted(self.updates, 'update')}, one every "
            f"{counted(self.update_interval, 'round')}, from {self.initial:g}"
        )


def _schedule(interval: int | None, updates: int | None, rounds: int | None) -> tuple[int, int]:
    """Return the rounds between two updates and the number of planned updates."""
    if rounds is not None:
        _fit(interval, updates, rounds)
    if interval is not None and updates is not None:
        return interval, updates
    if rounds is None:
        name = "updates" if updates is None else "update_interval"
        hint = "the noise is calibrated to all planned updates; with rounds=null give both"
        raise ArgumentError(name, None, "a whole number >= 1 when rounds is null", hint)
    if interval is not None:
        return interval, rounds // interval
    if updates is None:
        raise ArgumentError("update_interval", None, "a whole number >= 1, or updates given")
    return rounds // updates, updates


def _fit(interval: int | None, updates: int | None, rounds: int) -> None:
    """Refuse more updates than the rounds have room for: the noise would be calibrated to all of them."""
    if interval is not None and interval > rounds:
        raise ArgumentError("update_interval", interval, f"<= {rounds}, the number of rounds")
    fit = rounds // (interval or 1)
    if updates is not None and updates > fit:
        why = "the number of rounds"
        if interval is not None:
            why = f"which fit into {counted(rounds, 'round')} with update_interval = {interval}"
        raise ArgumentError("updates", updates, f"<= {fit}, {why}")
