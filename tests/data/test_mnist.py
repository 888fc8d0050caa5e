from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ArgumentError, DataError
from fedpriv.data.mnist import FashionMnist, Mnist, parse_idx


def test_an_idx_file_gives_its_sizes_and_then_its_values():
    two_by_three = bytes([0, 0, 8, 2, 0, 0, 0, 2, 0, 0, 0, 3, 9, 8, 7, 6, 5, 255])
    assert parse_idx(two_by_three).tolist() == [[9, 8, 7], [6, 5, 255]]


def test_records_have_the_announced_shape_and_type(tiny_mnist, data):
    loaded = tiny_mnist(path=str(data)).load()
    assert loaded.train.inputs.shape == (20, 1, 28, 28)
    assert loaded.test.inputs.shape == (10, 1, 28, 28)
    assert loaded.train.inputs.dtype == torch.float32
    assert loaded.train.targets.tolist() == [*range(10), *range(10)]
    assert loaded.train.targets.dtype == torch.int64
    assert loaded.train.inputs.min() == 0
    assert loaded.train.inputs.max() == 1
    assert loaded.client_ids is None


def test_normalize_applies_the_usual_constants(tiny_mnist, data):
    plain = tiny_mnist(path=str(data)).load()
    normal = tiny_mnist(path=str(data), normalize=True).load()
    expected = (plain.train.inputs - 0.1307) / 0.3081
    torch.testing.assert_close(normal.train.inputs, expected)


def test_pixels_are_0_to_255_as_bytes_and_normalized_ones_are_the_same(tiny_mnist, data):
    plain = tiny_mnist(path=str(data)).load().train.inputs
    stored = tiny_mnist(path=str(data), pixels="bytes").load().train.inputs
    assert stored.max() == 255
    assert torch.equal(stored / 255, plain)
    assert torch.equal(tiny_mnist(path=str(data), pixels="unit").load().train.inputs, plain)
    normal, too = (
        tiny_mnist(path=str(data), pixels=pixels, normalize=True).load().train.inputs
        for pixels in (None, "bytes")
    )
    assert torch.equal(normal, too)


def test_the_environment_variable_is_searched(tiny_mnist, data, monkeypatch):
    monkeypatch.setenv("FEDPRIV_DATA", str(data))
    assert len(tiny_mnist().load().train) == 20


def test_the_cache_is_searched_last(tiny_mnist, data, cache):
    cache.parent.mkdir()
    data.rename(cache)
    assert len(tiny_mnist().load().train) == 20


def test_a_named_path_without_the_files_says_what_to_put_there(tmp_path):
    with pytest.raises(DataError) as caught:
        Mnist(path=str(tmp_path)).load()
    assert str(caught.value) == (
        f"mnist not found: dataset.path={tmp_path} has no MNIST/raw/train-images-idx3-ubyte; put "
        "MNIST/raw with its four unzipped idx files there, name another folder with dataset.path "
        "or FEDPRIV_DATA, or run `fedpriv data download mnist` and leave dataset.path out"
    )


def test_the_environment_variable_is_not_silently_passed_over(tmp_path, monkeypatch, cache):
    monkeypatch.setenv("FEDPRIV_DATA", str(tmp_path / "no"))
    with pytest.raises(DataError) as caught:
        FashionMnist().load()
    assert str(caught.value) == (
        f"fashion_mnist not found: FEDPRIV_DATA={tmp_path}/no does not exist; put FashionMNIST/raw "
        "with its four unzipped idx files there, name another folder with dataset.path or "
        "FEDPRIV_DATA, or run `fedpriv data download fashion_mnist`"
    )
    assert not cache.exists()


def test_download_false_never_fills_the_cache(cache):
    with pytest.raises(DataError, match=r"^mnist not found: the cache .* does not exist; put"):
        Mnist(download=False).load()
    assert not cache.exists()


def test_a_truncated_file_is_named(tiny_mnist, data):
    images = data / "MNIST/raw/train-images-idx3-ubyte"
    images.write_bytes(images.read_bytes()[:-1])
    with pytest.raises(DataError, match=rf"^{images} is damaged or cut short \(15,695 bytes, MD5"):
        tiny_mnist(path=str(data)).load()


