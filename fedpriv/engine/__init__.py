"""Engines: clipped sums of per-record gradients for many clients in one forward and backward pass.

Begin with ``interface`` (the clipped sums of a batch) and ``base`` (norms, factors and sums, block by block).
``fast`` notes what each layer reads and gives, and ``rules`` computes norms and sums from it. A model with a
layer that has no rule goes as a whole to ``with_opacus``, where Opacus forms every per-record gradient;
``make`` chooses. ``stacked`` trains clients side by side once their weights differ. ``flat_model`` holds all
weights in one vector. ``probe`` refuses models in which one record changes what is computed of another.
"""

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
