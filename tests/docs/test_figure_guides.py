"""The short guides to figures: each definition is one that ``fedpriv figure`` understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
PAGES = ("own-baseline.md", "extend-a-study.md", "question-to-figure.md")


@pytest.mark.parametrize("name", PAGES)
def test_the_definition_of_the_page_is_understood(name, command, tmp_path):
    """``--list`` reads the definition with all its baselines and composes every run."""
    text = (GUIDES / name).read_text("utf-8")
    (definition,) = re.findall(r"^```yaml\n(.*?)^```", text, flags=re.M | re.S)
    lines = [shlex.split(line)[1:] for line in text.splitlines() if line.startswith("fedpriv ")]
    (file,) = {words[1] for words in lines if words[0] == "figure"}
    (tmp_path / file).write_text(definition)
    for table in re.findall(r"^```csv\n(.*?)^```", text, flags=re.M | re.S):
        (tmp_path / "old.csv").write_text(table)
    said = command("figure", file, "--list")
    assert (said.status, said.err) == (0, "")
    assert "0 done" in said.out


def test_the_first_step_of_a_question_is_a_dry_run(command):
    text = (GUIDES / "question-to-figure.md").read_text("utf-8")
    (line,) = [line for line in text.splitlines() if line.startswith("fedpriv train ")]
    assert "dry_run=true" in line
    assert command(*shlex.split(line)[1:]).status == 0
