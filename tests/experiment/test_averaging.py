"""Averages of the released models: what is evaluated and left behind, what they do not change."""

from __future__ import annotations

import csv
import json

import numpy as np
import pytest
import torch

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan
from fedpriv.store.folder import RunFolder

CDP = (
    "algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.5", "epsilon=null",
    "noise_schedule.noise_multiplier=1", "rounds=5", "evaluation_interval=1",
    "runtime.snapshot_interval=1",
)  # fmt: skip
EMA = ("averaging=ema", "averaging_decay=0.5")
TAIL = ("averaging=tail", "averaging_start=2")


def snapshots(folder, key: str) -> np.ndarray:
    """One row for each round [t, d], the initial weights first."""
    found = sorted((folder / "snapshots").glob("round*.pt"))
    return np.stack([torch.load(path, weights_only=True)[key].double() for path in found])


def ema(weights: np.ndarray) -> np.ndarray:
    mean, found = weights[1], [weights[1]]
    for n, own in enumerate(weights[2:], start=2):
        kept = min(0.5, (1 + n) / (10 + n))
        mean = kept * mean + (1 - kept) * own
        found.append(mean)
    return np.stack(found)


def tail(weights: np.ndarray) -> np.ndarray:
    first = list(weights[1:3])
    return np.stack([*first, *(weights[3:t].mean(axis=0) for t in range(4, len(weights) + 1))])


def accuracies(folder) -> list[float]:
    rows = csv.DictReader((folder / "metrics.csv").read_text().splitlines())
    return [float(row["test_accuracy"]) for row in rows]


@pytest.mark.thorough
@pytest.mark.parametrize(("keys", "expected"), [(EMA, ema), (TAIL, tail)], ids=["ema", "tail"])
def test_a_snapshot_holds_the_weights_and_their_average(keys, expected, train):
    folder = train(*CDP, *keys).folder
    weights = snapshots(folder, "weights")
    np.testing.assert_allclose(
        snapshots(folder, "averaged")[1:], expected(weights), rtol=1e-4, atol=1e-7
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("keys", [EMA, TAIL], ids=["ema", "tail"])
def test_an_average_changes_no_release_and_costs_nothing(keys, train):
    """Even the noise is the same: the keys are not part of what the streams are keyed by."""
    plain, averaged = train(*CDP, name="plain"), train(*CDP, *keys, name="averaged")
    for name in ("ledger.csv", "privacy.json", "participation.csv"):
        assert (plain.folder / name).read_text() == (averaged.folder / name).read_text()
    weights = [snapshots(run.folder, "weights") for run in (plain, averaged)]
    assert np.array_equal(*weights)
    assert accuracies(plain.folder) != accuracies(averaged.folder)


def test_what_is_evaluated_is_what_is_left_behind(train):
    result = train(*CDP, *EMA)
    left = torch.load(result.folder / "model.pt", weights_only=True)
    flat = torch.cat([tensor.reshape(-1) for tensor in left.values()]).double().numpy()
    assert np.array_equal(flat, snapshots(result.folder, "averaged")[-1])
    summary = json.loads(RunFolder(result.folder).summary.read_text())
    assert summary["test_accuracy"] == accuracies(result.folder)[-1]


@pytest.mark.thorough
def test_a_resumed_run_has_the_average_of_the_uninterrupted_one(train, tmp_path, assert_same_run):
    whole = train(*CDP, *EMA, name="whole").folder
    quiet = ("runtime.progress=none", "runtime.plots=false")
    folder = tmp_path / "short"
    stop = tmp_path / "stop"
    stop.touch()
    begun = (*quiet, f"runtime.stop_file={stop}", f"runtime.run_dir={folder}")
    fedpriv.run(fedpriv.compose([*CDP, *EMA, *begun]))
    fedpriv.run(fedpriv.compose([*CDP, *EMA, *quiet, f"resume={folder}"]))
    assert_same_run(whole, folder)
    assert np.array_equal(snapshots(whole, "averaged"), snapshots(folder, "averaged"))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("averaging=mean",), "averaging must be one of none, ema, tail, got mean"),
        (("averaging=tail",), "averaging_start must be a whole number >= 0 with averaging=tail"),
        (("averaging_decay=0.9",), "averaging_decay must be null unless averaging=ema, got 0.9"),
        (("averaging=ema", "averaging_decay=1"), "averaging_decay must be > 0 and < 1, got 1"),
        (("averaging=ema", "averaging_start=5"), "averaging_start must be a whole number >= 0 and"),
        (("averaging_start=3",), "averaging_start must be null unless averaging is ema or tail"),
    ],
)
def test_what_makes_no_sense_is_refused(keys, message, train):
    with pytest.raises(ConfigError, match=message):
        train(*CDP, *keys)


def test_the_plan_says_when_an_average_never_begins():
    """Without a number of rounds the budget decides, and averaging_start may be beyond it."""
    overrides = ["algorithm=dp_fl", "rounds=null", "averaging=tail", "averaging_start=1000000"]
    plan = make_plan(build_parts(fedpriv.compose(overrides)))
    assert "the last model is evaluated" in " ".join(plan.caveats)
