from __future__ import annotations

import subprocess
import sys

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.data.catalogue import DATASETS, dataset_status, download


def test_every_data_set_has_a_row(cache):
    rows = {row.name: row for row in dataset_status()}
    assert list(rows) == ["digits", "mnist", "fashion_mnist", "cifar10"]
    assert rows["digits"].usable
    assert rows["mnist"].where == str(cache)
    assert rows["mnist"].note == f"the cache {cache} does not exist"
    assert (rows["cifar10"].train_records, rows["cifar10"].present) == (50_000, False)


def test_the_real_files_are_listed_as_sound(real_data):
    rows = {row.name: row for row in dataset_status(real_data)}
    assert rows["mnist"].checksums == rows["fashion_mnist"].checksums == "ok"


def test_sound_files_are_not_downloaded_again(tiny_mnist, data, monkeypatch):
    monkeypatch.setitem(DATASETS, "mnist", tiny_mnist)
    monkeypatch.setattr(tiny_mnist, "download", lambda *_: pytest.fail("downloaded"))
    assert download("mnist", data).usable


def test_digits_need_no_download():
    assert download("digits").usable


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as caught:
        download("mnits")
    assert str(caught.value) == (
        "the data set must be one of digits, mnist, fashion_mnist, cifar10, got mnits; "
        "did you mean mnist?"
    )


def test_the_data_room_imports_without_torch():
    code = (
        "import sys, fedpriv.data.catalogue, fedpriv.data.federated, fedpriv.data.partitions\n"
        "sys.exit(bool({'torch', 'torchvision', 'sklearn'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
