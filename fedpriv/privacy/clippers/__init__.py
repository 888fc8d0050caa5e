"""Clippers: bounds on the gradient of each record, or on the upload of each client, and how the bounds move.

Begin with ``base``, the interface, and ``fixed``, the simplest clippers. ``step_clip`` applies a clipper in
one local step, and enforces the clip norm for any clipper.
"""

from fedpriv.privacy.clippers.adap import AdapClipper
from fedpriv.privacy.clippers.base import Clipper
from fedpriv.privacy.clippers.fixed import (
    AutomaticClipper,
    ConstantClipper,
    NoClipper,
    PolynomialClipper,
)
from fedpriv.privacy.clippers.histogram import MedianHistogramClipper
from fedpriv.privacy.clippers.per_layer import PerLayerClipper, PerLayerQuantileClipper
from fedpriv.privacy.clippers.quantile import QuantileClipper

__all__ = [
    "AdapClipper",
    "AutomaticClipper",
    "Clipper",
    "ConstantClipper",
    "MedianHistogramClipper",
    "NoClipper",
    "PerLayerClipper",
    "PerLayerQuantileClipper",
    "PolynomialClipper",
    "QuantileClipper",
]
