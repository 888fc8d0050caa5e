"""Augmentation multiplicity: the gradient of a record is the mean over K randomly changed copies.

    g_i = (1/K) Σ_j ∇ℓ(a_j(x_i), y_i),    ḡ_i = g_i min(1, C/‖g_i‖)

a_j is a flip, a crop, or both, drawn anew for every copy, record and step. The mean is clipped, not the
copies: a record still moves the sum by at most C, so noise and ε are those of plain training.

Sources: Hoffer et al., "Augment your batch", 2019; De et al., "Unlocking high-accuracy differentially private
image classification through scale", 2022 (crops out of a border of 4 pixels, filled by reflection).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import boolean, declared, field, one_of, when, whole
from fedpriv.common.words import counted

REFLECT, ZEROS = "reflect", "zeros"
FILLS = (REFLECT, ZEROS)
MOST = 1024
"""Largest number of copies of a record: they are in memory together."""


@dataclass(frozen=True)
class Augmentation:
    """The random changes that make the copies of an image.

    Attributes:
        multiplicity: K, the number of copies of each image.
        flip: Whether a copy is mirrored left to right with probability 1/2.
        crop: Pixels of border around an image, out of which a copy is cut anywhere; 0: no crop.
        fill: Content of the border: the image mirrored at its edges (``reflect``) or ``zeros``.
    """

    multiplicity: int
    flip: bool
    crop: int
    fill: str

    def moves(self, words: np.ndarray) -> np.ndarray:
        """Turn random words into moves.

        One bit of a word decides the flip, 32 bits the pixels down, 31 the pixels to the right. Each shift is
        uniform up to a bias of 2^-31.

        Args:
            words: Uniform words of 64 bits [n, K].

        Returns:
            (mirrored, pixels down, pixels to the right) of each copy [n, K, 3], int32.
        """
        wide = np.uint64(2 * self.crop + 1)
        high = words >> np.uint64(33)
        low = (words >> np.uint64(1)) & np.uint64(0xFFFFFFFF)
        moves = np.empty((*words.shape, 3), dtype=np.int32)
        moves[..., 0] = (words & np.uint64(1)) if self.flip else 0
        moves[..., 1] = ((low * wide) >> np.uint64(32)).astype(np.int64) - self.crop
        moves[..., 2] = ((high * wide) >> np.uint64(31)).astype(np.int64) - self.crop
        return moves

    def describe(self) -> str:
        """Describe the copies for the plan."""
        changes = ["flipped"] if self.flip else []
        if self.crop:
            filled = "reflection" if self.fill == REFLECT else "zeros"
            border = counted(self.crop, "pixel")
            changes.append(f"cut out of a border of {border} ({filled})")
        how = " and ".join(changes)
        if self.multiplicity == 1:
            return f"each image is {how} at random before its gradient is clipped"
        copies = f"{self.multiplicity} copies of each image"
        return f"{copies}, {how} at random; the mean of their gradients is clipped"

    def statement(self) -> str:
        """Return the sentence of the privacy statement about the copies."""
        what = "that of a randomly changed copy of its image"
        if self.multiplicity > 1:
            what = f"the mean over {self.multiplicity} randomly changed copies of its image"
        return (
            f"The gradient of a record is {what} (augmentation multiplicity {self.multiplicity}), and it is "
            "this gradient that is clipped: a record moves a sum by C at most, however many copies it has, "
            "and epsilon is that of training without them."
        )


def _given(part: Augmented, value: object) -> bool:
    return value is not None and part.augmentation_multiplicity is not None


@declared
class Augmented:
    """Mixin of algorithms that may augment images.

    Attributes:
        augmentation_multiplicity: K copies of each image; None: no augmentation.
        random_flip: Whether a copy is mirrored with probability 1/2.
        random_crop: Pixels of border out of which a copy is cut; None: no crop.
        crop_fill: Content of the border; None: ``reflect``.
        augmentation: The augmentation that these arguments describe; None: none.
    """

    augmentation_multiplicity: int | None = field(
        when(_given, whole(at_least=1, at_most=MOST)),
        default=None,
        unit="K",
        help="number of randomly changed copies of each image, at the privacy cost of one; null: no copies",
    )
    random_flip: bool | None = field(
        when(_given, boolean), default=None, help="true: mirror each copy with probability 1/2"
    )
    random_crop: int | None = field(
        when(_given, whole(at_least=1)),
        default=None,
        unit="pixels",
        help="width of the border added to an image before a random crop; null: no crop",
    )
    crop_fill: str | None = field(
        when(_given, one_of(FILLS)),
        default=None,
        help="content of the border of random_crop; null: reflect",
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()  # type: ignore[misc]  # it is mixed into an Algorithm
        self.augmentation = self._augmentation()

    def _augmentation(self) -> Augmentation | None:
        copies, border = self.augmentation_multiplicity, self.random_crop or 0
        if copies is None:
            for name in ("random_flip", "random_crop", "crop_fill"):
                value = getattr(self, name)
                if value is not None and value is not False:
                    raise ArgumentError(
                        name, value, "null unless algorithm.augmentation_multiplicity is given"
                    )
            return None
        if not self.random_flip and not border:
            raise ArgumentError(
                "augmentation_multiplicity",
                copies,
                "null without random_flip=true or random_crop",
                "all copies would be the image itself",
            )
        if self.crop_fill is not None and not border:
            raise ArgumentError("crop_fill", self.crop_fill, "null without random_crop")
        return Augmentation(copies, bool(self.random_flip), border, self.crop_fill or REFLECT)
