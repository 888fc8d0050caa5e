"""Import of torchvision next to a torch build that does not fit its compiled operators.

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
    """Import torchvision, and declare its missing operators only if the import fails without them.

    Returns:
        The package.

    Raises:
        ImportError: torchvision is not installed. Any other failure of the import comes out, too.
    """
    try:
        return importlib.import_module("torchvision")
    except RuntimeError as error:
        if "torchvision::nms does not exist" not in str(error):
            raise
    import torch

    # The failed import has left half-imported modules behind.
    for name in [name for name in sys.modules if name.partition(".")[0] == "torchvision"]:
        del sys.modules[name]
    library = torch.library.Library("torchvision", "DEF")
    for operator in ("nms", "qnms"):
        library.define(operator + _NMS)
    _declarations.append(library)
    return importlib.import_module("torchvision")
