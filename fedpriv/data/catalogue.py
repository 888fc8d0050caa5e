"""All data sets by name, the state of their files, and their download."""

from __future__ import annotations

from pathlib import Path

from fedpriv.common.errors import ConfigError, DataError, did_you_mean
from fedpriv.data.adult import Adult
from fedpriv.data.cifar10 import Cifar10
from fedpriv.data.digits import Digits
from fedpriv.data.emnist import Emnist
from fedpriv.data.femnist import Femnist
from fedpriv.data.ipums import OWN_FILE, Ipums
from fedpriv.data.mnist import FashionMnist, Mnist
from fedpriv.data.records import DataStatus
from fedpriv.data.storage import data_folder
from fedpriv.data.synthetic import Synthetic, SyntheticText
from fedpriv.data.text_comments import Reddit, UbuntuIrc
from fedpriv.data.text_sentiment140 import Sentiment140
from fedpriv.data.text_shakespeare import Shakespeare

IMAGES = (Mnist, FashionMnist, Emnist, Femnist, Cifar10)
TEXTS = (Sentiment140, UbuntuIrc, Reddit, Shakespeare)
STORED = (*IMAGES, Adult, *TEXTS)
FREE_OF_FILES = (Digits, Synthetic, SyntheticText)
DATASETS = {dataset.name: dataset for dataset in (*FREE_OF_FILES, *STORED, Ipums)}


def dataset_status(path: str | None = None) -> list[DataStatus]:
    """Check the files of all data sets.

    Every file is read and its checksum verified. Nothing is downloaded.

    Args:
        path: Data folder; None for FEDPRIV_DATA or else the cache. A path to a file is read as a file of
            the user's own (``ipums``).

    Returns:
        One row per data set.
    """
    stored = [dataset(path=path).present() for dataset in STORED]
    return [*(dataset().present() for dataset in FREE_OF_FILES), *stored, Ipums.status(path)]


def download(name: str, destination: str | Path | None = None) -> DataStatus:
    """Download a data set and verify it. Nothing is downloaded if all files are there and undamaged.

    Args:
        name: Name of the data set.
        destination: Folder for the files; None for the folder in which a run would search.

    Returns:
        The status of the data set after the download.

    Raises:
        ConfigError: No data set has this name.
        DataError: The data set cannot be downloaded.
    """
    if name not in DATASETS:
        hint = did_you_mean(name, DATASETS)
        raise ConfigError("the data set", name, "one of " + ", ".join(DATASETS), hint)
    free_of_files = {dataset.name: dataset for dataset in FREE_OF_FILES}
    if name in free_of_files:
        return free_of_files[name]().present()
    if name == Ipums.name:
        raise DataError(f"{name} may not be passed on and cannot be downloaded; it is {OWN_FILE}")
    folder = data_folder(None if destination is None else str(destination)).path
    dataset = {kind.name: kind for kind in STORED}[name](path=str(folder))
    if not dataset.present().usable:
        dataset.download(folder)
    return dataset.present()
