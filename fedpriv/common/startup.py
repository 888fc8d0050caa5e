"""Garbage collection while a process starts and ends.

Importing torch and matplotlib makes half a million objects, and all of them stay. Python's cyclic garbage
collector scans these objects again and again during the imports, and once more at the end. That took 0.8 of
1.9 seconds of a short command.
"""

from __future__ import annotations

import gc

_RARELY = 100_000  # new objects between two collections; Python's default is 700
_usual = gc.get_threshold()


def begin() -> None:
    """Let the collector run rarely, from the beginning of a command on."""
    gc.set_threshold(_RARELY)


def over() -> None:
    """Let the collector run as usual, but skip all existing objects. Called before the long work begins."""
    if gc.get_threshold()[0] == _RARELY:
        gc.freeze()
        gc.set_threshold(*_usual)


def end() -> None:
    """Skip the last collection, because the system frees all memory of the process anyway."""
    gc.freeze()
