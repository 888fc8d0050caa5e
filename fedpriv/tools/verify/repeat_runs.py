"""The same round released many times: what a clipper or a schedule asks is a number or few, and a round gives
one sample of its noise; thousands are needed.

Each time the round is opened anew by the mechanism, with another noise key, and given a copy of the same
answers; of a gradient only its first numbers.
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
from fedpriv.tools.verify.noise import NoiseSample
from fedpriv.tools.verify.probes import AFTER, BEFORE, Recording, ReleasePosition
from fedpriv.tools.verify.table import Check

_BESIDE = 8  # numbers of a gradient that are released beside a small answer

Anew = Callable[[SecretStreams], OpenRound]
"""Opens the same round once more, with other streams."""


def queries_of(opened: OpenRound) -> dict[str, Query]:
    """Return every query that a round announces, by its name."""
    samples = (s for group in opened.announcement.groups for s in group.samples)
    return {query.name: query for sample in samples for query in sample.joint.queries}


def with_values(answer: Bounded, values: Tensor) -> Bounded:
    """Return the answer with other values, which its release may overwrite."""
    made = copy.copy(answer)
    made.values = values
    return made


def released_again(
    anew: Anew, streams: SecretStreams, step: int, answers: Mapping[str, Bounded]
) -> dict[str, Tensor]:
    """Open a round anew with these streams and return what it releases of each answer [rows, d], float64."""
    opened = anew(streams)
    if step == AFTER:
        ((name, answer),) = answers.items()
        visible = {name: opened.release_after(name, answer)}
    else:
        if step == 0 and GRADIENT in answers:  # drawn before it is wanted, as in a run
            opened.begin_step(answers[GRADIENT].values[0].numel())
        visible = opened.release(answers)
    return {
        name: value.values.detach().reshape(len(value.values), -1).double().cpu()
        for name, value in visible.items()
    }


class RepeatedReleases:
    """Collects releases of small answers: ``values`` [times, rows, numbers] of each place."""

    def __init__(self, streams: SecretStreams, wanted: int, rounds: int, width: int):
        """``wanted``: samples in all; ``width``: numbers of a gradient, which has enough of its own."""
        self._streams, self._wanted, self._rounds, self._width = streams, wanted, rounds, width
        self.values: dict[ReleasePosition, np.ndarray] = {}
        self.beside: dict[ReleasePosition, np.ndarray] = {}

    def __call__(self, anew: Anew, t: int, step: int, answers: Mapping[str, Bounded]) -> None:
        small = {n: a for n, a in answers.items() if a.values[0].numel() != self._width}
        if not small or step > 0:
            return
        numbers = min(a.values.numel() for a in small.values())
        rounds = 1 if step == BEFORE else self._rounds
        times = 2 + math.ceil(self._wanted / (numbers * rounds))
        found: dict[str, list[np.ndarray]] = {name: [] for name in answers}
        for i in range(times):
            streams = self._streams.with_noise(derived_key(self._streams.noise_key, "again", i))
            copied = {
                name: with_values(a, (a.values if name in small else a.values[:, :_BESIDE]).clone())
                for name, a in answers.items()
            }
            for name, rows in released_again(anew, streams, step, copied).items():
                found[name].append(rows.numpy())
        for name, values in found.items():
            kept = self.values if name in small else self.beside
            kept[ReleasePosition(t, step, name)] = np.stack(values)

    def _of(
        self, name: str, said: Mapping[ReleasePosition, LedgerClaim], family: str
    ) -> Iterator[tuple[ReleasePosition, np.ndarray, LedgerClaim]]:
        for place, values in self.values.items():
            if place.name == name and said[place].family == family:
                yield place, values, said[place]

    def noise(
        self, name: str, recording: Recording, said: Mapping[ReleasePosition, LedgerClaim]
    ) -> tuple[list[NoiseSample], np.ndarray]:
        """Return the noise of the small answers of this name: standardised contrasts, of which a row has all
        times one after the other; and what left minus the exact answers, in units of the noted deviation."""
        samples, direct = [], [np.zeros(0)]
        for place, values, claim in self._of(name, said, GAUSSIAN):
            clients = recording.clients_of_rows(place, values.shape[1])
            samples.append(NoiseSample(place, 0, standardised(values, claim), clients))
            exact = recording.seen[place].exact.cpu().numpy()
            direct.append(((values - exact) / claim.noted[None, :, None]).reshape(-1))
        return samples, np.concatenate(direct)

    def of_bits(
        self, name: str, recording: Recording, said: Mapping[ReleasePosition, LedgerClaim]
    ) -> Iterator[Check]:
        """Hold how many ones are counted among flipped bits against flips with the charged probability."""
        normals = []
        uniforms = np.random.default_rng(int.from_bytes(self._streams.noise_key[:8], "little"))
        for place, values, claim in self._of(name, said, BIT):
            # released are sums of m centred bits, k of them ones
            flip = flip_probability(cast("RandomizedBit", claim.query).epsilon)
            m = len(recording.cohorts[place.round_index])
            k = round(float(recording.seen[place].exact.reshape(-1)[0]) + m / 2.0)
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
            weight=8.0,
            note=f"{name} is not flipped with the probability that is charged",
        )

    def between(self, name: str, said: Mapping[ReleasePosition, LedgerClaim]) -> Iterator[Check]:
        """Test that the noise of a small answer tells nothing of the gradient's, released beside it."""
        found = []
        for place, values, claim in self._of(name, said, GAUSSIAN):
            beside = next((p for p in self.beside if p[:2] == place[:2]), None)
            if beside is None or said[beside].family != GAUSSIAN:
                continue
            small = standardised(values, claim)[:, :: max(1, values.shape[2])]
            large = _contrasts(self.beside[beside]) / said[beside].std[None, :, None]
            for row in range(large.shape[1]):
                mine = small[min(row, len(small) - 1)][: len(large)]
                found.append(mine @ large[:, row] / np.linalg.norm(mine))
        if not found:
            return
        shared = np.concatenate(found)
        yield Check(
            "independence",
            f"{name}: of the gradient's noise",
            f"largest {np.abs(shared).max():.2f} std of {shared.size:,}",
            "normal",
            statistics.smallest(statistics.normal_p(shared)),
            note=f"the noise of {name} and that of the gradient have something in common",
        )


def standardised(values: np.ndarray, said: LedgerClaim) -> np.ndarray:
    """Return noise in units of the ledger's standard deviation [rows, times - 1 times numbers]."""
    noise = _contrasts(values) / said.std[None, :, None]
    return noise.transpose(1, 0, 2).reshape(noise.shape[1], -1)


def _contrasts(values: np.ndarray) -> np.ndarray:
    """Return orthonormal contrasts of repeated releases [times, …] → [times - 1, …], free of the mean."""
    return fft.dct(values, axis=0, norm="ortho")[1:]
