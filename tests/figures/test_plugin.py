"""Hydra finds the sweeper of figures by itself, as an installed plugin."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
FIND = """
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
print(sorted(f"{c.__module__}.{c.__name__}" for c in Plugins.instance().discover(Sweeper)))
import sys
print("torch" in sys.modules)
"""


def test_hydra_finds_the_sweeper_without_being_told_and_without_torch(tmp_path):
    said = subprocess.run(
        [sys.executable, "-c", FIND], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    found, torch = said.stdout.strip().splitlines()
    assert "hydra_plugins.fedpriv.CurvesSweeper" in found
    assert torch == "False"


def test_a_wheel_and_an_sdist_carry_it():
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    assert "hydra_plugins" in targets["wheel"]["packages"]
    assert "/hydra_plugins" in targets["sdist"]["include"]
    assert not (ROOT / "hydra_plugins" / "__init__.py").exists()  # a namespace that others share
