"""Importing parts of dp_accounting without the rest.

``import dp_accounting.dp_event`` first runs the package's own ``__init__``, which imports scipy's signal
processing, statistics and optimisation: 0.8 seconds, of which a run that accounts by RDP needs none. Here the
package's ``__init__`` is put off until somebody asks the package itself for a name that it lacks.

Where dp_accounting was imported before, nothing is done.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

_NAME = "dp_accounting"


def put_off_init() -> None:
    """Let submodules of dp_accounting be imported without the package's ``__init__``."""
    if _NAME in sys.modules:
        return
    spec = importlib.util.find_spec(_NAME)
    if spec is None or spec.loader is None:  # its absence is for who imports it to say
        return
    package = importlib.util.module_from_spec(spec)
    package.__getattr__ = _initialising(package)  # type: ignore[method-assign]
    sys.modules[_NAME] = package


def _initialising(package: ModuleType) -> Any:
    """The package's ``__getattr__``: a submodule, or what its ``__init__``, run now, gives that name."""

    def get(name: str) -> Any:
        if name.startswith("__"):  # asked by the import system, which does without
            raise AttributeError(name)
        if importlib.util.find_spec(f"{_NAME}.{name}") is not None:
            return importlib.import_module(f"{_NAME}.{name}")
        vars(package).pop("__getattr__", None)
        package.__spec__.loader.exec_module(package)  # type: ignore[union-attr]
        return getattr(package, name)

    return get
