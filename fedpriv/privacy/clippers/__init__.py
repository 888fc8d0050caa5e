"""Clippers: how each record's (or client's) gradient is bounded, and how the bound moves.

Begin with ``base`` (what a clipper states and may ask) and ``fixed`` (the simplest ones). ``clip`` applies a
clipper in one local step and enforces its clip norm whatever the clipper returns.
"""

from fedpriv.privacy.clippers.adaclip import AdaClipper
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
    "AdaClipper",
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
