"""No command writes over what it did not write, nor into a run folder that it does not own."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import RUN_FILES, refuse_foreign

SMALL = ("algorithm=dp_fl", "epsilon=null", "rounds=2", "evaluation_interval=1")
RELEASES = ("account", "--noise-multiplier", "8", "--sample-rate", "1", "--steps", "2", "--delta", "1e-5",
            "--accountant", "gdp")  # fmt: skip
WRITERS = {
    "mine.svg": (*RELEASES, "--plot"),
    "mine.csv": ("runs", "run", "--csv"),
    "mine.html": ("report", "run", "--out"),
}


@pytest.fixture
def run(ran, tmp_path) -> Path:
    return Path(shutil.copytree(ran(*SMALL).folder, tmp_path / "run"))


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(said, *words: str) -> None:
    assert said.status == 2
    for word in words:
        assert word in said.sentence


@pytest.mark.parametrize("name", WRITERS)
def test_a_file_of_somebody_else_is_not_written_over(name, run, command, tmp_path):
    (tmp_path / name).write_text("notes\n")
    refused(command(*WRITERS[name], name), name, "a new file, or one that the same command wrote")
    assert (tmp_path / name).read_text() == "notes\n"


@pytest.mark.few(2)
@pytest.mark.parametrize("name", WRITERS)
def test_the_same_command_writes_its_file_again(name, run, command, tmp_path):
    for _ in range(2):
        said = command(*WRITERS[name], name)
        assert (said.status, said.err) == (0, "")
    assert (tmp_path / name).stat().st_size > 0


@pytest.mark.parametrize("name", WRITERS)
def test_nothing_is_written_into_a_run_folder(name, run, command):
    before = contents(run)
    for place in (f"run/{name}", f"run/plots/{name}"):
        refused(command(*WRITERS[name], place), "outside of the run folder")
    assert contents(run) == before


@pytest.mark.parametrize("there", ["note.png", "note.csv"])
def test_a_plot_writes_over_nothing_without_force(there, run, command, tmp_path):
    (tmp_path / there).write_text("notes\n")
    refused(command("plot", "run", "--out", "note.png"), there, "--force writes over it")
    assert [path.name for path in tmp_path.glob("note.*")] == [there]
    assert command("plot", "run", "--out", "note.png", "--force").status == 0
    assert (tmp_path / there).read_bytes() != b"notes\n"


def test_a_report_goes_into_its_run_folder_but_not_over_another_page(run, command, tmp_path):
    for _ in range(2):
        assert command("report", "run").status == 0
    (run / "report.html").write_text("<title>mine</title>")
    refused(command("report", "run"), "report.html")
    (tmp_path / "report.html").write_text("<title>mine</title>")
    refused(command("report", "run", "run"), "report.html")
    assert (tmp_path / "report.html").read_text() == "<title>mine</title>"


def test_a_table_of_other_columns_is_written_over_by_the_same_columns_alone(run, command, tmp_path):
    columns = ("--columns", "seed,rounds", "--csv", "few.csv")
    assert [command("runs", "run", *columns).status for _ in range(2)] == [0, 0]
    refused(command("runs", "run", "--csv", "few.csv"), "--csv", "few.csv")


@pytest.mark.parametrize("kind", ["link", "empty"])
def test_an_empty_file_is_free_and_a_link_is_not(kind, run, command, tmp_path):
    if kind == "empty":
        (tmp_path / "a.svg").touch()
        assert command(*RELEASES, "--plot", "a.svg").status == 0
        return
    (tmp_path / "a.svg").symlink_to("elsewhere")
    refused(command(*RELEASES, "--plot", "a.svg"), "it is a link or a device")


@pytest.mark.parametrize("name", ["metrics.csv", "model.pt", "run.log"])
def test_a_run_does_not_begin_in_a_folder_with_files_of_its_names(name, train, tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / name).write_text("mine")
    with pytest.raises(ConfigError, match=f"runtime.run_dir must be a folder without a {name}"):
        train(*SMALL, name="mine")
    assert (tmp_path / "mine" / name).read_text() == "mine"


def test_a_folder_with_one_such_file_is_no_run_folder(tmp_path):
    first, second, *_ = sorted(RUN_FILES)
    (tmp_path / first).touch()
    refuse_foreign("--out", tmp_path / "x.png", None)
    (tmp_path / second).touch()
    with pytest.raises(ConfigError, match="outside of the run folder"):
        refuse_foreign("--out", tmp_path / "x.png", None)
