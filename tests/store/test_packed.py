"""runs.zip: what goes in comes out, and nothing else does."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from fedpriv.common.errors import ConfigError, WriteError
from fedpriv.store.packed import FILES, pack_runs, unpack_runs


@pytest.fixture
def archive(tmp_path) -> Path:
    """Two runs, the second without its metrics, and a checkpoint that stays behind."""
    for run in ("dp_fl-digits-seed0-0123456789ab", "dp_fl-digits-seed1-0123456789ac"):
        (tmp_path / "runs" / run).mkdir(parents=True)
        for name in (*FILES, "checkpoint.pt"):
            (tmp_path / "runs" / run / name).write_text(f"{run} {name}")
    (tmp_path / "runs" / run / "metrics.csv").unlink()
    (tmp_path / "work").mkdir()
    pack_runs((tmp_path / "runs").iterdir(), tmp_path / "work" / "runs.zip")
    return tmp_path / "work" / "runs.zip"


def contents(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_what_was_packed_comes_out(archive, tmp_path):
    expected = contents(tmp_path / "runs")
    kept = {name: text for name, text in expected.items() if not name.endswith("checkpoint.pt")}
    folder = unpack_runs(archive, tmp_path / "into")
    assert contents(folder) == kept
    assert len(kept) == 2 * len(FILES) - 1
    assert folder.name.startswith("work-")
    assert list((tmp_path / "into").iterdir()) == [folder]


def test_the_same_runs_give_the_same_bytes(archive, tmp_path):
    runs = sorted((tmp_path / "runs").iterdir(), reverse=True)
    for run in runs:
        (run / "config.yaml").touch()
    pack_runs(runs, tmp_path / "again.zip")
    assert (tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_it_is_unpacked_once_and_again_when_it_changed(archive, tmp_path):
    folder = unpack_runs(archive, tmp_path / "into")
    (folder / "mark").touch()
    assert unpack_runs(archive, tmp_path / "into") == folder
    assert (folder / "mark").exists()
    pack_runs([next((tmp_path / "runs").iterdir())], archive)
    assert unpack_runs(archive, tmp_path / "into") != folder


@pytest.mark.parametrize(
    "entry",
    [
        "../config.yaml", "/etc/config.yaml", "run/../../config.yaml", "config.yaml", "run/checkpoint.pt",
        "run/plots/config.yaml", ".hidden/config.yaml", "run\\..\\config.yaml", "run/config.yaml/", "run/",
    ],
)  # fmt: skip
def test_other_files_are_refused_and_nothing_is_written(entry, tmp_path):
    with zipfile.ZipFile(tmp_path / "runs.zip", "w") as archive:
        archive.writestr("good/config.yaml", "x")
        archive.writestr(entry, "x")
    before = set(tmp_path.rglob("*"))
    with pytest.raises(ConfigError, match=r"runs\.zip cannot be read: .* is no file of a run$"):
        unpack_runs(tmp_path / "runs.zip", tmp_path / "into")
    assert set(tmp_path.rglob("*")) - before == {tmp_path / "into"}


@pytest.mark.parametrize("damage", ["cut short", "nonsense", "a folder", "absent", "changed"])
def test_a_damaged_file_is_one_sentence(damage, archive, tmp_path):
    whole = archive.read_bytes()
    if damage in ("a folder", "absent"):
        archive.unlink()
    if damage == "a folder":
        archive.mkdir()
    if damage in ("cut short", "nonsense", "changed"):
        changed = whole.replace(b"\x78", b"\x79").replace(b"\x01", b"\x02")
        archive.write_bytes(
            {"cut short": whole[:-40], "nonsense": b"x", "changed": changed}[damage]
        )
    with pytest.raises(ConfigError, match=r"runs\.zip cannot be read: .+$"):
        unpack_runs(archive, tmp_path / "into")
    assert not any(path.is_dir() for path in (tmp_path / "into").glob("*"))


def test_a_place_that_cannot_be_written_is_said(archive, tmp_path):
    (tmp_path / "into").touch()
    with pytest.raises(WriteError, match="cannot be written"):
        unpack_runs(archive, tmp_path / "into")
