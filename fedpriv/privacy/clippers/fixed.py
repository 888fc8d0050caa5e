"""Clippers whose clip norm is fixed in advance, for all rounds or as a function of the round: free."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.clippers.base import LARGEST, Clipper, StoredNorms

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class NoClipper(StoredNorms):
    """No clipping: every factor is 1, the sensitivity is unbounded."""

    initial = float("inf")
    unbounded = True

    def factors(self, norms: Tensor, clip_norms: Tensor) -> Tensor:
        return norms.new_ones(norms.shape)

    def describe(self) -> str:
        return "none"


class ConstantClipper(StoredNorms):
    """g · min(1, C / ‖g‖) with one C (Abadi et al. 2016)."""

    def __init__(self, clip_norm: float):
        self.initial = checks.number("clip_norm", clip_norm, above=0, at_most=LARGEST)

    def describe(self) -> str:
        return f"constant, clip norm {self.initial:g}"


class PolynomialClipper(Clipper):
    """C_t = C_0 (1 - t / T)^power for t < T = ``horizon``, then and never below ``min_clip_norm``.

    The clip norm of the "poly learning rate policy" (LDP-FedSGD and the clipping size, DEIM 2023,
    section 4.4). It depends on the round alone, so nothing is asked and nothing charged.
    """

    def __init__(
        self,
        initial_clip_norm: float,
        power: float = 1.0,
        horizon: int | None = None,
        min_clip_norm: float = 1e-6,
    ):
        self.initial = checks.number(
            "initial_clip_norm", initial_clip_norm, above=0, at_most=LARGEST
        )
        self.power = checks.number("power", power, at_least=0)
        if horizon is None:
            raise ArgumentError(
                "horizon", None, "a whole number >= 1 when rounds is null, which it defaults to"
            )
        self.horizon = checks.whole("horizon", horizon, at_least=1)
        self.min_clip_norm = checks.not_above(
            "min_clip_norm", min_clip_norm, "initial_clip_norm", self.initial, above=0
        )

    def value(self, round_index: int) -> float:
        """C_t."""
        left = max(0.0, 1.0 - round_index / self.horizon)
        return max(self.initial * left**self.power, self.min_clip_norm)

    def start(
        self, clients: int, device: str | torch.device, initial_norm: Callable[[], float] | None
    ) -> None:
        self._device = device

    def clip_norm(self, round_index: int, holders: Tensor) -> Tensor:
        import torch

        return torch.full((len(holders),), self.value(round_index), device=self._device)

    def describe(self) -> str:
        return f"{self.initial:g} (1 - t/{self.horizon})^{self.power:g}"


class AutomaticClipper(StoredNorms):
    """g / (‖g‖ + γ): every record gets norm below 1, whatever its gradient (Bu et al. 2023, AUTO-S).

    There is no C to choose, nothing is asked of the data, so it is free.
    """

    initial = 1.0

    def __init__(self, gamma: float = 0.01):
        self.gamma = checks.number("gamma", gamma, above=0)

    def factors(self, norms: Tensor, clip_norms: Tensor) -> Tensor:
        return 1.0 / (norms + self.gamma)

    def describe(self) -> str:
        return f"automatic, g / (norm + {self.gamma:g}): sensitivity 1"
