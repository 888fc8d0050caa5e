"""Augmentation multiplicity: a record's gradient is the mean over K randomly changed copies of its image.

    g_i = (1/K) Σ_j ∇ℓ(a_j(x_i), y_i),    ḡ_i = g_i min(1, C/‖g_i‖)

with a_j a flip, a crop, or both, drawn anew for every copy, record and step. The mean is clipped, not the
copies: a record still moves the sum by C at most, so noise and ε are those of plain training.
Sources: Hoffer et al., "Augment your batch", 2019; De et al., "Unlocking high-accuracy differentially private
image classification through scale", 2022 (who cut images out of a border of 4 pixels, filled by reflection).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from fedpriv.common.conflicts import Combination
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import boolean, declared, field, one_of, when, whole
from fedpriv.common.words import counted

REFLECT, ZEROS = "reflect", "zeros"
FILLS = (REFLECT, ZEROS)
MOST = 1024
"""Copies of a record: they are in memory together."""


@dataclass(frozen=True)
class Augmentation:
    """``multiplicity`` K; ``flip``: mirrored left to right with probability 1/2; ``crop``: pixels of border
    around an image, out of which as large an image is cut anywhere (0: not); ``fill``: what is in the border,
    the image mirrored at its edges (``reflect``) or ``zeros``."""

    multiplicity: int
    flip: bool
    crop: int
    fill: str

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse records that are no images, or images as small as the border."""
        dataset = parts.dataset.without_features()  # features refuse augmentation themselves
        shape = tuple(dataset.input_shape)
        if len(shape) != 3 or dataset.vocabulary_size is not None:
            hint = "its records are no images of channels, height and width"
            allowed = f"null with dataset={dataset.name}"
            key = "algorithm.augmentation_multiplicity"
            yield ConfigError(key, self.multiplicity, allowed, hint)
        elif self.crop >= min(shape[1:]):
            allowed = f"< {min(shape[1:])}, the pixels of an image of dataset={dataset.name}"
            yield ConfigError("algorithm.random_crop", self.crop, allowed)

    def moves(self, words: np.ndarray) -> np.ndarray:
        """(mirrored, pixels down, pixels to the right) of each copy [n, K, 3], int32, from uniform words of
        64 bits [n, K]. A crop is even but for 2^-31."""
        wide = np.uint64(2 * self.crop + 1)
        high = words >> np.uint64(33)
        low = (words >> np.uint64(1)) & np.uint64(0xFFFFFFFF)
        moves = np.empty((*words.shape, 3), dtype=np.int32)
        moves[..., 0] = (words & np.uint64(1)) if self.flip else 0
        moves[..., 1] = ((low * wide) >> np.uint64(32)).astype(np.int64) - self.crop
        moves[..., 2] = ((high * wide) >> np.uint64(31)).astype(np.int64) - self.crop
        return moves

    def describe(self) -> str:
        """In the plan."""
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
        """In the privacy statement."""
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
    """An algorithm that may augment images: the arguments that say how, and ``augmentation``."""

    augmentation_multiplicity: int | None = field(
        when(_given, whole(at_least=1, at_most=MOST)),
        default=None,
        unit="K",
        help="randomly changed copies of each image, for the privacy cost of one; null: none",
    )
    random_flip: bool | None = field(
        when(_given, boolean), default=None, help="true: a copy is mirrored with probability 1/2"
    )
    random_crop: int | None = field(
        when(_given, whole(at_least=1)),
        default=None,
        unit="pixels",
        help="border around an image, out of which a copy is cut anywhere; null: none",
    )
    crop_fill: str | None = field(
        when(_given, one_of(FILLS)), default=None, help="what is in the border; null: reflect"
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
