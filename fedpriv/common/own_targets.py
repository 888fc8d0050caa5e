"""What a ``_target_`` outside fedpriv takes, for messages about keys that it is given."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Sequence

from fedpriv.common.attributes import PACKAGE
from fedpriv.common.errors import ConfigError, nearest, show


def key_of_own_target(key: str, overrides: Sequence[str]) -> ConfigError | None:
    """Return the error for a key that the user's own class may take, but that its group does not list.

    Args:
        key: The dotted key, such as ``model.width``.
        overrides: The arguments of the command, which name the class: ``model._target_=my.Net``.

    Returns:
        None if the overrides name no class of the user's own, or if its arguments cannot be read.
    """
    group, _, name = key.rpartition(".")
    targets = [o.partition("=")[2] for o in overrides if o.startswith(f"{group}._target_=")]
    if not group or not targets or targets[-1].startswith(PACKAGE):
        return None
    module, _, attribute = targets[-1].rpartition(".")
    try:
        parameters = inspect.signature(
            getattr(importlib.import_module(module), attribute)
        ).parameters
    except Exception:  # making the object says what is wrong with it
        return None
    value = next((o.partition("=")[2] for o in overrides if o.startswith(f"{key}=")), "VALUE")
    kinds = {parameter.kind for parameter in parameters.values()}
    if name in parameters or inspect.Parameter.VAR_KEYWORD in kinds:
        return ConfigError(
            f"unknown key {key}: a key that the YAML does not have is added with a plus, and {targets[-1]} "
            f"takes it: +{show(key)}={show(value)}"
        )
    near = nearest(name, parameters, cutoff=0.6)
    hint = f"; did you mean +{group}.{near}={show(value)}?" if near else ""
    taken = ", ".join(parameters) or "no argument"
    return ConfigError(f"unknown key {show(key)}{hint} ({targets[-1]} takes: {taken})")
