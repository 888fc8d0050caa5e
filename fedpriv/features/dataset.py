"""A data set whose images are replaced by features: computed once, cached, then normalized."""

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

_BLOCK = 250  # images at a time, which bounds intermediate results to a few hundred MB
_TRIED = 8  # number of images that are computed both alone and together
_KEPT = np.float16  # fresh coefficients are rounded like cached ones, so runs agree

_KEPT_OUTSIDE = (
    "The features of every record, without noise, are kept in the user's cache (~/.cache/fedpriv/encoded), "
    "outside this folder: as private as the data."
)
_STATISTICS = "Features are normalized by the means and variances of {}, which are taken as public."
_SHARE_RECORDS: dict[str, tuple[str, ...]] = {"mnist": ("emnist", "femnist")}
"""Data sets that share records with a public one: all three are cut from NIST's forms."""


class Featured(DatasetView):
    """A data set as a model reads it behind ``features``.

    Coefficients are cached as float16, which takes half the disk space of float32 and moves a coefficient by
    at most .05 %. The first run also rounds to float16, so that all runs read the same numbers.

    Args:
        dataset: Data set of images, kept as ``source``.
        features: Features that replace the images.

    Raises:
        ConfigError: The data set holds no images, or images of an unsuitable shape, or its own records were
            used for the public statistics, without noise.
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
        related_datasets = _SHARE_RECORDS.get(features.statistics or "", ())
        if dataset.name in (features.statistics, *related_datasets):
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
        description = (
            f"{features.name}, {channels} x {height} x {width} numbers, {features.describe()}"
        )
        self.notes = (*dataset.notes, f"features: {description}")
        self.caveats = (*dataset.caveats, _KEPT_OUTSIDE)
        if features.statistics is not None:
            self.caveats += (_STATISTICS.format(features.statistics),)

    def without_features(self) -> Dataset:
        return self.source

    def load(self) -> LoadedDataset:
        """Return the data set with normalized coefficients, float32, instead of images.

        The first time the coefficients are computed and kept in the user's cache, with a line on standard
        error.

        Raises:
            DataError: The images cannot be read.
            ConfigError: The coefficients of an image have another shape than announced, or depend on other
                images.
        """
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
        coefficients = encoded.kept(name, (*digests, *_own_code(self.features)), compute)
        records_of_part = {}
        for (part, records), digest in zip(parts.items(), digests, strict=True):
            # Taken out of the dict, so that float16 and float32 are in memory together for one part alone.
            inputs = self._normalized(coefficients.pop(part))
            records_of_part[part] = Records(inputs, records.targets, source=(digest, name))
        return replace(loaded, train=records_of_part["train"], test=records_of_part["test"])

    def _refuse_mixed(self, images: Any) -> None:
        """Raise ConfigError if the coefficients of an image depend on other images.

        The epsilon of no record would protect such coefficients.
        """
        import torch

        together = self.features.coefficients(images)
        if tuple(together.shape) != (len(images), *self.input_shape):
            raise ConfigError(
                f"features: coefficients must return a tensor [{len(images)}, *{self.input_shape}], as shape "
                f"says, got {list(together.shape)}"
            )
        alone = torch.cat([self.features.coefficients(image) for image in images.split(1)])
        if not torch.allclose(together, alone, rtol=1e-2, atol=1e-3 * float(together.abs().max())):
            raise ConfigError(
                f"features: {type(self.features).__name__}.coefficients must be a function of each image by "
                "itself, but an image alone and together with other images gives different ones"
            )

    def _coefficients(self, records: Records) -> np.ndarray:
        blocks = records.inputs.split(_BLOCK)
        coefficients = np.empty((len(records), *self.input_shape), dtype=_KEPT)
        for block, target in zip(
            blocks, np.split(coefficients, range(_BLOCK, len(coefficients), _BLOCK)), strict=True
        ):
            target[:] = self.features.coefficients(block).numpy()
        return coefficients

    def _normalized(self, coefficients: np.ndarray) -> Any:
        import torch

        normalized = torch.empty(coefficients.shape)
        for start in range(0, len(normalized), _BLOCK):
            block = slice(start, start + _BLOCK)
            normalized[block] = self.features.normalize(torch.from_numpy(coefficients[block]))
        return normalized


def _own_code(features: Features) -> tuple[str, ...]:
    """Return the digest of the file of a user's own features, so that an edited file is computed anew."""
    module = sys.modules[type(features).__module__]
    if module.__name__.startswith("fedpriv."):
        return ()
    path = getattr(module, "__file__", None)
    return (hashlib.sha256(Path(path).read_bytes()).hexdigest(),) if path else ()


def _digest(records: Records) -> str:
    sha256 = hashlib.sha256()
    records.add_values_to(sha256)
    return sha256.hexdigest()
