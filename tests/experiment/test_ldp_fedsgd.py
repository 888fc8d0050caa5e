"""Whole runs of LDP-FedSGD and FedSGD: what the ledger holds of every client's reports, and its price."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import optimize, stats

DELTA, SIGMA, CLIENTS = 1e-5, 4.0, 20
QUANTILE = ("clipper=quantile", "clipper.initial_clip_norm=0.1", "clipper.bit_noise=5")
RESPONSE = (
    "clipper=quantile", "clipper.bit_mechanism=randomized_response", "clipper.noised_by=client",
    "clipper.bit_epsilon=0.5",
)  # fmt: skip
BY_PLD = ("accountant=pld", "accountant.discretization=1e-3")
FREE = {  # the pair of queries costs what the noise multiplier says
    "constant": ("clipper=constant", "clipper.clip_norm=1"),
    "poly": ("clipper=poly", "clipper.initial_clip_norm=1"),
    "automatic": ("clipper=automatic",),
    "quantile, aggregator": (*QUANTILE, "clipper.noised_by=aggregator"),
    "quantile, client": (*QUANTILE, "clipper.noised_by=client"),
}
HISTOGRAM = (
    "clipper=median_histogram", "clipper.updates=2", "clipper.update_interval=2",
    "clipper.initial_clip_norm=0.1",
)  # fmt: skip
CLIPPERS = {
    **FREE,
    "quantile, randomized response": (*RESPONSE, *BY_PLD),
    "median_histogram": HISTOGRAM,
    "adap": ("clipper=adap",),
}
SAMPLED = "algorithm.clients_per_round=7"


def ldp(*overrides: str, sigma: float = SIGMA, rounds: int | None = 5) -> tuple[str, ...]:
    return (
        "algorithm=ldp_fedsgd", f"partition.clients={CLIENTS}", "noise_schedule=constant",
        f"noise_schedule.noise_multiplier={sigma}", f"rounds={rounds or 'null'}", "epsilon=null",
        "evaluation_interval=5", "algorithm.learning_rate=0.1", *overrides,
    )  # fmt: skip


def gaussian_epsilon(mu: float) -> float:
    """ε of a Gaussian of sensitivity ÷ noise μ: the root of the exact trade-off (Dong, Roth, Su)."""

    def excess(epsilon: float) -> float:
        low = stats.norm.cdf(-epsilon / mu - mu / 2)
        return stats.norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * low - DELTA

    return optimize.brentq(excess, 0, 100, xtol=1e-12)


def reported(reports: int, sigma: float = SIGMA) -> float:
    """ε of R reports: any two inputs move one by up to 2C, so μ = 2 √R / σ."""
    return gaussian_epsilon(2 * math.sqrt(reports) / sigma)


def noise_of_histogram(row: dict[str, str]) -> float:
    return float(row["noise_std"].split("clip_statistic=")[1].split("..")[0])


# ---- what is charged


@pytest.mark.few(1)
@pytest.mark.parametrize("clipper", CLIPPERS)
def test_a_client_is_charged_for_the_reports_it_made(clipper, ran, came, charged):
    folder = ran(*ldp(*CLIPPERS[clipper], SAMPLED)).folder
    assert came(folder, CLIENTS).sum() == 5 * 7
    assert np.array_equal(charged(folder, CLIENTS), came(folder, CLIENTS))


@pytest.mark.few(2)
@pytest.mark.parametrize("clipper", FREE)
def test_the_sound_epsilon_is_that_of_a_gaussian_of_twice_the_clip_norm(clipper, ran, came):
    """Of the client that made most reports."""
    result = ran(*ldp(*FREE[clipper], SAMPLED))
    expected = reported(came(result.folder, CLIENTS).max())
    assert result.privacy["epsilon_sound"] == pytest.approx(expected, rel=1e-6)
    assert result.privacy["epsilon"] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("clipper", ["constant", "poly", "automatic"])
def test_the_published_epsilon_takes_one_clip_norm_for_the_sensitivity(clipper, ran, came):
    """μ = √R / σ."""
    result = ran(*ldp(*CLIPPERS[clipper], SAMPLED))
    expected = gaussian_epsilon(math.sqrt(came(result.folder, CLIENTS).max()) / SIGMA)
    assert result.privacy["epsilon_published"] == pytest.approx(expected, rel=1e-6)


def test_every_client_has_the_epsilon_of_its_own_reports(ran, came):
    result = ran(*ldp(SAMPLED))
    clients, counts = pd.read_csv(result.folder / "clients.csv"), came(result.folder, CLIENTS)
    clients = clients.dropna(subset="gradient_norm")  # the others did not come in the last round
    assert len(clients) == 7
    expected = [reported(counts[k]) for k in clients["client"]]
    np.testing.assert_allclose(clients["epsilon"], expected, rtol=1e-6)


def test_the_ledger_states_sensitivity_and_noise_of_a_report(ran, ledger):
    (row,) = ledger(ran(*ldp("clipper.clip_norm=0.5")).folder)
    assert row["queries"] == "gradient_sum=4"
    assert (
        row["sensitivity"] == "gradient_sum=0.5..0.5"
    )  # of joining; what is replaced moves twice that
    assert row["noise_std"] == "gradient_sum=2..2"
    assert row["event_sound"] == "Gaussian(z=2.0)"
    assert row["event_published"] == "Gaussian(z=4.0)"


def test_a_median_histogram_is_charged_to_those_who_entered_it(ran, ledger):
    """μ² = R (2/σ)² + H (√2/s)², with noise s on the counts of the H histograms."""
    result = ran(*ldp(*HISTOGRAM))
    alone, joint = sorted(ledger(result.folder), key=lambda row: len(row["queries"]))
    assert (int(alone["draws_per_client"]), int(joint["draws_per_client"])) == (3, 2)
    std = noise_of_histogram(joint)
    mu = math.sqrt(5 * (2 / SIGMA) ** 2 + 2 * (math.sqrt(2) / std) ** 2)
    assert result.privacy["epsilon_sound"] == pytest.approx(gaussian_epsilon(mu), rel=1e-4)


def test_all_histograms_together_cost_the_epsilon_they_were_given(ran, ledger):
    given = ("clipper.epsilon=0.8", "clipper.delta=1e-5")
    parts = ran(*ldp(*HISTOGRAM, *given)).privacy["parts"]
    assert parts["aggregator"] == pytest.approx(0.8, rel=1e-6)


def test_randomized_response_is_charged_with_the_reports(ran, ledger):
    """More than the reports alone, less than their ε and the ε of all the bits added up."""
    result = ran(*ldp(*RESPONSE, *BY_PLD))
    alone = reported(5)
    assert alone * 1.05 < result.privacy["epsilon_sound"] < alone + 5 * 0.5
    assert "RandomizedResponse" in ledger(result.folder)[0]["event_sound"]


def test_an_accountant_that_cannot_price_randomized_response_is_refused(command):
    said = command("train", *ldp(*RESPONSE))
    assert said.status == 2
    assert "accountant=gdp does not fit" in said.sentence
    assert said.sentence.endswith(("accountant=rdp", "accountant=pld"))


def test_reports_on_lots_cost_what_reports_on_all_records_cost(ran):
    """The unit is the client: a lot of its records does not amplify."""
    lots = ran(*ldp("algorithm.sample_rate=0.2"))
    assert lots.privacy["epsilon_sound"] == pytest.approx(reported(5), rel=1e-6)


# ---- the budget


def test_a_budget_stops_the_clients_that_have_used_it_up(ran, came):
    """ε = 4 at σ = 5 is five reports, and the run goes on until everyone has made them."""
    assert reported(5, sigma=5) < 4 < reported(6, sigma=5)
    result = ran(*ldp(SAMPLED, "epsilon=4", sigma=5, rounds=None))
    assert result.stop_reason == "budget"
    assert came(result.folder, CLIENTS).tolist() == [5] * CLIENTS


@pytest.mark.parametrize("view", ["sound", "published"])
def test_no_client_spends_more_than_the_budget(view, ran):
    result = ran(*ldp(SAMPLED, "epsilon=3", f"budget_view={view}", rounds=60))
    assert 2.5 < result.privacy["epsilon"] <= 3


def test_a_budget_for_less_than_a_report_says_what_one_costs(command):
    said = command("train", *ldp("epsilon=1"))
    assert said.status == 2
    assert said.sentence.startswith("fedpriv: epsilon must be >= 1.994")


# ---- the clip norm


def test_the_clip_norm_of_a_polynomial_is_the_one_that_is_stated(ran):
    metrics = pd.read_csv(ran(*ldp(*CLIPPERS["poly"], "clipper.power=2")).folder / "metrics.csv")
    np.testing.assert_allclose(
        metrics["clip_norm"], [(1 - t / 5) ** 2 for t in range(5)], rtol=1e-5
    )


@pytest.mark.few(1)
@pytest.mark.parametrize("clipper", ["quantile, aggregator", "quantile, client", "adap"])
def test_an_adaptive_clip_norm_moves_and_is_one_for_all_clients(clipper, ran):
    metrics = pd.read_csv(ran(*ldp(*CLIPPERS[clipper])).folder / "metrics.csv")
    assert metrics["clip_norm"].nunique() == 5
    assert (metrics["clip_norm_min"] == metrics["clip_norm_max"]).all()


def test_a_median_histogram_sets_the_clip_norm_to_the_bin_of_the_median(ran):
    """The norms of the first two rounds are between 1 and 3, and the histogram is nearly exact."""
    edges = ("clipper.edges=[0.01,0.05,3,7]", "clipper.epsilon=40")
    metrics = pd.read_csv(ran(*ldp(*HISTOGRAM, *edges)).folder / "metrics.csv")
    assert metrics["clip_norm"].round(6).tolist() == [0.1, 0.1, 3, 3, 3]


# ---- runs


def test_fedsgd_has_no_epsilon_and_learns(ran):
    result = ran("algorithm=fedsgd", "rounds=20", "algorithm.learning_rate=0.5")
    assert result.privacy["private"] is False
    assert result.summary["epsilon_sound"] is None
    assert result.summary["test_accuracy"] > 0.7


@pytest.mark.usefixtures("common_streams")
def test_ldp_fedsgd_without_noise_and_clipping_is_fedsgd(train):
    common = ("rounds=4", "evaluation_interval=4", "epsilon=null", SAMPLED, "partition.clients=20",
              "algorithm.learning_rate=1")  # fmt: skip
    plain = train("algorithm=fedsgd", *common, name="plain")
    bare = ("algorithm=ldp_fedsgd", "clipper=none", "noise_schedule=none")
    assert train(*bare, *common, name="bare").summary["test_loss"] == plain.summary["test_loss"]


def test_a_cohort_larger_than_the_federation_is_refused(command):
    said = command("train", *ldp("algorithm.clients_per_round=21"))
    assert said.status == 2
    assert "algorithm.clients_per_round must be <= 20" in said.sentence


def test_the_cohorts_of_a_run_are_those_of_its_seed(train):
    folders = [
        train(*ldp(SAMPLED, f"seed={s}"), name=n).folder
        for n, s in zip("abc", (0, 0, 1), strict=True)
    ]
    first, second, other = ((f / "participation.csv").read_text() for f in folders)
    assert first == second != other


def test_the_noise_seed_changes_cohorts_and_noise_but_not_the_partition(train):
    everyone = [train(*ldp(f"noise_seed={n}"), name=f"all{n}").folder for n in (0, 1)]
    losses = [pd.read_csv(f / "metrics.csv")["train_loss"] for f in everyone]
    assert losses[0][0] == losses[1][0]  # before the first noise
    assert losses[0][4] != losses[1][4]
    sampled = [train(*ldp(SAMPLED, f"noise_seed={n}"), name=str(n)).folder for n in (0, 1)]
    cohorts = [(f / "participation.csv").read_text() for f in sampled]
    assert cohorts[0] != cohorts[1]
