"""A folder of runs made from one real run: other keys, other results, other places."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

SMALL = ("algorithm=dp_fl", "dataset=digits", "epsilon=null", "rounds=2", "evaluation_interval=2")


@pytest.fixture
def copy(ran, tmp_path) -> Callable[..., Path]:
    """(name, summary, **config) → a copy of a finished run with these keys in its files."""

    def make(name: str, summary: dict | None = None, **config: object) -> Path:
        folder = tmp_path / "outputs" / name
        shutil.copytree(ran(*SMALL).folder, folder)
        tree = yaml.safe_load((folder / "config.yaml").read_text())
        for key, value in config.items():
            *groups, last = key.split("__")
            node = tree
            for group in groups:
                node = node[group]
            node[last] = value
        (folder / "config.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
        told = json.loads((folder / "summary.json").read_text())
        told |= {"seed": tree["seed"], **(summary or {})}
        (folder / "summary.json").write_text(json.dumps(told))
        return folder

    return make


@pytest.fixture
def several(copy, tmp_path) -> Path:
    """Four runs at three depths: two noises, two seeds."""
    for noise, seed, accuracy in ((8.0, 0, 0.9), (8.0, 1, 0.8), (16.0, 0, 0.7), (16.0, 1, 0.6)):
        place = {8.0: "runs/", 16.0: "multirun/today/"}[noise] if seed else ""
        copy(
            f"{place}noise{noise:g}-seed{seed}",
            {"test_accuracy": accuracy, "epsilon_sound": 20 / noise},
            noise_schedule__noise_multiplier=noise,
            seed=seed,
            noise_seed=seed,
        )
    return tmp_path / "outputs"
