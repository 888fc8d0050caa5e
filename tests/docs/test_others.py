"""The page on other frameworks: each script writes the scores of its canaries, and what fedpriv finds in them
is what the page says."""

from __future__ import annotations

import csv
import re
import shlex
import warnings
from pathlib import Path

import pytest
import torch

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "others-audited.md"
NEEDS = {"Opacus": "opacus", "Flower": "flwr", "pfl-research": "pfl"}


def examples() -> dict[str, tuple[str, str, str]]:
    """Section → (script, command, text)."""
    found = {}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        blocks = dict(re.findall(r"^```(\w*)\n(.*?)^```", body, flags=re.M | re.S))
        if "python" in blocks:
            found[title] = blocks["python"], blocks[""].strip(), body
    return found


def run(script: str, framework: str) -> None:
    """Skips where it is not installed, or another version."""
    pytest.importorskip(
        NEEDS[framework], reason=f"{framework} is not installed", exc_type=ImportError
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages
        try:
            exec(compile(script, f"{framework}.py", "exec"), {"__name__": framework})
        except ImportError as error:
            pytest.skip(f"{framework} here is of another version: {error}")


def test_every_framework_has_an_example():
    assert examples().keys() == NEEDS.keys()


@pytest.mark.parametrize("framework", NEEDS)
def test_an_example_writes_scores_of_which_the_bound_is_told(
    framework, tmp_path, monkeypatch, command
):
    monkeypatch.chdir(tmp_path)
    script, line, text = examples()[framework]
    with torch.random.fork_rng(devices=[]):  # the script sets a seed
        run(script, framework)
    said = command(*shlex.split(line)[1:], "--csv", "found.csv")
    assert said.status == 0, said.err
    with (tmp_path / "found.csv").open() as file:
        found = {row["method"]: float(row["epsilon"]) for row in csv.DictReader(file)}
    told = float(re.search(r"`one_run` finds ε of at least (\d+\.\d+)", text)[1])
    most = float(re.search(r"at most\s(\d+\.\d+)", text)[1])
    assert (
        told / 2 < found["one_run"] < min(2 * told, most)
    )  # torch draws other noise in other versions
