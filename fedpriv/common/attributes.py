"""Whose class an object is of."""

from __future__ import annotations

from collections.abc import Iterable

PACKAGE = "fedpriv."


def is_own(part: object) -> bool:
    """Return whether the class of an object is defined outside fedpriv."""
    return not type(part).__module__.startswith(PACKAGE)


def own_classes(parts: Iterable[object]) -> list[str]:
    """Return the full names of the classes outside fedpriv among those of some objects, sorted."""
    kinds = {type(part) for part in parts if part is not None and is_own(part)}
    return sorted(f"{kind.__module__}.{kind.__qualname__}" for kind in kinds)
