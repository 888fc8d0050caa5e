from __future__ import annotations

from pathlib import Path

import pytest

from fedpriv.common.errors import DataError
from fedpriv.data.storage import StoredFile, absence, cache_folder, data_folder, read_verified

FILE = StoredFile("part/file", "900150983cd24fb0d6963f7d28e17f72")  # the MD5 of "abc" (RFC 1321)


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / FILE.path
    path.parent.mkdir()
    path.write_bytes(b"abc")
    return tmp_path


def test_a_path_comes_before_the_environment_and_the_cache(monkeypatch, cache):
    assert str(data_folder(None)) == f"the cache {cache}"
    monkeypatch.setenv("FEDPRIV_DATA", "/somewhere")
    assert str(data_folder(None)) == "FEDPRIV_DATA=/somewhere"
    assert str(data_folder("/named")) == "dataset.path=/named"


def test_an_empty_environment_variable_counts_as_not_set(monkeypatch, cache):
    monkeypatch.setenv("FEDPRIV_DATA", "")
    assert data_folder(None).path == cache


def test_a_tilde_is_the_home_folder(monkeypatch):
    monkeypatch.setenv("HOME", "/home/someone")
    assert data_folder("~/data").path == Path("/home/someone/data")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path("/home/someone/.cache/fedpriv")


def test_absence_says_what_is_missing(folder):
    def why(path):
        return absence(data_folder(str(path)), [FILE])

    assert why(folder) is None
    assert why(folder / "no") == f"dataset.path={folder}/no does not exist"
    assert why(folder / FILE.path) == f"dataset.path={folder}/part/file is not a folder"
    assert why(folder / "part") == f"dataset.path={folder}/part has no part/file"


def test_a_sound_file_is_read(folder):
    assert read_verified(folder, FILE, "mnist") == b"abc"


def test_a_changed_file_is_named_with_what_to_do(folder):
    (folder / FILE.path).write_bytes(b"ab")
    with pytest.raises(DataError) as caught:
        read_verified(folder, FILE, "mnist")
    assert str(caught.value) == (
        f"{folder}/part/file is damaged or cut short (2 bytes, MD5 "
        "187ef4436122d1cc2f40dc2b92f0eba0 instead of 900150983cd24fb0d6963f7d28e17f72); "
        "replace it, or run `fedpriv data download mnist`"
    )


def test_a_folder_in_the_place_of_a_file_cannot_be_read(folder):
    with pytest.raises(DataError, match=r"^cannot read .*/part: it is not a file$"):
        read_verified(folder, StoredFile("part", "0"), "mnist")


def test_a_folder_that_may_not_be_entered_is_named(folder, monkeypatch):
    def refuse(self):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(DataError) as caught:
        absence(data_folder(str(folder)), [FILE])
    assert str(caught.value) == f"cannot read {folder}: Permission denied"
