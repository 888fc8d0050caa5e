"""Many draws of the noise of one release, made by opening the round again at the pinned state.

A run gives one vector of noise for each release. Tests of directions need more vectors than a vector has
numbers. Each draw opens the round with another noise key and releases zeros, so that the release is the noise
alone, on its grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.mechanisms import Bounded
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, LedgerClaim, family_of
from fedpriv.tools.verify.noise import NoiseSample
from fedpriv.tools.verify.probes import BEFORE, ReleasePosition, Reopen
from fedpriv.tools.verify.repeat_runs import queries_of, release_again

WHOLE = 2000
"""Largest vector that is kept whole. Of longer vectors, so many random coordinates are kept."""
_ROUNDS = 5  # most rounds that are drawn: the first, the last, three between
_HEAD = 8  # first numbers of a row, which tell streams apart
_PROJECTION_ENTRIES = 20_000_000
_HADAMARD, _RANDOM = 64, 32


@dataclass
class Drawn:
    """The draws of one release.

    Attributes:
        values: Noise at the kept coordinates [keys, rows, k].
        projected: Projections on unit vectors [keys, rows, directions].
        heads: The first numbers of each row [keys, rows, <= 8], of these keys and of further keys.
        width: Number of coordinates of a vector.
    """

    values: np.ndarray
    projected: np.ndarray
    heads: np.ndarray
    width: int

    def in_units_of(self, stds: np.ndarray) -> Drawn:
        """Return the draws divided by the standard deviation of each row [rows]."""
        divisor = stds[None, :, None]
        values = self.values / divisor.astype(np.float32)
        return Drawn(values, self.projected / divisor, self.heads / divisor, self.width)


class Draws:
    """A collector of draws of all normal noise of a run.

    Attributes:
        drawn: The draws of each release.
    """

    def __init__(
        self,
        streams: SecretStreams,
        samples: int,
        rounds: Sequence[int],
        layers: Sequence[tuple[str, slice]],
    ):
        """Start without draws.

        Args:
            streams: Streams of the repetitions.
            samples: Number that sets how many numbers are drawn (a tenth of its square) and how many streams
                are compared (a third).
            rounds: Rounds that are opened again.
            layers: Name and slice of each layer in a gradient.
        """
        self._streams, self._rounds, self._layers = streams, frozenset(rounds), layers
        self._numbers, self._heads = samples**2 // 10, samples // 3
        self._random = np.random.default_rng(int.from_bytes(streams.noise_key[:8], "little"))
        self._directions: dict[int, tuple[list[str], Tensor]] = {}
        self._coordinates: dict[int, Tensor] = {}
        self.drawn: dict[ReleasePosition, Drawn] = {}

    def __call__(self, reopen: Reopen, t: int, step: int, answers: Mapping[str, Bounded]) -> None:
        """Draw the normal noise of a round under many keys, if it is one of the chosen rounds."""
        # The noise of all local steps of a round comes from the same code, so the first step stands for all.
        if step > 0 or (step != BEFORE and t not in self._rounds):
            return
        queries = queries_of(reopen(self._streams))
        names = [n for n in answers if n in queries and family_of(queries[n]) == GAUSSIAN]
        if not names:
            return

        def noise(key: str, width: int | None = None) -> dict[str, Tensor]:
            """Release zeros under another key: rows [rows, d] of each name, float64."""

            def values_of(name: str, values: Tensor) -> Tensor:
                if name not in names:
                    return values
                return torch.zeros_like(values[:, :width] if values.dim() > 1 else values)

            rows_of = release_again(reopen, self._streams, (key,), step, answers, values_of)
            return {name: rows for name, rows in rows_of.items() if name in names}

        parts: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
            name: ([], [], []) for name in names
        }
        # Draw keys until n vectors of d numbers have √n >= 2 (√d + 8), within the budget of numbers. Then
        # the test of the smallest singular value has the margin that it needs.
        rounds = min(_ROUNDS, len(self._rounds))
        numbers = sum(answer.values.numel() for answer in answers.values())
        widest = max(answer.values[0].numel() for answer in answers.values())
        enough = math.ceil(4.0 * (math.sqrt(min(widest, WHOLE)) + 8.0) ** 2 / rounds)
        keys = max(2, min(enough, self._numbers // (_ROUNDS * numbers)))
        for i in range(keys):
            for name, rows in noise(f"draws {i}").items():
                kept, projected, heads = parts[name]
                kept.append(rows[:, self._coordinates_of(rows.shape[1])].float().numpy())
                projected.append((rows.float() @ self.directions(rows.shape[1])[1]).numpy())
                heads.append(rows[:, :_HEAD].numpy())
        # Then draw the first numbers alone, until there are enough streams to look for equal streams.
        most_rows = max(len(heads[0]) for _, _, heads in parts.values())
        streams = math.ceil(self._heads / ((rounds if step >= 0 else 1) * most_rows))
        for i in range(streams - keys):
            for name, rows in noise(f"heads {i}", _HEAD).items():
                parts[name][2].append(rows.numpy())
        for name, (kept, projected, heads) in parts.items():
            width = answers[name].values[0].numel()
            stacked = (np.stack(kept), np.stack(projected), np.stack(heads))
            self.drawn[ReleasePosition(t, step, name)] = Drawn(*stacked, width)

    def of(
        self, name: str, claims: Mapping[ReleasePosition, LedgerClaim]
    ) -> dict[ReleasePosition, Drawn]:
        """Return the draws of one query, in units of the noise that its releases note."""
        return {
            position: drawn.in_units_of(claims[position].noted)
            for position, drawn in self.drawn.items()
            if position.name == name
            and position in claims
            and np.isfinite(claims[position].noted).all()
            and claims[position].noted.min(initial=np.inf) > 0
        }

    def of_samples(self, samples: Sequence[NoiseSample]) -> dict[ReleasePosition, Drawn]:
        """Return samples of standardised noise as draws.

        This serves noise that is correlated over rounds, which cannot be drawn by itself.
        """
        values_at: dict[ReleasePosition, list[np.ndarray]] = {}
        for sample in samples:
            values_at.setdefault(sample.position, []).append(sample.values)
        drawn = {}
        for position, values in values_at.items():
            rows = torch.from_numpy(np.stack(values)).float()
            width = rows.shape[2]
            kept = rows[:, :, self._coordinates_of(width)].numpy()
            projected = (rows @ self.directions(width)[1]).numpy()
            drawn[position] = Drawn(kept, projected, rows[:, :, :_HEAD].numpy(), width)
        return drawn

    def _coordinates_of(self, width: int) -> Tensor:
        if width not in self._coordinates:
            coordinates = np.arange(width)
            if width > WHOLE:
                coordinates = np.sort(self._random.permutation(width)[:WHOLE])
            self._coordinates[width] = torch.from_numpy(coordinates)
        return self._coordinates[width]

    def directions(self, width: int) -> tuple[list[str], Tensor]:
        """Return the names and unit vectors [width, directions] that noise is projected on.

        They are the mean of all coordinates, the mean of each layer, Hadamard rows and random vectors.
        """
        if width not in self._directions:
            vector_of = {"the mean": np.ones(width)}
            if self._layers and self._layers[-1][1].stop == width:
                for name, layer in self._layers:
                    vector_of[f"the mean of {name}"] = np.zeros(width)
                    vector_of[f"the mean of {name}"][layer] = 1.0
            most = max(8, _PROJECTION_ENTRIES // width)
            length = 1 << max(0, width - 1).bit_length()
            first_rows = np.arange(1, min(length, _HADAMARD // 2))
            other_rows = self._random.integers(1, max(2, length), min(length - 1, _HADAMARD // 2))
            for row in np.unique(np.concatenate([first_rows, other_rows])).astype(np.int64):
                vector_of[f"Hadamard {row}"] = _hadamard_row(int(row), width)
            for i in range(_RANDOM):
                vector_of[f"random {i + 1}"] = self._random.standard_normal(width)
            names = list(vector_of)[:most]
            vectors = np.stack(
                [vector_of[name] / np.linalg.norm(vector_of[name]) for name in names], axis=1
            )
            self._directions[width] = names, torch.from_numpy(vectors).float()
        return self._directions[width]


def _hadamard_row(row: int, width: int) -> np.ndarray:
    """Return the first numbers of a row of Sylvester's Hadamard matrix."""
    common = np.arange(width, dtype=np.int64) & row
    parity = np.zeros(width, dtype=np.int64)
    while common.any():
        parity ^= common & 1
        common >>= 1
    return 1.0 - 2.0 * parity
