"""Names of kinds of audit records. This module imports nothing heavy."""

from __future__ import annotations

from dataclasses import dataclass

TEST, HELD_OUT = "test", "held_out"
NONMEMBERS = (TEST, HELD_OUT)
"""Records that no client has: those of the test set, or training records."""
DIRECTION, MISLABELLED = "direction", "mislabelled"
CANARIES = (DIRECTION, MISLABELLED)
"""What an audit of ε plants: a gradient of one direction, or copies of training inputs with wrong labels."""


@dataclass(frozen=True)
class Shadow:
    """The data of a shadow run: one half of one split of the record pool.

    Attributes:
        half: Number of the half; halves 2j and 2j+1 are the two halves of split j.
        nonmembers: Origin of the records in the pool that no client holds: ``test`` or ``held_out``.
        seed: Seed of the pool and of its splits.
    """

    half: int
    nonmembers: str
    seed: int