def test_status_of_sound_damaged_and_absent_files(tiny_mnist, data):
    dataset = tiny_mnist(path=str(data))
    labels = data / "MNIST/raw/t10k-labels-idx1-ubyte"
    sound = dataset.present()
    assert (sound.present, sound.checksums, sound.note, sound.usable) == (True, "ok", "", True)
    labels.write_bytes(b"")
    damaged = dataset.present()
    assert (damaged.present, damaged.checksums, damaged.usable) == (True, "damaged", False)
    assert str(labels) in damaged.note
    labels.unlink()
    absent = dataset.present()
    assert (absent.present, absent.checksums, absent.usable) == (False, "not checked", False)
    assert absent.note == f"dataset.path={data} has no MNIST/raw/t10k-labels-idx1-ubyte"


def test_writers_give_client_ids(tiny_mnist, data):
    np.save(data / "MNIST/train-writers.npy", np.arange(20, dtype=np.uint16))
    ids = tiny_mnist(path=str(data)).load().client_ids
    assert ids.dtype == np.int64
    assert ids.tolist() == list(range(20))


@pytest.mark.parametrize(
    ("writers", "found"),
    [
        (np.zeros(19, dtype=np.int64), "int64 of shape (19,)"),
        (np.zeros(20), "float64 of shape (20,)"),
        (np.zeros((20, 1), dtype=np.int64), "int64 of shape (20, 1)"),
    ],
)
def test_writers_that_do_not_fit_are_refused(tiny_mnist, data, writers, found):
    path = data / "MNIST/train-writers.npy"
    np.save(path, writers)
    with pytest.raises(DataError) as caught:
        tiny_mnist(path=str(data)).load()
    assert str(caught.value) == (
        f"{path} must hold 20 whole numbers, one per training record, got {found}"
    )


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00"])
def test_writers_that_are_no_array_are_refused(tiny_mnist, data, content):
    path = data / "MNIST/train-writers.npy"
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"^cannot read {path}: "):
        tiny_mnist(path=str(data)).load()


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"path": 3}, "path must be a text, got 3"),
        ({"normalize": "yes"}, "normalize must be true or false, got yes"),
        ({"download": 1}, "download must be true or false, got 1"),
        (
            {"validation_records": 60000},
            "validation_records must be a whole number >= 1 and <= 59999, got 60000",
        ),
    ],
)
def test_a_constructor_names_the_argument_and_what_is_allowed(keys, message):
    with pytest.raises(ArgumentError) as caught:
        Mnist(**keys)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("dataset", "mean", "std"), [(Mnist, 0.1307, 0.3081), (FashionMnist, 0.286, 0.353)]
)
def test_the_real_files_pass_and_have_the_known_statistics(real_data, dataset, mean, std):
    loaded = dataset(path=real_data).load()
    assert (len(loaded.train), len(loaded.test)) == (60_000, 10_000)
    assert loaded.train.inputs.mean().item() == pytest.approx(mean, abs=1e-4)
    assert loaded.train.inputs.std().item() == pytest.approx(std, abs=1e-4)
    assert loaded.test.targets.bincount().numel() == 10


def test_the_real_files_are_read_as_torchvision_reads_them(real_data):
    from fedpriv.common.torchvision_shim import import_torchvision

    loaded = Mnist(path=real_data).load()
    theirs = import_torchvision().datasets.MNIST(real_data, train=True)
    assert torch.equal(loaded.train.targets, theirs.targets)
    assert torch.equal((loaded.train.inputs * 255).round().byte().squeeze(1), theirs.data)


def test_the_real_writers_make_a_natural_partition(real_data):
    ids = Mnist(path=real_data).load().client_ids
    if ids is None:
        pytest.skip("needs MNIST/train-writers.npy in FEDPRIV_DATA")
    counts = np.unique(ids, return_counts=True)[1]
    assert (len(counts), counts.min(), counts.max(), np.median(counts)) == (539, 19, 131, 116)
