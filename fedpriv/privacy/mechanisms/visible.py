"""Values that may be seen outside a client, classified by the reason why they may be seen.

The server step and the ``observe`` methods of clippers and noise schedules take these values and nothing
else. A plain tensor counts as private.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from fedpriv.common.errors import ReleaseError

if TYPE_CHECKING:
    from torch import Tensor

_MADE_BY_MECHANISM = object()


_Values = TypeVar("_Values")
_Result = TypeVar("_Result")


class Visible(Generic[_Values]):
    """A value that anyone may see.

    Whatever is computed from visible and public values alone is post-processing, and stays as visible as it
    was at no privacy cost.

    Attributes:
        values: The value, such as the noised means [m, d].
    """

    __slots__ = ("values",)
    values: _Values

    def __init__(self, values: _Values):
        self.values = values

    def like(self, values: _Result) -> Visible[_Result]:
        """Return other values with the same visibility as this one.

        Args:
            values: A result that was computed from this value and public values alone.
        """
        # Around the constructor, which in Released refuses everyone but a mechanism.
        visible: Any = object.__new__(type(self))
        visible.values = values
        return visible

    def then(self, function: Callable[[_Values], _Result]) -> Visible[_Result]:
        """Return ``function(values)``, with the same visibility as this value."""
        return self.like(function(self.values))

    def with_foreign(self: Visible[Tensor], rows: Tensor, foreign: Foreign) -> Visible[Tensor]:
        """Return the rows of all clients [c, d], some of them replaced by uploads of attackers.

        Args:
            rows: Mask of the rows to replace [c].
            foreign: Uploads of the attackers [c, d]; only the rows of the mask are read.
        """
        return self.then(lambda uploads: foreign.values.where(rows[:, None], uploads))


class Released(Visible[_Values]):
    """A value that a mechanism noised and recorded in a :class:`~fedpriv.privacy.mechanisms.release.Release`.

    Its privacy cost is charged to every client named in that record. Only mechanisms make a ``Released``; the
    constructor refuses other callers.

    Attributes:
        values: The noised value, such as the noised means [m, d].

    Raises:
        ReleaseError: The constructor was called by something other than a mechanism.

    Example:
        >>> Released(3.0)  # doctest: +ELLIPSIS
        Traceback (most recent call last):
        ...
        fedpriv.common.errors.ReleaseError: a Released is made by a mechanism ...
    """

    __slots__ = ()

    def __init__(self, values: _Values, *, made: object = None):
        if made is not _MADE_BY_MECHANISM:
            raise ReleaseError(
                "a Released is made by a mechanism alone, which adds the noise and records the release"
            )
        super().__init__(values)


class Unprotected(Visible[_Values]):
    """A value released without noise and recorded so: ε is infinite, or the run claims no privacy."""

    __slots__ = ()


class Public(Visible[_Values]):
    """A value known to everyone, which depends on no private record."""

    __slots__ = ()


class Foreign(Visible["Tensor"]):
    """Uploads of attackers. They protect nobody and are charged to nobody."""

    __slots__ = ()


def released(values: _Values, protected: bool) -> Visible[_Values]:
    """Return a value as a mechanism releases it. For mechanisms alone.

    Args:
        values: The value, noised if ``protected``.
        protected: Whether noise was added.
    """
    return Released(values, made=_MADE_BY_MECHANISM) if protected else Unprotected(values)


def seen(value: Visible[_Values] | None, whose: str) -> _Values:
    """Return the values of something visible.

    Args:
        value: The argument of an ``observe`` method or of a server step.
        whose: The receiver, for the message.

    Raises:
        ReleaseError: The value is not visible, hence private.
    """
    if isinstance(value, Visible):
        return value.values
    raise ReleaseError(
        f"{whose} takes released or public values, got a {type(value).__name__}, which is private: it has no "
        "noise and no charge"
    )
