"""Paired runs: simulations with the same lots, cohorts and noise, which only what was changed tells apart."""

from __future__ import annotations

import json
import math
import sys

import pandas as pd
import pytest
import torch

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.store.caveats import CAVEATS
from fedpriv.study.search_planned import plan_trial
from fedpriv.tools.verify.subject import Subject

ROUND = ("algorithm=dp_fl", "epsilon=null", "rounds=1", "algorithm.optimizer=sgd", "clipper=constant",
         "algorithm.sample_rate=0.1")  # fmt: skip
SIGMA = "noise_schedule.noise_multiplier"
ATTACKED = (
    "algorithm=naseri_cdp", "noise_schedule.noise_multiplier=1", "epsilon=null", "clipper.clip_norm=0.3",
    "attack=pixel_pattern", "attack.trigger.size=2", "rounds=3",
)  # fmt: skip


def change(result) -> torch.Tensor:
    """By how much a run of one round moved the weights; the initial ones are common to all."""
    state = torch.load(result.folder / "model.pt", weights_only=True)
    return torch.cat([values.double().flatten() for values in state.values()])


@pytest.mark.few(1)
@pytest.mark.parametrize("pair", [("paired=one",), ()], ids=["paired", "not paired"])
def test_what_paired_runs_have_in_common_cancels(train, pair):
    """m_σ = m_0 + σ N with one N and one lot: 3 m_8 - 2 m_12 is m_0 for paired runs, and for no others."""
    bare = ("noise_schedule=none", "clipper=constant")
    low, high = (change(train(*ROUND, *pair, f"{SIGMA}={z}", name=str(z))) for z in (8, 12))
    exact = change(train(*ROUND, *pair, *bare, name="exact"))
    left = float((3 * low - 2 * high - exact).std() / (low - exact).std())
    assert left < 1e-3 if pair else left > 3


@pytest.mark.few(1)
@pytest.mark.parametrize("other", ["seed=1", "noise_seed=1", "paired=another"])
def test_other_seeds_and_names_are_other_pairs(train, other):
    noise = [
        change(
            train(
                *ROUND,
                "paired=one",
                f"{SIGMA}=1000",
                "noise_seed=0",
                "model.seed=0",
                *more,
                name=name,
            )
        )
        for name, more in (("one", ()), ("other", (other,)))
    ]
    assert abs(float(torch.corrcoef(torch.stack(noise))[0, 1])) < 0.5


@pytest.mark.few(1)
@pytest.mark.parametrize("pair", [("paired=clean",), ()], ids=["paired", "not paired"])
def test_paired_runs_sample_the_same_honest_clients(train, pair):
    cohorts = [
        (
            train(*ATTACKED, *pair, f"attack.attackers={n}", name=str(n)).folder
            / "participation.csv"
        ).read_text()
        for n in (0, 10)
    ]
    assert (cohorts[0] == cohorts[1]) == bool(pair)


def test_own_code_does_not_part_a_pair(train, tmp_path, monkeypatch):
    """Its announcements and releases are not in the keys: a defence of one's own can be compared."""
    code = "from fedpriv.privacy.clippers import ConstantClipper\n\nclass Part(ConstantClipper):\n    pass\n"
    (tmp_path / "own_clipper_of_pairs.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = (*ROUND, "paired=one", "clipper._target_=own_clipper_of_pairs.Part")
    changes = [
        change(train(*run, name=name))
        for name, run in (("own", own), ("ours", (*ROUND, "paired=one")))
    ]
    assert torch.equal(*changes)


def test_the_statement_says_what_holds_of_a_pair(train):
    folder = train(*ROUND, f"{SIGMA}=8", "paired=one").folder
    facts = json.loads((folder / "privacy.json").read_text())
    assert facts["paired"] == "one"
    assert math.isinf(float(facts["epsilon_of_two_paired_runs"]))
    assert CAVEATS["paired"] in facts["caveats"]
    headline = " ".join((folder / "privacy.txt").read_text().split("\n\n")[0].split())
    assert "no other run with paired=one is seen" in headline
    assert json.loads((folder / "summary.json").read_text())["paired"] == "one"


def test_a_run_that_is_not_paired_says_nothing_of_it(train):
    folder = train(*ROUND, f"{SIGMA}=8").folder
    assert "paired" not in json.loads((folder / "privacy.json").read_text())
    assert "paired" not in json.loads((folder / "summary.json").read_text())


def test_a_paired_search_is_refused_before_its_packages_are_asked_for(command, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    said = command("train", "-m", "hydra/sweeper=search", "paired=one", "hydra.sweeper.epsilon=1")
    assert "paired must be null in a search, got one" in said.sentence


def test_a_search_refuses_paired_trials():
    config = fedpriv.compose(
        ["algorithm=dp_fl", "rounds=2", "noise_schedule=constant", "paired=one"]
    )
    with pytest.raises(ConfigError, match=r"^paired must be null in a search, got one"):
        plan_trial(config)


def test_a_verification_refuses_paired_runs():
    with pytest.raises(ConfigError, match=r"^paired must be null with fedpriv verify, got one"):
        Subject(fedpriv.compose(["algorithm=dp_fl", "paired=one"]))


@pytest.mark.thorough
def test_a_sweep_of_paired_runs_compares_them_by_their_differences(command, tmp_path):
    varied = f"{SIGMA}=4,40"
    said = command(
        "train", "-m", *ROUND, varied, "paired=one", "seed=0,1", "runtime.progress=none",
        "runtime.plots=false",
        f"hydra.sweep.dir={tmp_path / 'sweep'}",
    )  # fmt: skip
    assert said.status == 0, said.err
    found = pd.read_csv(tmp_path / "sweep" / "paired_differences.csv").set_index("column")
    runs = pd.read_csv(tmp_path / "sweep" / "sweep.csv").pivot(
        index="seed", columns=SIGMA, values="test_accuracy"
    )
    assert found.loc["test_accuracy", "pairs"] == 2
    assert found.loc["test_accuracy", "mean"] == pytest.approx((runs[40] - runs[4]).mean())
    assert "Paired differences" in said.out
    assert "Together their ε is infinite" in " ".join(said.out.split())


def test_the_plan_of_a_paired_run_says_that_noise_is_shared(command):
    plan = command("train", "algorithm=dp_fl", "paired=clean", "dry_run=true").out
    said = " ".join(plan.replace("│", " ").split())
    assert "noise of every run with paired=clean" in said
    assert "This run is paired" in said
    assert "paired" not in command("train", "algorithm=dp_fl", "dry_run=true").out


@pytest.mark.parametrize(
    ("given", "words"), [("paired=3", "quote it: 'paired=\"3\"'"), ("paired=", "got nothing")]
)
def test_a_name_that_is_no_text_is_refused_with_what_to_write(given, words):
    with pytest.raises(ConfigError, match=r"^paired must be a text, got") as refused:
        build_parts(fedpriv.compose(["algorithm=dp_fl", given]))
    assert words in str(refused.value)
    build_parts(fedpriv.compose(["algorithm=dp_fl", 'paired="3"']))
