"""Hydra finds the sweeper of figures by itself, as an installed plugin."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hydra import initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra

ROOT = Path(__file__).parents[3]
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


def test_programs_with_a_configuration_of_their_own_do_not_search_the_tables(tmp_path):
    (tmp_path / "config.yaml").write_text("x: 1\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        loader = GlobalHydra.instance().config_loader()
        places = [place.path for place in loader.get_search_path().get_path()]
        assert loader.get_group_options("recipe") == []
    assert places == ["pkg://hydra.conf", str(tmp_path), "structured://"]


def test_a_wheel_and_an_sdist_carry_it():
    targets = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"][
        "targets"
    ]
    assert "hydra_plugins" in targets["wheel"]["packages"]
    assert "/hydra_plugins" in targets["sdist"]["include"]
    assert not (ROOT / "hydra_plugins" / "__init__.py").exists()  # a namespace that others share


@pytest.fixture
def composed(monkeypatch) -> list[list[str]]:
    """The overrides of every job that Hydra composes."""
    seen = []
    whole = ConfigLoaderImpl.load_sweep_config

    def note(self, master_config, sweep_overrides):
        seen.append(sweep_overrides)
        return whole(self, master_config, sweep_overrides)

    monkeypatch.setattr(ConfigLoaderImpl, "load_sweep_config", note)
    return seen


@pytest.mark.thorough
@pytest.mark.parametrize(
    "swept",
    ["algorithm=dp_fl,fedavg", "runtime={},{threads:1}", "clipper=constant,none", "delta=0.1,[1]"],
)
def test_jobs_that_may_compose_otherwise_are_each_composed_before_the_first(
    swept, command, composed
):
    command("train", "-m", swept, "seed=0,1", "dry_run=true")
    assert composed[0][0] == swept.split(",")[0]
    assert len({job[0] for job in composed[:2]}) == 2


@pytest.mark.parametrize("swept", ["algorithm=dp_fl,nope", "noise_schedule=constant,x", "seed=0,1"])
def test_a_job_that_cannot_be_composed_is_refused_before_the_first_runs(swept, command, tmp_path):
    twice = ["+rounds=1"] if swept == "seed=0,1" else []
    said = command("train", "-m", swept, "rounds=1", *twice, verbatim=True)
    assert said.status == 2
    assert not list(tmp_path.rglob("metrics.csv"))
