"""The page that explains a run line by line: its quotes are what the commands print."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shlex
from pathlib import Path

import pytest

from fedpriv.store.statement import first_clause

EXACT = True  # with the accountants as they are
PAGE = (Path(__file__).parents[2] / "docs" / "guide" / "reading_a_run.md").read_text("utf-8")
COMMANDS = re.findall(r"^fedpriv (train .*)$", PAGE, flags=re.M)
QUOTES = [re.findall(r"```text\n(.*?)```", part, flags=re.S) for part in PAGE.split("\n## ")[1:3]]
QUOTES[1] += re.findall(r"```text\n(.*?)```", PAGE.split("\n## ")[3], flags=re.S)
NOT_ALIKE = re.compile(r"(?<=time) │ [\d:]+|(?<=accuracy) │ [\d.]+|(?<=loss) │ [\d.]+")
"""What differs from machine to machine."""


def plain(text: str) -> str:
    """Return the words of a text without the lines of tables, accuracies, losses and times."""
    return " ".join(NOT_ALIKE.sub("", " ".join(text.split())).replace("│", " ").split())


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each command of the page prints, and the folder of its run."""
    from fedpriv import cli

    printed = []
    for words in COMMANDS:
        folder, out = tmp_path_factory.mktemp("ran") / "run", io.StringIO()
        quiet = ("runtime.progress=lines", "runtime.plots=false", "runtime.device=cpu")
        with contextlib.redirect_stdout(out):
            assert cli.run([*shlex.split(words), *quiet, f"runtime.run_dir={folder}"]) == 0
        printed.append((plain(out.getvalue()), folder))
    return printed


@pytest.mark.parametrize("run", [0, 1], ids=COMMANDS)
def test_the_quotes_are_what_the_command_prints(run, outputs):
    output, _ = outputs[run]
    assert len(QUOTES[run]) >= 2
    for quote in QUOTES[run]:
        assert plain(quote) in output


@pytest.mark.parametrize("run", [0, 1], ids=COMMANDS)
def test_every_line_is_explained(run):
    names = re.findall(r"^│ (\w[\w ]*?) +│", QUOTES[run][0], flags=re.M)
    assert len(names) >= 9
    section = PAGE.split("\n## ")[run + 1].split("```text")[1]
    for name in names:
        assert f"`{name}`" in section, name


@pytest.mark.parametrize("run", [0, 1], ids=COMMANDS)
def test_every_caveat_is_explained(run, outputs):
    _, folder = outputs[run]
    for caveat in json.loads((folder / "privacy.json").read_text())["caveats"]:
        short = re.sub(r"\de-\d\d", "…", first_clause(caveat))
        assert f"| `{short}` |" in re.sub(r"\de-\d\d", "…", PAGE)
