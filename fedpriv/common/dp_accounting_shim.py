"""Import of parts of dp_accounting without the rest.

``import dp_accounting.dp_event`` first runs the package's own ``__init__``, which imports scipy's signal
processing, statistics and optimisation. That takes 0.8 seconds, and a run that accounts by RDP needs none of
it. :func:`put_off_init` delays ``__init__`` until a name is requested that only ``__init__`` defines.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from typing import Any

_NAME = "dp_accounting"


def put_off_init() -> None:
    """Let submodules of dp_accounting be imported without the package's ``__init__``.

    If the package is imported already, nothing happens.
    """
    if _NAME in sys.modules:
        return
    spec = importlib.util.find_spec(_NAME)
    if spec is None or spec.loader is None:  # a later import reports that the package is absent
        return
    package = importlib.util.module_from_spec(spec)

    def submodule_or_name(name: str) -> Any:
        if name.startswith("__"):  # the import system looks for optional attributes
            raise AttributeError(name)
        if importlib.util.find_spec(f"{_NAME}.{name}") is not None:
            return importlib.import_module(f"{_NAME}.{name}")
        vars(package).pop("__getattr__", None)
        package.__spec__.loader.exec_module(package)  # type: ignore[union-attr]
        return getattr(package, name)

    package.__getattr__ = submodule_or_name  # type: ignore[method-assign]
    sys.modules[_NAME] = package
