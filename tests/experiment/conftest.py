"""What two runs must have in common to be the same run."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch


def state_of(folder: Path) -> dict:
    return torch.load(folder / "checkpoint.pt", weights_only=False)


def flat(tree, prefix: str = ""):
    """(path, leaf) of nested dictionaries."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@pytest.fixture
def assert_same_run():
    """(folder, folder): the same files but for times, the same state bit for bit."""

    def check(one: Path, other: Path) -> None:
        metrics = [pd.read_csv(f / "metrics.csv").drop(columns="seconds") for f in (one, other)]
        pd.testing.assert_frame_equal(*metrics, check_exact=True)
        for name in ("clients.csv", "ledger.csv", "participation.csv"):
            files = [(f / name) for f in (one, other)]
            assert files[0].exists() == files[1].exists()
            if files[0].exists():
                assert files[0].read_text() == files[1].read_text(), name
        training = [dict(flat(state_of(f)["training"])) for f in (one, other)]
        assert training[0].keys() == training[1].keys()
        for key, value in training[0].items():
            assert torch.equal(value, training[1][key]), key
        summaries = [json.loads((f / "summary.json").read_text()) for f in (one, other)]
        for summary in summaries:
            summary.pop("seconds")
        assert summaries[0] == summaries[1]
        statements = [(f / "privacy.txt").read_text() for f in (one, other)]
        assert statements[0] == statements[1]

    return check
