"""Means and variances of the channels of features, released once before the first round.

    v_i = (mean over positions of x_ic, mean over positions of x_ic²)_c,    ‖v̄_i‖ ≤ b
    s   = Σ_k (Σ_{i of k} v̄_i + N(0, (z b)² I)),    N = Σ_k n_k
    mean = s_1/N,    variance = max(s_2/N - mean², standard deviation of the noise in s_2/N) + 10⁻⁵

With distributed trust the shares of all clients make the noise of the sum. N is public, as the sizes of the
clients' data are. A variance below what the noise hides would blow up the noise of its channel, so it is cut
there; that and everything else after s is post-processing.

Source: F. Tramèr, D. Boneh, "Differentially private learning needs better features (or much more data)", ICLR
2021, whose trusted server releases both vectors.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.errors import ReleaseError
from fedpriv.data.records import ReleasedStatistics
from fedpriv.features.base import EPSILON
from fedpriv.models.normalized import NormalizedInputs
from fedpriv.privacy.mechanisms import FEATURE_STATISTICS, OpenRound
from fedpriv.privacy.mechanisms.bounded import bounded_rows
from fedpriv.privacy.mechanisms.visible import Visible, seen

_BLOCK = 1000  # records at a time


class FeatureStatistics:
    """Those of one run, in the first layer of its model.

    Attributes:
        known: Whether they have been released.
    """

    def __init__(self, context: RunContext, asked: ReleasedStatistics, row_per_client: bool):
        """``row_per_client``: whether each client's sum is released by itself; else the sum of all is."""
        layer = context.model.module
        assert isinstance(layer, NormalizedInputs)
        self._context, self._asked, self._layer = context, asked, layer
        self._row_per_client = row_per_client
        self.known = False

    @property
    def numbers(self) -> int:
        """How many are released: a mean and a mean square of each channel."""
        return 2 * self._asked.channels

    def release(self, opened: OpenRound) -> None:
        """Let all clients release them, and normalize with them from now on. Raises ReleaseError where they
        were released without noise."""
        values, owners, holders = self._of_records(opened.cohort)
        clip_norms = values.new_full((holders,), self._asked.clip_norm, dtype=torch.float64)
        answer = bounded_rows(values, clip_norms, owners)
        released = opened.release({FEATURE_STATISTICS: answer})[FEATURE_STATISTICS]
        noise_std = opened.noise_std(FEATURE_STATISTICS)
        if noise_std is None:
            raise ReleaseError(f"{FEATURE_STATISTICS} was released without noise")
        records = float(self._context.data.records_per_client[opened.cohort].sum())
        of_sum = np.linalg.norm(np.broadcast_to(noise_std, holders))
        moments = released.then(lambda sums: sums.double().sum(0) / records)
        self._set(moments.then(lambda both: _normalizing(both, float(of_sum) / records)))

    def _of_records(self, clients: np.ndarray) -> tuple[Tensor, Tensor, int]:
        """(mean and mean square of each channel of every record of ``clients`` [n, 2 C], in whose sum each
        counts [n], of how many sums)."""
        data = self._context.data
        own = [data.clients[client][:] for client in clients]  # who reads them may leave one out
        inputs = data.train.inputs
        blocks = torch.from_numpy(np.concatenate(own)).to(inputs.device).split(_BLOCK)
        values = torch.cat([_moments(inputs[block]) for block in blocks])
        if not self._row_per_client:
            return values, torch.zeros(len(values), dtype=torch.int64, device=values.device), 1
        owners = np.repeat(np.arange(len(own)), [len(records) for records in own])
        return values, torch.from_numpy(owners).to(values.device), len(own)

    def _set(self, statistics: Visible) -> None:
        """What was released, and nothing else, becomes part of the model."""
        self._layer.set_statistics(*seen(statistics, "the model's first layer"))
        self.known = True

    def state_dict(self) -> dict[str, object]:
        return {
            "known": self.known,
            "mean": self._layer.mean.clone(),
            "variance": self._layer.variance.clone(),
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self.known = saved["known"]
        self._layer.set_statistics(saved["mean"], saved["variance"])


def _moments(inputs: Tensor) -> Tensor:
    """[n, 2 C] of inputs [n, C, H, W]."""
    return torch.cat([inputs.mean((2, 3)), inputs.square().mean((2, 3))], dim=1)


def _normalizing(moments: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """(mean [C], variance [C]) by which to normalize, from mean and mean square [2 C]."""
    mean, square = moments.chunk(2)
    return mean, (square - mean.square()).clamp_min(floor) + EPSILON
