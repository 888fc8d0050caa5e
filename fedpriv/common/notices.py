"""What a command says on standard error beside its result: a line each, once."""

from __future__ import annotations

import sys

from fedpriv.common.words import printable

_MOST = 20
_NOTICES: dict[str, str] = {}


def notice(text: str, kind: str = "") -> None:
    """Let the command say ``text`` at its end. Of one ``kind``, if it is named, only the first is said."""
    _NOTICES.setdefault(kind or text, text)


def complain(text: str, command: str = "fedpriv") -> None:
    """Print a line on standard error at once; nothing in it is obeyed by the terminal."""
    print(printable(f"{command}: {text}"), file=sys.stderr, flush=True)


def take() -> list[str]:
    """Return what is to be said, and forget it."""
    texts = list(_NOTICES.values())
    _NOTICES.clear()
    more = len(texts) - _MOST
    return texts if more <= 0 else [*texts[:_MOST], f"and {more} more like these"]
