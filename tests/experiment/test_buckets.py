"""Whole runs whose server combines noised means of buckets: ε, noise, empty buckets, refusals."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest
import torch

from fedpriv.aggregation.run_rule import RunRule
from fedpriv.privacy.mechanisms import GRADIENT, OpenRound

RUN = (
    "algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.3", "epsilon=null",
    "noise_schedule=constant", "noise_schedule.noise_multiplier=1", "clipper=constant",
    "clipper.clip_norm=0.5", "runtime.plots=false", "runtime.progress=none",
)  # fmt: skip
MEDIAN = "aggregation=bucketed_median"


@pytest.mark.thorough
def test_epsilon_ledger_and_events_are_those_of_the_mean(train, tmp_path):
    train(*RUN, "rounds=3", "aggregation=mean", name="mean")
    train(*RUN, "rounds=3", MEDIAN, name="median")
    facts = [
        json.loads((tmp_path / name / "privacy.json").read_text()) for name in ("mean", "median")
    ]
    assert facts[0]["epsilon_sound"] == facts[1]["epsilon_sound"]
    ledgers = [pd.read_csv(tmp_path / name / "ledger.csv") for name in ("mean", "median")]
    pd.testing.assert_frame_equal(*ledgers)
    words = " ".join((tmp_path / "median" / "privacy.txt").read_text().split())
    assert "noised means of buckets" in words


def test_the_rule_is_handed_the_released_sums_over_the_public_size(train, monkeypatch):
    """m/B = 20 · 0.3/5, whoever came; the stacked vector is one release with one sensitivity."""
    released, handed = [], []
    release, combine = OpenRound.release, RunRule.combine

    def noted_release(opened, answers):
        assert answers[GRADIENT].sensitivity.tolist() == [0.5]
        assert answers[GRADIENT].divided_by == pytest.approx(6 / 5)
        visible = release(opened, answers)
        released.append(visible[GRADIENT].values.clone())
        return visible

    def noted_combine(rule, clients, uploads, weights):
        handed.append((clients.tolist(), uploads.clone(), weights))
        return combine(rule, clients, uploads, weights)

    monkeypatch.setattr(OpenRound, "release", noted_release)
    monkeypatch.setattr(RunRule, "combine", noted_combine)
    train(*RUN, "rounds=3", MEDIAN)
    for values, (buckets, rows, weights) in zip(released, handed, strict=True):
        assert values.shape == (1, 5 * 650)
        assert torch.equal(rows.view(1, -1), values.to(rows.dtype))
        assert buckets == [0, 1, 2, 3, 4]
        assert weights.tolist() == pytest.approx([0.2] * 5)


def test_an_empty_cohort_releases_noise_in_every_bucket(train, monkeypatch):
    released = []
    release = OpenRound.release

    def noted(opened, answers):
        assert not bool(answers[GRADIENT].values.any())
        visible = release(opened, answers)
        released.append(visible[GRADIENT].values.view(5, -1).double().std(dim=1))
        return visible

    monkeypatch.setattr(OpenRound, "release", noted)
    monkeypatch.setattr(
        "fedpriv.algorithms.CdpFedAvg.cohort",
        lambda self, streams, t, eligible: eligible.nonzero()[0][:0],
    )
    train(*RUN, MEDIAN, "rounds=1")
    expected = 0.5 / (6 / 5)  # z C B/m
    torch.testing.assert_close(released[0], torch.full((5,), expected).double(), rtol=0.15, atol=0)


def test_the_noise_of_a_step_is_that_of_the_formula(train, monkeypatch, tmp_path):
    """√(πB/2) z C/m of the mean's z C/m, in the weights of runs whose clients all stay away."""
    monkeypatch.setattr(
        "fedpriv.algorithms.CdpFedAvg.cohort",
        lambda self, streams, t, eligible: eligible.nonzero()[0][:0],
    )
    stds = {}
    monkeypatch.setattr(
        "torch.nn.Linear.reset_parameters",
        lambda layer: [p.data.zero_() for p in layer.parameters()],
    )
    for name, rule in (
        ("mean", ("aggregation=mean",)),
        ("median", (MEDIAN, "aggregation.buckets=15")),
    ):
        train(*RUN, *rule, "rounds=1", name=name)
        state = torch.load(tmp_path / name / "model.pt")
        stds[name] = float(torch.cat([value.flatten() for value in state.values()]).std())
    assert stds["mean"] == pytest.approx(0.5 / 6, rel=0.1)
    assert stds["median"] / stds["mean"] == pytest.approx(math.sqrt(math.pi * 15 / 2), rel=0.12)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (
            ("aggregation.buckets=4",),
            "aggregation.buckets must be more than 2 tolerated = 4, got 4",
        ),
        (
            ("aggregation.buckets=2", "aggregation.tolerated=1"),
            "aggregation.buckets must be more than 2",
        ),
    ],
)
@pytest.mark.parametrize("dry", ["true", "false"])
def test_what_it_does_not_go_with_is_refused_before_round_one(
    overrides, wanted, dry, command, tmp_path
):
    said = command(
        "train", "algorithm=cdp_fedavg", *overrides, MEDIAN, f"dry_run={dry}", "runtime.run_dir=run"
    )
    assert said.status == 2
    assert wanted in said.err
    assert not (tmp_path / "run").exists()
