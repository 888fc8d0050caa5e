"""Starting and ending a process without searching for garbage that is not there.

Importing torch and matplotlib makes half a million objects that all stay. Python's cyclic garbage collector
goes through them again and again while they are made, and once more at the end: 0.8 of 1.9 seconds.
"""

from __future__ import annotations

import gc

_RARELY = 100_000  # new objects between two searches; Python's own number is in the hundreds
_usual = gc.get_threshold()


def begin() -> None:
    """Search rarely: for the process of a command, from its beginning."""
    gc.set_threshold(_RARELY)


def over() -> None:
    """Search as usual, but not among what is there already: before what takes long."""
    if gc.get_threshold()[0] == _RARELY:
        gc.freeze()
        gc.set_threshold(*_usual)


def end() -> None:
    """Leave everything to the system: the process ends now."""
    gc.freeze()
