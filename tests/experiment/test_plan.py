"""The plan: how many rounds a budget allows, and what a run that follows it really does."""

from __future__ import annotations

import sys

import pandas as pd
import pytest

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.common.words import digits_up
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan

BASELINE = ("algorithm=dp_fl", "dataset=mnist")


def plan_of(*overrides: str):
    return make_plan(build_parts(fedpriv.compose(overrides)))


@pytest.mark.parametrize(
    ("sigma", "rounds"), [(1.1, 451), (2, 3186), (3, 7921), (4, 14550), (6, 33495)]
)
def test_the_baseline_on_mnist_may_run_as_many_rounds_as_the_paper_allows(sigma, rounds):
    plan = plan_of(*BASELINE, f"noise_schedule.noise_multiplier={sigma}")
    assert plan.rounds_allowed == rounds
    assert plan.epsilon <= 2.0


@pytest.mark.parametrize(("sigma", "rounds"), [(1.1, 767), (2, 4363), (3, 10758), (4, 19719)])
def test_the_improved_conversion_allows_more(sigma, rounds):
    plan = plan_of(
        *BASELINE, f"noise_schedule.noise_multiplier={sigma}", "accountant.conversion=improved"
    )
    assert plan.rounds_allowed == rounds


@pytest.mark.parametrize(("sigma", "rounds"), [(1.1, 0), (3, 3660), (4, 6974), (6, 16445)])
def test_the_scalar_reading_pays_for_its_second_query(sigma, rounds):
    plan = plan_of(
        *BASELINE,
        "clipper=adap",
        "clipper.reading=scalar",
        f"noise_schedule.noise_multiplier={sigma}",
    )
    assert plan.rounds_allowed == rounds


def test_the_published_view_does_not_charge_the_second_query():
    plan = plan_of(
        *BASELINE,
        "clipper=adap",
        "clipper.reading=scalar",
        "noise_schedule.noise_multiplier=3",
        "budget_view=published",
    )
    assert plan.rounds_allowed == 7921


def test_the_unclipped_reading_is_allowed_no_round_in_the_sound_view():
    plan = plan_of(*BASELINE, "clipper=adap", "clipper.reading=unclipped")
    assert plan.rounds_allowed == 0
    assert plan.needed_epsilon == float("inf")


def test_local_steps_share_the_budget_of_a_round():
    one = plan_of(*BASELINE, "noise_schedule.noise_multiplier=3")
    three = plan_of(*BASELINE, "noise_schedule.noise_multiplier=3", "algorithm.local_steps=3")
    assert three.rounds_allowed == one.rounds_allowed // 3


def test_rounds_and_budget_both_limit_the_plan():
    plan = plan_of(*BASELINE, "rounds=100")
    assert (plan.rounds_allowed, plan.rounds) == (7921, 100)


def test_without_a_budget_the_plan_prices_the_rounds_asked_for():
    limited = plan_of(*BASELINE)
    free = plan_of(*BASELINE, "epsilon=null", "rounds=7921")
    assert free.rounds_allowed is None
    assert free.epsilon == pytest.approx(limited.epsilon)


def test_lots_of_fixed_size_are_charged_as_such():
    plan = plan_of(
        *BASELINE,
        "algorithm.sampling=fixed_size",
        "noise_schedule.noise_multiplier=3",
        "accountant.conversion=improved",
        "epsilon=null",
        "rounds=7921",
    )
    assert plan.epsilon == pytest.approx(9.24, abs=0.005)


def test_a_plan_without_privacy_has_no_epsilon():
    plan = plan_of("algorithm=fedavg")
    assert (plan.rounds, plan.epsilon, plan.rounds_allowed) == (100, None, None)
    assert "epsilon" not in " ".join(words for _, words in plan.lines).replace("no epsilon", "")


def test_a_budget_for_less_than_a_round_is_refused_with_what_it_must_be():
    plan = plan_of(*BASELINE, "epsilon=0.05")
    with pytest.raises(ConfigError, match=r"epsilon must be >= [\d.]+, .* got 0\.05") as error:
        plan.refuse_if_impossible(0.05)
    assert digits_up(plan.needed_epsilon) in str(error.value)


def test_the_budget_the_refusal_asks_for_allows_a_round():
    needed = plan_of(*BASELINE, "epsilon=0.05").needed_epsilon
    assert plan_of(*BASELINE, f"epsilon={needed}").rounds_allowed >= 1


def test_the_needed_budget_as_printed_is_enough(command):
    said = command("train", *BASELINE, "epsilon=0.05").sentence
    printed = said.partition(">= ")[2].partition(",")[0]
    assert plan_of(*BASELINE, f"epsilon={printed}").rounds_allowed >= 1


def test_the_epsilon_of_every_round_is_within_the_budget(train):
    result = train("algorithm=dp_fl", "noise_schedule.noise_multiplier=8")
    epsilons = pd.read_csv(result.folder / "metrics.csv")["epsilon"]
    assert result.stop_reason == "budget"
    assert epsilons.is_monotonic_increasing
    assert epsilons.iloc[-1] <= 2.0


