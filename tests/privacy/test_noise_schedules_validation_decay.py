from __future__ import annotations

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from schedule_suite import ScheduleSuite, follow, losses_of_a_run

from fedpriv.common.errors import ArgumentError, ReleaseError
from fedpriv.privacy.noise_schedules import ValidationDecay

laws = settings(max_examples=examples(150))


class TestEq9(ScheduleSuite):
    def make(self):
        return ValidationDecay(6.0, 0.9)


class TestAlgorithm1(ScheduleSuite):
    def make(self):
        return ValidationDecay(6.0, 0.9, "algorithm1")


class TestWithoutDecay(ScheduleSuite):
    def make(self):
        return ValidationDecay(6.0, 1.0)


def by_definition(initial: float, beta: float, losses: list[float], index: str) -> list[float]:
    """Eq. (9) as printed: σ_{t+1} = β σ_t if J_{t-3} > J_{t-2} > J_{t-1} > J_t, J_0 = J_1 = J_2 = ∞.
    Algorithm 1, line 24, tests the four J one round later. ``losses[i]`` is J_{i+1}."""
    j = {m: math.inf if m < 3 else losses[m - 1] for m in range(-3, len(losses) + 1)}
    sigmas, decays = [initial], 0
    for t in range(len(losses)):
        last = t if index == "eq9" else t + 1
        decays += all(
            a > b for a, b in pairwise([j.get(m, math.inf) for m in range(last - 3, last + 1)])
        )
        sigmas.append(initial * beta**decays)
    return sigmas


@laws
@given(losses=losses_of_a_run, index=st.sampled_from(["eq9", "algorithm1"]))
def test_the_noise_follows_the_printed_rule(losses, index):
    path = follow(ValidationDecay(6.0, 0.9, index), losses)
    assert path == by_definition(6.0, 0.9, losses, index)


FALLING = [float(-t) for t in range(10)]


@pytest.mark.parametrize(("index", "first"), [("eq9", 6), ("algorithm1", 5)])
def test_the_first_decay_comes_as_early_as_the_print_allows(index, first):
    path = follow(ValidationDecay(6.0, 0.5, index), FALLING)
    assert path[: first + 3] == [6.0] * first + [3.0, 1.5, 0.75]


@pytest.mark.parametrize(("index", "decays"), [("eq9", 5), ("algorithm1", 6)])
def test_a_loss_that_falls_for_ever_decays_in_every_round_from_then_on(index, decays):
    schedule = ValidationDecay(6.0, 0.9, index)
    path = follow(schedule, FALLING)
    assert schedule.decays == sum(a > b for a, b in pairwise(path)) == decays


# J_1 … J_8: one rise late enough, then two and three falls
HIGH = [9.0] * 4


@pytest.mark.parametrize(
    ("tail", "decays"),
    [
        ([5.0, 4.0], 0),
        ([5.0, 4.0, 3.0], 1),
        ([5.0, 4.0, 4.0, 3.0], 0),
        ([5.0, 4.0, 4.5, 3.0, 2.0], 0),
        ([5.0, 4.0, 4.5, 3.0, 2.0, 1.0], 1),
    ],
)
def test_three_falls_in_a_row_are_needed(tail, decays):
    schedule = ValidationDecay(6.0, 0.9, "algorithm1")
    follow(schedule, HIGH + tail)
    assert schedule.decays == decays


def test_eq9_answers_a_round_after_algorithm1():
    losses = [*HIGH, 5.0, 4.0, 3.0, 9.0, 9.0]
    eq9, algorithm1 = (follow(ValidationDecay(6.0, 0.9, i), losses) for i in ("eq9", "algorithm1"))
    assert eq9 == [6.0, *algorithm1[:-1]]


def test_the_first_two_measured_losses_do_not_count():
    """J_1 and J_2 are infinite whatever was measured."""
    paths = [
        follow(ValidationDecay(6.0, 0.9), [*first, 3.0, 2.0, 1.0, 0.0])
        for first in ([0.0, 0.0], [9.0, 8.0])
    ]
    assert paths[0] == paths[1]


@pytest.mark.parametrize("broken", [math.nan, math.inf])
def test_a_loss_that_is_not_finite_is_no_fall(broken):
    schedule = ValidationDecay(6.0, 0.9, "algorithm1")
    follow(schedule, [*HIGH, 5.0, 4.0, broken, 3.0, 2.0])
    assert schedule.decays == 0


def test_thousands_of_decays_end_where_the_power_does():
    """Published end of the decay at ε=2: 6 → 3.03 after 6,832 decays of β=.9999."""
    schedule = ValidationDecay(6.0, 0.9999)
    path = follow(schedule, [float(-t) for t in range(6832 + 5)])
    assert schedule.decays == 6832
    assert path[-1] == pytest.approx(3.03, abs=5e-3)


def test_the_lowest_is_reached_by_algorithm1():
    path = follow(ValidationDecay(6.0, 0.9, "algorithm1"), FALLING)
    schedule = ValidationDecay(6.0, 0.9, "algorithm1")
    assert path == [schedule.lowest(t) for t in range(len(path))]


@pytest.mark.parametrize("private", [2.0, torch.tensor(2.0)], ids=["a number", "a tensor"])
def test_a_loss_that_no_mechanism_released_is_refused(private):
    with pytest.raises(ReleaseError, match=r"a noise schedule .* private"):
        ValidationDecay(6.0, 0.9).observe(0, private)


def test_decay_listens_to_the_public_validation_loss():
    assert ValidationDecay(6.0, 0.9).reads_validation


@pytest.mark.parametrize(("beta", "adaptive"), [(0.9999, True), (1.0, False), (1, False)])
def test_a_beta_of_one_never_adapts(beta, adaptive):
    assert ValidationDecay(6.0, beta).adaptive is adaptive


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((0, 0.9), "noise_multiplier must be > 0 and <= 1e+06, got 0"),
        ((6.0, 1.5), "beta must be > 0 and <= 1, got 1.5"),
        ((6.0, "0.9"), "beta must be a number > 0 and <= 1, got 0.9"),
        ((6.0, 0.9, "eq10"), "decay_index must be one of eq9, algorithm1, got eq10"),
    ],
)
def test_an_argument_that_cannot_be_is_refused(arguments, message):
    with pytest.raises(ArgumentError) as caught:
        ValidationDecay(*arguments)
    assert str(caught.value) == message
