"""Clippers whose bound is fixed in advance."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedpriv.common import checks
from fedpriv.privacy.clippers.base import Clipper

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class _OneBound(Clipper):
    """The same bound for everyone in every round."""

    value: float

    def start(
        self, clients: int, device: str | torch.device, initial_norm: Callable[[], float] | None
    ) -> None:
        import torch

        self._bounds = torch.full((clients,), self.value, device=device)

    def bound(self, round_index: int, clients: Tensor) -> Tensor:
        return self._bounds[clients]


class NoClipper(_OneBound):
    """No clipping: every factor is 1, the sensitivity is unbounded."""

    value = float("inf")

    def factors(self, norms: Tensor, bounds: Tensor) -> Tensor:
        return norms.new_ones(norms.shape)

    def describe(self) -> str:
        return "none"


class ConstantClipper(_OneBound):
    """g · min(1, C / ‖g‖) with one C (Abadi et al. 2016)."""

    def __init__(self, clip_norm: float):
        self.value = checks.number("clip_norm", clip_norm, above=0, at_most=1e12)

    def describe(self) -> str:
        return f"constant, clip norm {self.value:g}"


class AutomaticClipper(_OneBound):
    """g / (‖g‖ + γ): every record gets norm below 1, whatever its gradient (Bu et al. 2023, AUTO-S).

    There is no C to choose, nothing is asked of the data, so it is free.
    """

    value = 1.0

    def __init__(self, gamma: float = 0.01):
        self.gamma = checks.number("gamma", gamma, above=0)

    def factors(self, norms: Tensor, bounds: Tensor) -> Tensor:
        return 1.0 / (norms + self.gamma)

    def describe(self) -> str:
        return f"automatic, g / (norm + {self.gamma:g}): sensitivity 1"
