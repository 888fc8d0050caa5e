"""The page on figures: its file and commands, with two rounds of one seed."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from fedpriv import cli

PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "figures.md").read_text("utf-8")
QUIET = ("runtime.progress=none",)


def lines() -> list[str]:
    return [line for line in PAGE.splitlines() if line.startswith("fedpriv ")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A working folder with the files of the page."""
    folder = tmp_path_factory.mktemp("page")
    (definition,) = re.findall(r"^```yaml\n(.*?)^```", PAGE, flags=re.M | re.S)
    (table,) = re.findall(r"^```csv\n(.*?)^```", PAGE, flags=re.M | re.S)
    for long, short in (
        ("[1, 2, 4, 8]", "[2, 8]"),
        ("rounds=20", "rounds=2"),
        ("seeds: 5", "seeds: 1"),
    ):
        assert long in definition
        definition = definition.replace(long, short)
    (folder / "accuracy.yaml").write_text(definition)
    (folder / "theirs.csv").write_text(table)
    return folder


@pytest.mark.thorough
def test_every_command_of_the_page_works(folder, monkeypatch, wide_cells, capsys):
    monkeypatch.chdir(folder)
    tried = []
    for line in lines():
        words = shlex.split(line)[1:]
        if words[:2] == ["figure", "accuracy.yaml"]:
            words = [*(w for w in words if w not in ("--jobs", "2")), *QUIET]
        if words[-1].startswith("hydra/launcher="):
            continue
        if words[0] == "figure" and words[1].startswith("adap_dpfl/"):
            words = [*words[:2], "--list"]
        if words[:2] == ["runs", "diff"]:
            words[2:] = sorted(map(str, Path("outputs/runs").iterdir()))[:2]
        assert cli.run(words) == 0, (line, capsys.readouterr().err)
        tried.append(words[0])
    assert len(tried) >= 6
