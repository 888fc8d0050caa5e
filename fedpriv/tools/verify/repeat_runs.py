"""The same round released many times: what a clipper or a schedule asks is a number or few, and a round gives
one sample of its noise; thousands are needed.

Each time the round is opened anew by the mechanism, with another noise key, and given a copy of the same
answers; of a gradient only its first numbers.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np
from scipy import fft, stats

from fedpriv.common.secret_streams import SecretStreams, derived_key
from fedpriv.privacy.mechanisms import Bounded, OpenRound, RandomizedBit
from fedpriv.privacy.mechanisms.randomized_response import flip_probability
from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.ledger_claims import BIT, GAUSSIAN, LedgerClaim
from fedpriv.tools.verify.noise import NoiseSample
from fedpriv.tools.verify.probes import AFTER, BEFORE, Recording, ReleasePosition
from fedpriv.tools.verify.table import Check

_BESIDE = 8  # numbers of a gradient that are released beside a small answer


class RepeatedReleases:
    """Collects releases of small answers: ``values`` [times, rows, numbers] of each place."""

    def __init__(self, streams: SecretStreams, wanted: int, rounds: int, width: int):
        """``wanted``: samples in all; ``width``: numbers of a gradient, which has enough of its own."""
        self._streams, self._wanted, self._rounds, self._width = streams, wanted, rounds, width
        self.values: dict[ReleasePosition, np.ndarray] = {}
        self.beside: dict[ReleasePosition, np.ndarray] = {}

    def __call__(
        self,
        anew: Callable[[SecretStreams], OpenRound],
        t: int,
        step: int,
        answers: Mapping[str, Bounded],
    ) -> None:
        small = {n: a for n, a in answers.items() if a.values[0].numel() != self._width}
        if not small or step > 0:
            return
        numbers = min(a.values.numel() for a in small.values())
        rounds = 1 if step == BEFORE else self._rounds
        times = 2 + math.ceil(self._wanted / (numbers * rounds))
        found: dict[str, list[np.ndarray]] = {name: [] for name in answers}
        for i in range(times):
            key = derived_key(self._streams.noise_key, "again", i)
            opened = anew(self._streams.with_noise(key))
            copied = {name: _copied(a, name in small) for name, a in answers.items()}
            if step == AFTER:
                ((name, answer),) = copied.items()
                visible = {name: opened.release_after(name, answer)}
            else:
                visible = opened.release(copied)
            for name, value in visible.items():
                flat = value.values.detach().reshape(len(value.values), -1)
                found[name].append(flat.double().cpu().numpy())
        for name, values in found.items():
            kept = self.values if name in small else self.beside
            kept[ReleasePosition(t, step, name)] = np.stack(values)

    def samples(
        self, name: str, recording: Recording, said: Mapping[ReleasePosition, LedgerClaim]
    ) -> list[NoiseSample]:
        """Standardised noise of the small answers of this name; a row has all times one after the other."""
        found = []
        for place, values in self.values.items():
            if place.name == name and said[place].family == GAUSSIAN:
                cohort = recording.cohorts[place.round_index]
                rows = values.shape[1]
                clients = cohort if rows == len(cohort) else np.full(rows, -1)
                found.append(NoiseSample(place, 0, standardised(values, said[place]), clients))
        return found

    def direct(
        self, name: str, recording: Recording, said: Mapping[ReleasePosition, LedgerClaim]
    ) -> np.ndarray:
        """What left minus the exact answers, in units of the noted standard deviation."""
        found = [
            (values - recording.seen[place].exact.cpu().numpy()) / said[place].noted[None, :, None]
            for place, values in self.values.items()
            if place.name == name and said[place].family == GAUSSIAN
        ]
        return np.concatenate([one.reshape(-1) for one in found]) if found else np.zeros(0)

    def of_bits(
        self, name: str, recording: Recording, said: Mapping[ReleasePosition, LedgerClaim]
    ) -> list[Check]:
        """Flipped bits: how many ones are counted, against flips with the charged probability."""
        normals, ones_seen = [], 0
        uniforms = np.random.default_rng(int.from_bytes(self._streams.noise_key[:8], "little"))
        for place, values in self.values.items():
            if place.name != name or said[place].family != BIT:
                continue
            query = cast("RandomizedBit", said[place].query)
            counted, below, exactly = _law(query, values.reshape(-1), recording, place)
            normals.append(statistics.as_normals(below, exactly, uniforms.random(len(counted))))
            ones_seen += len(counted)
        if not normals:
            return []
        together = np.concatenate(normals)
        p = statistics.smallest([statistics.sum_p(together), statistics.spread_p(together)])
        spread = (
            f"{np.sqrt(np.mean(together**2)):.4f}" if np.isfinite(together).all() else "impossible"
        )
        return [
            Check(
                "noise",
                f"flips of {name}: spread ÷ the ledger's",
                f"{spread} ({ones_seen:,} counts)",
                "1",
                p,
                weight=8.0,
                note=f"{name} is not flipped with the probability that is charged",
            )
        ]

    def between(self, name: str, said: Mapping[ReleasePosition, LedgerClaim]) -> list[Check]:
        """Whether the noise of a small answer tells of the gradient's, released beside it."""
        found = []
        for place, values in self.values.items():
            beside = [p for p in self.beside if p[:2] == place[:2]]
            if place.name != name or not beside or said[place].family != GAUSSIAN:
                continue
            if said[beside[0]].family != GAUSSIAN:
                continue
            small = standardised(values, said[place])[:, :: max(1, values.shape[2])]
            large = _contrasts(self.beside[beside[0]]) / said[beside[0]].std[None, :, None]
            for row in range(large.shape[1]):
                mine = small[min(row, len(small) - 1)][: len(large)]
                products = mine @ large[:, row] / np.linalg.norm(mine)
                found.append(products)
        if not found:
            return []
        shared = np.concatenate(found)
        return [
            Check(
                "independence",
                f"{name}: of the gradient's noise",
                f"largest {np.abs(shared).max():.2f} std of {shared.size:,}",
                "normal",
                statistics.smallest([statistics.normal_two_sided(float(x)) for x in shared]),
                note=f"the noise of {name} and that of the gradient have something in common",
            )
        ]


