"""Noise really added, and its independence.

The same round is released under several noise keys, from the same data, lots and public state. Helmert's
contrasts of what leaves under J + 1 keys are J independent samples of the noise alone, however it got there;
divided by the ledger's noise multiplier × sensitivity they are standard normals.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import stats
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
        """Keep what left minus the exact answer: one sample for each key, of which few are enough."""
        said, kept = self._statements.get(place), self.direct.setdefault(place.name, [])
        if said is not None and sum(v.size for v in kept) < _SHAPED:
            found = (values.double() - self._reference.seen[place].exact).cpu().numpy()
            found = (found / said.noted[:, None]).reshape(-1)
            kept.append(found[:: max(1, found.size // _SHAPED)])

    def see(self, place: ReleasePosition, values: Tensor) -> None:
        """Take a release under another key."""
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
        clients = self._reference.clients_of_rows(place, len(found))
        step = max(1, found.size // _KEPT)
        self.samples.append(NoiseSample(place, keys, found[:, ::step].astype(np.float32), clients))


def checks(
    name: str,
    samples: list[NoiseSample],
    direct: np.ndarray,
    extra: float,
    layers: list[tuple[str, slice]],
) -> Iterator[Check]:
    """Check the noise of one query. ``direct``: what left minus the exact answers; ``extra``: by how much
    more noise the releases note than is charged."""
    squares = np.array([(s.values.astype(np.float64) ** 2).sum() for s in samples])
    total, count = float(squares.sum()), sum(s.values.size for s in samples)
    ratio = math.sqrt(total / count)
    low, high = stats.chi2.cdf(total, count), stats.chi2.sf(total / extra**2, count)
    if not math.isfinite(total):
        low = high = 0.0
    yield Check(
        "noise",
        f"std of {name} ÷ the ledger's",
        f"{ratio:.4f} ({count:,} numbers)",
        "1" if extra == 1 else f"1 to {extra:.4g}",
        float(statistics.two_sided(low, high)),
        weight=OVERALL_WEIGHT,
        note=f"the noise of {name} has {ratio:.4g} times the standard deviation that the ledger charges",
    )
    if extra == 1.0:
        yield from _by_part(name, samples, layers)
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


def _by_part(
    name: str, samples: list[NoiseSample], layers: list[tuple[str, slice]]
) -> Iterator[Check]:
    """Test each round, client, layer and number: noise may be right on the whole and wrong in one of them."""
    parts: dict[str, dict[Any, list[float]]] = {"round": {}, "client": {}, "layer": {}}
    for sample in samples:
        step = f", step {sample.place.step + 1}" if sample.place.step > 0 else ""
        statistics.add_squares(parts["round"], f"{sample.place.number}{step}", sample.values)
        for client, row in zip(sample.clients, sample.values, strict=True):
            if client >= 0:
                statistics.add_squares(parts["client"], int(client), row)
        if layers and sample.values.shape[1] == layers[-1][1].stop:
            for layer, place in layers:
                statistics.add_squares(parts["layer"], layer, sample.values[:, place])
    parts = {kind: sums for kind, sums in parts.items() if len(sums) > 1}
    width = samples[0].values.shape[1]
    if width > 1 and all(s.values.shape[1] == width for s in samples):
        squares = sum((s.values.astype(np.float64) ** 2).sum(0) for s in samples)
        count = sum(len(s.values) for s in samples)
        parts["number"] = {i: [square, count] for i, square in enumerate(squares)}
    for kind, sums in parts.items():
        where, ratio, p = statistics.worst_spread(sums)
        yield Check(
            "noise",
            f"{name}: worst {kind} of {len(sums):,}",
            f"{ratio:.3f} ({kind} {where})",
            "1",
            p,
            note=f"in {kind} {where} the noise has {ratio:.4g} times the standard deviation it is charged "
            "for",
        )


# ---- independence


def independence(name: str, samples: list[NoiseSample]) -> Iterator[Check]:
    """Test independence over rounds and steps, over clients, over the numbers of a vector."""
    samples = [s for s in samples if np.isfinite(s.values).all()]
    if not samples or samples[0].values.shape[1] < 2:
        return
    keys = sorted({s.key for s in samples})[:4]
    for what in ("rounds and steps", "clients"):
        found = []
        for key in keys:
            own = [s.values for s in samples if s.key == key]
            if what == "clients":  # a vector for each client and release
                vectors = own if max(map(len, own)) > 1 else []
            else:  # a long one for each release
                rows = min(map(len, own))
                vectors = [values[:rows].reshape(1, -1) for values in own] if len(own) > 1 else []
            if vectors:
                stack = np.concatenate(vectors).astype(float)
                stack = stack[:, :: max(1, stack.shape[1] // _LONGEST)]
                found.append(statistics.off_diagonal(stack[: min(_AT_MOST, stack.shape[1])]))
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
    yield from _over_numbers(name, samples)


def _over_numbers(name: str, samples: list[NoiseSample]) -> Iterator[Check]:
    """Test each number with that ℓ places further on, for every distance ℓ."""
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
        return
    found = products[enough] / np.sqrt(pairs[enough])
    at = int(np.argmax(np.abs(found)))
    yield Check(
        "independence",
        f"{name}: over numbers",
        f"largest {abs(found[at]):.2f} std (distance {at + 1})",
        "normal",
        statistics.smallest(statistics.normal_p(found)),
        note=f"numbers {at + 1} places apart have noise in common",
    )


def repeated_numbers(
    reference: Recording, said: dict[ReleasePosition, LedgerClaim]
) -> Iterator[Check]:
    """Look for the same noise in another order or with other signs in two vectors: by its largest numbers."""
    marks, rows = [], 0
    for place in said:
        seen = reference.seen[place]
        if seen.values.shape[1] < _SAME_ORDER:
            continue
        found = (seen.values.double() - seen.exact).abs().cpu().numpy() / said[place].noted[:, None]
        marks.append(-np.sort(-found, axis=1)[:, :_LARGEST])
        rows += len(found)
    if rows < 2:
        return
    ordered = np.concatenate(marks)
    ordered = ordered[np.lexsort(ordered.T[::-1])]
    same = int((np.abs(np.diff(ordered, axis=0)).max(axis=1) < _ALIKE).sum())
    yield Check(
        "independence",
        "the same noise in another order",
        f"{same} of {rows:,} vectors",
        "0",
        passed=same == 0,
        note="two releases hold the same noise, in another order or with other signs",
    )
