"""Mislabelled canaries in real trainings: they go through the run's own code, bounds stay below the truth."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.common import config as configuration
from fedpriv.data.federated import FederatedData
from fedpriv.data.names import MISLABELLED
from fedpriv.data.records import Records
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.interrupts import Interrupts
from fedpriv.experiment.loop import Loop
from fedpriv.privacy.mechanisms import GaussianQuery
from fedpriv.store.canary_file import BLACK_BOX
from fedpriv.tools.audit.epsilon_evaluate import GAUSSIAN, AuditSetup, evaluate, one_run_bound
from fedpriv.tools.audit.epsilon_families import gaussian_epsilon
from fedpriv.tools.audit.epsilon_trial import train_apart, train_with_canaries

DIGITS = ("dataset=digits", "epsilon=null", "noise_schedule=constant", "accountant=rdp")
BY_HEART = (
    "algorithm=dp_fl", "algorithm.sample_rate=1", "algorithm.optimizer=adam", "algorithm.learning_rate=0.03",
    "model=mlp", "model.hidden=128", "partition=iid", "partition.clients=1", "clipper.clip_norm=10",
)  # fmt: skip
"""Learns wrong labels by heart, if there is little noise."""
REPLACED = ("algorithm.sampling=fixed_size",)


def compose(*overrides: str):
    return configuration.compose([*DIGITS, *overrides])


def context_of(*overrides: str, canaries: int = 40, change=None):
    """(parts, a problem with canaries); ``change(data, canaries)``: other data in the place of theirs."""
    noise = (
        () if "noise_schedule=recalculated" in overrides else ("noise_schedule.noise_multiplier=1",)
    )
    parts = build_parts(compose(*noise, "rounds=3", *overrides))
    context = make_context(parts, torch.device("cpu"), canaries, 0, canary=MISLABELLED)
    if change is not None:
        context.data = change(context.data, context.canaries.canaries)
        context.canaries.canaries = replace(context.canaries.canaries, data=context.data)
    return parts, context


def weights_after(parts, context, coins: np.ndarray | None = None) -> torch.Tensor:
    if coins is not None:
        context.canaries.toss(coins)
    loop = Loop(parts, context, None)
    loop.settings = replace(loop.settings, evaluation_interval=3)
    loop.run([], Interrupts(None))
    return context.model.flat.clone()


def spoilt(which):
    """The records ``which(canaries)`` [n] (numbers) have inputs and labels that are not theirs."""

    def change(data: FederatedData, canaries) -> FederatedData:
        inputs, targets = data.train.inputs.clone(), data.train.targets.clone()
        inputs[which(canaries)], targets[which(canaries)] = torch.nan, 0
        return replace(data, train=Records(inputs, targets))

    return change


ADDED = {
    "records": ("algorithm=dp_fl", "algorithm.sample_rate=0.5"),
    "several steps": ("algorithm=dp_fl", "algorithm.sample_rate=0.5", "algorithm.local_steps=2"),
    "a clip norm of the lot": ("algorithm=adap_dpfl",),
    "clients": ("algorithm=cdp_fedavg", "algorithm.client_rate=0.5"),
    "clients, in two kinds of rounds": ("algorithm=naseri_cdp",),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ADDED)
def test_what_an_absent_canary_is_changes_nothing(name):
    parts, context = context_of(*ADDED[name])
    coins = context.canaries.canaries.coins
    found = weights_after(parts, context)
    absent = spoilt(lambda canaries: canaries.first + np.flatnonzero(~coins))
    assert torch.equal(found, weights_after(*context_of(*ADDED[name], change=absent)))
    present = spoilt(lambda canaries: canaries.first + np.flatnonzero(coins))
    assert not torch.equal(found, weights_after(*context_of(*ADDED[name], change=present)))


# fmt: off
CHOSEN = {
    "records": ("algorithm=wei_cdp",),
    "records that report their loss": (
        "algorithm=wei_crd", "noise_schedule=recalculated", "noise_schedule.trigger=noised", "epsilon=50",
        "accountant=published", "budget_view=published",
    ),
    "lots of one size": ("algorithm=dp_fl", "algorithm.sample_rate=0.5", *REPLACED),
    "clients' gradients": ("algorithm=ldp_fedsgd",),
    "clients' weights": ("algorithm=wei_cdp", "algorithm.sensitivity=weights"),
}
# fmt: on


@pytest.mark.thorough
@pytest.mark.parametrize("name", CHOSEN)
def test_the_label_that_was_not_chosen_changes_nothing(name):
    found = []
    for coin in (True, False):
        parts, context = context_of(*CHOSEN[name])
        m = len(context.canaries.canaries)
        coins = np.full(m, coin)
        found.append(weights_after(parts, context, coins))
        others = spoilt(lambda canaries, c=coin, m=m: canaries.first + m * c + np.arange(m))
        parts, context = context_of(*CHOSEN[name], change=others)
        assert torch.equal(found[-1], weights_after(parts, context, coins))
    assert not torch.equal(*found)


def test_without_any_the_run_is_one_that_has_none():
    """But for the public sizes of the clients' data, which count them all."""
    overrides = ADDED["records"]
    parts, context = context_of(*overrides)
    counted = context.data.records_per_client
    found = weights_after(parts, context, np.zeros(40, dtype=bool))
    parts = build_parts(compose("noise_schedule.noise_multiplier=1", "rounds=3", *overrides))
    plain = make_context(parts, torch.device("cpu"))
    assert plain.canaries is None
    plain.data.__dict__["records_per_client"] = counted
    plain.mechanism.join(counted)
    assert torch.equal(found, weights_after(parts, plain))


