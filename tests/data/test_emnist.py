from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ArgumentError, ConfigError, DataError
from fedpriv.common.torchvision_shim import import_torchvision
from fedpriv.data.emnist import SPLITS, Emnist
from fedpriv.data.partitions import Natural


def idx(values: np.ndarray) -> bytes:
    sizes = np.array(values.shape, dtype=">i4").tobytes()
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


@pytest.fixture
def letters(tmp_path, monkeypatch) -> Path:
    """Letters: 6 + 3 images, labels from 1 as the files have them; the pixel of row 2, column 7 lit."""
    monkeypatch.setitem(SPLITS, "letters", (6, 3, 26))
    for part, count in (("train", 6), ("test", 3)):
        images = np.zeros((count, 28, 28))
        images[:, 7, 2] = 255  # transposed, as in the files
        write(tmp_path, f"{part}-images-idx3", idx(images))
        write(tmp_path, f"{part}-labels-idx1", idx(np.arange(1, count + 1)))
    return tmp_path


def write(folder: Path, name: str, content: bytes) -> None:
    path = folder / f"EMNIST/raw/emnist-letters-{name}-ubyte"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def tiny(folder: Path) -> Emnist:
    return Emnist(path=str(folder), split="letters", validation_records=1)


def test_images_are_upright_and_labels_count_from_zero(letters):
    loaded = tiny(letters).load()
    assert loaded.train.inputs.shape == (6, 1, 28, 28)
    assert loaded.train.inputs[:, 0, 2, 7].tolist() == [1.0] * 6
    assert loaded.train.inputs.sum() == 6
    assert loaded.train.targets.tolist() == [0, 1, 2, 3, 4, 5]
    assert loaded.test.targets.tolist() == [0, 1, 2]
    assert loaded.train.inputs.is_contiguous()


def test_torchvision_reads_the_same_files(letters):
    theirs = import_torchvision().datasets.EMNIST(str(letters), split="letters", train=False)
    ours = tiny(letters).load().test
    assert torch.equal(ours.inputs[:, 0] * 255, theirs.data.transpose(1, 2).float())
    assert torch.equal(ours.targets, theirs.targets - 1)


def test_nobody_published_checksums_of_the_unzipped_files(letters):
    assert tiny(letters).present().checksums == "own file"


@pytest.mark.parametrize("split", SPLITS)
def test_each_split_has_its_own_files_counts_and_classes(split):
    theirs = import_torchvision().datasets.EMNIST
    dataset = Emnist(split=split)
    names = theirs.classes_split_dict[split]
    assert dataset.classes == len([name for name in names if name != "N/A"])
    first = Path(dataset.files[0].path)
    assert first.name == f"emnist-{split}-train-images-idx3-ubyte"
    assert set(SPLITS) == set(theirs.splits)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("train-images-idx3", b"", "is no idx file of unsigned bytes in 3 dimensions"),
        ("train-labels-idx1", idx(np.zeros((2, 2))), "is no idx file of unsigned bytes in 1 dim"),
        ("train-labels-idx1", idx(np.ones(5)), r"must hold \(6,\) values, got \(5,\) in 13 bytes"),
        ("test-labels-idx1", idx(np.ones(3))[:-1], r"must hold \(3,\) values, got \(3,\) in 10"),
        ("train-labels-idx1", idx(np.arange(6)), "labels must be 1 to 26"),
        ("test-labels-idx1", idx(np.arange(25, 28)), "labels must be 1 to 26"),
    ],
)
def test_a_file_of_another_shape_is_refused(letters, name, content, message):
    write(letters, name, content)
    with pytest.raises(DataError, match=message):
        tiny(letters).load()


def test_a_natural_partition_needs_writers(letters):
    loaded = tiny(letters).load()
    with pytest.raises(ConfigError, match="take dataset=femnist instead of emnist"):
        Natural().assign(loaded.train.targets.numpy(), loaded.client_ids)


def test_a_split_is_one_of_six():
    with pytest.raises(ArgumentError) as caught:
        Emnist(split="words")
    assert str(caught.value) == (
        "split must be one of digits, letters, balanced, byclass, bymerge, mnist, got words"
    )


def test_absent_files_say_what_to_put_where(tmp_path):
    with pytest.raises(DataError) as caught:
        Emnist(path=str(tmp_path), split="balanced").load()
    assert str(caught.value) == (
        f"emnist not found: dataset.path={tmp_path} has no EMNIST/raw/emnist-balanced-train-images-"
        "idx3-ubyte; put EMNIST/raw with its four unzipped idx files emnist-balanced-*-ubyte there, "
        "name another folder with dataset.path or FEDPRIV_DATA, or run `fedpriv data download emnist` "
        "and leave dataset.path out"
    )


def test_without_a_network_a_download_fails_in_a_sentence(cache, monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(Emnist, "sites", ("http://127.0.0.1:9/",))
    with pytest.raises(
        DataError, match=rf"^emnist could not be downloaded into {cache} \(http://127"
    ):
        Emnist().load()
