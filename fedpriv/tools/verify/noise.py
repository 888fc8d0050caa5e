"""The size, the shape and the independence of the noise that is really added.

The same round is released under several noise keys, from the same data, lots and public state. Helmert's
contrasts of what leaves under J + 1 keys are J independent samples of the noise alone, wherever it was added.
Divided by the ledger's noise multiplier × sensitivity, they are standard normals.
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
"""Weight of the check of all noise of a query, by which it shares the level of false alarms."""
_SHAPED = 200_000  # numbers whose distribution is tested
_KEPT = 2_000_000  # most numbers of one release that are kept for tests of independence
_MOST_VECTORS = 160  # vectors that are compared with each other
_LONGEST = 20_000  # most numbers of a vector that is compared with others
_FEWEST_PAIRS = 500
_SAME_ORDER, _LARGEST, _ALIKE = 64, 8, 1e-3
"""The eight largest numbers of vectors with at least 64 numbers are compared. They never agree to 1e-3 by
chance."""


@dataclass(frozen=True)
class NoiseSample:
    """Standardised noise of one release under one more key.

    Attributes:
        position: The release.
        key: Number of the key.
        values: Noise in units of the ledger's standard deviation [rows, d].
        clients: Client of each row; -1 where rows are not those of clients.
    """

    position: ReleasePosition
    key: int
    values: np.ndarray
    clients: np.ndarray


class Contrasts:
    """A converter from releases under further keys to noise, one key after the other.

    Args:
        reference: A run under the first key.
        claims: What the ledger claims of each release.

    Attributes:
        samples: Helmert's contrasts of the releases so far.
        direct: Differences between releases and exact answers, by query, in units of the noted standard
            deviation.
    """

    def __init__(self, reference: Recording, claims: dict[ReleasePosition, LedgerClaim]):
        self._reference, self._claims = reference, claims
        self._means = {position: seen.values.double() for position, seen in reference.seen.items()}
        self._keys = dict.fromkeys(reference.seen, 1)
        self.samples: list[NoiseSample] = []
        self.direct: dict[str, list[np.ndarray]] = {}
        for position, seen in reference.seen.items():
            self._keep_direct(position, seen.values)

    def _keep_direct(self, position: ReleasePosition, values: Tensor) -> None:
        claim = self._claims.get(position)
        parts = self.direct.setdefault(position.name, [])
        # The test of the shape needs only so many numbers, which are spread over the vector.
        if claim is not None and sum(part.size for part in parts) < _SHAPED:
            noise = (values.double() - self._reference.seen[position].exact).cpu().numpy()
            noise = (noise / claim.noted[:, None]).reshape(-1)
            parts.append(noise[:: max(1, noise.size // _SHAPED)])

    def see(self, position: ReleasePosition, values: Tensor) -> None:
        """Add a release [rows, d] under another key."""
        claim = self._claims.get(position)
        mean = self._means.get(position)
        if claim is None or mean is None or mean.shape != values.shape:
            return
        keys = self._keys[position]
        self._keep_direct(position, values)
        difference = values.double() - mean
        self._means[position] = mean + difference / (keys + 1)
        self._keys[position] = keys + 1
        # Helmert's contrast: the difference from the mean of j keys has the variance (j + 1) / j.
        difference *= math.sqrt(keys / (keys + 1.0))
        noise = difference.cpu().numpy() / claim.std[:, None]
        clients = self._reference.clients_of_rows(position, len(noise))
        step = max(1, noise.size // _KEPT)
        self.samples.append(
            NoiseSample(position, keys, noise[:, ::step].astype(np.float32), clients)
        )


def checks(
    name: str,
    samples: list[NoiseSample],
    direct: np.ndarray,
    extra: float,
    layers: list[tuple[str, slice]],
) -> Iterator[Check]:
    """Check the size and the shape of the noise of one query.

    Args:
        name: Name of the query.
        samples: Standardised noise.
        direct: Differences between releases and exact answers, in units of the noted standard deviation.
        extra: Noted standard deviation ÷ charged standard deviation, at least 1.
        layers: Name and slice of each layer in a gradient.
    """
    squares = np.array([(s.values.astype(np.float64) ** 2).sum() for s in samples])
    total, count = float(squares.sum()), sum(s.values.size for s in samples)
    ratio = math.sqrt(total / count)
    # Noise between the charged and the noted size is right, so each side has a reference of its own.
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
    # Where more noise may be added than is charged, parts may differ in size, and only the whole is tested.
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
    """Test each round, client, layer and coordinate: noise may be right as a whole and wrong in a part."""
    parts: dict[str, dict[Any, list[float]]] = {"round": {}, "client": {}, "layer": {}}
    for sample in samples:
        step = f", step {sample.position.step + 1}" if sample.position.step > 0 else ""
        statistics.add_squares(parts["round"], f"{sample.position.number}{step}", sample.values)
        for client, row in zip(sample.clients, sample.values, strict=True):
            if client >= 0:
                statistics.add_squares(parts["client"], int(client), row)
        if layers and sample.values.shape[1] == layers[-1][1].stop:
            for name_of_layer, layer in layers:
                statistics.add_squares(parts["layer"], name_of_layer, sample.values[:, layer])
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


def common_noise(name: str, shared: np.ndarray, p_value: float, note: str) -> Check:
    """Return the check that normals which show what two parts of the noise have in common are small."""
    measured = f"largest {np.abs(shared).max():.2f} std of {shared.size:,}"
    return Check("independence", name, measured, "normal", p_value, note=note)


def independence(name: str, samples: list[NoiseSample]) -> Iterator[Check]:
    """Test independence over rounds and steps, over clients, and over the numbers of a vector."""
    samples = [s for s in samples if np.isfinite(s.values).all()]
    if not samples or samples[0].values.shape[1] < 2:
        return
    keys = sorted({s.key for s in samples})[:4]
    for axis in ("rounds and steps", "clients"):
        products = []
        for key in keys:
            releases = [s.values for s in samples if s.key == key]
            if axis == "clients":  # a vector for each client and release
                vectors = releases if max(map(len, releases)) > 1 else []
            else:  # a long vector for each release
                rows = min(map(len, releases))
                vectors = [values[:rows].reshape(1, -1) for values in releases]
                vectors = vectors if len(vectors) > 1 else []
            if vectors:
                stack = np.concatenate(vectors).astype(float)
                stack = stack[:, :: max(1, stack.shape[1] // _LONGEST)]
                products.append(
                    statistics.off_diagonal(stack[: min(_MOST_VECTORS, stack.shape[1])])
                )
        shared = np.concatenate(products) if products else np.zeros(0)
        if shared.size:
            yield common_noise(
                f"{name}: over {axis}",
                shared,
                statistics.common_p(shared),
                f"the noise of {name} is not independent over {axis}",
            )
    yield from _over_numbers(name, samples)


def _over_numbers(name: str, samples: list[NoiseSample]) -> Iterator[Check]:
    """Test the autocorrelation of a vector at every distance ℓ, computed by a Fourier transform."""
    width = samples[0].values.shape[1]
    rows = np.concatenate([s.values for s in samples if s.values.shape[1] == width])
    rows = rows[:: max(1, rows.size // _KEPT)].astype(float)
    size = 1 << (2 * width - 1).bit_length()  # long enough that no product wraps around
    power = np.zeros(size // 2 + 1)
    for row in rows:
        power += np.abs(np.fft.rfft(row, size)) ** 2
    products = np.fft.irfft(power, size)[1:width]  # Σ_i x_i x_(i+ℓ) at distance ℓ, over all rows
    pairs = len(rows) * np.arange(width - 1, 0, -1)
    enough = pairs >= _FEWEST_PAIRS
    if not enough.any():
        return
    correlations = products[enough] / np.sqrt(pairs[enough])
    worst = int(np.argmax(np.abs(correlations)))
    yield Check(
        "independence",
        f"{name}: over numbers",
        f"largest {abs(correlations[worst]):.2f} std (distance {worst + 1})",
        "normal",
        statistics.smallest(statistics.normal_p(correlations)),
        note=f"the noise of numbers {worst + 1} places apart is not independent",
    )


def repeated_numbers(
    reference: Recording, claims: dict[ReleasePosition, LedgerClaim]
) -> Iterator[Check]:
    """Look for two vectors with the same noise in another order or with other signs.

    Such vectors have the same largest absolute values.
    """
    largest, rows = [], 0
    for position, claim in claims.items():
        seen = reference.seen[position]
        if seen.values.shape[1] < _SAME_ORDER:
            continue
        sizes = (seen.values.double() - seen.exact).abs().cpu().numpy() / claim.noted[:, None]
        largest.append(-np.sort(-sizes, axis=1)[:, :_LARGEST])
        rows += len(sizes)
    if rows < 2:
        return
    ordered = np.concatenate(largest)
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
