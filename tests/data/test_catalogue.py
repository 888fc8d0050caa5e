from __future__ import annotations

import subprocess
import sys

import pytest

from fedpriv.common.errors import ConfigError, DataError
from fedpriv.data.catalogue import dataset_status, download
from fedpriv.data.mnist import FashionMnist, Mnist

NAMES = [
    "digits", "synthetic", "synthetic_text", "mnist", "fashion_mnist", "emnist", "femnist", "cifar10",
    "adult", "sentiment140", "ubuntu_irc", "reddit", "shakespeare", "ipums",
]  # fmt: skip


def test_every_data_set_has_a_row(cache):
    rows = {row.name: row for row in dataset_status()}
    assert list(rows) == NAMES
    assert rows["digits"].usable
    assert rows["mnist"].where == str(cache)
    assert rows["mnist"].note == f"the cache {cache} does not exist"
    assert (rows["cifar10"].train_records, rows["cifar10"].present) == (50_000, False)


def test_the_real_files_are_listed_as_sound(real_data, monkeypatch):
    monkeypatch.setattr("fedpriv.data.catalogue.STORED", (Mnist, FashionMnist))
    rows = {row.name: row for row in dataset_status(real_data)}
    assert rows["mnist"].checksums == rows["fashion_mnist"].checksums == "ok"


def test_sound_files_are_not_downloaded_again(tiny_mnist, data, monkeypatch):
    monkeypatch.setattr("fedpriv.data.catalogue.STORED", (tiny_mnist,))
    monkeypatch.setattr(tiny_mnist, "download", lambda *_: pytest.fail("downloaded"))
    assert download("mnist", data).usable


def test_digits_need_no_download():
    assert download("digits").usable


def test_the_users_own_data_set_says_how_to_name_its_file():
    row = dataset_status()[-1]
    assert (row.name, row.present, row.train_records) == ("ipums", False, None)
    assert "dataset.path=FILE" in row.note


def test_a_path_that_is_a_file_is_read_as_the_users_own(tmp_path):
    file = tmp_path / "extract.txt"
    lines = "1 0\n2 1\n3 1\n4 0\n" * 5
    file.write_text(lines)
    row = dataset_status(str(file))[-1]
    assert (row.train_records + row.test_records, row.checksums) == (20, "own file")
    assert row.usable
    file.write_text(lines.replace("3 1", "3 7"))
    row = dataset_status(str(file))[-1]
    assert not row.usable
    assert "line 3" in row.note
    file.write_text("")
    row = dataset_status(str(file))[-1]
    assert not row.usable
    assert "at least 3 records" in row.note


def test_the_users_own_data_set_cannot_be_downloaded():
    with pytest.raises(DataError, match=r"^ipums may not be passed on .* dataset\.path=FILE"):
        download("ipums")


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as caught:
        download("mnits")
    assert str(caught.value) == (
        f"the data set must be one of {', '.join(NAMES)}, got mnits; did you mean mnist?"
    )


def test_the_data_room_imports_without_torch():
    code = (
        "import sys, fedpriv.data.catalogue, fedpriv.data.federated, fedpriv.data.partitions\n"
        "sys.exit(bool({'torch', 'torchvision', 'sklearn'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
