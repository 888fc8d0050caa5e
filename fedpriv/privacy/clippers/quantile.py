"""Adaptive quantile clipping.

    b̃ = (Σ_i (b_i - ½) + noise) / L + ½,     b_i = 1 if ‖g_i‖ ≤ C  (not clipped)
    geometric:  C ← C exp(-η_C (b̃ - γ))        linear:  C ← C - η_C (b̃ - γ)

L is the public denominator (expected lot or cohort). The bits are noised in one of three ways:

- by the party that sums them, with Gaussian noise of standard deviation σ_b (``bit_noise``) on the sum;
- by every client on its own bit (``noised_by=client``), which puts σ_b √m on the sum of m bits;
- by randomized response (``bit_mechanism=randomized_response``), with ``bit_epsilon`` for each bit.

A centred bit has sensitivity ½ when a unit joins or leaves, so a Gaussian bit is a query of multiplier 2σ_b.
With ``split`` the pair of queries costs what the noise multiplier z says, and the gradient gets

    z_Δ = (z^-2 - (2σ_b)^-2)^(-1/2),   which needs z < 2σ_b.

Source: Andrew, Thakkar, McMahan, Ramaswamy, "Differentially private learning with adaptive clipping", NeurIPS
2021.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import boolean, declared, field, number, one_of, when
from fedpriv.privacy.clippers.base import CLIP_NORM, LARGEST, StoredNorms
from fedpriv.privacy.core.names import AGGREGATOR, CLIENT
from fedpriv.privacy.mechanisms.bounded import bounded_sum
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import CLIP_STATISTIC
from fedpriv.privacy.mechanisms.query import Query
from fedpriv.privacy.mechanisms.randomized_response import RandomizedBit
from fedpriv.privacy.mechanisms.visible import Visible, seen

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.privacy.mechanisms.bounded import Bounded

BIT_SENSITIVITY = 0.5  # of the sum of centred bits, when a unit joins or leaves
UPDATES = ("geometric", "linear")
GAUSSIAN, RESPONSE = "gaussian", "randomized_response"
MECHANISMS = (GAUSSIAN, RESPONSE)
_AGGREGATED = (
    "The fraction of unclipped uploads is summed and noised by a trusted aggregator, which is "
    "simulated: whoever runs it sees every client's exact bit."
)


def centred_bits(norms: Tensor, owners: Tensor, clip_norms: Tensor) -> Bounded:
    """Return Σ (b_i - ½) over each holder's units, with sensitivity ½.

    Args:
        norms: Norm of each unit [n].
        owners: Position of each unit's holder [n], in 0 … m-1.
        clip_norms: C of each holder [m].
    """
    bits = (norms <= clip_norms[owners]).to(norms.dtype) - BIT_SENSITIVITY
    return bounded_sum(bits, clip_norms.new_full((len(clip_norms),), BIT_SENSITIVITY), owners)


def geometric_step(
    clip_norms: Tensor, noised: Tensor, denominators: Tensor, quantile: float, rate: float
) -> Tensor:
    """Return the moved clip norms C exp(-η_C (b̃ - γ)).

    Args:
        clip_norms: C of each holder [m], or of its parts [m, G].
        noised: Noised sums of centred bits, of the same shape.
        denominators: The public L of each holder [m], or [m, 1].
        quantile: γ.
        rate: η_C.
    """
    not_clipped = noised / denominators + BIT_SENSITIVITY
    step = (not_clipped - quantile) * -rate
    return clip_norms * step.exp()


def split_multiplier(noise_multiplier: float, bit_noise: float) -> float:
    """Return z_Δ, the gradient's multiplier if gradient and bits together are to cost what z costs.

    Args:
        noise_multiplier: z.
        bit_noise: σ_b.

    Raises:
        ArgumentError: z ≥ 2σ_b, so that the bits alone cost more than z.
    """
    if noise_multiplier == 0:
        return 0.0
    if not noise_multiplier < 2.0 * bit_noise:
        raise ArgumentError(
            "bit_noise",
            bit_noise,
            f"> {noise_multiplier / 2.0:g}, half the noise multiplier, with split=true",
            "or split=false, which charges the bits on top",
        )
    # z (1 - (z / 2σ_b)²)^(-1/2) is the same number, but does not lose digits where z is large.
    return noise_multiplier / math.sqrt(1.0 - (noise_multiplier / (2.0 * bit_noise)) ** 2)


@declared
class QuantileClipper(StoredNorms):
    """Clip norm that moves towards the γ quantile of the norms, where γ is the fraction *not* clipped.

    The module has the formulas.

    Attributes:
        initial: Clip norm of the first round, ``initial_clip_norm`` in the configuration.
        target_quantile: γ.
        quantile_learning_rate: η_C.
        update: ``geometric`` or ``linear``.
        bit_mechanism: ``gaussian`` or ``randomized_response``.
        noised_by: ``aggregator`` for noise on the sum, ``client`` for noise on each client's bit.
        bit_noise: σ_b of Gaussian noise.
        bit_epsilon: ε of one bit with randomized response.
        split: Whether gradient and bits together cost what the noise multiplier says.
        min_clip_norm: Public lower bound of the clip norm.

    Example:
        >>> clipper = QuantileClipper(initial_clip_norm=1.0, bit_noise=5.0)
        >>> clipper.query(0, noise_multiplier=6.0).noise_multiplier  # 2 σ_b
        10.0
        >>> round(clipper.gradient_multiplier(6.0), 6)  # (6^-2 - 10^-2)^(-1/2)
        7.5
    """

    whole_steps = 1.0 / BIT_SENSITIVITY

    initial: float = field(
        CLIP_NORM, alias="initial_clip_norm", help="clip norm of the first round"
    )
    target_quantile: float = field(
        number(above=0, below=1),
        default=0.5,
        unit="γ",
        help="fraction of norms that are not clipped",
    )
    quantile_learning_rate: float = field(
        number(above=0), default=0.2, unit="η_C", help="step of the clip norm"
    )
    update: str = field(
        one_of(UPDATES), default="geometric", help="rule by which the clip norm moves"
    )
    bit_mechanism: str = field(
        one_of(MECHANISMS),
        default=GAUSSIAN,
        help="noise on the bits; randomized_response is for ldp_fedsgd with accountant=pld",
    )
    noised_by: str = field(
        one_of((AGGREGATOR, CLIENT)),
        default=AGGREGATOR,
        help="who adds the noise: a trusted aggregator to the sum, or each client to its own bit",
    )
    bit_noise: float | None = field(
        when(lambda clipper, _: clipper.bit_mechanism == GAUSSIAN, number(at_least=0)),
        default=5.0,
        unit="σ_b",
        help="std of the noise on the sum of bits, or on each client's bit",
    )
    bit_epsilon: float | None = field(
        when(
            lambda clipper, _: clipper.bit_mechanism == RESPONSE, number(at_least=1e-3, at_most=50)
        ),
        default=None,
        help="ε of one bit, with bit_mechanism=randomized_response",
    )
    split: bool = field(
        boolean,
        default=True,
        help="true: gradient and bits together cost what noise_multiplier says; false: the bits cost extra",
    )
    min_clip_norm: float = field(
        number(above=0, at_most="initial_clip_norm"),
        default=1e-6,
        help="public lower bound of the clip norm",
    )

    def __attrs_post_init__(self) -> None:
        if self.bit_mechanism == GAUSSIAN:
            if self.bit_epsilon is not None:
                allowed = "null with bit_mechanism=gaussian"
                raise ArgumentError("bit_epsilon", self.bit_epsilon, allowed)
        else:
            self.bit_noise, self.split = None, False
            if self.noised_by != CLIENT:
                raise ArgumentError(
                    "noised_by", self.noised_by, "client with bit_mechanism=randomized_response"
                )
        if self.split:
            if self.bit_noise is None or not self.bit_noise > 0:
                raise ArgumentError("bit_noise", 0, "> 0")
            self.largest_noise_multiplier = 2.0 * self.bit_noise
        if self.bit_mechanism == GAUSSIAN and self.noised_by == AGGREGATOR:
            self.aggregator_caveat = _AGGREGATED

    def gradient_multiplier(self, noise_multiplier: float) -> float:
        if not self.split or self.bit_noise is None:
            return noise_multiplier
        return split_multiplier(noise_multiplier, self.bit_noise)

    def query(self, round_index: int, noise_multiplier: float) -> Query:
        if self.bit_noise is None or self.bit_mechanism == RESPONSE:
            assert self.bit_epsilon is not None
            return RandomizedBit(CLIP_STATISTIC, self.bit_epsilon)
        return GaussianQuery(CLIP_STATISTIC, self.bit_noise / BIT_SENSITIVITY, by=self.noised_by)

    def statistic(self, norms: Tensor, owners: Tensor, clip_norms: Tensor) -> Bounded:
        return centred_bits(norms, owners, clip_norms)

    def observe(
        self, holders: Tensor, statistic: Visible | None, gradients: Visible, denominators: Tensor
    ) -> None:
        old, rate = self._norms[holders], self.quantile_learning_rate
        noised = seen(statistic, "a clipper")
        if self.update == "geometric":
            new = geometric_step(old, noised, denominators, self.target_quantile, rate)
        else:
            not_clipped = noised / denominators + BIT_SENSITIVITY
            new = old - rate * (not_clipped - self.target_quantile)
        self._norms[holders] = new.clamp(self.min_clip_norm, LARGEST).to(old.dtype)

    def describe(self) -> str:
        noise = (
            f"randomized response, epsilon {self.bit_epsilon:g} a bit"
            if self.bit_mechanism == RESPONSE
            else f"bits noised by the {self.noised_by}, std {self.bit_noise:g}"
        )
        return (
            f"clip norm {self.initial:g} at first, moving towards the {self.target_quantile:g} quantile "
            f"({self.update}, {noise})"
        )
