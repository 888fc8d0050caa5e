"""A data set whose images are replaced by features: computed once, cached, then normalized."""

from __future__ import annotations

import hashlib
import sys
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data import encoded
from fedpriv.data.base import Dataset, DatasetView
from fedpriv.data.records import LoadedDataset, Records, ReleasedStatistics
from fedpriv.features.base import Features

if TYPE_CHECKING:
    import torch

# Images that a thread computes at a time. The blocks, and so the coefficients, do not depend on the number of
# threads. A block takes about 0.1 GB of memory (28 x 28 grey images) or 0.3 GB (32 x 32 colour images).
_BLOCK = 250
_MOST_THREADS = 32  # bounds the memory of the blocks
_TRIED = 8  # number of images that are computed both alone and together
_SECONDS_BETWEEN_LINES = 20.0  # of progress, in a log
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
    encoding: str

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
        self.encoding = f"{description}, of images ({dataset.encoding})"
        if features.statistics is not None:
            self.caveats += (_STATISTICS.format(features.statistics),)

    def without_features(self) -> Dataset:
        return self.source

    def load(self) -> LoadedDataset:
        """Return the data set with normalized coefficients, float32, instead of images.

        The first time the coefficients are computed on all cores that torch may use, and kept in the user's
        cache. Standard error has a line about this, and a progress bar where it is a terminal.

        Raises:
            DataError: The images cannot be read.
            ConfigError: The coefficients of an image have another shape than announced, or depend on other
                images.
        """
        loaded = self.source.load()
        digests = (_digest(loaded.train), _digest(loaded.test))
        parts = {"train": loaded.train, "test": loaded.test}

        def compute() -> dict[str, np.ndarray]:
            return self._coefficients(parts)

        if is_own(self.features):
            self._refuse_mixed(loaded.train.inputs[:_TRIED])
        name, own = f"{self.source.name}-{self.features.key()}", is_own(self.features)
        # Features of the user's own may follow from files and settings that no name tells.
        coefficients = compute() if own else encoded.kept(name, digests, compute)
        records_of_part = {}
        for (part, records), digest in zip(parts.items(), digests, strict=True):
            # Taken out of the dict, so that float16 and float32 are in memory together for one part alone.
            inputs = self._normalized(coefficients.pop(part))
            source = None if own else (digest, name)
            records_of_part[part] = Records(inputs, records.targets, source=source)
        return replace(loaded, train=records_of_part["train"], test=records_of_part["test"])

    def _refuse_mixed(self, images: Any) -> None:
        """Raise ConfigError if the coefficients of an image depend on other images.

        The epsilon of no record would protect such coefficients. Copies compute them, whose first calls
        differ: what a first call fits is in the answers.
        """
        import torch

        together = deepcopy(self.features).coefficients(images)
        if tuple(together.shape) != (len(images), *self.input_shape):
            raise ConfigError(
                f"features: coefficients must return a tensor [{len(images)}, *{self.input_shape}], as shape "
                f"says, got {list(together.shape)}"
            )
        later = deepcopy(self.features)
        later.coefficients(1 - images[:1] / 2)  # other images
        for made in (lambda image: deepcopy(self.features).coefficients(image), later.coefficients):
            alone = torch.cat([made(image) for image in images.split(1)])
            if torch.allclose(together, alone, rtol=1e-2, atol=1e-3 * float(together.abs().max())):
                continue
            raise ConfigError(
                f"features: {type(self.features).__name__}.coefficients must be a function of each image by "
                "itself, but an image alone and together with other images, or after others, gives "
                "different ones"
            )

    def _coefficients(self, parts: Mapping[str, Records]) -> dict[str, np.ndarray]:
        """Compute the coefficients [n, C', H', W'] of all images of each part, block by block."""
        import torch
        from rich.console import Console
        from rich.progress import track

        count = sum(map(len, parts.values()))
        sys.stderr.write(
            f"computing {self.features.name} of {count:,} images (once: they are kept)\n"
        )
        coefficients = {
            name: np.empty((len(records), *self.input_shape), dtype=_KEPT)
            for name, records in parts.items()
        }
        blocks = [
            (records.inputs[start : start + _BLOCK], coefficients[name][start : start + _BLOCK])
            for name, records in parts.items()
            for start in range(0, len(records), _BLOCK)
        ]

        def fill(block: tuple[torch.Tensor, np.ndarray]) -> None:
            images, target = block
            target[:] = self.features.coefficients(images).numpy()

        # A thread computes its block by itself, as torch's own threads would wait for each other. Code of the
        # user's own may keep a state: one thread calls it, and torch shares each block among its threads.
        torch_threads = torch.get_num_threads()
        threads, each = (
            (1, torch_threads) if is_own(self.features) else (min(torch_threads, _MOST_THREADS), 1)
        )
        pool = ThreadPoolExecutor(threads, "features", torch.set_num_threads, (each,))
        console, said = Console(stderr=True), time.monotonic()
        try:
            blocks_done = track(
                pool.map(fill, blocks),
                total=len(blocks),
                description=self.features.name,
                console=console,
                transient=True,
                disable=not console.is_terminal,
            )
            for done, _ in enumerate(blocks_done, start=1):
                if not console.is_terminal and time.monotonic() - said > _SECONDS_BETWEEN_LINES:
                    said = time.monotonic()
                    sys.stderr.write(f"{self.features.name}: {done / len(blocks):.0%} done\n")
        finally:
            # After Ctrl-C or an error the threads end with the blocks that they have begun.
            pool.shutdown(cancel_futures=True)
            torch.set_num_threads(torch_threads)
        return coefficients

    def _normalized(self, coefficients: np.ndarray) -> Any:
        import torch

        normalized = torch.empty(coefficients.shape)
        for start in range(0, len(normalized), _BLOCK):
            block = slice(start, start + _BLOCK)
            normalized[block] = self.features.normalize(torch.from_numpy(coefficients[block]))
        return normalized


def _digest(records: Records) -> str:
    sha256 = hashlib.sha256()
    records.add_values_to(sha256)
    return sha256.hexdigest()
