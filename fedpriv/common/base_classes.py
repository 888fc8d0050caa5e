"""Base classes of parts: attributes with a default, and parts of users that extend no base class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

_Base = TypeVar("_Base")

if TYPE_CHECKING:
    from builtins import property as fact
else:

    class fact:
        """An attribute of a base class with its default, written as a property.

        A type checker takes it for a read-only property. A subclass may have an attribute, a declared field
        or a property in its place, and an object may set an attribute of its own.
        """

        def __init__(self, default: Callable[[Any], Any]):
            self.func, self.__doc__ = default, default.__doc__

        def __get__(self, part: Any, kind: type | None = None) -> Any:
            return self if part is None else self.func(part)


def completed(part: object, base: type[_Base]) -> _Base:
    """Give a part of a class that extends nothing of fedpriv what it lacks of a base class.

    Users' data sets, partitions, models and triggers need not extend a class of fedpriv. Methods and
    attributes of ``base`` that have a default are added to the class of this one object, which keeps its
    name, module and attributes. What the class has stays, and so does what it answers by ``__getattr__``.
    """
    kind: Any = type(part)
    if not isinstance(part, base):
        lacking = (
            name
            for name, value in vars(base).items()
            if not name.startswith("_")
            and not getattr(value, "__isabstractmethod__", False)
            and not (hasattr(kind, name) or hasattr(part, name))
        )
        names: tuple[Any, Any, tuple[str, ...]] = (kind, base, tuple(lacking))
        object.__setattr__(part, "__class__", _with_defaults(*names))
    return cast("_Base", part)


@functools.cache
def _with_defaults(kind: type, base: Any, names: tuple[str, ...]) -> type:
    """Return a subclass that has these methods and attributes of ``base``, and counts as one of ``base``."""
    alike = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    added = {name: vars(base)[name] for name in names}
    made = type(kind)(kind.__name__, (kind,), {"__slots__": (), **alike, **added})
    base.register(made)
    return made
