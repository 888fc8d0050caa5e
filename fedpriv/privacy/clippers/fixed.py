"""Clippers whose clip norm is known in advance, so that they cost no privacy."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedpriv.common.fields import declared, field, not_null, number, whole
from fedpriv.privacy.clippers.base import CLIP_NORM, Clipper, StoredNorms

if TYPE_CHECKING:
    import torch
    from torch import Tensor


class NoClipper(StoredNorms):
    """No clipping: every factor is 1 and the sensitivity is unbounded, so no noise makes a run private.

    Example:
        >>> import torch
        >>> NoClipper().factors(norms=torch.tensor([0.5, 4.0]), clip_norms=torch.ones(2)).tolist()
        [1.0, 1.0]
    """

    initial = float("inf")
    unbounded = True

    def factors(self, norms: Tensor, clip_norms: Tensor) -> Tensor:
        return norms.new_ones(norms.shape)

    def describe(self) -> str:
        return "none"


@declared
class ConstantClipper(StoredNorms):
    """Clipping with one clip norm: g · min(1, C / ‖g‖) (Abadi et al. 2016).

    Attributes:
        initial: C, ``clip_norm`` in the configuration, in units of the gradient's L2 norm.

    Example:
        >>> import torch
        >>> clipper = ConstantClipper(clip_norm=1.0)
        >>> clipper.factors(norms=torch.tensor([0.5, 4.0]), clip_norms=torch.ones(2)).tolist()
        [1.0, 0.25]
    """

    initial: float = field(CLIP_NORM, alias="clip_norm", unit="C", help="clip norm")

    def describe(self) -> str:
        return f"constant, clip norm {self.initial:g}"


@declared
class PolynomialClipper(Clipper):
    """Polynomial decay of the clip norm, as learning rates are decayed.

        C_t = max(C_0 (1 - t/T)^power, C_min)      for t < T, and C_min afterwards

    The clip norm depends on the round alone, so nothing is asked and nothing is charged. Source: "LDP-FedSGD
    and the clipping size", DEIM 2023, section 4.4.

    Attributes:
        initial: C_0, ``initial_clip_norm`` in the configuration.
        power: Exponent of the decay; 1 is linear, 0 keeps C_0 until round T.
        horizon: T, in rounds; by default the rounds of the run.
        min_clip_norm: C_min, at most C_0.

    Example:
        >>> PolynomialClipper(initial_clip_norm=2.0, horizon=10).value(round_index=5)
        1.0
    """

    initial: float = field(
        CLIP_NORM, alias="initial_clip_norm", unit="C_0", help="clip norm of the first round"
    )
    power: float = field(
        number(at_least=0), default=1.0, help="exponent of the decay; 1: linear; 0: no decay"
    )
    horizon: int = field(
        not_null(
            whole(at_least=1),
            "a whole number >= 1 when rounds is null, which it defaults to",
        ),
        default=None,
        unit="rounds",
        help="number of rounds T after which the clip norm is min_clip_norm",
    )
    min_clip_norm: float = field(
        number(above=0, at_most="initial_clip_norm"),
        default=1e-6,
        help="public lower bound of the clip norm",
    )

    def value(self, round_index: int) -> float:
        """Return C_t of round t = ``round_index``."""
        remaining = max(0.0, 1.0 - round_index / self.horizon)
        return max(self.initial * remaining**self.power, self.min_clip_norm)

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
    """Normalisation instead of clipping: g / (‖g‖ + γ) (Bu et al. 2023, AUTO-S).

    Every record gets a norm below 1, whatever its gradient, so the sensitivity is 1. There is no clip norm to
    choose and nothing is asked of the data.

    Attributes:
        gamma: γ > 0, which keeps small gradients small.

    Example:
        >>> import torch
        >>> AutomaticClipper(gamma=0.5).factors(torch.tensor([1.5]), torch.ones(1)).tolist()
        [0.5]
    """

    initial = 1.0

    gamma: float = field(
        number(above=0), default=0.01, unit="γ", help="added to the norm of a gradient"
    )

    def factors(self, norms: Tensor, clip_norms: Tensor) -> Tensor:
        return 1.0 / (norms + self.gamma)

    def describe(self) -> str:
        return f"automatic, g / (norm + {self.gamma:g}): sensitivity 1"
