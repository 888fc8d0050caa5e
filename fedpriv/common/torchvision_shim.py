"""Importing torchvision next to a torch build that its compiled operators do not fit.

PyPI's torchvision is built against CUDA. On a CPU-only torch its extension cannot be loaded, and
the import ends with ``RuntimeError: operator torchvision::nms does not exist``, because torchvision
describes that operator without first looking whether it is there. fedpriv needs no operator of
torchvision; declaring the two names lets the import pass. Calling one of them still fails.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
_declarations: list[Any] = []  # torch withdraws a declaration when its Library object is collected


def import_torchvision() -> ModuleType:
    """The torchvision package; where it imports without help, nothing is declared.

    Raises whatever the import raises for any other reason (``ImportError`` if not installed).
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    _forget_half_imported_modules()
    _declare_operators()
    return importlib.import_module("torchvision")


def _forget_half_imported_modules() -> None:
    for name in [m for m in sys.modules if m.partition(".")[0] == "torchvision"]:
        del sys.modules[name]


def _declare_operators() -> None:
    import torch

    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(operator + _NMS)
    _declarations.append(library)
