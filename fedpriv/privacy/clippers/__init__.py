"""Clippers: how each record's (or client's) gradient is bounded, and how the bound moves."""

from fedpriv.privacy.clippers.adap import AdapClipper
from fedpriv.privacy.clippers.base import Clipper
from fedpriv.privacy.clippers.fixed import AutomaticClipper, ConstantClipper, NoClipper

__all__ = ["AdapClipper", "AutomaticClipper", "Clipper", "ConstantClipper", "NoClipper"]
