"""docs/tour.ipynb: every cell runs; what does not depend on the machine is what is stored."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import matplotlib.pyplot as plt
import pytest

TOUR = Path(__file__).parents[2] / "docs" / "tour.ipynb"


@pytest.mark.thorough
def test_the_tour_runs():
    cells = json.loads(TOUR.read_text("utf-8"))["cells"]
    scope: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] != "code":
            continue
        said = StringIO()
        with redirect_stdout(said):
            exec(compile("".join(cell["source"]), "tour", "exec"), scope)
        stored = "".join("".join(out.get("text", "")) for out in cell["outputs"])
        assert bool(said.getvalue()) == bool(stored)
        if "calibrate_noise_multiplier" in "".join(cell["source"]):
            assert said.getvalue() == stored
    (axes,) = plt.gcf().axes
    assert {line.get_label() for line in axes.lines} >= {"enforced", "published"}
    plt.close("all")
