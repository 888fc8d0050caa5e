"""Clippers whose clip norm is fixed in advance, for all rounds or as a function of the round: free."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedpriv.common.fields import declared, field, not_null, number, whole
from fedpriv.privacy.clippers.base import CLIP_NORM, Clipper, StoredNorms

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


@declared
class ConstantClipper(StoredNorms):
    """g · min(1, C / ‖g‖) with one C (Abadi et al. 2016)."""

    initial: float = field(CLIP_NORM, alias="clip_norm", unit="C", help="clip norm")

    def describe(self) -> str:
        return f"constant, clip norm {self.initial:g}"


@declared
class PolynomialClipper(Clipper):
    """C_t = C_0 (1 - t / T)^power for t < T = ``horizon``, then and never below ``min_clip_norm``.

    The clip norm of the "poly learning rate policy" (LDP-FedSGD and the clipping size, DEIM 2023,
    section 4.4). It depends on the round alone, so nothing is asked and nothing charged.
    """

    initial: float = field(
        CLIP_NORM, alias="initial_clip_norm", unit="C_0", help="clip norm of the first round"
    )
    power: float = field(
        number(at_least=0), default=1.0, help="exponent of the decay; 1 is linear, 0 none"
    )
    horizon: int = field(
        not_null(
            whole(at_least=1),
            "a whole number >= 1 when rounds is null, which it defaults to",
        ),
        default=None,
        unit="rounds",
        help="T, after which the clip norm is min_clip_norm",
    )
    min_clip_norm: float = field(
        number(above=0, at_most="initial_clip_norm"),
        default=1e-6,
        help="public lower bound of the clip norm",
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


@declared
class AutomaticClipper(StoredNorms):
    """g / (‖g‖ + γ): every record gets norm below 1, whatever its gradient (Bu et al. 2023, AUTO-S).

    There is no C to choose, nothing is asked of the data, so it is free.
    """

    initial = 1.0

    gamma: float = field(
        number(above=0), default=0.01, unit="γ", help="added to the norm of a gradient"
    )

    def factors(self, norms: Tensor, clip_norms: Tensor) -> Tensor:
        return 1.0 / (norms + self.gamma)

    def describe(self) -> str:
        return f"automatic, g / (norm + {self.gamma:g}): sensitivity 1"
