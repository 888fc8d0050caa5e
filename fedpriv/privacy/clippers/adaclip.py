"""AdaCLiP: clipping in a space that scales every coordinate by its spread.

    w_k = (u_k - a)/b;   w̄_k = w_k min(1, 1/‖w_k‖);   w̃ = (1/L)(Σ_k w̄_k + N(0, σ² I));   ũ = b ∘ w̃ + a

u_k is the gradient of a record or the upload of a client, whichever is the unit of privacy. a and b [d] are
functions of released values, so they are free. The sensitivity is 1, and coordinates that vary little get
little noise. From the released ũ, whose noise has the variance (b σ/L)²,

    v = clamp((ũ - a)² - (b σ/L)², h₁², h₂²);   a ← β₁ a + (1 - β₁) ũ;   s² ← β₂ s² + (1 - β₂) v
    b = √s · √(Σ_j s_j)

At first a = 0 and all b are ``initial_clip_norm``, which is clipping at that norm. Where the noise of the
mean is larger than its changes, v is noise, and s grows until h₂ stops it.

Source: Pichapati, Suresh, Yu, Reddi, Kumar, "AdaCliP: Adaptive clipping for private SGD", 2019.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar

from fedpriv.common.fields import declared, field, number
from fedpriv.privacy.clippers.base import CLIP_NORM, LARGEST, Clipper
from fedpriv.privacy.clippers.parts import Layers
from fedpriv.privacy.mechanisms.visible import Visible, seen

if TYPE_CHECKING:
    import torch
    from torch import Tensor

_SMALLEST = 1e-30


@declared
class AdaClipper(Clipper):
    """Clipping of each coordinate by its own spread, which is estimated from released values.

    The module has the formulas. Coordinates with a small spread get little noise.

    Attributes:
        initial: Clip norm of the first round, ``initial_clip_norm`` in the configuration.
        shift_decay: β₁, decay of the moving mean a of the released means.
        spread_decay: β₂, decay of the moving variance s².
        smallest_spread: h₁, in units of initial_clip_norm/√d.
        largest_spread: h₂, in units of initial_clip_norm/√d.

    Example:
        >>> AdaClipper(initial_clip_norm=1.0).describe()
        'each coordinate scaled by its own spread, clip norm 1 at first (AdaCLiP)'
    """

    saved_attributes: ClassVar = {"shift": "_shift", "variance": "_variance"}

    transforms = True

    initial: float = field(
        CLIP_NORM,
        alias="initial_clip_norm",
        help="clip norm of the first round, the same for all coordinates",
    )
    shift_decay: float = field(
        number(at_least=0, below=1),
        default=0.99,
        unit="β₁",
        help="decay of the moving mean of what was released",
    )
    spread_decay: float = field(
        number(at_least=0, below=1),
        default=0.9,
        unit="β₂",
        help=("decay of the moving variance of what was released"),
    )
    smallest_spread: float = field(
        number(above=0, at_most=1),
        default=0.01,
        unit="initial_clip_norm/√d",
        help="h₁, smallest spread of a coordinate",
    )
    largest_spread: float = field(
        number(at_least=1),
        default=10.0,
        unit="initial_clip_norm/√d",
        help="h₂, largest spread of a coordinate",
    )

    def see_layers(self, layers: Layers) -> None:
        self._size = layers[-1][1].stop

    def start(
        self, clients: int, device: str | torch.device, initial_norm: Callable[[], float] | None
    ) -> None:
        import torch

        self._shift = torch.zeros(clients, self._size, device=device)
        self._first = self.initial / math.sqrt(self._size)  # so that √s √(Σ s) is the clip norm
        self._variance = torch.full_like(self._shift, self._first**2, dtype=torch.float64)

    def clip_norm(self, round_index: int, holders: Tensor) -> Tensor:
        return self._shift.new_ones(len(holders))

    def transform(self, round_index: int, holders: Tensor) -> tuple[Tensor, Tensor]:
        spread = self._variance[holders].sqrt()
        scale = (spread * spread.sum(1, keepdim=True)).sqrt()
        scale = scale.clamp(_SMALLEST, LARGEST)
        return self._shift[holders], scale.to(self._shift.dtype)

    def observe_restored(self, holders: Tensor, gradients: Visible, noise_std: Tensor) -> None:
        released, shift = seen(gradients, "a clipper"), self._shift[holders]
        # The square of a noised value overestimates the variance by that of the noise, which is public.
        variance = (released - shift).double().square()
        variance -= noise_std.double().square()
        limits = (self._first * h for h in (self.smallest_spread, self.largest_spread))
        variance = variance.clamp(*(h**2 for h in limits))
        self._variance[holders] = self._variance[holders].lerp(variance, 1.0 - self.spread_decay)
        self._shift[holders] = shift.lerp(released.to(shift.dtype), 1.0 - self.shift_decay)

    def describe(self) -> str:
        return f"each coordinate scaled by its own spread, clip norm {self.initial:g} at first (AdaCLiP)"
