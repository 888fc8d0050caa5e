"""The plan's ε is what the ledger says at the end, or a bound that says so, in random configurations."""

from __future__ import annotations

import functools
import math
import random
from pathlib import Path

import pytest
from omegaconf import OmegaConf

import fedpriv
from fedpriv.common.config import flatten, options
from fedpriv.common.errors import FedprivError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import Plan, make_plan

QUIET = ["dataset=digits", "runtime.progress=none", "runtime.plots=false"]
PUBLIC = {"fedavg", "fedsgd", "norm_bounding"}  # algorithms without privacy
UNFIT = {"natural", "shards40", "shards400"}  # partitions that the data set does not fit


@functools.lru_cache
def names_of(group: str) -> list[str]:
    return [name for name, _ in options(group) if name not in PUBLIC | UNFIT]


def configuration(draw: random.Random) -> list[str]:
    """Return an algorithm with noise, clipping, accountant, partition and budget at random, of few rounds."""
    chosen = [f"algorithm={draw.choice(names_of('algorithm'))}"]
    for group, share in (
        ("noise_schedule", 0.5),
        ("accountant", 0.5),
        ("clipper", 0.2),
        ("partition", 0.3),
    ):
        if draw.random() < share:
            chosen.append(f"{group}={draw.choice(names_of(group))}")
    try:
        keys = set(flatten(OmegaConf.to_container(fedpriv.compose([*QUIET, *chosen]))))
    except FedprivError:
        return chosen
    values = {
        "epsilon": ("null", "1", "4", "20", "100"),
        "delta": ("1e-5", "1e-3"),
        "budget_view": ("sound", "published"),
        "algorithm.sample_rate": ("0.05", "0.5", "1"),
        "algorithm.client_rate": ("0.5", "1"),
        "algorithm.clients_per_round": ("1", "5", "10"),
        "algorithm.sampling": ("poisson", "fixed_size"),
        "algorithm.participation": ("all", "sampled"),
        "algorithm.local_steps": ("1", "3"),
        "algorithm.dropout": ("0", "0.2"),
        "noise_schedule.noise_multiplier": ("1", "4", "12"),
        "noise_schedule.beta": ("0.5", "0.9", "1"),
        "partition.clients": ("3", "10"),
        "accountant.orders": ("2..64",),
    }
    usable = sorted(keys & values.keys())
    changed = draw.sample(usable, min(len(usable), draw.randint(1, 5)))
    rounds = draw.choice(["1", "2", "3", "6", "9"])
    return [*chosen, f"rounds={rounds}", *(f"{k}={draw.choice(values[k])}" for k in changed)]


def accepted(draw: random.Random):  # type: ignore[no-untyped-def]
    """Return (overrides, parts) of the next configuration that is not refused."""
    while True:
        overrides = [*QUIET, *configuration(draw)]
        try:
            parts = build_parts(fedpriv.compose(overrides))
            plan = make_plan(parts)
            plan.refuse_if_impossible(parts.settings.epsilon)
        except FedprivError:
            continue
        if parts.private and parts.shares_known:
            return overrides, plan


def hold_against_a_run(overrides: list[str], plan: Plan, folder: Path) -> bool:
    """Hold the ledger's ε against the plan's. Returns whether it ran: some are refused once data are read."""
    try:
        result = fedpriv.run(fedpriv.compose([*overrides, f"runtime.run_dir={folder}"]))
    except FedprivError:
        return False
    words, stated = dict(plan.lines), result.summary["epsilon"]
    if "for a client of" in str(plan.lines):
        plan = result.plan  # made when it was known how many records the clients have
    message = f"{overrides}: {stated} stated, planned {plan}"
    assert stated <= plan.epsilon * (1.0 + 1e-9), message
    if not plan.bound:
        assert stated == pytest.approx(plan.epsilon, rel=1e-9), message
    cost = words["epsilon"]
    if math.isinf(plan.epsilon):  # nothing is above it: no bound to tell
        assert "no finite epsilon" in cost, message
    else:
        assert ("at most" in cost or "and more as it falls" in cost) == plan.bound, message
    return True


def test_the_plan_states_what_the_ledger_will_state(tmp_path):
    draw = random.Random("plan")
    ran = [hold_against_a_run(*accepted(draw), tmp_path / str(number)) for number in range(2)]
    assert any(ran)


def test_the_plan_of_an_adaptive_run_is_the_value_of_its_filter(tmp_path):
    """It was ε of a composition fixed in advance: 0.236, where the run stated 0.927."""
    config = fedpriv.compose([*QUIET, "rounds=2", f"runtime.run_dir={tmp_path / 'run'}"])
    plan = make_plan(build_parts(config))
    assert not plan.bound
    assert fedpriv.run(config).summary["epsilon"] == pytest.approx(plan.epsilon, rel=1e-12)
    assert dict(plan.lines)["epsilon"].startswith("enforced: 0.926237 after 2 rounds")


def test_an_adaptive_run_that_may_lower_its_noise_is_told_the_budget_as_a_bound():
    words = dict(make_plan(build_parts(fedpriv.compose([*QUIET, "rounds=60"]))).lines)
    assert words["epsilon"].startswith("enforced: at most 2, the budget")


@pytest.mark.parametrize(
    ("budget", "words"),
    [("epsilon=null", "no budget"), ("epsilon=9", "after 6 rounds"), ("epsilon=3", "at most 3")],
)
def test_noise_that_falls_is_charged_as_it_falls(budget, words):
    schedule = ["noise_schedule=exponential", "noise_schedule.noise_multiplier=4"]
    config = fedpriv.compose(
        [*QUIET, "algorithm=dp_fl", *schedule, "noise_schedule.beta=0.8", "rounds=6", budget]
    )
    plan = make_plan(build_parts(config))
    assert words in str(plan.lines)
    assert plan.bound == (budget == "epsilon=3")
