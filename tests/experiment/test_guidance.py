"""What a plan says of cohorts and epsilons that protect little."""

from __future__ import annotations

import pytest

from fedpriv.common.config import compose
from fedpriv.common.groups import options
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan


def caveats(*overrides: str) -> list[str]:
    return list(make_plan(build_parts(compose(overrides))).caveats)


COHORT = "averages no noise over clients"
LARGE = "is above 20, a vacuous bound on membership inference"


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=cdp_fedavg", "algorithm.client_rate=0.01"],
        ["algorithm=cdp_fedavg", "algorithm.client_rate=0.002"],
        ["algorithm=ldp_fedsgd", "algorithm.clients_per_round=1"],
        ["algorithm=dp_fl", "algorithm.participation=sampled", "algorithm.clients_per_round=1"],
    ],
)
def test_a_cohort_of_one_client_is_warned_about(overrides):
    (words,) = caveats(*overrides)
    assert words.startswith("an expected cohort of ")
    assert words.endswith(COHORT)


@pytest.mark.parametrize(
    "overrides",
    [
        ["algorithm=ldp_fedsgd", "rounds=100"],
        ["algorithm=cdp_fedavg", "epsilon=30", "rounds=null"],
        ["algorithm=dp_fl", "epsilon=null", "rounds=100", "noise_schedule.noise_multiplier=1"],
    ],
)
def test_an_epsilon_over_20_is_warned_about(overrides):
    (words,) = caveats(*overrides)
    assert words.endswith(LARGE)
    assert float(words.split()[2]) > 20


@pytest.mark.parametrize("name", [n for n, _ in options("algorithm")])
def test_no_default_on_digits_is_warned_about(name):
    """But of delta, which the protocols of Wei et al. set to 0.01."""
    told = [words for words in caveats(f"algorithm={name}") if not words.startswith("Delta is not")]
    assert told == [] or name == "weak_dp"


@pytest.mark.parametrize("name", ["cdp_fedavg", "ldp_fedsgd"])
def test_the_defaults_on_digits_are_100_clients_and_an_epsilon_under_10(name):
    parts = build_parts(compose([f"algorithm={name}"]))
    assert parts.partition.clients == 100
    assert make_plan(parts).epsilon < 10


def test_what_is_not_private_has_no_caveat_of_a_number():
    assert caveats("algorithm=fedavg") == []
