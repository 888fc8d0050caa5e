"""All data sets by name: what is there, and fetching what is not."""

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
from fedpriv.data.text_comments import Reddit, UbuntuIrc
from fedpriv.data.text_sentiment140 import Sentiment140
from fedpriv.data.text_shakespeare import Shakespeare

IMAGES = (Mnist, FashionMnist, Emnist, Femnist, Cifar10)
TEXTS = (Sentiment140, UbuntuIrc, Reddit, Shakespeare)
STORED = (*IMAGES, Adult, *TEXTS)
DATASETS = {dataset.name: dataset for dataset in (Digits, *STORED, Ipums)}


def dataset_status(path: str | None = None) -> list[DataStatus]:
    """One row per data set, looked for below ``path`` (null: FEDPRIV_DATA, then the cache).

    Every file found is read and its checksum verified; nothing is downloaded. A ``path`` that is a
    file is read as one of the user's own.
    """
    stored = [dataset(path=path).present() for dataset in STORED]
    return [Digits().present(), *stored, Ipums.status(path)]


def download(name: str, destination: str | Path | None = None) -> DataStatus:
    """Fetch a data set into ``destination`` (default: where a run would look) and verify it.

    Does nothing if all its files are there and sound. Raises ConfigError for an unknown name,
    DataError if it cannot be fetched.
    """
    if name not in DATASETS:
        hint = did_you_mean(name, DATASETS)
        raise ConfigError("the data set", name, "one of " + ", ".join(DATASETS), hint)
    if name == Digits.name:
        return Digits().present()
    if name == Ipums.name:
        raise DataError(f"{name} may not be passed on and cannot be downloaded; it is {OWN_FILE}")
    folder = data_folder(None if destination is None else str(destination)).path
    dataset = {kind.name: kind for kind in STORED}[name](path=str(folder))
    if not dataset.present().usable:
        dataset.download(folder)
    return dataset.present()
