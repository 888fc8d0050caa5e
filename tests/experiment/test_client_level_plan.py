"""The plan of the client-level algorithms, as a dry run prints it."""

from __future__ import annotations

import pytest

import fedpriv
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan

FEDSGD = ("algorithm=fedsgd", "partition.clients=100", "algorithm.learning_rate=0.1")
LDP = (
    "algorithm=ldp_fedsgd", "partition.clients=100", "algorithm.learning_rate=0.1", "epsilon=null",
    "noise_schedule=constant", "noise_schedule.noise_multiplier=4",
)  # fmt: skip
CDP = (
    "algorithm=cdp_fedavg", "partition.clients=100", "algorithm.client_rate=0.1", "epsilon=null",
    "noise_schedule=constant", "noise_schedule.noise_multiplier=4", "algorithm.batch_size=null",
)  # fmt: skip


def plan_of(*overrides: str):
    return make_plan(build_parts(fedpriv.compose(overrides)))


@pytest.fixture
def printed(command, tmp_path):
    """(overrides) → the words of a dry run, without the lines around them."""

    def dry_run(*overrides: str) -> str:
        said = command("train", *overrides, "dry_run=true")
        assert (said.status, said.err) == (0, "")
        assert list(tmp_path.iterdir()) == []
        return " ".join(said.out.replace("│", " ").split())

    return dry_run


def test_fedsgd_says_who_sends_what_and_that_nothing_is_private(printed):
    words = printed(*FEDSGD, "rounds=7")
    assert "all clients send the gradient of all of their 14 records" in words
    assert "server optimizer: sgd, learning rate 0.1" in words
    assert "none: no clipping, no noise, no epsilon" in words


def test_a_cohort_and_a_lot_are_named(printed):
    words = printed(*FEDSGD, "algorithm.clients_per_round=30", "algorithm.sample_rate=0.25")
    assert "30 clients send the gradient of a Poisson lot of 0.25 of their 14 records" in words


def test_ldp_fedsgd_says_against_whom_it_protects(printed):
    words = printed(*LDP, "rounds=7", "clipper.clip_norm=0.5")
    assert "one client (client level, replace-one adjacency)" in words
    assert "(local trust)" in words
    assert "clipping constant, clip norm 0.5" in words
    assert "gradient_sum (noise multiplier 4)" in words
    assert "epsilon 6.073 after 7 rounds" in words


def test_cdp_fedavg_says_who_comes_and_what_they_do(printed):
    words = printed(*CDP, "rounds=7", "algorithm.local_epochs=2", "algorithm.batch_size=5")
    assert "every client with probability 0.1 (about 10), 2 epochs of batches of 5" in words
    assert "one client (client level, add/remove adjacency)" in words
    assert "(central trust)" in words
    assert "against whoever sees the released models" in words


@pytest.mark.parametrize(
    ("clipper", "stated"),
    [
        (("clipper=poly", "clipper.initial_clip_norm=2"), "clipping 2 (1 - t/7)^1"),
        (
            ("clipper=quantile", "clipper.initial_clip_norm=0.1", "clipper.bit_noise=5"),
            "towards the 0.5 quantile (geometric, bits noised by the aggregator, std 5)",
        ),
        (
            ("clipper=median_histogram", "clipper.updates=3", "clipper.initial_clip_norm=0.1"),
            "the median bin of a noised histogram (13 bins up to 32), 3 updates, one every 2 rounds",
        ),
    ],
)
def test_the_clipper_says_what_it_does(clipper, stated, printed):
    assert stated in printed(*LDP, *clipper, "rounds=7")


def test_randomized_response_is_a_release_of_its_own(printed):
    bits = ("clipper=quantile", "clipper.bit_mechanism=randomized_response",
            "clipper.noised_by=client", "clipper.bit_epsilon=0.5", "accountant=rdp")  # fmt: skip
    words = printed(*LDP, *bits, "rounds=7")
    assert "clip_statistic (randomized response, epsilon 0.5 a bit)" in words


