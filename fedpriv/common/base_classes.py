"""Tools for base classes of parts: attributes with a default, and parts that extend no base class."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar, cast

_Base = TypeVar("_Base")

if TYPE_CHECKING:
    from builtins import property as fact
else:

    class fact:
        """An attribute of a base class whose default is written as a property.

        A type checker takes the attribute for a read-only property. Unlike a property, the attribute can be
        replaced: a subclass may define an attribute, a declared field or a property of this name, and an
        object may set the attribute on itself.

        Args:
            default: The function below the decorator, which returns the default for a part.
        """

        def __init__(self, default: Callable[[Any], Any]):
            self.func, self.__doc__ = default, default.__doc__

        def __get__(self, part: Any, kind: type | None = None) -> Any:
            return self if part is None else self.func(part)


def completed(part: object, base: type[_Base]) -> _Base:
    """Add the defaults of a base class to a part whose class does not extend it.

    Users' data sets, partitions, models and triggers need not extend a class of fedpriv. The class of this
    one object is replaced by a subclass with the missing methods and attributes. Name, module and attributes
    stay, and so does everything that the class defines, ``__getattr__`` included.

    Args:
        part: The object; it is changed in place.
        base: The base class.

    Returns:
        The same object.
    """
    kind: Any = type(part)
    if not isinstance(part, base):
        missing_names = (
            name
            for name, value in vars(base).items()
            if not name.startswith("_")
            and not getattr(value, "__isabstractmethod__", False)
            and not (hasattr(kind, name) or hasattr(part, name))
        )
        base_class: Any = base  # to the type checker an abstract class cannot be hashed
        completed_class = _with_defaults(kind, base_class, tuple(missing_names))
        object.__setattr__(part, "__class__", completed_class)
    return cast("_Base", part)


@functools.cache
def _with_defaults(kind: type, base: Any, names: tuple[str, ...]) -> type:
    """Return a subclass of ``kind`` with these attributes of ``base``, registered as a ``base``."""
    unchanged = {name: getattr(kind, name) for name in ("__module__", "__qualname__", "__doc__")}
    added = {name: vars(base)[name] for name in names}
    completed_class = type(kind)(kind.__name__, (kind,), {"__slots__": (), **unchanged, **added})
    base.register(completed_class)
    return completed_class
