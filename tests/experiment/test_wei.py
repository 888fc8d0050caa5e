"""Runs of CDP, CRD and the searched T: rounds, the three ε, resuming, what a search costs."""

from __future__ import annotations

import json
import math

import pandas as pd
import pytest
from printed_formulas import wei_true_epsilon

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.privacy.accountants import GdpAccountant

FEW = ("partition.clients=10", "partition.records=100", "delta=0.01")
PUBLISHED = ("budget_view=published", "accountant=published", "algorithm.sensitivity=weights")
CDP = ("algorithm=wei_cdp", *FEW, "rounds=20", "epsilon=10", "clipper.clip_norm=2")
CRD = ("algorithm=wei_crd", *FEW, "rounds=40", "epsilon=30", "clipper.clip_norm=2")
OPTIMAL = (
    "algorithm=wei_cdp_optimal", *FEW, "epsilon=50", "clipper.clip_norm=2",
    "algorithm.sensitivity=weights", "algorithm.search.rounds=[2,5,9]", "algorithm.search.seeds=[0,1]",
)  # fmt: skip


def metrics(result) -> pd.DataFrame:  # type: ignore[no-untyped-def]
    return pd.read_csv(result.folder / "metrics.csv")


def test_the_published_budget_lasts_for_its_rounds_and_not_one_more(train):
    result = train(*CDP, *PUBLISHED)
    assert (result.summary["rounds"], result.stop_reason) == (20, "rounds")
    assert result.privacy["epsilon_published"] == pytest.approx(10.0, rel=1e-6)
    assert result.privacy["epsilon_published"] <= 10.0
    # really 2C, not 2C/n, and the Gaussian's own trade-off
    assert result.privacy["epsilon_sound"] == pytest.approx(
        wei_true_epsilon(10.0, 0.01, 100), rel=1e-6
    )
    on = train(*CDP, *PUBLISHED, "rounds=30", "noise_schedule.rounds=20", name="longer")
    assert on.summary["rounds"] == 20


def test_the_sound_budget_lasts_for_its_rounds(train):
    result = train(*CDP)
    assert (result.summary["rounds"], result.privacy["epsilon"]) == (20, pytest.approx(10.0))
    assert result.privacy["epsilon_sound"] <= 10.0
    assert result.privacy["views"]["sound"]["unit"] == "record"


def test_a_sampled_cohort_is_published_with_q_and_charged_without(train):
    result = train(*CDP, *PUBLISHED, "algorithm.clients_per_round=6")
    assert result.summary["rounds"] == 20
    assert result.privacy["epsilon_published"] == pytest.approx(10.0, rel=1e-6)
    most = result.privacy["clients"]["draws_most"]
    z = metrics(result)["noise_multiplier"].iloc[0]
    assert result.privacy["epsilon_sound"] == pytest.approx(
        GdpAccountant().epsilon_of_sum(most * (2.0 / z) ** 2, 0.01)
    )


def test_discounted_rounds_only_fall_and_end_the_run(train):
    result = train(*CRD, *PUBLISHED)
    rows = metrics(result)
    assert result.stop_reason == "schedule"
    assert rows["planned_rounds"].is_monotonic_decreasing
    assert result.summary["rounds"] == math.floor(rows["planned_rounds"].iloc[-1]) < 40
    assert rows["noise_multiplier"].is_monotonic_decreasing
    assert result.summary["noise_decays"] > 0
    assert result.privacy["epsilon_published"] <= 30.0
    assert math.isfinite(result.privacy["epsilon_sound"])
    stalls = rows["validation_loss"].diff() >= 0
    shorter = rows["planned_rounds"].diff() < 0
    assert (stalls.iloc[1:] == shorter.iloc[1:]).all()


def test_what_a_discounted_run_may_claim_is_what_it_could_have_spent(train):
    """σ follows the losses: the price of the whole budget, however early the run ended."""
    result = train(*CRD, *PUBLISHED)
    rows = metrics(result)
    spent = ((2.0 / rows["noise_multiplier"]) ** 2).sum()
    sound = result.privacy["epsilon_sound"]
    assert sound >= GdpAccountant().epsilon_of_sum(spent, 0.01)
    assert sound == pytest.approx(wei_true_epsilon(30.0, 0.01, 100), rel=1e-5)


@pytest.mark.thorough
def test_a_sound_discounted_run_is_guarded_by_its_filter(train):
    result = train(*CRD, "epsilon=5")
    assert result.privacy["epsilon"] <= result.privacy["epsilon_sound"] == 5.0


@pytest.mark.parametrize("sensitivity", ["one_step", "update"])
def test_noised_losses_are_in_the_ledger_and_in_the_price(train, sensitivity):
    result = train(
        *CRD, "epsilon=5", "noise_schedule.trigger=noised", f"algorithm.sensitivity={sensitivity}"
    )
    ledger = pd.read_csv(result.folder / "ledger.csv")
    assert ledger["queries"].str.contains("training_loss=10").all()
    width = "0.05..0.05" if sensitivity == "one_step" else "5..5"  # b/n, or b
    assert ledger["sensitivity"].str.contains(f"training_loss={width}", regex=False).all()
    assert result.privacy["epsilon"] <= 5.0
    assert metrics(result)["reported_loss"].notna().all()
    assert metrics(result)["validation_loss"].isna().all()


