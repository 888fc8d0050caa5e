"""Repeated releases of one round, for answers of few numbers.

A clipper or a schedule asks for a number or a few, so one round gives one sample of the noise of such an
answer. The tests need thousands of samples. The mechanism therefore opens the same round again and again,
each time with another noise key, and releases a copy of the same answers. Of a gradient only the first
numbers are released.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import numpy as np
from scipy import fft, stats
from torch import Tensor

from fedpriv.common.secret_streams import SecretStreams, derived_key
from fedpriv.privacy.mechanisms import GRADIENT, Bounded, OpenRound, Query, RandomizedBit
from fedpriv.privacy.mechanisms.randomized_response import flip_probability
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.ledger_claims import BIT, GAUSSIAN, LedgerClaim
from fedpriv.tools.verify.noise import OVERALL_WEIGHT, NoiseSample, common_noise
from fedpriv.tools.verify.probes import AFTER, BEFORE, Recording, ReleasePosition, Reopen
from fedpriv.tools.verify.table import Check

_GRADIENT_NUMBERS = 8  # numbers of a gradient that are released beside a small answer


def queries_of(opened: OpenRound) -> dict[str, Query]:
    """Return every query that a round announces, by its name."""
    samples = (s for group in opened.announcement.groups for s in group.samples)
    return {query.name: query for sample in samples for query in sample.joint.queries}


def release_again(
    reopen: Reopen,
    streams: SecretStreams,
    key: tuple[str | int, ...],
    step: int,
    answers: Mapping[str, Bounded],
    values_of: Callable[[str, Tensor], Tensor],
) -> dict[str, Tensor]:
    """Open a round once more under another noise key, and release changed copies of its answers.

    Args:
        reopen: Function that opens the round.
        streams: Streams of the repetitions. The noise key is derived from their key and ``key``.
        key: Name of the new noise key.
        step: Local step, or ``AFTER`` or ``BEFORE``.
        answers: Answers of the round. They stay as they are.
        values_of: Function (name, values of an answer) -> values that are released instead. They are copied,
            because a release may overwrite its values.

    Returns:
        The released rows [rows, d] of each answer, in float64.
    """
    copies = {}
    for name, answer in answers.items():
        copies[name] = copy.copy(answer)
        copies[name].values = values_of(name, answer.values).clone()
    opened = reopen(streams.with_noise(derived_key(streams.noise_key, *key)))
    if step == AFTER:
        ((name, answer),) = copies.items()
        visible = {name: opened.release_after(name, answer)}
    else:
        if step == 0 and GRADIENT in copies:  # a run, too, draws this noise before it is needed
            opened.begin_step(copies[GRADIENT].values[0].numel())
        visible = opened.release(copies)
    return {
        name: value.values.detach().reshape(len(value.values), -1).double().cpu()
        for name, value in visible.items()
    }


class RepeatedReleases:
    """A collector of repeated releases of small answers.

    Attributes:
        values: Releases [times, rows, numbers] of each small answer.
        beside: Releases [times, rows, numbers] of the gradient that was released at the same time.
    """

    def __init__(self, streams: SecretStreams, samples: int, rounds: int, width: int):
        """Start without releases.

        Args:
            streams: Streams of the repetitions.
            samples: How many values of noise to collect for each query, over all rounds together.
            rounds: Number of rounds of the run.
            width: Length d of a gradient. An answer of this length is not repeated for its own sake,
                because one release of it has enough values.
        """
        self._streams, self._samples, self._rounds, self._width = streams, samples, rounds, width
        self.values: dict[ReleasePosition, np.ndarray] = {}
        self.beside: dict[ReleasePosition, np.ndarray] = {}

    def __call__(self, reopen: Reopen, t: int, step: int, answers: Mapping[str, Bounded]) -> None:
        """Release the small answers of a round as often as the tests need it.

        Only the first local step of each round is repeated, and the gradient's first numbers go along.
        """
        small = {n: a for n, a in answers.items() if a.values[0].numel() != self._width}
        if not small or step > 0:
            return
        numbers = min(a.values.numel() for a in small.values())
        rounds = 1 if step == BEFORE else self._rounds
        # n releases give n - 1 contrasts, so a few more are made than numbers are needed.
        times = 2 + math.ceil(self._samples / (numbers * rounds))

        def values_of(name: str, values: Tensor) -> Tensor:
            return values if name in small else values[:, :_GRADIENT_NUMBERS]

        releases: dict[str, list[np.ndarray]] = {name: [] for name in answers}
        for i in range(times):
            rows_of = release_again(reopen, self._streams, ("again", i), step, answers, values_of)
            for name, rows in rows_of.items():
                releases[name].append(rows.numpy())
        for name, rows_of_times in releases.items():
            target = self.values if name in small else self.beside
            target[ReleasePosition(t, step, name)] = np.stack(rows_of_times)

    def _of(
        self, name: str, claims: Mapping[ReleasePosition, LedgerClaim], family: str
    ) -> Iterator[tuple[ReleasePosition, np.ndarray, LedgerClaim]]:
        for position, values in self.values.items():
            if position.name == name and claims[position].family == family:
                yield position, values, claims[position]

    def noise(
        self, name: str, recording: Recording, claims: Mapping[ReleasePosition, LedgerClaim]
    ) -> tuple[list[NoiseSample], np.ndarray]:
        """Return the noise of a query as samples, and directly.

        Returns:
            The samples of standardised noise, the numbers of a row at all times one after the other; and the
            differences between releases and exact answers, in units of the noted standard deviation.
        """
        samples, direct = [], [np.zeros(0)]
        for position, values, claim in self._of(name, claims, GAUSSIAN):
            clients = recording.clients_of_rows(position, values.shape[1])
            samples.append(NoiseSample(position, 0, _standardised(values, claim), clients))
            exact = recording.seen[position].exact.cpu().numpy()
            direct.append(((values - exact) / claim.noted[None, :, None]).reshape(-1))
        return samples, np.concatenate(direct)

    def of_bits(
        self, name: str, recording: Recording, claims: Mapping[ReleasePosition, LedgerClaim]
    ) -> Iterator[Check]:
        """Compare the number of ones among flipped bits with flips of the charged probability.

        The sum of m centred bits is released, k of which are ones before they are flipped. The number of ones
        after the flips is Binomial(k, 1 - p) + Binomial(m - k, p).
        """
        normals = []
        uniforms = np.random.default_rng(int.from_bytes(self._streams.noise_key[:8], "little"))
        for position, values, claim in self._of(name, claims, BIT):
            flip = flip_probability(cast("RandomizedBit", claim.query).epsilon)
            m = len(recording.cohorts[position.round_index])
            k = round(float(recording.seen[position].exact.reshape(-1)[0]) + m / 2.0)
            # A release is debiased: (ones - m p) / (1 - 2 p) - m / 2. This undoes it.
            ones = (values.reshape(-1) + m / 2.0) * (1.0 - 2.0 * flip) + m * flip
            law = np.convolve(
                stats.binom.pmf(np.arange(k + 1), k, 1.0 - flip),
                stats.binom.pmf(np.arange(m - k + 1), m - k, flip),
            )
            below, exactly = statistics.tabulated(law, np.rint(ones).astype(int))
            normals.append(statistics.as_normals(below, exactly, uniforms.random(len(ones))))
        if not normals:
            return
        together = np.concatenate(normals)
        spread = (
            f"{np.sqrt(np.mean(together**2)):.4f}" if np.isfinite(together).all() else "impossible"
        )
        yield Check(
            "noise",
            f"flips of {name}: spread ÷ the ledger's",
            f"{spread} ({len(together):,} counts)",
            "1",
            statistics.mean_and_spread_p(together),
            weight=OVERALL_WEIGHT,
            note=f"{name} is not flipped with the probability that is charged",
        )

    def between(self, name: str, claims: Mapping[ReleasePosition, LedgerClaim]) -> Iterator[Check]:
        """Test that the noise of a small answer is independent of the gradient's noise beside it."""
        products = []
        for position, values, claim in self._of(name, claims, GAUSSIAN):
            beside = next((p for p in self.beside if p[:2] == position[:2]), None)
            if beside is None or claims[beside].family != GAUSSIAN:
                continue
            small = _standardised(values, claim)[:, :: max(1, values.shape[2])]
            large = _contrasts(self.beside[beside]) / claims[beside].std[None, :, None]
            for row in range(large.shape[1]):
                small_row = small[min(row, len(small) - 1)][: len(large)]
                products.append(small_row @ large[:, row] / np.linalg.norm(small_row))
        if products:
            shared = np.concatenate(products)
            yield common_noise(
                f"{name}: of the gradient's noise",
                shared,
                statistics.smallest(statistics.normal_p(shared)),
                f"the noise of {name} and the noise of the gradient are not independent",
            )


def _standardised(values: np.ndarray, claim: LedgerClaim) -> np.ndarray:
    """Return noise in units of the ledger's standard deviation [rows, (times - 1) · numbers]."""
    noise = _contrasts(values) / claim.std[None, :, None]
    return noise.transpose(1, 0, 2).reshape(noise.shape[1], -1)


def _contrasts(values: np.ndarray) -> np.ndarray:
    """Return orthonormal contrasts [times - 1, …] of repeated releases [times, …].

    Contrasts are free of the mean, that is of the exact answer, and independent where the noise is.
    """
    return fft.dct(values, axis=0, norm="ortho")[1:]
