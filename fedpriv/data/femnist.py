"""FEMNIST, EMNIST by writer, read from the JSON files that LEAF makes.

``femnist/data/train/*.json`` and ``femnist/data/test/*.json`` each hold ``users`` and
``user_data[user]`` with ``x``, rows of 784 numbers in [0, 1], and ``y``, labels 0 to 61: digits, upper
case, lower case. As in LEAF, paper is 1 and ink is 0. The split is the one made by LEAF's preprocessing. The
records are in the order of the file names and, within each file, of the users.

The images are kept in the cache as bytes, identified by names, sizes and times of the files.

Source: S. Caldas et al., LEAF: A Benchmark for Federated Settings (2018).
"""

from __future__ import annotations

import json
import sys
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from fedpriv.common.errors import DataError, show
from fedpriv.common.fields import boolean, declared, field, same_as
from fedpriv.data import encoded
from fedpriv.data.own_files import OwnFiles
from fedpriv.data.records import LoadedDataset, Records
from fedpriv.data.storage import unreadable

PARTS = ("train", "test")
FOLDER = "femnist/data"
PIXELS = 28 * 28


@declared
class Femnist(OwnFiles):
    """Digits and letters, 1x28x28, with the writer of each training image as client id; LEAF's split.

    ``path`` is the folder that holds ``femnist/data``.
    """

    name = "femnist"
    known = test_of_clients = True
    input_shape: ClassVar[tuple[int, ...]] = (1, 28, 28)
    contents = f"the JSON files of LEAF as {FOLDER}/train/*.json and {FOLDER}/test/*.json"
    assumed_records: ClassVar = (700_000, 80_000)

    path: str | None = same_as(OwnFiles, "path", default=None)
    only_digits: bool = field(
        boolean, default=False, help="true: leave out letters, so ten classes remain"
    )
    validation_records: int = same_as(OwnFiles, "validation_records", default=2000)

    def __attrs_post_init__(self) -> None:
        vars(self)["classes"] = 10 if self.only_digits else 62

    def load(self) -> LoadedDataset:
        """Read the files, or their images from the cache.

        Raises:
            DataError: A file is missing or damaged.
        """
        self.prepare()
        arrays = self._read()
        ids = {name: number for number, name in enumerate(arrays["train_names"].tolist())}
        writers = arrays["test_names"][arrays["test_writers"]]
        return LoadedDataset(
            train=_records(arrays, "train"),
            test=_records(arrays, "test"),
            client_ids=arrays["train_writers"].astype(np.int64),
            test_owners=[ids.get(name, -1) for name in writers.tolist()],
        )

    def _files(self, part: str) -> list[Path]:
        folder = self.folder.path / FOLDER / part
        try:
            return sorted(folder.glob("*.json"))
        except OSError as error:
            raise unreadable(folder, error) from error

    def _missing(self) -> str | None:
        missing = [part for part in PARTS if not self._files(part)]
        return f"{self.folder} has no {FOLDER}/{missing[0]}/*.json" if missing else None

    @cached_property
    def _sizes(self) -> tuple[int, int]:
        arrays = self._read()
        return len(arrays["train_labels"]), len(arrays["test_labels"])

    def _read(self) -> dict[str, np.ndarray]:
        """Return pixels uint8 [n, 784] and labels of both parts, and the writer of each image."""
        files = {part: self._files(part) for part in PARTS}
        stats = [(str(f), f.stat().st_size, f.stat().st_mtime_ns) for p in PARTS for f in files[p]]

        def read_all() -> dict[str, np.ndarray]:
            sys.stderr.write(f"reading {self.folder.path / FOLDER} (once: the images are kept)\n")
            arrays: dict[str, np.ndarray] = {}
            for part in PARTS:
                arrays |= self._part(part, files[part])
            return arrays

        return encoded.kept(self.name, (stats, self.only_digits, "with names"), read_all)

    def _part(self, part: str, files: list[Path]) -> dict[str, np.ndarray]:
        pixels, labels, writers = [], [], []
        for file in files:
            for user, images, user_labels in read_users(file):
                chosen = user_labels < self.classes
                pixels.append(images[chosen])
                labels.append(user_labels[chosen])
                writers += [user] * int(chosen.sum())
        if not writers:
            raise DataError(f"{self.folder.path / FOLDER / part} has no images")
        names, codes = np.unique(np.array(writers, dtype=np.str_), return_inverse=True)
        return {
            f"{part}_pixels": np.concatenate(pixels),
            f"{part}_labels": np.concatenate(labels).astype(np.uint8),
            f"{part}_writers": codes.astype(np.int32),
            f"{part}_names": names,
        }


def read_users(path: Path) -> list[tuple[str, np.ndarray, np.ndarray]]:
    """Read one JSON file of LEAF.

    Returns:
        User, pixels uint8 [n, 784] and labels int64 [n] of each user of the file.

    Raises:
        DataError: The content is not FEMNIST; the error names the file and the user.
    """
    try:
        content = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise unreadable(path, error) from error
    try:
        user_data = [(user, content["user_data"][user]) for user in content["users"]]
    except (KeyError, TypeError) as error:
        raise DataError(f"{path} must hold users and user_data as LEAF writes them") from error
    return [(str(user), *_images(path, user, data)) for user, data in user_data]


def _images(path: Path, user: Any, data: Any) -> tuple[np.ndarray, np.ndarray]:
    try:
        values = np.array(data["x"], dtype=np.float64).reshape(-1, PIXELS)
        labels = np.array(data["y"])
        if not len(labels):
            return np.empty((0, PIXELS), np.uint8), np.empty(0, np.int64)
        is_valid = (
            labels.shape == (len(values),)
            and np.issubdtype(labels.dtype, np.integer)
            and labels.min() >= 0
            and labels.max() < 62
            and values.min() >= 0
            and values.max() <= 1
        )
    except (KeyError, TypeError, ValueError):
        is_valid = False
    if not is_valid:
        raise DataError(
            f"{path}, user {show(user)}: x must be rows of {PIXELS} numbers in [0, 1] and y as many "
            "whole numbers, 0 to 61"
        )
    return np.rint(values * 255).astype(np.uint8), labels.astype(np.int64)


def _records(arrays: dict[str, np.ndarray], part: str) -> Records:
    import torch

    inputs = torch.tensor(arrays[f"{part}_pixels"], dtype=torch.float32).div_(255)
    labels = torch.from_numpy(arrays[f"{part}_labels"].astype(np.int64))
    return Records(inputs.reshape(-1, 1, 28, 28), labels)
