"""The page on other frameworks: each script writes its history, and its price is what the page says."""

from __future__ import annotations

import json
import re
import shlex
import warnings
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "others.md"
NEEDS = {
    "Opacus": "opacus",
    "Flower": "flwr",
    "pfl-research": "pfl",
    "dp_accounting": "dp_accounting",
}


def examples() -> dict[str, tuple[str, str, str]]:
    """Section → (script, command, text)."""
    found = {}
    for section in PAGE.read_text("utf-8").split("\n## ")[1:]:
        title, _, body = section.partition("\n")
        blocks = dict(re.findall(r"^```(\w*)\n(.*?)^```", body, flags=re.M | re.S))
        if "python" in blocks:
            found[title] = blocks["python"], blocks[""].strip(), body
    return found


def test_every_framework_has_an_example():
    assert examples().keys() == NEEDS.keys()


@pytest.mark.parametrize("framework", NEEDS)
def test_an_example_writes_a_history_of_the_price_told(framework, tmp_path, monkeypatch, command):
    pytest.importorskip(
        NEEDS[framework], reason=f"{framework} is not installed", exc_type=ImportError
    )
    monkeypatch.chdir(tmp_path)
    script, line, text = examples()[framework]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of other packages
        try:
            exec(compile(script, f"{framework}.py", "exec"), {"__name__": framework})
        except ImportError as error:
            pytest.skip(f"{framework} here is of another version: {error}")
    said = command(*shlex.split(line)[1:], "--json", "--accountant", "pld,rdp,gdp")
    assert said.status == 0, said.err
    found = json.loads(said.out)
    ((delta, name),) = found["tightest"].items()
    told, by = re.search(r"The tightest is ε = ([\d.]+), by (\w+)", text).groups()
    assert name == by.lower()
    assert found["accountants"][name]["epsilon"][delta] == pytest.approx(float(told), abs=1.1e-3)