# ---- what is found


def trial(*overrides: str, rounds: int = 100, seed: int = 0, canaries: int = 300):
    config = compose(*BY_HEART, *overrides, f"rounds={rounds}")
    return train_with_canaries(config, canaries, rounds, seed, canary=MISLABELLED)


def bound(found) -> float:
    return one_run_bound(found.scores[BLACK_BOX], 1e-5, 0.05)


@pytest.mark.thorough
def test_bounds_stay_below_the_ledgers_epsilon():
    """Little noise, and all that the final model's answers tell of it."""
    sigma = 10.0
    mu = math.sqrt(100) / sigma
    truth = gaussian_epsilon(mu, 1e-5)
    for seed in range(3):
        found = trial(f"noise_schedule.noise_multiplier={sigma}", seed=seed)
        assert sum(found.released.values()) == 100
        setup = AuditSetup(1e-5, 0.95, found.independent, found.released)
        for one in evaluate(found.scores, setup):
            assert one.observer == BLACK_BOX
            assert one.method != GAUSSIAN.name  # losses of one model are not independent
            if one.kind != "estimate":
                assert one.epsilon <= truth


@pytest.mark.thorough
@pytest.mark.parametrize("more", [(), REPLACED])
def test_noise_that_is_not_there_is_found_by_queries_alone(monkeypatch, more):
    """The mechanism is told that it was added."""
    sigma = 100.0
    charged = gaussian_epsilon(math.sqrt(100) / sigma * (2 if more else 1), 1e-5)
    assert bound(trial(f"noise_schedule.noise_multiplier={sigma}", *more)) < charged
    plain = GaussianQuery.release

    def release(self, answer, noise):
        before = answer.values.clone()
        std = plain(self, answer, noise)
        answer.values.copy_(before)
        return std

    monkeypatch.setattr(GaussianQuery, "release", release)
    assert bound(trial(f"noise_schedule.noise_multiplier={sigma}", *more)) > charged


@pytest.mark.thorough
@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm=ldp_fedsgd",),
        ("algorithm=dp_fl", "algorithm.sample_rate=1"),
        ("algorithm=cdp_fedavg", "algorithm.client_rate=1"),
    ],
)
def test_each_in_a_run_of_its_own(overrides):
    """With so little noise that a model tells at once."""
    config = compose(*overrides, "noise_schedule.noise_multiplier=1e-6", "rounds=2")
    found = train_apart(config, 30, 2, 0, MISLABELLED)
    assert set(found.scores) == {BLACK_BOX}
    assert found.independent
    assert found.canary == MISLABELLED
    scores = found.scores[BLACK_BOX]
    assert scores.values[scores.included].min() > scores.values[~scores.included].max()
