"""Many draws of the noise of one release: the round is opened again and again at the pinned state.

A run gives one vector of noise for each release; tests of directions need more vectors than a vector has
numbers. Each draw opens the round anew with another noise key and releases zeros, so that what leaves is the
noise alone, on its grid.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.common.secret_streams import SecretStreams, derived_key
from fedpriv.privacy.mechanisms import Bounded
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, LedgerClaim, family_of
from fedpriv.tools.verify.noise import NoiseSample
from fedpriv.tools.verify.probes import BEFORE, ReleasePosition
from fedpriv.tools.verify.repeat_runs import Anew, queries_of, released_again, with_values

WHOLE = 2000
"""Vectors of at most so many numbers are kept whole; of longer ones, random blocks of coordinates."""
_PLACES = 5  # rounds that are drawn: the first, the last, three between
_HEAD = 8  # first numbers of a row, by which streams are told apart
_PROJECTION_ENTRIES = 20_000_000
_HADAMARD, _RANDOM = 64, 32


@dataclass
class Drawn:
    """The draws of one release.

    Attributes:
        kept: The kept coordinates [keys, rows, k].
        projected: Projections on unit vectors [keys, rows, directions].
        heads: The first numbers of each row [keys, rows, <= 8], of these keys and of further ones.
        width: Numbers of a vector.
    """

    kept: np.ndarray
    projected: np.ndarray
    heads: np.ndarray
    width: int

    def over(self, stds: np.ndarray) -> Drawn:
        """Return the same in units of the standard deviation of each row [rows]."""
        each = stds[None, :, None]
        kept = self.kept / each.astype(np.float32)
        return Drawn(kept, self.projected / each, self.heads / each, self.width)


class Draws:
    """Collects draws of all normal noise of a run, by the place of its release."""

    def __init__(
        self,
        streams: SecretStreams,
        samples: int,
        rounds: Sequence[int],
        layers: Sequence[tuple[str, slice]],
    ):
        """
        Args:
            samples: Sets how many numbers are drawn (a tenth of its square) and how many streams are
                compared (a third).
            rounds: The rounds that are opened again.
            layers: The name and place of each layer in a gradient.
        """
        self._streams, self._rounds, self._layers = streams, frozenset(rounds), layers
        self._numbers, self._heads = samples**2 // 10, samples // 3
        self._random = np.random.default_rng(int.from_bytes(streams.noise_key[:8], "little"))
        self._directions: dict[int, tuple[list[str], Tensor]] = {}
        self._coordinates: dict[int, Tensor] = {}
        self.at: dict[ReleasePosition, Drawn] = {}

    def __call__(self, anew: Anew, t: int, step: int, answers: Mapping[str, Bounded]) -> None:
        if step > 0 or (step != BEFORE and t not in self._rounds):
            return
        queries = queries_of(anew(self._streams))
        names = [n for n in answers if n in queries and family_of(queries[n]) == GAUSSIAN]
        if not names:
            return
        found: dict[str, tuple[list[Any], list[Any], list[Any]]] = {
            name: ([], [], []) for name in names
        }
        # enough keys for all directions of one row, within the budget
        places = min(_PLACES, len(self._rounds))
        numbers = sum(answer.values.numel() for answer in answers.values())
        widest = max(answer.values[0].numel() for answer in answers.values())
        enough = math.ceil(4.0 * (math.sqrt(min(widest, WHOLE)) + 8.0) ** 2 / places)
        keys = max(2, min(enough, self._numbers // (_PLACES * numbers)))
        for i in range(keys):
            for name, rows in self._noise(anew, f"draws {i}", step, answers, names).items():
                kept, projected, heads = found[name]
                kept.append(rows[:, self._coordinates_of(rows.shape[1])].float().numpy())
                projected.append((rows.float() @ self.directions(rows.shape[1])[1]).numpy())
                heads.append(rows[:, :_HEAD].numpy())
        # the first numbers alone, until there are enough streams to look for equal ones
        rows_of_all = max(len(heads[0]) for _, _, heads in found.values())
        streams = math.ceil(self._heads / ((places if step >= 0 else 1) * rows_of_all))
        for i in range(streams - keys):
            for name, rows in self._noise(anew, f"heads {i}", step, answers, names, _HEAD).items():
                found[name][2].append(rows.numpy())
        for name, (kept, projected, heads) in found.items():
            width = answers[name].values[0].numel()
            stacked = (np.stack(kept), np.stack(projected), np.stack(heads))
            self.at[ReleasePosition(t, step, name)] = Drawn(*stacked, width)

    def of(
        self, name: str, said: Mapping[ReleasePosition, LedgerClaim]
    ) -> dict[ReleasePosition, Drawn]:
        """Return the draws of one query in units of the noise that its releases note."""
        own = {place: drawn for place, drawn in self.at.items() if place.name == name}
        return {
            place: drawn.over(said[place].noted)
            for place, drawn in own.items()
            if place in said
            and np.isfinite(said[place].noted).all()
            and said[place].noted.min(initial=np.inf) > 0
        }

    def of_samples(self, samples: Sequence[NoiseSample]) -> dict[ReleasePosition, Drawn]:
        """Return samples of standardised noise as draws: of noise that cannot be drawn by itself."""
        found: dict[ReleasePosition, list[np.ndarray]] = {}
        for sample in samples:
            found.setdefault(sample.place, []).append(sample.values)
        drawn = {}
        for place, values in found.items():
            rows = torch.from_numpy(np.stack(values)).float()
            width = rows.shape[2]
            kept = rows[:, :, self._coordinates_of(width)].numpy()
            projected = (rows @ self.directions(width)[1]).numpy()
            drawn[place] = Drawn(kept, projected, rows[:, :, :_HEAD].numpy(), width)
        return drawn

    def _noise(
        self,
        anew: Anew,
        key_name: str,
        step: int,
        answers: Mapping[str, Bounded],
        names: Sequence[str],
        width: int | None = None,
    ) -> dict[str, Tensor]:
        """Return one release of zeros under another key: rows [rows, d] of each name, float64."""
        zeros = {}
        for name, answer in answers.items():
            values = answer.values
            if name in names and values.dim() > 1:
                values = values[:, :width]
            values = torch.zeros_like(values) if name in names else values.clone()
            zeros[name] = with_values(answer, values)
        streams = self._streams.with_noise(derived_key(self._streams.noise_key, key_name))
        released = released_again(anew, streams, step, zeros)
        return {name: rows for name, rows in released.items() if name in names}

    def _coordinates_of(self, width: int) -> Tensor:
        if width not in self._coordinates:
            chosen = np.arange(width)
            if width > WHOLE:
                chosen = np.sort(self._random.permutation(width)[:WHOLE])
            self._coordinates[width] = torch.from_numpy(chosen)
        return self._coordinates[width]

    def directions(self, width: int) -> tuple[list[str], Tensor]:
        """Return names and unit vectors [d, directions]: ones, of each layer, Hadamard's, random ones."""
        if width not in self._directions:
            made = {"the mean": np.ones(width)}
            if self._layers and self._layers[-1][1].stop == width:
                for name, place in self._layers:
                    made[f"the mean of {name}"] = np.zeros(width)
                    made[f"the mean of {name}"][place] = 1.0
            most = max(8, _PROJECTION_ENTRIES // width)
            length = 1 << max(0, width - 1).bit_length()
            first = np.arange(1, min(length, _HADAMARD // 2))
            others = self._random.integers(1, max(2, length), min(length - 1, _HADAMARD // 2))
            for row in np.unique(np.concatenate([first, others])).astype(np.int64):
                made[f"Hadamard {row}"] = _hadamard_row(int(row), width)
            for i in range(_RANDOM):
                made[f"random {i + 1}"] = self._random.standard_normal(width)
            names = list(made)[:most]
            vectors = np.stack([made[name] / np.linalg.norm(made[name]) for name in names], axis=1)
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
