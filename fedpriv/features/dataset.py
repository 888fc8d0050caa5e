"""A data set with features in the place of its images: computed once, kept in the cache, then normalized."""

from __future__ import annotations

import hashlib
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data import encoded
from fedpriv.data.base import Dataset, DatasetView
from fedpriv.data.records import LoadedDataset, Records, ReleasedStatistics
from fedpriv.features.base import Features

_BLOCK = 250  # images at a time: a few hundred MB of what is in between at most
_TRIED = 8  # images that are looked at alone and together
_KEPT = np.float16  # coefficients have about three digits; computed or kept, they are rounded to it

_KEPT_OUTSIDE = (
    "The features of every record, without noise, are kept in the user's cache (~/.cache/fedpriv/encoded), "
    "outside this folder: as private as the data."
)
_STATISTICS = "Features are normalized by the means and variances of {}, which are taken as public."
_SHARE_RECORDS: dict[str, tuple[str, ...]] = {"mnist": ("emnist", "femnist")}
"""Data sets with records of others: all three are cut from NIST's forms."""


class Featured(DatasetView):
    """``dataset``, its ``source``, as a model reads it after ``features``.

    Coefficients are kept as float16 (half the memory of float32 on the disk; rounding moves a coefficient
    by at most .05 %), so the first run and later ones read the same numbers.

    Raises:
        ConfigError: The data set holds no images, or none that these features can be computed of, or
            their statistics are those of this very data set, which the run protects.
    """

    input_shape: tuple[int, ...]
    features_name: str | None
    released_statistics: ReleasedStatistics | None
    notes: tuple[str, ...]
    caveats: tuple[str, ...]

    def __init__(self, dataset: Dataset, features: Features):
        super().__init__(dataset)
        self.features, self.features_name = features, features.name
        image = tuple(dataset.input_shape)
        if len(image) != 3 or dataset.vocabulary_size is not None:
            why = f"dataset={dataset.name} holds no images"
            raise ConfigError("features", features.name, "none with this data set", why)
        others = _SHARE_RECORDS.get(features.statistics or "", ())
        if dataset.name in (features.statistics, *others):
            raise ConfigError(
                "features.statistics",
                features.statistics,
                "those of another data set",
                f"these were computed from records of dataset={dataset.name}, without noise",
            )
        try:
            self.input_shape = features.output_shape(image)
        except ArgumentError as error:
            raise error.within("features") from None
        channels, height, width = self.input_shape
        self.released_statistics = features.released_statistics(channels)
        words = f"{features.name}, {channels} x {height} x {width} numbers, {features.describe()}"
        self.notes = (*dataset.notes, f"features: {words}")
        self.caveats = (*dataset.caveats, _KEPT_OUTSIDE)
        if features.statistics is not None:
            self.caveats += (_STATISTICS.format(features.statistics),)

    def without_features(self) -> Dataset:
        return self.source

    def load(self) -> LoadedDataset:
        """The data set with coefficients, float32, in the place of images."""
        loaded = self.source.load()
        digests = (_digest(loaded.train), _digest(loaded.test))
        parts = {"train": loaded.train, "test": loaded.test}

        def compute() -> dict[str, np.ndarray]:
            self._refuse_mixed(loaded.train.inputs[:_TRIED])
            count = len(loaded.train) + len(loaded.test)
            sys.stderr.write(
                f"computing {self.features.name} of {count:,} images (once: they are kept)\n"
            )
            return {name: self._coefficients(records) for name, records in parts.items()}

        name = f"{self.source.name}-{self.features.key()}"
        kept = encoded.kept(name, (*digests, *_own_code(self.features)), compute)
        read = {}
        for (part, records), digest in zip(parts.items(), digests, strict=True):
            inputs = self._normalized(kept.pop(part))
            read[part] = Records(inputs, records.targets, source=(digest, name))
        return replace(loaded, train=read["train"], test=read["test"])

    def _refuse_mixed(self, images: Any) -> None:
        """What depends on other records would be protected by no record's epsilon. Raises ConfigError."""
        import torch

        found = self.features.coefficients(images)
        if tuple(found.shape) != (len(images), *self.input_shape):
            raise ConfigError(
                f"features: coefficients must return a tensor [{len(images)}, *{self.input_shape}], as shape "
                f"says, got {list(found.shape)}"
            )
        alone = torch.cat([self.features.coefficients(one) for one in images.split(1)])
        if not torch.allclose(found, alone, rtol=1e-2, atol=1e-3 * float(found.abs().max())):
            raise ConfigError(
                f"features: {type(self.features).__name__}.coefficients must be a function of each image by "
                "itself, got others for an image alone than beside other images"
            )

    def _coefficients(self, records: Records) -> np.ndarray:
        blocks = records.inputs.split(_BLOCK)
        found = np.empty((len(records), *self.input_shape), dtype=_KEPT)
        for block, into in zip(
            blocks, np.split(found, range(_BLOCK, len(found), _BLOCK)), strict=True
        ):
            into[:] = self.features.coefficients(block).numpy()
        return found

    def _normalized(self, coefficients: np.ndarray) -> Any:
        import torch

        found = torch.empty(coefficients.shape)
        for place in range(0, len(found), _BLOCK):
            block = slice(place, place + _BLOCK)
            found[block] = self.features.normalize(torch.from_numpy(coefficients[block]))
        return found


def _own_code(features: Features) -> tuple[str, ...]:
    """The file of features that are not fedpriv's own: once it is edited they are others."""
    module = sys.modules[type(features).__module__]
    if module.__name__.startswith("fedpriv."):
        return ()
    path = getattr(module, "__file__", None)
    return (hashlib.sha256(Path(path).read_bytes()).hexdigest(),) if path else ()


def _digest(records: Records) -> str:
    found = hashlib.sha256()
    for values in (records.inputs, records.targets):
        found.update(f"{values.dtype} {tuple(values.shape)}\n".encode())
        found.update(np.ascontiguousarray(values.numpy()).data)
    return found.hexdigest()
