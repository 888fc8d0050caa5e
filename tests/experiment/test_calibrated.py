"""Noise that follows from an epsilon: what a finished run spends of it, and what is refused."""

from __future__ import annotations

import math

import pytest
from scipy import optimize, stats

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts

DELTA, K = 1e-5, 20
RUN = (
    "noise_schedule=calibrated", "noise_schedule.epsilon_per_draw=null", "evaluation_interval=100",
)  # fmt: skip
LDP = ("algorithm=ldp_fedsgd", f"partition.clients={K}")
CDP = ("algorithm=cdp_fedavg", f"partition.clients={K}", "algorithm.client_rate=0.3")
DP_FL = ("algorithm=dp_fl",)
QUANTILE = ("clipper=quantile", "clipper.bit_noise=20", "clipper.initial_clip_norm=0.1")
HISTOGRAM = ("clipper=median_histogram", "clipper.updates=3", "clipper.update_interval=2",
             "clipper.epsilon=0.8", "clipper.delta=1e-5")  # fmt: skip
RESPONSE = (
    "clipper=quantile", "clipper.bit_mechanism=randomized_response", "clipper.noised_by=client",
    "clipper.bit_epsilon=0.1", "accountant=rdp",
)  # fmt: skip
RUNS = {
    "dp_fl, local steps": (*DP_FL, "algorithm.local_steps=2"),
    "dp_fl, median histogram": (*DP_FL, *HISTOGRAM),
    "ldp": LDP,
    "ldp, quantile": (*LDP, *QUANTILE),
    "ldp, median histogram": (*LDP, *HISTOGRAM),
    "ldp, randomized response": (*LDP, *RESPONSE),
    "cdp": CDP,
    "cdp, median histogram": (*CDP, *HISTOGRAM),
}


def sigma_of(*overrides: str) -> float:
    return build_parts(fedpriv.compose(overrides)).noise_schedule.noise_multiplier(0)


def gaussian_epsilon(mu: float) -> float:
    """ε of a Gaussian of sensitivity ÷ noise μ: the root of the exact trade-off (Dong, Roth, Su)."""

    def excess(epsilon: float) -> float:
        low = stats.norm.cdf(-epsilon / mu - mu / 2)
        return stats.norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * low - DELTA

    return optimize.brentq(excess, 0, 100, xtol=1e-12)


# ---- a run


@pytest.mark.few(1)
@pytest.mark.parametrize("epsilon", [0.3, 30.0])
def test_any_epsilon_is_met_to_a_thousandth(epsilon, train):
    cheap = ("clipper.epsilon=0.1",)
    result = train(*LDP, *HISTOGRAM, *cheap, *RUN, f"epsilon={epsilon}", "rounds=8")
    assert 0.999 * epsilon < result.privacy["epsilon"] <= epsilon


def test_a_run_of_the_published_view_spends_its_epsilon_there(train):
    result = train(*LDP, *RUN, "budget_view=published", "epsilon=2", "rounds=8")
    assert 0.999 * 2 < result.privacy["epsilon_published"] <= 2
    assert result.privacy["epsilon_sound"] > 3


def test_the_noise_multiplier_is_the_one_of_the_exact_trade_off():
    """μ = 2 √R / σ of R reports."""
    sigma = sigma_of(*LDP, *RUN, "epsilon=4", "rounds=30")
    assert gaussian_epsilon(2 * math.sqrt(30) / sigma) == pytest.approx(4, rel=1e-5)


def test_the_noise_multiplier_is_the_smallest_one(train):
    sigma = sigma_of(*LDP, *RUN, "epsilon=3", "rounds=8")
    less = ("noise_schedule=constant", f"noise_schedule.noise_multiplier={sigma * 0.9999}")
    run = train(*LDP, *less, "epsilon=null", "rounds=8", "evaluation_interval=100")
    assert run.privacy["epsilon"] > 3


def test_the_rounds_in_which_the_clipper_asks_are_priced():
    settings = (*LDP, *RUN, "epsilon=2", "rounds=8")
    assert sigma_of(*settings, *HISTOGRAM) > 1.01 * sigma_of(*settings)


def test_bits_in_the_split_cost_nothing_on_top():
    settings = (*LDP, *RUN, "epsilon=2", "rounds=8")
    assert sigma_of(*settings, *QUANTILE) == pytest.approx(sigma_of(*settings), rel=1e-5)


@pytest.mark.parametrize(("m", "reports"), [(6, 3), (20, 10)])
def test_sampled_clients_are_priced_at_their_share_of_the_rounds(m, reports):
    """m of 20 clients in each of ten rounds: 10 m/20 reports, rounded up."""
    sigma = sigma_of(*LDP, *RUN, f"algorithm.clients_per_round={m}", "epsilon=4", "rounds=10")
    assert gaussian_epsilon(2 * math.sqrt(reports) / sigma) == pytest.approx(4, rel=1e-5)


def test_the_budget_holds_for_the_client_that_is_drawn_most_often(train):
    """The noise is for the expected number of reports; who was drawn more often is left out."""
    result = train(*LDP, *RUN, "algorithm.clients_per_round=5", "epsilon=4", "rounds=30")
    assert 0.999 * 4 < result.privacy["epsilon"] <= 4


def test_the_number_of_draws_can_be_given():
    sigma = sigma_of(*LDP, *RUN, "noise_schedule.draws=7", "epsilon=4", "rounds=100")
    assert gaussian_epsilon(2 * math.sqrt(7) / sigma) == pytest.approx(4, rel=1e-5)


