"""Per-layer and group-wise clipping.

    ḡ_p = g_p min(1, C_p/‖g_p‖)   for each layer, or group of layers, p = 1 … G;   sensitivity √(Σ_p C_p²)

Fixed: ``clip_norms`` C_p, or one ``clip_norm`` C spread evenly, C_p = C/√G. Adaptive: each C_p follows a
quantile of the norms of its part by noised bits, as in :mod:`fedpriv.privacy.clippers.quantile`,

    b̃_p = (Σ_i (b_ip - ½) + N(0, G σ_b²)) / L + ½,     C_p ← C_p exp(-η_C (b̃_p - γ))

A unit moves the G sums of centred bits by ½ √G together in L2. The noise on each sum is √G σ_b, so the query
has the multiplier 2 σ_b however many layers the model has. Noise on the gradient is isotropic with the
sensitivity above (the paper's "global" allocation).

Source: He et al., "Exploring the limits of differentially private deep learning with group-wise clipping",
ICLR 2023.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import (
    declared,
    field,
    number,
    or_null,
    own_check,
    same_as,
    set_apart,
    when,
)
from fedpriv.privacy.clippers.base import CLIP_NORM, LARGEST, Clipper
from fedpriv.privacy.clippers.parts import LayerGroups, Layers, grouped
from fedpriv.privacy.clippers.quantile import (
    BIT_SENSITIVITY,
    QuantileClipper,
    geometric_step,
    split_multiplier,
)
from fedpriv.privacy.core.names import AGGREGATOR
from fedpriv.privacy.mechanisms.bounded import bounded_rows
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import CLIP_STATISTIC
from fedpriv.privacy.mechanisms.visible import Visible, seen

if TYPE_CHECKING:
    import torch
    from torch import Tensor

    from fedpriv.privacy.mechanisms.bounded import Bounded


def _clip_norms(name: str, values: Any) -> list[float]:
    numbers = checks.sequence(name, values, "a list of numbers")
    return [checks.number(name, value, above=0, at_most=LARGEST) for value in numbers]


def _alone(part: PerLayerClipper, value: Any) -> bool:
    return value is not None and part.initial is None


def _names(name: str, groups: Any) -> list[list[str]]:
    """Return groups of layers by name. Torch numbers layers, which YAML reads as numbers."""
    allowed = "a list of lists of names of layers"
    layer_groups = [
        list(checks.sequence(name, group, allowed))
        for group in checks.sequence(name, groups, allowed)
    ]
    for layer in itertools.chain(*layer_groups):
        if isinstance(layer, bool) or not isinstance(layer, str | int):
            raise ArgumentError(name, groups, allowed)
    return [[str(layer) for layer in group] for group in layer_groups]


@declared
class PerLayerClipper(Clipper):
    """Clipping of each layer, or each group of layers, with a clip norm of its own.

    Of ``clip_norm`` and ``clip_norms`` exactly one is given. ``clip_norms`` lists C_p of each part, and
    ``groups`` the names of the layers of each part; without ``groups`` each layer is a part.

    Attributes:
        initial: C, ``clip_norm`` in the configuration, spread evenly over the parts: C_p = C/√G. None if
            ``clip_norms`` are given; then set to √(Σ_p C_p²).

    Example:
        >>> import torch
        >>> clipper = PerLayerClipper(clip_norm=None, clip_norms=[3.0, 4.0])
        >>> clipper.see_layers([("conv", slice(0, 10)), ("linear", slice(10, 15))])
        >>> clipper.start(1, "cpu", None)
        >>> clipper.clip_norm(0, torch.tensor([0])).tolist()  # the sensitivity
        [5.0]
    """

    saved_attributes: ClassVar = {"bounds": "_norms"}

    initial: float | None = field(
        or_null(CLIP_NORM),
        default=1.0,
        alias="clip_norm",
        help="total clip norm C, divided evenly: C_l = C/√layers; null: clip_norms gives each C_l",
    )
    _given: Sequence[float] | None = field(
        when(_alone, own_check(_clip_norms, "list of numbers > 0")),
        default=None,
        alias="clip_norms",
        help="C_l of each layer or group, with clip_norm=null",
    )
    _groups: Sequence[Sequence[str]] | None = field(
        or_null(own_check(_names, "list of lists")),
        default=None,
        help="lists of names of layers that are clipped together; null: each layer by itself",
    )

    def __attrs_post_init__(self) -> None:
        if (self.initial is None) == (self._given is None):
            allowed = (
                "a list, or clip_norm a number"
                if self._given is None
                else "null, or a list with clip_norm=null"
            )
            raise ArgumentError("clip_norms", self._given, allowed)
        if self._given is not None:
            self.initial = math.hypot(*self._given)
        self._parts: LayerGroups | None = None

    def see_layers(self, layers: Layers) -> None:
        self._parts = grouped(layers, self._groups)
        if self._given is not None and len(self._given) != len(self._parts):
            raise ArgumentError(
                "clip_norms",
                self._given,
                f"{len(self._parts)} numbers: {', '.join(self._parts.names)}",
            )

    @property
    def parts(self) -> LayerGroups | None:
        return self._parts

    def start(
        self, clients: int, device: str | torch.device, initial_norm: Callable[[], float] | None
    ) -> None:
        import torch

        assert self._parts is not None
        assert self.initial is not None
        count = len(self._parts)
        part_norms = self._given or [self.initial / math.sqrt(count)] * count
        self._norms = torch.tensor(part_norms, device=device).repeat(clients, 1)

    def part_norms(self, round_index: int, holders: Tensor) -> Tensor:
        return self._norms[holders]

    def clip_norm(self, round_index: int, holders: Tensor) -> Tensor:
        return self._norms[holders].square().sum(1).sqrt()

    def describe(self) -> str:
        what = "layer" if self._groups is None else "group of layers"
        return f"each {what} by itself, clip norm {self.initial:g} for all of them together"


@declared
class PerLayerQuantileClipper(PerLayerClipper):
    """Clipping of each part at a quantile of its norms, tracked by noised bits.

    The bits are noised by a trusted aggregator, or by each client where the client holds its own clip norms.

    Attributes:
        initial: Clip norm of the first round of all parts together, ``initial_clip_norm`` in the
            configuration.
        target_quantile: γ, the fraction of norms that are not clipped.
        quantile_learning_rate: η_C.
        bit_noise: σ_b; the noise on each sum of bits has standard deviation √G σ_b.
        split: Whether gradient and bits together cost what the noise multiplier says.
        min_clip_norm: Public lower bound of each clip norm.

    Example:
        >>> clipper = PerLayerQuantileClipper(initial_clip_norm=1.0, bit_noise=5.0)
        >>> clipper.query(0, noise_multiplier=1.0).noise_multiplier
        10.0
    """

    initial: float = field(
        CLIP_NORM,
        alias="initial_clip_norm",
        help="clip norm of the first round, of all layers together",
    )
    _given: None = set_apart(None)
    target_quantile: float = same_as(QuantileClipper, "target_quantile")
    quantile_learning_rate: float = same_as(QuantileClipper, "quantile_learning_rate")
    bit_noise: float = field(
        number(above=0),
        default=5.0,
        unit="σ_b",
        help="std of the noise on each sum of bits, divided by √layers",
    )
    split: bool = same_as(QuantileClipper, "split")
    _groups: Sequence[Sequence[str]] | None = same_as(PerLayerClipper, "_groups")
    min_clip_norm: float = same_as(QuantileClipper, "min_clip_norm")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.split:
            self.largest_noise_multiplier = 2.0 * self.bit_noise
        self.aggregator_caveat = (
            "The fractions of unclipped layers are summed and noised by a trusted aggregator, which is "
            "simulated: whoever runs it sees every client's exact bits."
        )

    def gradient_multiplier(self, noise_multiplier: float) -> float:
        return (
            split_multiplier(noise_multiplier, self.bit_noise) if self.split else noise_multiplier
        )

    def query(self, round_index: int, noise_multiplier: float) -> GaussianQuery:
        return GaussianQuery(CLIP_STATISTIC, self.bit_noise / BIT_SENSITIVITY, by=AGGREGATOR)

    def statistic(self, norms: Tensor, owners: Tensor, clip_norms: Tensor) -> Bounded:
        bits = (norms <= clip_norms[owners]).to(norms.dtype) - BIT_SENSITIVITY
        # Each of the G centred bits is ±½, so a unit's vector of bits has norm ½ √G whichever bits are set.
        most = BIT_SENSITIVITY * math.sqrt(norms.shape[1])
        return bounded_rows(bits, clip_norms.new_full((len(clip_norms),), most), owners)

    def observe(
        self, holders: Tensor, statistic: Visible | None, gradients: Visible, denominators: Tensor
    ) -> None:
        old = self._norms[holders]
        new = geometric_step(
            old,
            seen(statistic, "a clipper"),
            denominators[:, None],
            self.target_quantile,
            self.quantile_learning_rate,
        )
        self._norms[holders] = new.clamp(self.min_clip_norm, LARGEST).to(old.dtype)

    def describe(self) -> str:
        what = "layer" if self._groups is None else "group of layers"
        return (
            f"each {what} by itself, towards the {self.target_quantile:g} quantile of its norms from "
            f"{self.initial:g} in all (bits noised, std {self.bit_noise:g} times the root of their number)"
        )
