"""Who wrote which text, and whose texts are public, for testing, or a client's.

Texts are dealt out by author with a rule that depends on the author's name alone: a number in [0, 1)
made from a hash of it. It depends on no seed, and on nobody else's data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TRAIN, TEST, PUBLIC = 0, 1, 2


@dataclass(frozen=True)
class Corpus:
    """n texts: who wrote each, which role each has (TRAIN, TEST, PUBLIC: int8 [n]), and their labels
    (int64 [n]) if the data set has labels."""

    texts: list[str]
    authors: list[str]
    roles: np.ndarray
    labels: np.ndarray | None = None

    def of(self, role: int) -> np.ndarray:
        """Positions of the texts with this role, int64."""
        return np.flatnonzero(self.roles == role)


def fraction_of(name: str) -> float:
    """A number in [0, 1) that depends on the name alone; names spread evenly."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def deal(authors: Sequence[str], public_share: float, test_share: float) -> np.ndarray:
    """Roles int8 [n]: the authors below ``public_share`` are public, those in the ``test_share`` above
    it are for testing, with all they wrote."""
    roles = {}
    for author in set(authors):
        fraction = fraction_of(author)
        public, test = fraction < public_share, fraction < public_share + test_share
        roles[author] = PUBLIC if public else TEST if test else TRAIN
    return np.array([roles[author] for author in authors], dtype=np.int8)
