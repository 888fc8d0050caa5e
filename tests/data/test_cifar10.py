from __future__ import annotations

import hashlib
import pickle

import numpy as np
import pytest

from fedpriv.common.errors import DataError
from fedpriv.data.cifar10 import Cifar10
from fedpriv.data.storage import StoredFile


@pytest.fixture
def tiny_cifar(tmp_path) -> type[Cifar10]:
    """CIFAR-10 with four records a batch, written to ``tmp_path``."""
    files = []
    for number, file in enumerate(Cifar10.files):
        pixels = np.full((4, 3072), number, dtype=np.uint8)
        pixels[:, 1024:2048] = 255  # green
        content = pickle.dumps({"data": pixels, "labels": [number] * 4})
        path = tmp_path / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content)
        files.append(StoredFile(file.path, hashlib.md5(content).hexdigest()))

    class TinyCifar(Cifar10):
        train_records = 20
        test_records = 4

        def __init__(self, *, validation_records: int = 5, **keys):
            super().__init__(validation_records=validation_records, **keys)

    TinyCifar.files = tuple(files)
    return TinyCifar


def test_five_batches_are_training_records_and_the_last_is_the_test_set(tiny_cifar, tmp_path):
    loaded = tiny_cifar(path=str(tmp_path)).load()
    assert loaded.train.inputs.shape == (20, 3, 32, 32)
    assert loaded.train.targets.tolist() == sorted([*range(5)] * 4)
    assert loaded.test.inputs.shape == (4, 3, 32, 32)
    assert loaded.test.targets.tolist() == [5] * 4


def test_pixels_are_planes_of_red_green_and_blue_between_zero_and_one(tiny_cifar, tmp_path):
    inputs = tiny_cifar(path=str(tmp_path)).load().train.inputs
    assert (inputs[:, 1] == 1).all()
    assert inputs[-1, 0].unique().item() == pytest.approx(4 / 255)


def test_normalize_treats_each_channel_by_its_own_constants(tiny_cifar, tmp_path):
    dataset = tiny_cifar(path=str(tmp_path), normalize=True)
    green = dataset.load().train.inputs[:, 1]
    assert green.mean().item() == pytest.approx((1 - 0.4822) / 0.2435, rel=1e-5)


def test_a_batch_that_was_changed_is_not_unpickled(tiny_cifar, tmp_path):
    path = tmp_path / "cifar-10-batches-py/data_batch_2"
    path.write_bytes(b"cos\nsystem\n(S'false'\ntR.")
    with pytest.raises(DataError, match=f"^{path} is damaged or cut short"):
        tiny_cifar(path=str(tmp_path)).load()


def test_an_absent_batch_is_named(tmp_path):
    with pytest.raises(DataError) as caught:
        Cifar10(path=str(tmp_path)).load()
    assert str(caught.value) == (
        f"cifar10 not found: dataset.path={tmp_path} has no cifar-10-batches-py/data_batch_1; put "
        "cifar-10-batches-py with its six batch files there, name another folder with dataset.path "
        "or FEDPRIV_DATA, or run `fedpriv data download cifar10` and leave dataset.path out"
    )


def test_the_checksums_are_those_of_torchvision():
    from fedpriv.common.torchvision_shim import import_torchvision

    theirs = import_torchvision().datasets.CIFAR10
    expected = [(f"{theirs.base_folder}/{n}", s) for n, s in theirs.train_list + theirs.test_list]
    assert [(file.path, file.md5) for file in Cifar10.files] == expected
