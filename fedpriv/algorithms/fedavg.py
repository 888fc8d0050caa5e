"""FedAvg (McMahan et al. 2017) with the same lots and optimisers, without clipping and noise."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fedpriv.algorithms.local_steps import LocalStepsAlgorithm
from fedpriv.privacy.sampling import Sampling

if TYPE_CHECKING:
    from fedpriv.privacy.clippers import Clipper


class FedAvg(LocalStepsAlgorithm):
    """No privacy: the yardstick. No ε is computed or shown."""

    private = False

    def draw(
        self, sampling: Sampling, noise_multiplier: float, clipper: Clipper, round_index: int
    ) -> None:
        return None
