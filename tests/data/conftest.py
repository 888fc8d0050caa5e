"""Fixtures of the data tests: no folder of the user's machine is looked into by accident."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import numpy as np
import pytest

from fedpriv.data.mnist import Mnist
from fedpriv.data.storage import StoredFile

REAL_DATA = os.environ.get("FEDPRIV_DATA")


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch) -> Path:
    """An empty cache folder (not yet made); FEDPRIV_DATA is not set."""
    monkeypatch.delenv("FEDPRIV_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    return tmp_path / "xdg" / "fedpriv"


@pytest.fixture
def real_data() -> str:
    """The folder with the real MNIST and Fashion-MNIST files."""
    if not REAL_DATA or not (Path(REAL_DATA) / "MNIST" / "raw").is_dir():
        pytest.skip("needs the real MNIST files: set FEDPRIV_DATA to the folder that holds MNIST/")
    return REAL_DATA


@pytest.fixture
def real_adult() -> str:
    """The folder with the real Adult files."""
    if not REAL_DATA or not (Path(REAL_DATA) / "adult" / "adult.data").is_file():
        pytest.skip("needs the real Adult files: set FEDPRIV_DATA to the folder that holds adult/")
    return REAL_DATA


def idx(values: np.ndarray) -> bytes:
    """An idx file of unsigned bytes."""
    sizes = np.array(values.shape, dtype=">i4").tobytes()
    return bytes([0, 0, 8, values.ndim]) + sizes + values.astype(np.uint8).tobytes()


@pytest.fixture
def tiny_mnist(tmp_path) -> type[Mnist]:
    """MNIST with 20 + 10 records of random pixels, written to ``tmp_path / "data"``."""
    random = np.random.default_rng(0)
    contents = [
        idx(random.integers(0, 256, (20, 28, 28))),
        idx(np.arange(20) % 10),
        idx(random.integers(0, 256, (10, 28, 28))),
        idx(np.arange(10)),
    ]
    files = []
    for file, content in zip(Mnist.files, contents, strict=True):
        path = tmp_path / "data" / file.path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        files.append(StoredFile(file.path, hashlib.md5(content).hexdigest()))

    class TinyMnist(Mnist):
        train_records = 20
        test_records = 10

        def __init__(self, *, validation_records: int = 5, **keys):
            super().__init__(validation_records=validation_records, **keys)

    TinyMnist.files = tuple(files)
    return TinyMnist


@pytest.fixture
def data(tmp_path, tiny_mnist) -> Path:
    """The folder that holds the files of ``tiny_mnist``."""
    return tmp_path / "data"


@pytest.fixture
def real_file():
    """real_file("adult/adult.data"): the folder with that file of the real data."""

    def folder_with(name: str) -> str:
        if not REAL_DATA or not (Path(REAL_DATA) / name).is_file():
            pytest.skip(f"needs the real {name}: set FEDPRIV_DATA to the folder that holds it")
        return REAL_DATA

    return folder_with
