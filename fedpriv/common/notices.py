"""What a command says on standard error beside its result: a line each, once."""

from __future__ import annotations

_MOST = 20
_NOTICES: dict[str, str] = {}


def notice(text: str, kind: str = "") -> None:
    """Let the command say ``text`` at its end. Of one ``kind``, if it is named, only the first is said."""
    _NOTICES.setdefault(kind or text, text)


def take() -> list[str]:
    """Return what is to be said, and forget it."""
    texts = list(_NOTICES.values())
    _NOTICES.clear()
    more = len(texts) - _MOST
    return texts if more <= 0 else [*texts[:_MOST], f"and {more} more like these"]