def test_with_draws_given_a_run_needs_no_rounds(train):
    result = train(*LDP, *RUN, "noise_schedule.draws=3", "epsilon=4", "rounds=null")
    assert (result.stop_reason, result.summary["rounds"]) == ("budget", 3)


# ---- one draw


def per_draw(epsilon: float) -> tuple[str, ...]:
    return ("noise_schedule=calibrated", f"noise_schedule.epsilon_per_draw={epsilon}",
            "epsilon=null", "evaluation_interval=100")  # fmt: skip


@pytest.mark.parametrize("name", ["ldp", "cdp"])
def test_one_draw_costs_the_epsilon_that_was_given_for_it(name, train):
    result = train(*RUNS[name], *per_draw(1.5), "rounds=1")
    assert 0.999 * 1.5 < result.privacy["epsilon"] <= 1.5


def test_a_draw_in_which_a_histogram_is_asked_for_costs_the_epsilon_given(train):
    every = ("clipper.update_interval=1", "clipper.updates=1")
    result = train(*LDP, *HISTOGRAM, *every, *per_draw(1.5), "rounds=1")
    assert 0.999 * 1.5 < result.privacy["epsilon"] <= 1.5


def test_a_run_costs_what_its_reports_compose_to(train):
    result = train(*LDP, *per_draw(1.5), "rounds=9")
    one = optimize.brentq(lambda mu: gaussian_epsilon(mu) - 1.5, 0.01, 10)
    assert result.privacy["epsilon"] == pytest.approx(gaussian_epsilon(3 * one), rel=1e-4)


def test_an_epsilon_per_draw_goes_with_a_budget_for_the_run(train):
    """Four reports of ε = 1.5 fit into 3.5 (they cost 3.14), five do not (3.58)."""
    result = train(*LDP, *per_draw(1.5), "epsilon=3.5", "rounds=9")
    assert (result.stop_reason, result.summary["rounds"]) == ("budget", 4)


# ---- refused


REFUSED = {
    "nothing to follow from": (
        (*LDP, *RUN, "epsilon=null", "rounds=5"),
        "epsilon must be a number > 0 with noise_schedule=calibrated, got null",
    ),
    "nobody knows how many draws": (
        (*LDP, *RUN, "epsilon=2", "rounds=null"),
        "rounds must be a whole number >= 1 with noise_schedule=calibrated",
    ),
    "nobody knows how many clients": (
        ("algorithm=ldp_fedsgd", "dataset=mnist", "partition=natural", "partition.clients=null",
         "algorithm.clients_per_round=5", *RUN, "epsilon=2", "rounds=5"),
        "noise_schedule.draws must be a whole number >= 1 when clients are sampled",
    ),
    "prices that depend on records nobody has counted": (
        ("algorithm=naseri_ldp", "algorithm.noise=as_printed", "dataset=mnist", "partition=natural",
         "model=mlp", *RUN, "epsilon=8", "rounds=5"),
        "depends on how many records a client has, and partition=natural does not say",
    ),
    "draws of an epsilon per draw": (
        (*LDP, *per_draw(1), "noise_schedule.draws=3", "rounds=5"),
        "noise_schedule.draws must be null",
    ),
    "epsilon per draw 0": (
        (*LDP, *per_draw(0), "rounds=5"),
        "noise_schedule.epsilon_per_draw must be > 0",
    ),
    "no draws": ((*LDP, *RUN, "noise_schedule.draws=0", "epsilon=2"), "noise_schedule.draws must"),
    "a split that leaves nothing": (
        (*LDP, *QUANTILE, *RUN, "clipper.bit_noise=1", "epsilon=1", "rounds=50"),
        "noise_schedule.epsilon must be >=",
    ),
    "bits that cost more than all": (
        (*LDP, *RESPONSE, *RUN, "clipper.bit_epsilon=3", "epsilon=1", "rounds=50"),
        "noise_schedule.epsilon must be >=",
    ),
    "an accountant of another sampler": (
        (*CDP, *RUN, "accountant=gdp", "epsilon=2", "rounds=5"),
        "accountant=gdp does not fit",
    ),
    "randomized response with the accountant of ldp_fedsgd": (
        (*LDP, *RESPONSE, *RUN, "accountant=gdp", "epsilon=4", "rounds=5"),
        "accountant=gdp does not fit",
    ),
    "an accountant of other neighbours": (
        (*LDP, *RUN, "accountant=prv", "epsilon=4", "rounds=5"),
        "accountant=prv does not fit",
    ),
    "bits of clients with a trusted server": (
        (*CDP, *QUANTILE, *RUN, "clipper.noised_by=client", "epsilon=2", "rounds=5"),
        "clipper.noised_by must be aggregator",
    ),
    "noise without clipping": (
        (*LDP, *RUN, "clipper=none", "epsilon=2", "rounds=5"),
        "clipper=none",
    ),
}  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("case", REFUSED)
def test_what_no_noise_can_follow_from_is_refused(case):
    overrides, words = REFUSED[case]
    with pytest.raises(ConfigError, match=words):
        sigma_of(*overrides)


def test_an_epsilon_per_draw_that_cannot_be_met_is_named_as_such():
    with pytest.raises(ConfigError, match=r"noise_schedule\.epsilon_per_draw must be >="):
        sigma_of(*LDP, *QUANTILE, "clipper.bit_noise=0.5", *per_draw(0.5), "rounds=5")
