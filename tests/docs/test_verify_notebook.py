"""docs/verify_your_mechanism.ipynb: every cell runs; its verdicts are those that are stored."""

from __future__ import annotations

import json
import re
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
CELLS = [
    cell
    for cell in json.loads((DOCS / "verify_your_mechanism.ipynb").read_text("utf-8"))["cells"]
    if cell["cell_type"] == "code"
]


def stored(cell) -> str:
    """Return the text below a cell."""
    return "".join("".join(output["text"]) for output in cell["outputs"])


def verdict(text: str) -> list[str]:
    """Return the exit status and the failed checks that a text names, without measured values."""
    return re.findall(r"exit status \d|^FAIL [^:]+: [^:]+", text, flags=re.M)


def test_the_notebook_shows_a_pass_and_two_caught_faults():
    shown = [verdict(stored(cell)) for cell in CELLS]
    assert [found[-1] for found in shown if found] == ["exit status 0", *["exit status 1"] * 2]
    assert "the same noise again" in "".join(map(stored, CELLS))


def test_the_guide_links_the_notebook():
    assert "(../verify_your_mechanism.ipynb)" in (DOCS / "guide" / "verify.md").read_text("utf-8")


@pytest.mark.thorough
def test_the_notebook_runs():
    scope: dict[str, object] = {}
    for cell in CELLS:
        said = StringIO()
        with redirect_stdout(said):
            exec(compile("".join(cell["source"]), "notebook", "exec"), scope)
        assert bool(said.getvalue()) == bool(stored(cell))
        assert verdict(said.getvalue()) == verdict(stored(cell))
