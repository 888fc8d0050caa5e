"""Texts with their authors, and the roles of texts: public, test or training.

A text's role depends on the name of its author alone: a hash maps the name to a number in [0, 1). The role
depends on no seed and on nobody else's data.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

TRAIN, TEST, PUBLIC = 0, 1, 2


@dataclass(frozen=True)
class Corpus:
    """Texts with their authors, roles and labels.

    Attributes:
        texts: The n texts.
        authors: Author of each text.
        roles: TRAIN, TEST or PUBLIC for each text, int8 [n].
        labels: Labels, int64 [n]; None if the data set has none.
    """

    texts: list[str]
    authors: list[str]
    roles: np.ndarray
    labels: np.ndarray | None = None

    def of(self, role: int) -> np.ndarray:
        """Return the indices (int64) of the texts with this role."""
        return np.flatnonzero(self.roles == role)


def fraction_of(name: str) -> float:
    """Return a number in [0, 1) that depends on the name alone; names are spread uniformly."""
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "little") / 2**64


def deal(authors: Sequence[str], public_share: float, test_share: float) -> np.ndarray:
    """Return the role of each text by its author, int8 [n].

    An author whose fraction (:func:`fraction_of`) is below ``public_share`` is public; an author whose
    fraction is in the next ``test_share`` is for testing. All texts of an author have the same role. The
    shares are of the authors, so their texts may be more or fewer.

    Args:
        authors: Author of each text.
        public_share: Share of the authors whose texts are public.
        test_share: Share of the authors whose texts are for testing.
    """
    roles = {}
    for author in set(authors):
        fraction = fraction_of(author)
        is_public, is_not_training = fraction < public_share, fraction < public_share + test_share
        roles[author] = PUBLIC if is_public else TEST if is_not_training else TRAIN
    return np.array([roles[author] for author in authors], dtype=np.int8)
