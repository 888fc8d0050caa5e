"""How many random examples a law is tried on."""

from __future__ import annotations

import os

ALL = "FEDPRIV_ALL_EXAMPLES"
"""Variable that asks for all of them: for who changes what a law is about."""


def examples(count: int) -> int:
    """Return ``count`` with ``FEDPRIV_ALL_EXAMPLES=1``, else a third of it, or fifteen if that is more."""
    return count if os.environ.get(ALL) == "1" else min(count, max(15, count // 3))
