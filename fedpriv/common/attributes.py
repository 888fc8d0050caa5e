"""Whether an object is the user's own."""

from __future__ import annotations

PACKAGE = "fedpriv."


def is_own(part: object) -> bool:
    """Return whether the class of an object is defined outside fedpriv."""
    return not type(part).__module__.startswith(PACKAGE)
