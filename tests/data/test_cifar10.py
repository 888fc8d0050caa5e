from __future__ import annotations

import hashlib
import io
import pickle

import numpy as np
import pytest

from fedpriv import compose
from fedpriv.common.errors import ArgumentError, DataError
from fedpriv.data.cifar10 import CLASSES, LOSSY, Cifar10, decode_archive
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


def jpeg_of(shade: int, size: int = 32) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.new("RGB", (size, size), (shade, 255, 0)).save(file, "JPEG", quality=95)
    return file.getvalue()


def archive(images: list[bytes], labels: list[int], **changes) -> bytes:
    arrays = {
        "jpeg": np.frombuffer(b"".join(images), dtype=np.uint8),
        "offset": np.cumsum([0, *map(len, images)]),
        "label": np.array(labels, dtype=np.uint8),
        "classes": np.array(CLASSES),
    }
    file = io.BytesIO()
    np.savez(file, **{**arrays, **changes})
    return file.getvalue()


SHADES = [0, 60, 120, 180, 240] * 4


@pytest.fixture
def archives(tmp_path, tiny_cifar) -> str:
    """Archives of 20 and 4 images sorted by label; the label says how red an image is."""
    folder = tmp_path / "jpeg"
    (folder / "cifar10_jpeg").mkdir(parents=True)
    shades = sorted(SHADES)
    for name, some in (("train", shades), ("test", shades[::5])):
        content = archive([jpeg_of(shade) for shade in some], [shade // 60 for shade in some])
        (folder / "cifar10_jpeg" / f"{name}.npz").write_bytes(content)
    return str(folder)


def test_jpeg_archives_are_decoded_and_shuffled_by_a_fixed_rule(tiny_cifar, archives):
    loaded = tiny_cifar(path=archives, source="jpeg").load()
    assert loaded.train.inputs.shape == (20, 3, 32, 32)
    labels = loaded.train.targets
    assert sorted(labels.tolist()) == sorted([*range(5)] * 4)
    assert labels.tolist() != sorted(labels.tolist())
    red = loaded.train.inputs[:, 0].mean(dim=(1, 2)) * 255
    assert red.numpy() == pytest.approx(labels.numpy() * 60, abs=4)
    assert loaded.train.inputs[:, 1].mean().item() == pytest.approx(1, abs=0.02)


def test_decoded_images_are_kept(tiny_cifar, archives, monkeypatch):
    first = tiny_cifar(path=archives, source="jpeg").load()
    monkeypatch.setattr("fedpriv.data.cifar10.decode_archive", lambda *_: pytest.fail("decoded"))
    again = tiny_cifar(path=archives, source="jpeg").load()
    assert (first.train.inputs == again.train.inputs).all()
    assert (first.test.targets == again.test.targets).all()


def test_jpeg_archives_are_called_lossy_wherever_they_are_named(tiny_cifar, archives):
    dataset = tiny_cifar(path=archives, source="jpeg")
    assert dataset.caveats == dataset.notes == (LOSSY,)
    status = dataset.present()
    assert (status.usable, status.checksums, status.note) == (True, "own file", LOSSY)
    batches = tiny_cifar(path=archives)
    assert batches.caveats == batches.notes == ()
    assert not batches.present().present
    assert batches.present().note.endswith(f"; with dataset.source=jpeg: {LOSSY}")


def test_absent_archives_are_never_downloaded(tiny_cifar, tmp_path, cache):
    with pytest.raises(DataError) as caught:
        tiny_cifar(source="jpeg").load()
    assert str(caught.value) == (
        f"cifar10 as JPEG not found: the cache {cache} does not exist; put cifar10_jpeg/train.npz and "
        "cifar10_jpeg/test.npz there, or name another folder with dataset.path or FEDPRIV_DATA"
    )


def test_an_archive_of_another_size_is_refused(archives):
    with pytest.raises(DataError, match=r"train\.npz must hold 50,000 images, got 20"):
        Cifar10(path=archives, source="jpeg").load()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"nothing", "is no archive of JPEG images ("),
        (archive([jpeg_of(0)], [0], classes=np.array(["a"])), "classes must be airplane, automobile"),
        (archive([jpeg_of(0)], [10]), "labels must be 0 to 9"),
        (archive([jpeg_of(0)], [0, 1]), "label must hold n whole numbers and offset n + 1"),
        (archive([jpeg_of(0)], [0], offset=np.array([0, 9**9])), "offset must rise from 0"),
        (archive([jpeg_of(0)], [0], jpeg=np.zeros((2, 2))), "jpeg must be a row of bytes"),
        (archive([jpeg_of(0), b"no jpeg"], [0, 1]), "image 1: no JPEG of 32x32 pixels"),
        (archive([jpeg_of(0, size=8)], [0]), "image 0: no JPEG of 32x32 pixels"),
    ],
)  # fmt: skip
def test_a_file_that_is_no_such_archive_is_refused(content, message, tmp_path):
    with pytest.raises(DataError) as caught:
        decode_archive(content, tmp_path / "train.npz")
    assert str(caught.value).startswith(str(tmp_path / "train.npz"))
    assert message in str(caught.value)


def test_the_source_is_one_of_two():
    with pytest.raises(ArgumentError) as caught:
        Cifar10(source="png")
    assert str(caught.value) == "source must be one of torchvision, jpeg, got png"


@pytest.mark.thorough
def test_the_real_archives_have_nearly_the_known_statistics(real_file):
    path = real_file("cifar10_jpeg/train.npz")
    loaded = Cifar10(path=path, source="jpeg").load()
    assert loaded.train.targets.bincount().tolist() == [5000] * 10
    assert loaded.test.targets.bincount().tolist() == [1000] * 10
    assert loaded.train.targets[:1000].bincount(minlength=10).min() > 50
    mean = loaded.train.inputs.mean(dim=(0, 2, 3))
    assert mean.numpy() == pytest.approx(np.array([0.4913, 0.4821, 0.4465]), abs=1e-3)


@pytest.mark.thorough
def test_the_shipped_green_cars_are_cars_and_green(real_file):
    path = real_file("cifar10_jpeg/train.npz")
    chosen = compose(["attack=green_cars_jpeg"]).attack.trigger.indices
    train = Cifar10(path=path, source="jpeg").load().train.subset(np.array(chosen))
    assert train.targets.tolist() == [1] * 31
    red, green, blue = train.inputs.mean(dim=(2, 3)).unbind(1)
    assert (green >= red - 0.02).float().mean() > 0.8
    assert (green >= blue).float().mean() > 0.8
