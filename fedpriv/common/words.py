"""Small words for messages."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """``1 round``, ``2 rounds``."""
    return f"{number} {noun}" + ("" if number == 1 else "s")
