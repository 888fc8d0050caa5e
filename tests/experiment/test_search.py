"""The search for T, with runs that end as they are told."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from omegaconf import OmegaConf

from fedpriv.algorithms.rounds_search import RoundsSearch
from fedpriv.experiment import search


@pytest.mark.parametrize("criterion", ["test_loss", "test_accuracy"])
def test_rounds_whose_runs_diverge_are_never_the_best(criterion, monkeypatch, tmp_path):
    monkeypatch.setattr(search, "_samples", lambda folder: 1)

    def run(config):
        diverged = config.rounds == 5
        return SimpleNamespace(
            folder=Path(tmp_path),
            stop_reason="diverged" if diverged else "rounds",
            summary={"test_loss": float("nan") if diverged else 1.0, "test_accuracy": 0.5},
        )

    config = OmegaConf.create({"rounds": 0, "seed": 0, "algorithm": {"search": {}}})
    monkeypatch.setattr(
        search, "_candidate", lambda config, rounds, seed: search.with_rounds(config, rounds)
    )
    settings = RoundsSearch(rounds=[2, 5], seeds=[0], criterion=criterion)
    best = search.find_rounds(config, settings, run, lambda line: None)
    assert best.rounds == 2
