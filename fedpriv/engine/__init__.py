"""Gradients: per-record clipped sums for many clients in one forward and backward pass."""

from fedpriv.engine.allocator import tune_allocator
from fedpriv.engine.flat_model import FlatModel, Loss, channels_last, cross_entropy
from fedpriv.engine.interface import ClippedSums, Copies, Engine, Factors, plain_gradient
from fedpriv.engine.lots import PaddedLots, padded_lots, rows_at, sum_dtype
from fedpriv.engine.make import ENGINES, make_engine
from fedpriv.engine.stacked import StackedModel

__all__ = [
    "ENGINES",
    "ClippedSums",
    "Copies",
    "Engine",
    "Factors",
    "FlatModel",
    "Loss",
    "PaddedLots",
    "StackedModel",
    "channels_last",
    "cross_entropy",
    "make_engine",
    "padded_lots",
    "plain_gradient",
    "rows_at",
    "sum_dtype",
    "tune_allocator",
]
