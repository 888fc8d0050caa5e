"""Values that may be seen outside a client, by why they may.

The server step, clippers (``observe``) and noise schedules (``observe``) take these and nothing else: a
plain tensor is private.
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
    """A value that may be seen. What is computed from it alone is post-processing, and as visible."""

    __slots__ = ("values",)
    values: _Values

    def __init__(self, values: _Values):
        self.values = values

    def like(self, values: _Result) -> Visible[_Result]:
        """Return ``values``, which were computed from this value and public ones alone, as visible as it is:
        post-processing is free."""
        made: Any = object.__new__(type(self))
        made.values = values
        return made

    def then(self, function: Callable[[_Values], _Result]) -> Visible[_Result]:
        """Return ``function`` of the values, as visible as they are."""
        return self.like(function(self.values))

    def with_foreign(self: Visible[Tensor], rows: Tensor, foreign: Foreign) -> Visible[Tensor]:
        """The rows of all clients [c, d], those where ``rows`` [c] (bool) replaced by what attackers send."""
        return self.then(lambda own: foreign.values.where(rows[:, None], own))


class Released(Visible[_Values]):
    """Made by a mechanism, which added noise and wrote down a :class:`Release` of it."""

    __slots__ = ()

    def __init__(self, values: _Values, *, made: object = None):
        if made is not _MADE_BY_MECHANISM:
            raise ReleaseError(
                "a Released is made by a mechanism, which noises it and writes it down, and by nothing else"
            )
        super().__init__(values)


class Unprotected(Visible[_Values]):
    """Released without noise, and written down so: ε is infinite (or the run claims no privacy)."""

    __slots__ = ()


class Public(Visible[_Values]):
    """Known to everyone: it reads no private record."""

    __slots__ = ()


class Foreign(Visible["Tensor"]):
    """What attackers send: it protects nobody and is charged to nobody."""

    __slots__ = ()


def released(values: _Values, protected: bool) -> Visible[_Values]:
    """The value as a mechanism lets it go. For mechanisms alone."""
    return Released(values, made=_MADE_BY_MECHANISM) if protected else Unprotected(values)


def seen(value: Visible[_Values] | None, whose: str) -> _Values:
    """The values of something visible. Raises ReleaseError for anything else, which would be private."""
    if isinstance(value, Visible):
        return value.values
    raise ReleaseError(
        f"{whose} takes what a mechanism released (or what is public), got a {type(value).__name__}, which "
        "would leave a client without noise and without a charge"
    )