def standardised(values: np.ndarray, said: LedgerClaim) -> np.ndarray:
    """Noise in units of the ledger's standard deviation [rows, times - 1 times numbers]."""
    noise = _contrasts(values) / said.std[None, :, None]
    return noise.transpose(1, 0, 2).reshape(noise.shape[1], -1)


def _contrasts(values: np.ndarray) -> np.ndarray:
    """Orthonormal contrasts of repeated releases [times, …] → [times - 1, …]: what is common is gone."""
    return fft.dct(values, axis=0, norm="ortho")[1:]


def _copied(answer: Bounded, whole: bool) -> Bounded:
    made = copy.copy(answer)
    values = answer.values if whole else answer.values[:, :_BESIDE]
    made.values = values.clone()
    return made


def _law(
    query: RandomizedBit, values: np.ndarray, recording: Recording, place: ReleasePosition
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(counts of ones, P(fewer), P(as many)) of released sums of m centred bits, k of them ones."""
    m = len(recording.cohorts[place.round_index])
    flip = flip_probability(query.epsilon)
    k = round(float(recording.seen[place].exact.reshape(-1)[0]) + m / 2.0)
    counts = np.rint((values + m / 2.0) * (1.0 - 2.0 * flip) + m * flip).astype(int)
    law = np.convolve(
        stats.binom.pmf(np.arange(k + 1), k, 1.0 - flip),
        stats.binom.pmf(np.arange(m - k + 1), m - k, flip),
    )
    below = np.concatenate([[0.0], np.cumsum(law)])
    inside = np.clip(counts, 0, m)
    exactly = np.where(counts == inside, law[inside], 0.0)
    return counts, below[inside], exactly
