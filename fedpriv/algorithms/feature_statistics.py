"""Means and variances of the channels of features, released once before the first round.

    v_i = (mean over positions of x_ic, mean over positions of x_ic²)_c,    ‖v̄_i‖ ≤ b
    s   = Σ_k (Σ_{i of k} v̄_i + N(0, (z b)² I)),    N = Σ_k n_k
    mean = s_1/N,    variance = max(s_2/N - mean², standard deviation of the noise in s_2/N) + 10⁻⁵

With distributed trust the shares of all clients make the noise of the sum. N is public, as the sizes of the
clients' data are. A variance below what the noise hides would blow up the noise of its channel, so it is cut
at that level. The cut, like everything else after s, is post-processing.

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
    """The statistics of one run, in the first layer of its model.

    Args:
        context: What the run works on; its model begins with a :class:`NormalizedInputs`.
        settings: Number of channels C and clip norm b.
        row_per_client: Whether each client's sum is released by itself; else the sum of all clients is.

    Attributes:
        known: Whether the statistics have been released.
    """

    def __init__(self, context: RunContext, settings: ReleasedStatistics, row_per_client: bool):
        layer = context.model.module
        assert isinstance(layer, NormalizedInputs)
        self._context, self._settings, self._layer = context, settings, layer
        self._row_per_client = row_per_client
        self.known = False

    @property
    def numbers(self) -> int:
        """Number of released values: a mean and a mean square of each channel."""
        return 2 * self._settings.channels

    def release(self, opened: OpenRound) -> None:
        """Let all clients release the statistics, and normalize inputs with them from now on.

        Raises:
            ReleaseError: The statistics were released without noise.
        """
        values, owners, holders = self._of_records(opened.cohort)
        clip_norms = values.new_full((holders,), self._settings.clip_norm, dtype=torch.float64)
        answer = bounded_rows(values, clip_norms, owners)
        released = opened.release({FEATURE_STATISTICS: answer})[FEATURE_STATISTICS]
        noise_std = opened.noise_std(FEATURE_STATISTICS)
        if noise_std is None:
            raise ReleaseError(f"{FEATURE_STATISTICS} was released without noise")
        records = float(self._context.data.records_per_client[opened.cohort].sum())
        std_of_sum = float(np.linalg.norm(np.broadcast_to(noise_std, holders)))
        moments = released.then(lambda sums: sums.double().sum(0) / records)
        statistics = moments.then(lambda both: _normalizing(both, std_of_sum / records))
        self._set(statistics)

    def _of_records(self, clients: np.ndarray) -> tuple[Tensor, Tensor, int]:
        """Return the moments of the clients' records, not yet clipped.

        Returns:
            (mean and mean square of each channel of every record [n, 2 C], the number of the sum to which
            each record belongs [n], the number of sums).
        """
        data = self._context.data
        # [:] because an audit wraps the lists to leave out a record when they are read
        client_records = [data.clients[client][:] for client in clients]
        inputs = data.train.inputs
        blocks = torch.from_numpy(np.concatenate(client_records)).to(inputs.device).split(_BLOCK)
        values = torch.cat([_moments(inputs[block]) for block in blocks])
        if not self._row_per_client:
            return values, torch.zeros(len(values), dtype=torch.int64, device=values.device), 1
        sizes = [len(records) for records in client_records]
        owners = np.repeat(np.arange(len(client_records)), sizes)
        return values, torch.from_numpy(owners).to(values.device), len(client_records)

    def _set(self, statistics: Visible) -> None:
        # what was released, and nothing else, becomes part of the model
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
    """Return mean and mean square over the positions [n, 2 C] of inputs [n, C, H, W]."""
    return torch.cat([inputs.mean((2, 3)), inputs.square().mean((2, 3))], dim=1)


def _normalizing(moments: Tensor, floor: float) -> tuple[Tensor, Tensor]:
    """Return (mean [C], variance [C], at least ``floor``) from mean and mean square [2 C]."""
    mean, square = moments.chunk(2)
    return mean, (square - mean.square()).clamp_min(floor) + EPSILON
