"""Runs that are audited: one that learns its few records by heart, one drowned in noise."""

from __future__ import annotations

from pathlib import Path

import pytest

import fedpriv
from fedpriv.tools.audit import classifier

TINY = (
    "dataset=digits", "model=mlp", "model.hidden=64", "partition=fixed_size", "partition.clients=24",
    "partition.records=8", "evaluation_interval=100",
)  # fmt: skip
BY_HEART = (
    *TINY, "algorithm=fedavg", "algorithm.optimizer=adam", "algorithm.learning_rate=0.02",
    "algorithm.sample_rate=1", "algorithm.local_steps=3", "rounds=40", "runtime.snapshot_interval=20",
)  # fmt: skip
DROWNED = (
    *TINY, "algorithm=dp_fl", "algorithm.optimizer=sgd", "algorithm.sample_rate=1", "accountant=gdp",
    "noise_schedule.noise_multiplier=200", "epsilon=null", "noise_seed=1", "rounds=5",
    "runtime.snapshot_interval=5",
)  # fmt: skip


@pytest.fixture(autouse=True)
def few_trees(monkeypatch):
    """Ten trees tell what a hundred tell of these runs; how a forest scores is in ``test_classifier``."""
    monkeypatch.setattr(classifier, "TREES", 10)


@pytest.fixture(scope="session")
def by_heart(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("by_heart") / "run"
    quiet = ("runtime.progress=none", "runtime.plots=false", f"runtime.run_dir={folder}")
    return fedpriv.run(fedpriv.compose([*quiet, *BY_HEART])).folder


@pytest.fixture
def drowned(ran) -> Path:
    return ran(*DROWNED).folder
