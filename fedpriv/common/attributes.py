"""Digests of the attributes of users' objects, which show whether the state of an object has changed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

from fedpriv.common.exact import attributes_of, exact_digest

PACKAGE = "fedpriv."
_SHOWN_BY_REPR = ("array", "builtins", "collections", "itertools")
"""Modules of Python whose objects have no attributes; their ``repr`` shows the content."""


def is_own(part: object) -> bool:
    """Return whether the class of an object is defined outside fedpriv."""
    return not type(part).__module__.startswith(PACKAGE)


def attribute_digests(part: object, ignored: Collection[int] = ()) -> dict[str, str]:
    """Return a digest of each attribute of an object and of its class, by name.

    Tensors and arrays count bit for bit, containers and objects of classes outside fedpriv by their content.
    Objects of fedpriv and modules of torch count as unchanged, because their state is kept elsewhere.

    Args:
        part: The object.
        ignored: Addresses of memory that belongs to another object, such as the weights of the model.
    """
    values = {}
    for kind in reversed(type(part).__mro__):
        if not kind.__module__.startswith((PACKAGE, "builtins")):
            class_values = {
                name: value
                for name, value in vars(kind).items()
                if _is_plain(value) and not name.startswith("__")
            }
            values.update(class_values)
    values.update(getattr(part, "__dict__", {}))
    digests = {}
    for name, value in values.items():
        storage = getattr(value, "untyped_storage", None)
        if storage is None or storage().data_ptr() not in ignored:
            digests[name] = exact_digest(value, attributes=_covered_attributes)
    return digests


def changed_attributes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names whose digests differ, sorted."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _is_plain(value: object) -> bool:
    """Return whether a class attribute can hold state, as a container or an array does and a method not."""
    return isinstance(value, (Mapping, Sequence, Set, int, float)) or hasattr(value, "dtype")


def _covered_attributes(value: Any) -> Mapping[str, Any]:
    """Return what a digest covers of an object that is no plain value, by name.

    Random generators give their state, and objects of a few Python modules their ``repr``. Other objects of
    fedpriv and torch, and models, give nothing, because their state is kept elsewhere. All others give their
    attributes.
    """
    module = type(value).__module__
    for state in ("get_state", "getstate"):  # random generators of torch, NumPy and Python
        if hasattr(value, state) and not isinstance(value, type):
            return {"state": getattr(value, state)()}
    if hasattr(value, "bit_generator"):
        return {"state": value.bit_generator.state}
    if module in _SHOWN_BY_REPR and not callable(value):
        return {"text": repr(value)}
    if not is_own(value) or module.startswith("torch.") or hasattr(value, "named_parameters"):
        return {}
    return attributes_of(value)
