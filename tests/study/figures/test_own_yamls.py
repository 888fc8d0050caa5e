"""Figures with YAMLs, a model and a table of the user's own: packed, and hinted at."""

from __future__ import annotations

import shutil
import zipfile
from pathlib import Path

import pytest
from test_own_figure import BASE, QUIET, write_own


def write_mine(folder: Path) -> None:
    """Write an own algorithm, which names another file in its defaults, and a file that nothing names."""
    for path, text in (
        ("algorithm/mine.yaml", "defaults: [ldp_fedsgd, /keys/mine@_global_.algorithm, _self_]\n"),
        ("keys/mine.yaml", "learning_rate: 0.1\n"),
        ("clipper/unused.yaml", "defaults: [constant]\n"),
    ):
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        head = "# @package _global_\n" if path.startswith("algorithm") else ""
        (folder / path).write_text(head + text)


@pytest.mark.thorough
def test_an_archive_has_the_own_yamls_and_names_the_own_files(tmp_path, command, monkeypatch):
    write_mine(tmp_path / "mine")
    (tmp_path / "ownnets.py").write_text(
        "from torch import nn\n\n\nclass Small(nn.Sequential):\n"
        "    def __init__(self, inputs, classes):\n        super().__init__(nn.Linear(inputs, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own.csv").write_text("x,y\n" + "".join(f"{n % 7},{n % 2}\n" for n in range(300)))
    base = BASE.replace("ldp_fedsgd", "mine").replace("rounds=4", "rounds=2")
    base = base.replace("digits", "csv dataset.path=own.csv dataset.label=y dataset.ranges=[0,6]")
    base += " model._target_=ownnets.Small"
    write_own(tmp_path, base=base, curves=None, x={"epsilon": [4]}, seeds=1, baselines=[])
    own = ("--config-dir", "mine")
    said = command("figure", "own.yaml", *own, *QUIET)
    assert said.status == 0, said.err
    said = command("figure", "pack", "own.yaml")
    assert said.status == 2
    assert "algorithm option mine" in said.sentence
    assert "--config-dir" in said.sentence
    assert command("figure", "pack", "own.yaml", *own).status == 0
    with zipfile.ZipFile("own.zip") as archive:
        archive.extractall("review")
        assert {n for n in archive.namelist() if n.startswith("yamls/")} == {
            "yamls/algorithm/mine.yaml",
            "yamls/keys/mine.yaml",
            "yamls/clipper/unused.yaml",
        }
    readme = (tmp_path / "review" / "README.md").read_text()
    assert "put them beside it first" in readme
    shutil.copy("own.csv", "review")
    (again,) = [line for line in readme.splitlines() if line.startswith("fedpriv figure")]
    assert "--config-dir yamls" in again
    monkeypatch.chdir(tmp_path / "review")
    said = command(*again.split()[1:], *QUIET)
    assert said.status == 0, said.err
    assert "1 run, 1 done" in said.out


def test_an_unknown_option_in_a_file_hints_at_own_yamls_unless_they_are_given(tmp_path, command):
    write_mine(tmp_path / "mine")
    write_own(tmp_path, base=BASE.replace("ldp_fedsgd", "minne"))
    for flags in ((), ("--list",)):
        assert "--config-dir" in command("figure", "own.yaml", *flags, *QUIET).sentence
        said = command("figure", "own.yaml", "--config-dir", "mine", *flags, *QUIET).sentence
        assert "did you mean mine?" in said
        assert "--config-dir" not in said
