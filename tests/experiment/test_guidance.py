"""What leads from one unit to the other, and what a plan says of cohorts and epsilons that protect little."""

from __future__ import annotations

import pytest

from fedpriv.common.config import CLIENT_LEVEL, EITHER_LEVEL, RECORD_LEVEL, compose
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import options
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan


@pytest.mark.parametrize(
    "asked", ["algorithm.unit=client", "unit=client", "+algorithm.unit=client", "privacy_unit=user"]
)
def test_who_asks_for_client_level_is_told_the_algorithms_that_have_it(asked, command):
    said = command("train", "algorithm=dp_fl", asked, "dry_run=true")
    assert said.status == 2
    for name in (*CLIENT_LEVEL, *EITHER_LEVEL, "algorithm.sensitivity=update or weights"):
        assert name in said.sentence


@pytest.mark.thorough
def test_the_algorithms_named_have_that_unit():
    private = set()
    for name, _ in options("algorithm"):
        algorithm = build_parts(compose([f"algorithm={name}"])).algorithm
        if algorithm.private and name not in ("weak_dp", "norm_bounding"):  # defences
            private.add(name)
            expected = "client" if name in CLIENT_LEVEL else "record"
            assert algorithm.unit == expected, name
    assert private == {*CLIENT_LEVEL, *EITHER_LEVEL, *RECORD_LEVEL}
    for name in EITHER_LEVEL:
        for sensitivity in ("weights", "update"):
            parts = build_parts(
                compose([f"algorithm={name}", f"algorithm.sensitivity={sensitivity}"])
            )
            assert parts.algorithm.unit == "client"


def caveats(*overrides: str) -> list[str]:
    plan = make_plan(build_parts(compose(overrides)))
    return [words for name, words in plan.lines if name == "caveat"]


COHORT = "a round averages no noise over clients"
LARGE = "is above 20: a vacuous bound on membership inference"


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
    assert words.startswith("expected cohort of ")
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
    told = [words for words in caveats(f"algorithm={name}") if not words.startswith("delta is not")]
    assert told == [] or name == "weak_dp"


@pytest.mark.parametrize("name", ["cdp_fedavg", "ldp_fedsgd"])
def test_the_defaults_on_digits_are_100_clients_and_an_epsilon_under_10(name):
    parts = build_parts(compose([f"algorithm={name}"]))
    assert parts.partition.clients == 100
    assert make_plan(parts).epsilon < 10


def test_what_is_not_private_has_no_caveat_of_a_number():
    assert caveats("algorithm=fedavg") == []


def test_an_unknown_key_of_another_group_is_answered_as_before():
    with pytest.raises(ConfigError, match=r"unknown key clipper\.unit"):
        compose(["clipper.unit=client"])
