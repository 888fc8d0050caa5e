"""Notices of a command on standard error, beside its result: one line each, printed once."""

from __future__ import annotations

import sys

from fedpriv.common.words import printable

_MOST = 20
_NOTICES: dict[str, str] = {}


def notice(text: str, kind: str = "") -> None:
    """Let the command print a text at its end.

    Args:
        text: The text, in one line.
        kind: Of several notices of one kind, only the first is printed; empty: the kind is the text.
    """
    _NOTICES.setdefault(kind or text, text)


def complain(text: str, command: str = "fedpriv") -> None:
    """Print a line on standard error at once, with control characters replaced."""
    print(printable(f"{command}: {text}"), file=sys.stderr, flush=True)


def take() -> list[str]:
    """Return the notices so far, at most 20 of them, and forget all."""
    texts = list(_NOTICES.values())
    _NOTICES.clear()
    hidden = len(texts) - _MOST
    return texts if hidden <= 0 else [*texts[:_MOST], f"and {hidden} more like these"]