def test_the_split_is_shown_as_two_releases(printed):
    bits = ("clipper=quantile", "clipper.bit_noise=5", "clipper.split=true")
    words = printed(*CDP, *bits, "rounds=7")
    assert "gradient_sum (noise multiplier 4.36436), clip_statistic (noise multiplier 10)" in words


def test_a_calibrated_noise_multiplier_is_printed(printed):
    run = ("noise_schedule.epsilon_per_draw=null", "epsilon=4", "rounds=20")
    words = printed(*LDP[:3], "noise_schedule=calibrated", *run)
    assert "noise multiplier 9.67022" in words
    assert "20 at noise multiplier " in words
    assert "3.999994 after 20 rounds" in words


def test_a_budget_is_turned_into_rounds(train):
    plan = plan_of(*CDP, "epsilon=2", "rounds=null")
    assert plan.rounds_allowed == plan.rounds
    assert plan_of(*CDP, "epsilon=null", f"rounds={plan.rounds}").epsilon == plan.epsilon
    assert plan_of(*CDP, "epsilon=null", f"rounds={plan.rounds + 1}").epsilon > 2 >= plan.epsilon


def test_rounds_allowed_are_those_of_a_client_that_makes_a_report_in_each():
    """ε = 4 at σ = 5 is five reports, whoever else is drawn."""
    sampled = ("algorithm.clients_per_round=30", "noise_schedule.noise_multiplier=5", "rounds=null")
    assert plan_of(*LDP, *sampled, "epsilon=4").rounds_allowed == 5


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", [LDP, CDP], ids=["ldp", "cdp"])
def test_the_plan_prices_what_the_run_then_spends(algorithm, train):
    small = ("partition.clients=20", "rounds=4", "evaluation_interval=4")
    result = train(*algorithm, *small)
    assert result.privacy["epsilon"] == pytest.approx(result.plan.epsilon, rel=1e-9)


@pytest.mark.few(1)
@pytest.mark.parametrize("algorithm", [LDP, CDP], ids=["ldp", "cdp"])
def test_the_plan_prices_the_rounds_in_which_a_histogram_is_asked_for(algorithm, train):
    small = ("partition.clients=20", "rounds=4", "evaluation_interval=4")
    histogram = ("clipper=median_histogram", "clipper.updates=2", "clipper.update_interval=2",
                 "clipper.epsilon=3", "clipper.delta=1e-5")  # fmt: skip
    result = train(*algorithm, *small, *histogram)
    assert result.privacy["epsilon"] == pytest.approx(result.plan.epsilon, rel=1e-6)


REFUSED = {
    "algorithm.client_rate=0": (CDP, "algorithm.client_rate must be > 0 and <= 1, got 0"),
    "algorithm.local_epochs=0": (CDP, "algorithm.local_epochs must be a whole number >= 1"),
    "algorithm.batch_size=0": (CDP, "algorithm.batch_size must be a whole number >= 1, got 0"),
    "algorithm.local_learning_rate=0": (CDP, "algorithm.local_learning_rate must be > 0, got 0"),
    "algorithm.optimizer=lion": (
        CDP,
        "algorithm.optimizer must be one of sgd, momentum, adagrad, adam, dp_adam_bc, got lion",
    ),
    "algorithm.beta1=0.9": (
        CDP,
        "algorithm.beta1 must be null unless optimizer is adagrad, adam, dp_adam_bc, got 0.9",
    ),
    "algorithm.clients_per_round=101": (LDP, "algorithm.clients_per_round must be <= 100"),
    "algorithm.sample_rate=1.1": (LDP, "algorithm.sample_rate must be > 0 and <= 1, got 1.1"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("override", REFUSED)
def test_a_value_that_is_not_allowed_is_named_with_what_is(override, command):
    overrides, words = REFUSED[override]
    said = command("train", *overrides, "rounds=3", override, "dry_run=true")
    assert said.status == 2
    assert said.sentence.startswith(f"fedpriv: {words}")
