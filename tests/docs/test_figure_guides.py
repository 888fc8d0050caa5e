"""The short guides to figures: each definition is one that ``fedpriv figure`` understands."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import yaml

GUIDES = Path(__file__).parents[2] / "docs" / "guide"
EVERYTHING = "it shows that everything works"
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


def test_the_table_of_quick_figures_says_what_their_comparisons_say():
    """A figure is in the table where its quick scale shows more than that everything works."""
    page = (GUIDES / "figures.md").read_text("utf-8")
    section = page.partition("## Quick figures")[2].partition("\n## ")[0]
    listed = set()
    for row in re.findall(r"^\| (`.*?) \|", section, flags=re.M):
        work = ""
        for name in re.findall("`(.*?)`", row):
            work = name.partition("/")[0] if "/" in name else work
            listed.add(f"{work}/{name.rpartition('/')[2]}")
    figures = {
        f"{path.parent.name}/{path.stem}": yaml.safe_load(path.read_text("utf-8"))["figure"]
        for path in (GUIDES.parents[1] / "conf" / "figure").glob("*/*.yaml")
    }
    shapes = {name: figure.get("quick_shape") or EVERYTHING for name, figure in figures.items()}
    assert listed == {name for name, shape in shapes.items() if not shape.startswith(EVERYTHING)}
