"""Noise really added, and its independence.

The same round is released under several noise keys, from the same data, lots and public state. Helmert's
contrasts of what leaves under J + 1 keys are J independent samples of the noise alone, however it got there;
divided by the ledger's noise multiplier × sensitivity they are standard normals.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import Tensor

from fedpriv.tools.verify import statistics
from fedpriv.tools.verify.ledger_claims import LedgerClaim
from fedpriv.tools.verify.probes import Recording, ReleasePosition
from fedpriv.tools.verify.table import Check

OVERALL_WEIGHT = 8.0
_SHAPED = 200_000  # numbers whose distribution is looked at
_KEPT = 2_000_000  # numbers kept of one release at most, for tests of shape and independence
_AT_MOST = 160  # vectors compared with each other
_LONGEST = 20_000  # numbers of a vector that is compared with others
_FEWEST_PAIRS = 500
_SAME_ORDER, _LARGEST, _ALIKE = 64, 8, 1e-3
"""Of vectors at least so long the largest numbers are compared; by chance eight are never this close."""


@dataclass(frozen=True)
class NoiseSample:
    """Standardised noise [rows, d] of one release under one more key. ``clients``: of each row."""

    place: ReleasePosition
    key: int
    values: np.ndarray
    clients: np.ndarray


class Contrasts:
    """Turns releases under further keys into noise, one key after the other."""

    def __init__(self, reference: Recording, statements: dict[ReleasePosition, LedgerClaim]):
        self._reference, self._statements = reference, statements
        self._means = {place: seen.values.double() for place, seen in reference.seen.items()}
        self._keys = dict.fromkeys(reference.seen, 1)
        self.samples: list[NoiseSample] = []
        self.direct: dict[str, list[np.ndarray]] = {}
        for place, seen in reference.seen.items():
            self._keep_direct(place, seen.values)

    def _keep_direct(self, place: ReleasePosition, values: Tensor) -> None:
        """What left minus the exact answer: one sample for each key, of which few are enough."""
        said, kept = self._statements.get(place), self.direct.setdefault(place.name, [])
        if said is not None and sum(v.size for v in kept) < _SHAPED:
            found = (values.double() - self._reference.seen[place].exact).cpu().numpy()
            found = (found / said.noted[:, None]).reshape(-1)
            kept.append(found[:: max(1, found.size // _SHAPED)])

    def see(self, place: ReleasePosition, values: Tensor) -> None:
        """A release under another key."""
        said = self._statements.get(place)
        mean = self._means.get(place)
        if said is None or mean is None or mean.shape != values.shape:
            return
        keys = self._keys[place]
        self._keep_direct(place, values)
        difference = values.double() - mean
        self._means[place] = mean + difference / (keys + 1)
        self._keys[place] = keys + 1
        difference *= math.sqrt(keys / (keys + 1.0))
        found = difference.cpu().numpy() / said.std[:, None]
        cohort = self._reference.cohorts[place.round_index]
        clients = cohort if len(found) == len(cohort) else np.full(len(found), -1)
        step = max(1, found.size // _KEPT)
        self.samples.append(NoiseSample(place, keys, found[:, ::step].astype(np.float32), clients))


def checks(
    name: str,
    samples: list[NoiseSample],
    direct: np.ndarray,
    extra: float,
    layers: list[tuple[str, slice]],
) -> Iterator[Check]:
    """All about the noise of one query. ``direct``: what left minus the exact answers; ``extra``: by how much
    more noise the releases note than is charged."""
    squares = np.array([_squares(s.values) for s in samples])
    counts = np.array([s.values.size for s in samples])
    total, count = float(squares.sum()), int(counts.sum())
    ratio = math.sqrt(total / count)
    low = statistics.chi2_low(total, count)
    high = statistics.chi2_high(total / extra**2, count)
    found = f"{ratio:.4f} ({count:,} numbers)"
    if not math.isfinite(total):
        low = high = 0.0
    yield Check(
        "noise",
        f"std of {name} ÷ the ledger's",
        found,
        "1" if extra == 1 else f"1 to {extra:.4g}",
        statistics.two_sided(low, high),
        weight=OVERALL_WEIGHT,
        note=f"the noise of {name} has {ratio:.4g} times the standard deviation that the ledger charges",
    )
    yield from _by_part(name, samples, layers, extra)
    shape = largest = 0.0
    if finite := bool(direct.size and np.isfinite(direct).all()):
        shape, largest = statistics.shape_p(direct), statistics.largest_p(direct)
    yield Check(
        "noise",
        f"{name}: shape",
        f"largest {np.abs(direct).max():.2f} std" if finite else "not finite",
        "normal",
        statistics.smallest([shape, largest]),
        note="what left minus the exact answer is not normally distributed",
    )


def _squares(values: np.ndarray) -> float:
    return float((values.astype(np.float64) ** 2).sum())


def _by_part(
    name: str, samples: list[NoiseSample], layers: list[tuple[str, slice]], extra: float
) -> Iterator[Check]:
    """Noise that is right on the whole may be wrong in a round, for a client, in a layer or a number."""
    if extra != 1.0:
        return
    parts: dict[str, dict[Any, list[float]]] = {"round": {}, "client": {}, "layer": {}}

    def enter(kind: str, key: object, values: np.ndarray) -> None:
        found = parts[kind].setdefault(key, [0.0, 0.0])
        found[0] += _squares(values)
        found[1] += values.size

    for sample in samples:
        enter("round", (sample.place.number, sample.place.step + 1), sample.values)
        for client, row in zip(sample.clients, sample.values, strict=True):
            if client >= 0:
                enter("client", int(client), row)
        if layers and sample.values.shape[1] == layers[-1][1].stop:
            for layer, place in layers:
                enter("layer", layer, sample.values[:, place])
    for kind, of in parts.items():
        if len(of) > 1:
            yield _worst(name, kind, of)
    coordinates = _by_coordinate(samples)
    if coordinates is not None:
        yield _worst(name, "number", dict(enumerate(coordinates)))


def _by_coordinate(samples: list[NoiseSample]) -> np.ndarray | None:
    """[d, 2]: sum of squares and count of each number of the vector."""
    width = samples[0].values.shape[1]
    if width < 2 or any(s.values.shape[1] != width for s in samples):
        return None
    squares = sum((s.values.astype(np.float64) ** 2).sum(0) for s in samples)
    counts = np.full(width, sum(len(s.values) for s in samples))
    return np.stack([squares, counts], axis=1)


def _worst(name: str, kind: str, of: Mapping[Any, Iterable[float]]) -> Check:
    table = np.array([list(entry) for entry in of.values()], dtype=float)
    p_values = statistics.squares_p(table[:, 0], table[:, 1])
    p_values = np.where(np.isfinite(p_values), p_values, 0.0)
    at = int(np.argmin(p_values))
    ratio = math.sqrt(table[at, 0] / table[at, 1])
    where = list(of)[at]
    if kind == "round":
        where = f"{where[0]}" + (f", step {where[1]}" if where[1] > 1 else "")
    return Check(
        "noise",
        f"{name}: worst {kind} of {len(of):,}",
        f"{ratio:.3f} ({kind} {where})",
        "1",
        statistics.smallest(p_values),
        note=f"in {kind} {where} the noise has {ratio:.4g} times the standard deviation it is charged for",
    )


# ---- independence


def independence(name: str, samples: list[NoiseSample]) -> Iterator[Check]:
    """Over rounds and steps, over clients, over the numbers of a vector."""
    samples = [s for s in samples if np.isfinite(s.values).all()]
    if not samples or samples[0].values.shape[1] < 2:
        return
    keys = sorted({s.key for s in samples})[:4]
    over_rounds = [
        statistics.off_diagonal(v) for key in keys if (v := _rounds(samples, key)) is not None
    ]
    over_clients = [
        statistics.off_diagonal(v) for key in keys if (v := _rows(samples, key)) is not None
    ]
    for what, found in (("rounds and steps", over_rounds), ("clients", over_clients)):
        shared = np.concatenate(found) if found else np.zeros(0)
        if shared.size:
            yield Check(
                "independence",
                f"{name}: over {what}",
                f"largest {np.abs(shared).max():.2f} std of {shared.size:,}",
                "normal",
                statistics.common_p(shared),
                note=f"the noise of {name} in one place tells of that in another ({what})",
            )
    if (check := _over_numbers(name, samples)) is not None:
        yield check


def _rounds(samples: list[NoiseSample], key: int) -> np.ndarray | None:
    """One long vector for each release."""
    own = [s for s in samples if s.key == key]
    rows = min(len(s.values) for s in own)
    vectors = np.stack([s.values[:rows].reshape(-1) for s in own]).astype(float)
    vectors = vectors[:, :: max(1, vectors.shape[1] // _LONGEST)]
    most = min(_AT_MOST, vectors.shape[1])
    return vectors[:most] if len(vectors) > 1 else None


def _rows(samples: list[NoiseSample], key: int) -> np.ndarray | None:
    """One vector for each client and release."""
    own = [s for s in samples if s.key == key]
    if all(len(s.values) < 2 for s in own):
        return None
    vectors = np.concatenate([s.values for s in own]).astype(float)
    vectors = vectors[:, :: max(1, vectors.shape[1] // _LONGEST)]
    return vectors[: min(_AT_MOST, vectors.shape[1])]


def _over_numbers(name: str, samples: list[NoiseSample]) -> Check | None:
    """Of each number with that ℓ places further on, for every distance ℓ."""
    width = samples[0].values.shape[1]
    rows = np.concatenate([s.values for s in samples if s.values.shape[1] == width])
    rows = rows[:: max(1, rows.size // _KEPT)].astype(float)
    size = 1 << (2 * width - 1).bit_length()
    power = np.zeros(size // 2 + 1)
    for row in rows:
        power += np.abs(np.fft.rfft(row, size)) ** 2
    products = np.fft.irfft(power, size)[1:width]
    pairs = len(rows) * np.arange(width - 1, 0, -1)
    enough = pairs >= _FEWEST_PAIRS
    if not enough.any():
        return None
    found = products[enough] / np.sqrt(pairs[enough])
    at = int(np.argmax(np.abs(found)))
    p_values = [statistics.normal_two_sided(float(found[at]))]
    return Check(
        "independence",
        f"{name}: over numbers",
        f"largest {abs(found[at]):.2f} std (distance {at + 1})",
        "normal",
        min(1.0, len(found) * p_values[0]),
        note=f"numbers {at + 1} places apart have noise in common",
    )


def repeated_numbers(
    reference: Recording, said: dict[ReleasePosition, LedgerClaim]
) -> Check | None:
    """Whether two vectors hold the same noise in another order or with other signs: by its largest
    numbers."""
    marks, rows = [], 0
    for place in said:
        seen = reference.seen[place]
        if seen.values.shape[1] < _SAME_ORDER:
            continue
        found = (seen.values.double() - seen.exact).abs().cpu().numpy() / said[place].noted[:, None]
        marks.append(-np.sort(-found, axis=1)[:, :_LARGEST])
        rows += len(found)
    if rows < 2:
        return None
    ordered = np.concatenate(marks)
    ordered = ordered[np.lexsort(ordered.T[::-1])]
    same = int((np.abs(np.diff(ordered, axis=0)).max(axis=1) < _ALIKE).sum())
    return Check(
        "independence",
        "the same noise in another order",
        f"{same} of {rows:,} vectors",
        "0",
        passed=same == 0,
        note="two releases hold the same noise, in another order or with other signs",
    )
