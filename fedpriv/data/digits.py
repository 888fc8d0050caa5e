"""Handwritten digits of scikit-learn: 1,797 images of 8x8 pixels, for quick runs without files.

The split into training and test records belongs to the data set, not to a run. With the records sorted by
class (and in scikit-learn's order within a class), every fifth record is a test record, beginning with the
first. This gives 1,437 + 360 records with equal class shares, without any seed or random generator.

Source: E. Alpaydin, C. Kaynak, Optical Recognition of Handwritten Digits (UCI, 1998), test part.
"""

from __future__ import annotations

import functools
import importlib.util
from pathlib import Path
from typing import ClassVar

import numpy as np

from fedpriv.common.fields import boolean, declared, field, whole
from fedpriv.data.base import Dataset
from fedpriv.data.records import DataStatus, LoadedDataset, Records


@declared
class Digits(Dataset):
    """Handwritten digits, 1x8x8, with pixels (0..16) divided by 16.

    ``normalize`` subtracts each image's own mean and divides by its own standard deviation. This reads no
    other record, so it costs no privacy.

    Example:
        >>> digits = Digits()
        >>> digits.train_records, digits.input_shape
        (1437, (1, 8, 8))
        >>> digits.load().train.inputs.shape
        torch.Size([1437, 1, 8, 8])
    """

    known = True
    name: ClassVar[str] = "digits"
    train_records: ClassVar[int] = 1437
    test_records: ClassVar[int] = 360
    input_shape: ClassVar[tuple[int, ...]] = (1, 8, 8)
    classes: ClassVar[int] = 10

    normalize: bool = field(
        boolean,
        default=True,
        help="true: normalise each image by its own mean and standard deviation, which reads no other record",
    )
    validation_records: int = field(
        whole(at_least=1, at_most=lambda digits: digits.train_records - 1),
        default=200,
        help="records held out of the training records as a public split, if a part of the run reads it",
    )

    @property
    def encoding(self) -> str:
        """Description of how pixels become inputs."""
        own = ", each image minus its mean and divided by its standard deviation"
        return f"pixels / 16{own * self.normalize}"

    def load(self) -> LoadedDataset:
        """Read the digits that come with scikit-learn, in its order within each split."""
        import torch

        pixels, labels = _digits()
        inputs = torch.tensor(pixels / 16, dtype=torch.float32).reshape(-1, *self.input_shape)
        if self.normalize:
            mean = inputs.mean(dim=(1, 2, 3), keepdim=True)
            inputs = (inputs - mean) / inputs.std(dim=(1, 2, 3), keepdim=True)
        records = Records(inputs, torch.tensor(labels, dtype=torch.int64))
        test = np.sort(np.argsort(labels, kind="stable")[::5])
        train = np.setdiff1d(np.arange(len(labels)), test)
        return LoadedDataset(train=records.subset(train), test=records.subset(test))

    def present(self) -> DataStatus:
        """Return the status, which is present if scikit-learn is installed."""
        installed = importlib.util.find_spec("sklearn") is not None
        return DataStatus(
            name=self.name,
            train_records=self.train_records,
            test_records=self.test_records,
            where="scikit-learn",
            present=installed,
            checksums="packaged" if installed else "not checked",
            note="" if installed else "scikit-learn is not installed",
        )

    def download(self, destination: str | Path) -> None:
        """Do nothing: the data come with scikit-learn."""


@functools.cache
def _digits() -> tuple[np.ndarray, np.ndarray]:
    """Return the digits of scikit-learn: pixels [1797, 64], float64 from 0 to 16, and labels [1797].

    The arrays (1 MB) stay in memory, for the next run of a sweep; callers do not write into them.

    The file is read directly, because importing ``sklearn.datasets`` would take longer than a short run. That
    import is the fallback where the file is not found.
    """
    spec = importlib.util.find_spec("sklearn")
    if spec is not None and spec.origin is not None:
        file = Path(spec.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if file.is_file():
            table = np.loadtxt(file, delimiter=",")
            return table[:, :-1], table[:, -1].astype(np.int64)
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)
