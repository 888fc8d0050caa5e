"""Names of records apart from the records: imports nothing heavy."""

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
    """Which half a shadow run has, of a pool with which other records; ``seed``: of pool and halves."""

    half: int
    nonmembers: str
    seed: int
