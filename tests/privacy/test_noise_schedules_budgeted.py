"""Budgets spread over rounds: the published numbers, discounting, and what may never be overspent."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from printed_formulas import wei_recalculated_noise_std

from fedpriv.common.errors import ArgumentError, ReleaseError
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.budgeted_schedules import _spreading
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.mechanisms import Public
from fedpriv.privacy.mechanisms.claims import wei
from fedpriv.privacy.noise_schedules import RecalculatedNoise, Setting, Spreading, UniformBudget

DELTA, D = 0.01, 2 / 128


def nothing_solved(epsilon: float, samples: int | None) -> float:
    raise AssertionError("a budget is spread by its own formula")


def setting(published: bool, cohort_share: float = 1.0, neighbours: str = REPLACE_ONE) -> Setting:
    claim = wei(D)
    accountant = claim.accountant() if published else GdpAccountant()
    return Setting(
        WholeData(neighbours), 1, cohort_share, accountant, claim, published, nothing_solved
    )


PRINTED, SAMPLED, SOUND = setting(True), setting(True, 0.6), setting(False)
ADDED = setting(False, neighbours=ADD_OR_REMOVE)


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        (PRINTED, Spreading(D, 1.0, printed=True)),
        (SAMPLED, Spreading(D, 0.6, printed=True)),
        (SOUND, Spreading(2.0, 1.0, printed=False)),
        (ADDED, Spreading(1.0, 1.0, printed=False)),
    ],
)
def test_what_a_budget_is_spread_over_follows_from_the_enforced_view(over, expected):
    assert _spreading(over, None) == expected


def uniform(over: Setting = PRINTED, epsilon: float = 10.0, rounds: int = 200, **more):  # type: ignore[no-untyped-def]
    schedule = UniformBudget(epsilon, DELTA, rounds, **more)
    schedule.calibrate(over)
    return schedule


def recalculated(over: Setting = PRINTED, epsilon: float = 10.0, rounds: int = 200, **more):  # type: ignore[no-untyped-def]
    schedule = RecalculatedNoise(epsilon, DELTA, rounds, **more)
    schedule.calibrate(over)
    schedule.begin(lambda: math.inf)
    return schedule


def play(schedule: RecalculatedNoise, losses) -> list[float]:  # type: ignore[no-untyped-def]
    """σ of every round until the schedule ends or the losses do."""
    sigmas = []
    for t, loss in enumerate(losses):
        if schedule.ended(t):
            break
        sigmas.append(schedule.noise_multiplier(t))
        schedule.observe(t, Public(loss))
    return sigmas


def spent(sigmas: list[float]) -> float:
    return math.fsum(s**-2 for s in sigmas)


def whole(schedule: RecalculatedNoise) -> float:
    return schedule.total_noise_multiplier**-2


@pytest.mark.parametrize(("over", "noise"), [(PRINTED, 0.0670614), (SAMPLED, 0.0519456)])
def test_the_published_noise(over, noise):
    """ε=10, C=1, n=128, T=200, δ=.01: .0670614 at q=1, .0519456 at q=.6."""
    assert uniform(over).noise_multiplier(0) == pytest.approx(noise, abs=5e-8)
    assert recalculated(over).noise_multiplier(0) == pytest.approx(noise, abs=5e-8)


def test_the_exact_form_spends_the_whole_budget_in_its_rounds():
    schedule = uniform(SOUND)
    accountant = GdpAccountant()
    sum_of = 200 * (2.0 / schedule.noise_multiplier(0)) ** 2
    assert accountant.epsilon_of_sum(sum_of, DELTA) == pytest.approx(10.0, rel=1e-6)
    assert accountant.epsilon_of_sum(sum_of, DELTA) <= 10.0


def test_the_form_can_be_chosen_against_the_view():
    assert uniform(PRINTED, form="exact").noise_multiplier(0) != uniform().noise_multiplier(0)
    assert uniform(SOUND, form="printed").noise_multiplier(0) == pytest.approx(
        uniform(PRINTED).noise_multiplier(0) * 2.0 / D
    )


def test_the_recalculated_noise_is_constant_while_the_rounds_are():
    sigmas = play(recalculated(), [1.0 / (t + 1) for t in range(500)])
    assert len(sigmas) == 200
    assert set(sigmas) == {uniform().noise_multiplier(0)}


def test_a_discount_after_ten_rounds():
    """β = .9: T = 163.9, s × .9; 163 rounds run and never a 164th."""
    schedule = recalculated(beta=0.9)
    falling = [10.0 - t for t in range(9)]
    sigmas = play(schedule, [*falling, 5.0])  # 5 ≥ 2: the tenth round stalls
    first = sigmas[0]
    assert schedule.planned_rounds == pytest.approx(163.9)
    assert schedule.noise_multiplier(10) == pytest.approx(0.9 * first)
    rest = []
    for t in range(10, 500):
        if schedule.ended(t):
            break
        rest.append(schedule.noise_multiplier(t))
        schedule.observe(t, Public(4.0 - t / 1000))
    assert len(sigmas) + len(rest) == 163
    assert spent(sigmas + rest) <= whole(schedule)
    # a 164th would overspend
    assert spent([*sigmas, *rest, rest[-1]]) > whole(schedule)


def test_the_loop_as_printed_runs_one_round_more_and_overspends():
    schedule, budget = recalculated(beta=0.9, loop="printed"), whole(recalculated(beta=0.9))
    falling = [*(10.0 - t for t in range(9)), 5.0, *(4.0 - t / 1000 for t in range(500))]
    sigmas = play(schedule, falling)
    assert len(sigmas) == 164
    assert budget < spent(sigmas) < 1.01 * budget


def test_the_discount_as_printed_sets_the_rounds_before_t_is_advanced():
    schedule = recalculated(beta=0.9, discount_at="printed")
    first = schedule.noise_multiplier(0)
    play(schedule, [*(10.0 - t for t in range(9)), 5.0])
    assert schedule.noise_multiplier(10) / first == pytest.approx(0.89944, abs=5e-6)


def test_the_discount_of_the_authors_code_is_of_all_rounds():
    schedule = recalculated(beta=0.9, discount="beta")
    play(schedule, [*(10.0 - t for t in range(9)), 5.0])
    assert schedule.planned_rounds == 180
    assert schedule.decays == 1


def test_eq_19_by_its_own_formula():
    schedule = recalculated(beta=0.8)
    losses = [5.0, 4.0, 4.5, 4.0, 3.0, 3.5, 3.0]
    sigmas = play(schedule, losses)
    again = wei_recalculated_noise_std(10.0, DELTA, D, 1.0, schedule.planned_rounds, sigmas)
    assert schedule.noise_multiplier(len(sigmas)) == pytest.approx(again, rel=1e-6)


@given(
    losses=st.lists(st.floats(0, 10), min_size=1, max_size=300),
    beta=st.floats(0.05, 1.0),
    rounds=st.integers(1, 200),
    discount=st.sampled_from([("beta_squared", "completed_rounds", None),
                              ("beta_squared", "completed_rounds", "printed"),
                              ("beta_squared", "printed", None), ("beta", "completed_rounds", None)]),
)  # fmt: skip
def test_whatever_is_heard_the_budget_is_kept_and_rounds_only_fall(losses, beta, rounds, discount):
    names = ("discount", "discount_at", "loop")
    schedule = recalculated(rounds=rounds, beta=beta, **dict(zip(names, discount, strict=True)))
    planned, sigmas = [schedule.planned_rounds], []
    for t, loss in enumerate(losses):
        if schedule.ended(t):
            break
        sigmas.append(schedule.noise_multiplier(t))
        schedule.observe(t, Public(loss))
        planned.append(schedule.planned_rounds)
    assert len(sigmas) <= rounds
    assert planned == sorted(planned, reverse=True)
    assert spent(sigmas) <= whole(schedule) * (1 + 1e-9)
    assert min(sigmas) >= schedule.lowest(0) * (1 - 1e-9)


def test_the_first_loss_is_compared_with_that_of_the_initial_model():
    schedule = RecalculatedNoise(10.0, DELTA, 200, beta=0.9)
    schedule.calibrate(PRINTED)
    schedule.begin(lambda: 2.0)
    schedule.observe(0, Public(2.0))
    assert schedule.decays == 1
    assert schedule.planned_rounds == pytest.approx(0.81 * 199 + 1)


def test_noised_losses_are_paid_before_the_rest_is_spread():
    free, paid = recalculated(SOUND), recalculated(SOUND, trigger="noised")
    joint = 200 * (paid.noise_multiplier(0) ** -2 + (2.0 * 10.0) ** -2)
    assert joint == pytest.approx(whole(free), rel=1e-6)
    published = recalculated(PRINTED, trigger="noised")  # the work charges nothing for losses
    assert published.noise_multiplier(0) == recalculated(PRINTED).noise_multiplier(0)


def test_noised_losses_are_paid_where_a_record_more_moves_an_upload_by_its_bound():
    free, paid = recalculated(ADDED), recalculated(ADDED, trigger="noised")
    joint = 200 * (paid.noise_multiplier(0) ** -2 + 10.0**-2)
    assert joint == pytest.approx(whole(free), rel=1e-6)


def test_losses_that_cost_more_than_the_budget_are_refused():
    with pytest.raises(ArgumentError, match="loss_noise_multiplier must be larger"):
        recalculated(SOUND, trigger="noised", loss_noise_multiplier=0.1)


def test_what_is_asked_of_the_clients():
    assert recalculated().loss_query is None
    assert recalculated(trigger="exact").loss_query.query.noise_multiplier == 0
    noised = recalculated(trigger="noised", loss_bound=3.0)
    assert (noised.loss_query.bound, noised.loss_query.query.noise_multiplier) == (3.0, 10.0)
    assert not noised.reads_validation
    assert recalculated().reads_validation


def test_a_state_goes_on_as_if_nothing_had_happened():
    losses = [3.0, 2.0, 2.5, 2.0, 2.1, 1.0]
    whole, begun = recalculated(), recalculated()
    expected = play(whole, losses)
    first = play(begun, losses[:3])
    again = recalculated()
    again.load_state_dict(begun.state_dict())
    rest = []
    for t in range(3, 6):
        rest.append(again.noise_multiplier(t))
        again.observe(t, Public(losses[t]))
    assert first + rest == expected
    assert again.state_dict() == whole.state_dict()


@pytest.mark.parametrize(
    ("changed", "key"),
    [
        ({"epsilon": 0}, "epsilon"),
        ({"epsilon": None}, "epsilon"),
        ({"rounds": None}, "rounds"),
        ({"rounds": 0}, "rounds"),
        ({"delta": 1.0}, "delta"),
        ({"beta": 0}, "beta"),
        ({"beta": 1.5}, "beta"),
        ({"discount": "gamma"}, "discount"),
        ({"discount": "beta", "discount_at": "printed"}, "discount_at"),
        ({"loop": "printed", "discount_at": "printed"}, "discount_at"),
        ({"trigger": "test"}, "trigger"),
        ({"loss_bound": 0}, "loss_bound"),
        ({"loss_noise_multiplier": 0}, "loss_noise_multiplier"),
        ({"form": "sound"}, "form"),
    ],
)
def test_bad_settings_name_the_key(changed, key):
    with pytest.raises(ArgumentError) as error:
        RecalculatedNoise(**{"epsilon": 10.0, "delta": DELTA, "rounds": 200, **changed})
    assert error.value.argument == key


def test_a_budget_that_is_not_spread_has_no_noise():
    schedule = UniformBudget(10.0, DELTA, 200)
    assert not schedule.known
    with pytest.raises(RuntimeError, match="must be spread before it is used"):
        schedule.noise_multiplier(0)
    schedule.calibrate(PRINTED)
    assert schedule.known


@pytest.mark.parametrize("private", [2.0, torch.tensor(2.0)], ids=["a number", "a tensor"])
def test_a_loss_that_no_mechanism_released_is_refused(private):
    with pytest.raises(ReleaseError, match=r"a noise schedule .* private"):
        recalculated().observe(0, private)


def test_with_beta_one_nothing_adapts():
    assert not recalculated(beta=1.0).adaptive
    assert recalculated(beta=0.9).adaptive