def test_exact_losses_leave_no_finite_epsilon_and_the_statement_says_so(train):
    result = train(*CRD, *PUBLISHED, "noise_schedule.trigger=exact")
    assert result.privacy["epsilon_sound"] == math.inf
    text = (result.folder / "privacy.txt").read_text()
    assert "NOT differentially private" in text
    assert "released without noise: training_loss" in " ".join(text.split())
    assert result.privacy["epsilon_published"] <= 30.0


def test_exact_losses_fit_no_sound_budget(train):
    with pytest.raises(ConfigError, match="releases something without noise"):
        train(*CRD, "noise_schedule.trigger=exact")


@pytest.mark.thorough
def test_a_search_takes_the_best_mean_and_pays_for_every_run(train, tmp_path):
    result = train(*OPTIMAL, f"runtime.output_dir={tmp_path}")
    found = pd.read_csv(result.folder / "search.csv")
    means = found.groupby("rounds")["test_loss"].mean()
    assert len(found) == 6
    assert result.summary["rounds"] == means.idxmin()
    assert len(list((tmp_path / "runs").iterdir())) == 6
    # the last run has noise of its own: with that of a run searched it would give both away
    assert result.summary["test_loss"] not in found["test_loss"].tolist()
    assert result.privacy["epsilon_published"] == pytest.approx(50.0, rel=1e-6)
    z = metrics(result)["noise_multiplier"].iloc[0]
    one_run = means.idxmin() * (2.0 / z) ** 2
    assert result.privacy["epsilon_sound"] == pytest.approx(
        GdpAccountant().epsilon_of_sum(7 * one_run, 0.01), rel=1e-6
    )
    assert "found by runs on the same data" in (result.folder / "privacy.txt").read_text()


@pytest.mark.thorough
def test_a_second_search_makes_no_run_again(train, tmp_path):
    store = f"runtime.output_dir={tmp_path}"
    train(*OPTIMAL, store, name="one")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/summary.json")}
    train(*OPTIMAL, store, "seed=1", name="two")
    assert {p: p.stat().st_mtime_ns for p in (tmp_path / "runs").glob("*/summary.json")} == before


@pytest.mark.thorough
def test_a_run_of_the_search_is_the_run_one_starts_by_hand(train, tmp_path):
    train(*OPTIMAL, f"runtime.output_dir={tmp_path}")
    config = json.loads((next((tmp_path / "runs").iterdir()) / "summary.json").read_text())
    by_hand = train(
        *FEW, "algorithm=wei_cdp", *PUBLISHED, "epsilon=50", "clipper.clip_norm=2",
        f"rounds={config['rounds']}", f"seed={config['seed']}", name="by_hand",
    )  # fmt: skip
    assert by_hand.summary["test_loss"] == config["test_loss"]


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ((*CDP, "budget_view=published"), "accountant must be published"),
        ((*CDP, "epsilon=null"), "noise_schedule.epsilon"),
        ((*CDP, "rounds=null"), "noise_schedule.rounds"),
        ((*CDP, "accountant=rdp"), "accountant must be gdp"),
        (
            (*CDP, *PUBLISHED, "partition.min_records=5", "partition=dirichlet"),
            "unknown key partition.records",
        ),
        (
            ("algorithm=dp_fl", "noise_schedule=uniform_budget", "rounds=5"),
            "noise_schedule=calibrated is for sampled lots",
        ),
        (
            ("algorithm=cdp_fedavg", "noise_schedule=uniform_budget", "rounds=5"),
            "noise_schedule=calibrated is for sampled lots",
        ),
        ((*CDP, "algorithm.local_steps=2"), "algorithm.local_steps must be 1"),
        (
            ("algorithm=wei_cdp", "partition=iid", "algorithm.sensitivity=weights"),
            "algorithm.records",
        ),
        ((*CDP, "partition.records=1000"), "partition"),
    ],
)
def test_what_cannot_run_is_refused_before_the_first_round(train, settings, words):
    with pytest.raises(ConfigError, match=words):
        train(*settings)


def test_a_claim_about_clients_of_n_records_is_not_about_smaller_ones(train):
    uneven = ("partition=dirichlet", "partition.clients=5", "partition.min_records=5")
    claimed = ("budget_view=published", "accountant=published", "algorithm.sensitivity=weights")
    with pytest.raises(ConfigError, match=r"algorithm\.records must be <= .* smallest client"):
        train("algorithm=wei_cdp", *uneven, *claimed, "algorithm.records=1000", "rounds=2")
    train("algorithm=wei_cdp", *uneven, *claimed, "algorithm.records=5", "rounds=2", name="small")


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "settings",
    [
        (*CDP, *PUBLISHED, "algorithm.clients_per_round=6"),
        (*CRD, *PUBLISHED, "algorithm.clients_per_round=6"),
        OPTIMAL,
    ],
    ids=["cdp, sampled", "crd, sampled", "optimal"],
)
def test_the_ledger_priced_again_says_what_the_statement_says(settings, train, command, tmp_path):
    result = train(*settings, f"runtime.output_dir={tmp_path}")
    told = command("account", "--run", str(result.folder), "--view", "published", "--json")
    priced = json.loads(told.out)["accountants"]["published"]["epsilon"]["0.01"]
    assert priced == pytest.approx(result.privacy["epsilon_published"], rel=1e-9)


def test_the_search_is_of_the_mechanism_that_its_siblings_run():
    chosen = [fedpriv.compose([f"algorithm=wei_{name}"]) for name in ("cdp", "crd", "cdp_optimal")]
    assert {config.algorithm.sensitivity for config in chosen} == {"one_step"}