BLOCKER = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        heavy = ("torch", "torchvision", "opacus", "pandas", "matplotlib", "sklearn")
        if name.partition(".")[0] in heavy:
            raise ImportError(f"{name} is blocked")

sys.meta_path.insert(0, Blocked())
"""


@pytest.mark.thorough
@pytest.mark.parametrize("sigma", [3, 1.1])
def test_a_dry_run_needs_no_data_and_nothing_that_is_slow_to_import(sigma, process, tmp_path):
    """Also where no round is allowed, which it says plainly. The run would download the data.

    PLD, which takes half a second to import, foretells the sound ε.
    """
    (tmp_path / "empty").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(BLOCKER)
    outcome = process(
        "train",
        *BASELINE,
        "clipper=adap",
        "clipper.reading=scalar",
        f"noise_schedule.noise_multiplier={sigma}",
        "dry_run=true",
        FEDPRIV_DATA="",
        XDG_CACHE_HOME=str(tmp_path / "empty"),
        PYTHONPATH=f"{tmp_path / 'site'}:{':'.join(sys.path)}",
    )
    words = " ".join(outcome.out.replace("│", " ").split())
    if sigma == 3:
        assert (outcome.status, outcome.err) == (0, "")
        assert "3660 at noise multiplier 3" in words
    else:
        assert outcome.status == 2
        assert "epsilon must be >= " in outcome.sentence
        assert "is the cost of a single round; a run would be refused" in words


def test_a_dry_run_leaves_nothing_behind(command, tmp_path):
    assert command("train", "dry_run=true").status == 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=naseri_ldp", "algorithm.noise=as_printed"),
        ("algorithm=dp_fl", "algorithm.sampling=fixed_size"),
    ],
)
def test_a_price_that_depends_on_records_nobody_has_counted_is_not_told(overrides):
    parts = build_parts(
        fedpriv.compose(
            [*overrides, "dataset=mnist", "partition=natural", "model=mlp", "epsilon=8"]
        )
    )
    said, counted = dict(make_plan(parts).lines), dict(make_plan(parts, 100).lines)
    assert "known when the data has been read" in said["epsilon"]
    assert said["released per lot"] == "gradient_sum"
    assert "the budget allows" not in said["rounds"]
    assert "the budget allows" in counted["rounds"]


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [
        ("dp_fl", "sample rate 0.013 (poisson)"),
        ("cdp_fedavg", "over its records"),
        ("fedsgd", "of all of their records"),
    ],
)
def test_of_clients_that_nobody_has_counted_yet_no_number_is_told(algorithm, words):
    parts = build_parts(
        fedpriv.compose([f"algorithm={algorithm}", "dataset=mnist", "partition=natural"])
    )
    said = dict(make_plan(parts).lines)
    assert words in said["each round"]
    assert "60000" not in said["each round"]


@pytest.mark.thorough
def test_a_plan_of_known_data_names_the_smallest_client():
    """Lots of a fixed size cost a client with fewer records more: its size is told, not an even share."""
    settings = ("algorithm=dp_fl", "algorithm.sampling=fixed_size", "partition.clients=5")
    parts = build_parts(fedpriv.compose(settings))
    assert "for a client of 287 records" in dict(make_plan(parts).lines)["epsilon"]
    assert "for a client of 206 records" in dict(make_plan(parts, 206).lines)["epsilon"]


def rows(*overrides: str) -> dict[str, str]:
    return dict(make_plan(build_parts(fedpriv.compose([*overrides, "dataset=digits"]))).lines)


def test_the_plan_says_how_many_rounds_the_budget_allows():
    own = ("algorithm=ldp_fedsgd", "epsilon=4", "rounds=5", "noise_schedule.epsilon_per_draw=3.1")
    assert rows(*own)["rounds"].startswith("5 (the budget allows 1 at noise multiplier ")
    spread = rows(*own[:3], "noise_schedule.epsilon_per_draw=null")
    assert spread["rounds"].startswith("5 (the budget allows 5 at noise multiplier ")


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["algorithm=fedavg", "attack.first_round=50"], "; no attack in 5 rounds"),
        (["algorithm=fedavg", "attack.first_round=5"], "; no clip or noise of their own"),
        # 5 (1 - (1 - 0.1)^2) = 0.95
        (
            ["algorithm=cdp_fedavg", "algorithm.client_rate=0.1", "attack.attackers=2"],
            "so that about 0.95 of 5 rounds are attacked",
        ),
        (["algorithm=cdp_fedavg", "attack.attackers=0"], "; no clip or noise of their own"),
    ],
)
def test_a_plan_tells_how_many_rounds_are_attacked(overrides, words):
    assert (
        rows(*overrides, "attack=sign_flip", "rounds=5")["attack"]
        .partition("; attackers know")[0]
        .endswith(words)
    )


def test_a_plan_tells_f_of_a_round():
    assert (
        "(4 of 20)"
        in rows("algorithm=fedavg", "aggregation=median", "partition.clients=20")["aggregation"]
    )
