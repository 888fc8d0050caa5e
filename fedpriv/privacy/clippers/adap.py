"""Adaptive clipping of Adap DP-FL (Fu, Chen, Han 2022, eq. 6), in four readings.

    C_t^k = α ‖ (Σ_{i in lot} clip(‖g_{t-1}(x_i)‖) + N(0, S²)) / L ‖,   S = C_{t-1} σ_{t-1}

The print does not say what is summed and what it costs. ``reading`` decides:

- ``scalar``: norms are clipped at C_{t-1} and their sum is noised, a second Gaussian query on the same lot.
- ``vector``: C_t = α ‖g̃_{t-1}‖, the norm of the noised mean gradient. This is post-processing, so it is
  free.
- ``unclipped``: C_t is α times the exact mean of unclipped norms. This most likely gave the published curves.
  Its sensitivity is unbounded, so it is not private and its sound ε is infinite.
- ``sound`` (default): the fraction b of records that are *not* clipped is asked with Gaussian noise of
  standard deviation ``bit_noise`` (bits are centred, b - ½, so the sensitivity is ½). C moves towards the
  quantile γ:
  C ← C exp(-η_C (b̃ - γ))  (Andrew et al. 2021). α is not used.

C_0 is ``initial_clip_norm``, or α times the mean gradient norm of the initial model on random noise, which is
free because no data is read; ``sound``, which has no α, takes the norm itself. The paper prints C_0 without α
(``initial_alpha=1``). With α = 0.01 the noise then falls a hundredfold after the first round. Adam's second
moment remembers the first round for about 1 / (1 - β₂) = 1000 rounds, so the model hardly moves until then.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from fedpriv.common.fields import declared, field, number, one_of, or_null, same_as
from fedpriv.privacy.clippers.base import CLIP_NORM, LARGEST, StoredNorms
from fedpriv.privacy.clippers.quantile import (
    BIT_SENSITIVITY,
    QuantileClipper,
    centred_bits,
    geometric_step,
)
from fedpriv.privacy.mechanisms.bounded import bounded_sum, unbounded_sum
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import CLIP_STATISTIC
from fedpriv.privacy.mechanisms.visible import Visible, seen

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedpriv.privacy.mechanisms.bounded import Bounded

_UNCLIPPED = (
    "The clip norm follows the exact mean of unclipped gradient norms (reading=unclipped): its "
    "sensitivity is unbounded and it is released through the clip norm, so the run is not "
    "private. It stands for how the published curves were most likely made."
)
READINGS = ("sound", "scalar", "vector", "unclipped")


@declared
class AdapClipper(StoredNorms):
    """One clip norm per client, moved every round by one of the readings of eq. (6) in the module.

    Attributes:
        reading: ``sound``, ``scalar``, ``vector`` or ``unclipped``.
        initial: C_0, ``initial_clip_norm`` in the configuration; None: from gradient norms on random noise.
        alpha: α of eq. (6); ``sound`` does not use it.
        target_quantile: γ of ``sound``, the fraction of records that are not clipped.
        bit_noise: Standard deviation of the noise on the count of ``sound``.
        quantile_learning_rate: η_C of ``sound``.
        min_clip_norm: Public lower bound of the clip norm.
        initial_alpha: Factor of C_0; None: α, or 1 for ``sound``.

    Example:
        >>> AdapClipper(initial_clip_norm=1.0, reading="scalar", alpha=1.1).describe()
        'one clip norm per client, starting at 1, then 1.1 times the released norm (reading=scalar)'
    """

    reading: str = field(
        one_of(READINGS),
        default="sound",
        help="reading of eq. (6), see docs/reproductions/adap_dpfl.md",
    )
    initial: float | None = field(
        or_null(CLIP_NORM),
        default=None,
        alias="initial_clip_norm",
        help="first clip norm C_0; null: initial_alpha times the mean gradient norm of random records",
    )
    alpha: float = field(
        number(above=0), default=1.0, help="factor of eq. (6), for all readings but sound"
    )
    target_quantile: float = field(
        number(above=0, below=1),
        default=0.5,
        unit="γ",
        help="reading=sound: fraction of records that are not clipped",
    )
    bit_noise: float = field(
        number(above=0),
        default=20.0,
        help="reading=sound: std of the noise on the count of records not clipped",
    )
    quantile_learning_rate: float = field(
        number(above=0), default=0.1, unit="η_C", help="reading=sound: step of the clip norm"
    )
    min_clip_norm: float = same_as(QuantileClipper, "min_clip_norm")
    initial_alpha: float = field(
        or_null(number(above=0)),
        default=None,
        help="factor of C_0; null: alpha (1 with reading=sound); 1: as the paper prints it",
    )

    def __attrs_post_init__(self) -> None:
        if self.initial_alpha is None:
            self.initial_alpha = 1.0 if self.reading == "sound" else self.alpha
        self.caveat = _UNCLIPPED if self.reading == "unclipped" else None
        self.whole_steps = 1.0 / BIT_SENSITIVITY if self.reading == "sound" else None

    def start(
        self, clients: int, device: str | torch.device, initial_norm: Callable[[], float] | None
    ) -> None:
        import torch

        value = self.initial
        if value is None:
            assert initial_norm is not None
            value = self.initial_alpha * initial_norm()
        start = torch.full((clients,), value, device=device)
        self._norms = start.clamp(self.min_clip_norm, LARGEST)

    def query(self, round_index: int, noise_multiplier: float) -> GaussianQuery | None:
        multipliers = {
            "sound": self.bit_noise / BIT_SENSITIVITY,
            "scalar": noise_multiplier,
            "unclipped": 0.0,
        }
        if self.reading not in multipliers:  # vector: post-processing
            return None
        return GaussianQuery(CLIP_STATISTIC, multipliers[self.reading])

    def statistic(self, norms: Tensor, owners: Tensor, clip_norms: Tensor) -> Bounded:
        if self.reading == "sound":
            return centred_bits(norms, owners, clip_norms)
        if self.reading == "scalar":
            return bounded_sum(norms, clip_norms, owners)
        return unbounded_sum(norms, owners, clip_norms)

    def observe(
        self, holders: Tensor, statistic: Visible | None, gradients: Visible, denominators: Tensor
    ) -> None:
        old = self._norms[holders]
        if self.reading == "sound":
            new = geometric_step(
                old,
                seen(statistic, "a clipper"),
                denominators,
                self.target_quantile,
                self.quantile_learning_rate,
            )
        elif self.reading == "vector":
            new = self.alpha * seen(gradients, "a clipper").norm(dim=1)
        else:
            new = self.alpha * (seen(statistic, "a clipper") / denominators).abs()
        self._norms[holders] = new.clamp(self.min_clip_norm, LARGEST).to(old.dtype)

    def describe(self) -> str:
        factor = "" if self.initial_alpha == 1 else f"{self.initial_alpha:g} times "
        start = (
            f"{self.initial:g}"
            if self.initial
            else f"{factor}the mean gradient norm of random records"
        )
        aim = (
            f"moving towards the {self.target_quantile:g} quantile of the gradient norms"
            if self.reading == "sound"
            else f"then {self.alpha:g} times the released norm"
        )
        return f"one clip norm per client, starting at {start}, {aim} (reading={self.reading})"
