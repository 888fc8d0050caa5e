"""Lower bounds of ε: closed forms, another library's numbers, and how often they are wrong."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from scipy import special, stats

from fedpriv.attacks.canary_scores import Kind, ideal_scores
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.tools.audit import epsilon_evaluate as evaluate
from fedpriv.tools.audit import epsilon_families as families
from fedpriv.tools.audit import epsilon_independent as independent
from fedpriv.tools.audit import epsilon_one_run as one_run
from fedpriv.tools.audit.epsilon_estimate import estimate
from fedpriv.tools.audit.epsilon_guesses import Guesses, Scores, counts_of_guesses

DELTA = 1e-5
MU = 1.00056
"""Of a Gaussian whose ε at δ = 1e-5 is 4.38."""


def gaussian_scores(stream, count: int, mu: float = MU) -> Scores:
    coins = stream.random(count) < 0.5
    return Scores(stream.normal(size=count) + mu * coins, coins)


# ---- one run


@pytest.mark.parametrize("right", [20, 100, 1000])
def test_without_delta_a_perfect_auditor_has_a_closed_form(right):
    """All of r guesses right has probability (e^ε/(1 + e^ε))^r under ε-DP."""
    accuracy = 0.05 ** (1 / right)
    expected = math.log(accuracy / (1 - accuracy))
    found = one_run.lower_bound(Guesses(right, right, right), 0.0, 0.05)
    assert found == pytest.approx(expected, abs=2e-4)


# jax_privacy.auditing, commit 8967688c (2026-08-20): _epsilon_one_run and _epsilon_one_run_fdp at 5 %
JAX_PRIVACY = [
    ((1000, 120, 95), 1e-5, 0.94863, 1.42192),
    ((1000, 1000, 700), 1e-5, 0.73174, 1.37198),
    ((5000, 600, 520), 1e-6, 1.67024, 2.70239),
]


@pytest.mark.parametrize(("guesses", "delta", "plain", "gaussian"), JAX_PRIVACY)
def test_the_numbers_are_those_of_jax_privacy(guesses, delta, plain, gaussian):
    found = Guesses(*guesses)
    assert one_run.lower_bound(found, delta, 0.05) == pytest.approx(plain, abs=2e-4)
    family = families.GaussianFamily(delta)
    assert families.lower_bound(found, family, 0.05) == pytest.approx(gaussian, abs=2e-4)


def test_more_delta_and_fewer_right_guesses_refute_less():
    bounds = [one_run.lower_bound(Guesses(500, 100, 90), d, 0.05) for d in (0, 1e-6, 1e-4, 1e-2)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] == 0.0  # 2 m δ = 10: vacuous
    right = [one_run.lower_bound(Guesses(500, 100, v), 1e-6, 0.05) for v in (50, 70, 80, 100)]
    assert right == sorted(right)
    assert right[0] == 0.0


def test_guesses_take_the_ends_of_the_scores():
    scores = Scores(np.array([3.0, 2.0, 1.0, 0.0]), np.array([True, False, True, False]))
    assert scores.guesses(1) == Guesses(4, 2, 2)
    assert scores.guesses(2) == Guesses(4, 4, 2)
    assert scores.guesses(99).made == 4


def test_equal_scores_tell_nothing():
    coins = np.random.default_rng(0).random(1000) < 0.5
    scores = Scores(np.zeros(1000), coins)
    assert evaluate.one_run_bound(scores, DELTA, 0.05) == 0.0


# ---- families


def test_the_gaussian_family_is_that_of_its_epsilon():
    assert families.gaussian_mu(4.38, DELTA) == pytest.approx(MU, abs=1e-4)
    assert families.gaussian_epsilon(MU, DELTA) == pytest.approx(4.38, abs=1e-3)
    least = families.GaussianFamily(DELTA).least_false_positives(4.38)
    assert least(0.5) == pytest.approx(stats.norm.cdf(-MU), abs=1e-4)


def test_the_family_of_a_ledger_of_gaussians_is_the_gaussian_one():
    events = {dp_event.GaussianDpEvent(2.0): 4}
    ledger = families.LedgerFamily(events, ADD_OR_REMOVE, DELTA)
    exact = families.GaussianFamily(DELTA)
    for epsilon in (1.0, 3.0):
        for rate in (0.05, 0.3, 0.9):
            one = ledger.least_false_positives(epsilon)(rate)
            other = exact.least_false_positives(epsilon)(rate)
            assert 0.9 * other - 1e-3 <= one <= other + 1e-9  # never above: never too sure


def test_members_of_a_family_have_the_epsilon_they_are_asked_for():
    event = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.31023))
    family = families.LedgerFamily({event: 100}, ADD_OR_REMOVE, DELTA)
    assert family._member(0)[0] == pytest.approx(4.38, abs=0.01)
    halved = families.with_noise(event, 0.5)
    assert halved.event.noise_multiplier == pytest.approx(0.655115)
    assert PldAccountant().epsilon_of({halved: 100}, DELTA, ADD_OR_REMOVE) > 10


# ---- independent trials


def test_clopper_and_pearson_bound_the_rates():
    scores = Scores(np.repeat([1.0, 0.0], 100), np.repeat([True, False], 100))
    errors = independent.errors_at(scores, 0.5, 0.1)
    assert errors.false_positives == pytest.approx(1 - 0.05 ** (1 / 100))
    assert errors.epsilon(0.0) == pytest.approx(math.log(0.05**0.01 / (1 - 0.05**0.01)))


def test_a_gaussian_bound_is_the_epsilon_of_its_mu():
    errors = independent.Errors(0.2, 0.3)
    assert errors.mu() == pytest.approx(special.ndtri(0.8) - special.ndtri(0.3))
    assert independent.Errors(0.6, 0.6).mu() == 0.0
    assert independent.Errors(0.6, 0.6).epsilon(0.0) == 0.0


def test_an_estimate_of_normal_scores_is_about_right():
    found = [estimate(gaussian_scores(np.random.default_rng(i), 100_000), DELTA) for i in range(3)]
    assert np.mean(found) == pytest.approx(4.38, rel=0.05)


# ---- how often a bound is above the truth


def sampled_gaussian(stream, count: int) -> tuple[Scores, Counter]:
    gaussian = dp_event.GaussianDpEvent(1.5)
    released = Counter({Kind(1.5, 0.2, False, dp_event.PoissonSampledDpEvent(0.2, gaussian)): 10})
    coins = stream.random(count) < 0.5
    return Scores(ideal_scores(released, coins, stream), coins), released


def randomized_response(stream, count: int, epsilon: float) -> Scores:
    coins = stream.random(count) < 0.5
    truth = stream.random(count) < special.expit(epsilon)
    answers = np.where(truth, coins, ~coins).astype(float)
    return Scores(answers + 0.5 * stream.random(count), coins)  # equal scores make no guess


def allowed(repetitions: int) -> int:
    """So many exceed the truth in 5 % of the repetitions, and 99.9 % of the time no more."""
    return int(stats.binom.ppf(0.999, repetitions, 0.05))


def coverage(repetitions: int, sampled_family: bool) -> dict[str, int]:
    """How often each bound is above the truth."""
    stream = np.random.default_rng(1)
    wrong: Counter[str] = Counter()
    _, released = sampled_gaussian(stream, 2)
    truth = PldAccountant().epsilon_of(
        {k.event: n for k, n in released.items()}, DELTA, ADD_OR_REMOVE
    )
    setup = evaluate.AuditSetup(DELTA, 0.95, False, released)
    family = setup.family() if sampled_family else families.GaussianFamily(DELTA)
    for seed in range(repetitions):
        scores = gaussian_scores(
            stream, 200, 0.3
        )  # little to find: where a bound errs, if anywhere
        small = families.gaussian_epsilon(0.3, DELTA)
        wrong["one run"] += evaluate.one_run_bound(scores, DELTA, 0.05) > small
        exact = families.GaussianFamily(DELTA)
        wrong["f-DP"] += evaluate.family_bound(scores, exact, 0.05) > small
        wrong["split"] += independent.bound(scores, DELTA, 0.05, None, seed) > small
        wrong["mu"] += independent.gaussian_bound(scores, DELTA, 0.05, None, seed) > small
        scores, _ = sampled_gaussian(stream, 200)
        wrong["one run, sampled"] += evaluate.one_run_bound(scores, DELTA, 0.05) > truth
        wrong["f-DP, sampled"] += evaluate.family_bound(scores, family, 0.05) > truth
        scores = randomized_response(stream, 200, 0.1)
        wrong["one run, bits"] += evaluate.one_run_bound(scores, 0.0, 0.05) > 0.1
        wrong["split, bits"] += independent.bound(scores, 0.0, 0.05, None, seed) > 0.1
        wrong["tested once, bits"] += one_run.lower_bound(scores.guesses(100), 0.0, 0.05) > 0.1
    return dict(wrong)


@pytest.mark.thorough
def test_bounds_are_seldom_above_the_truth():
    wrong = coverage(30, False)
    assert all(count <= allowed(30) for count in wrong.values()), wrong


def test_a_family_that_does_not_hold_finds_too_much_and_is_not_called_a_bound():
    """Randomized response with ε = 1: the Gaussian family finds more than there is."""
    scores = randomized_response(np.random.default_rng(0), 5000, 1.0)
    found = evaluate.evaluate({"scores": scores}, evaluate.AuditSetup(DELTA, 0.95, True, Counter()))
    by_name = {one.method: one for one in found}
    assert by_name["gaussian"].epsilon > 4
    assert by_name["gaussian"].kind == evaluate.FAMILY
    assert by_name["normal_scores"].kind == evaluate.ESTIMATE
    for bound in (one for one in found if one.kind == evaluate.BOUND):
        assert 0.7 < bound.epsilon <= 1.0


# ---- equal scores


def guessed_right(values: list[float], coins: list[int], each: int) -> int:
    return Scores(np.array(values, dtype=float), np.array(coins, dtype=bool)).guesses(each).right


def test_equal_scores_across_a_cut_count_as_wrong_and_others_as_before():
    assert guessed_right([0, 1, 2, 3], [0, 0, 1, 1], 1) == 2
    assert guessed_right([0, 1, 3, 3], [0, 0, 1, 1], 1) == 1
    assert guessed_right([0, 0, 3, 3], [0, 0, 1, 1], 1) == 0
    assert guessed_right([0, 0, 3, 3], [0, 0, 1, 1], 2) == 4
    assert guessed_right([0, 2, 2, 3], [0, 0, 1, 1], 2) == 2
    assert guessed_right([2, 2, 2], [1, 1, 0], 1) == 0


def every_bound(scores: Scores, seed: int = 0) -> dict[str, float]:
    """The largest of each method, of trials that are said to be independent, and not."""
    found: dict[str, float] = {}
    for alone in (False, True):
        setup = evaluate.AuditSetup(DELTA, 0.95, alone, Counter(), seed)
        for one in evaluate.evaluate({"scores": scores}, setup):
            found[one.method] = max(one.epsilon, found.get(one.method, 0.0))
    for threshold in np.unique(scores.values):
        errors = independent.errors_at(scores, threshold, 0.05)
        found["threshold"] = max(errors.epsilon(DELTA), found.get("threshold", 0.0))
    return found


def test_constant_scores_show_nothing_whatever_the_order():
    """In the file all that were left out stood before all that took part."""
    coins = np.arange(1000) >= 500
    for values in (np.ones(1000), np.full(1000, np.nan), np.zeros(1000)):
        assert set(every_bound(Scores(values, coins)).values()) == {0.0}


@settings(max_examples=examples(25))
@given(
    st.lists(st.tuples(st.integers(-3, 3), st.booleans()), min_size=2, max_size=60),
    st.randoms(use_true_random=False),
)
def test_guesses_from_equal_scores_do_not_depend_on_the_order(canaries, random):
    shuffled = random.sample(canaries, len(canaries))
    made = []
    for rows in (canaries, shuffled):
        scores = Scores(np.array([v for v, _ in rows], float), np.array([c for _, c in rows]))
        made.append([scores.guesses(each) for each in range(len(rows))])
    assert made[0] == made[1]


@settings(max_examples=examples(25))
@given(st.lists(st.tuples(st.integers(-2, 2), st.booleans()), min_size=4, max_size=40))
def test_no_order_of_equal_scores_guesses_less_than_what_counts(canaries):
    """A bound from fewer right guesses holds wherever one by any order would."""
    values = np.array([v for v, _ in canaries], dtype=float)
    coins = np.array([c for _, c in canaries])
    scores = Scores(values, coins)
    for each in range(1, len(values) // 2 + 1):
        for worst in (coins, ~coins):
            order = np.lexsort((worst, values))
            right = coins[order[-each:]].sum() + (~coins[order[:each]]).sum()
            assert scores.guesses(each).right <= right


def test_the_numbers_of_guesses_are_fixed_by_the_canaries_alone():
    assert counts_of_guesses(1000) == [30, 60, 125, 400]
    assert counts_of_guesses(2) == [1]


@pytest.mark.parametrize("sample_rate", [1.0, 0.3])
def test_what_the_ledger_charges_is_what_ideal_scores_have(sample_rate):
    """Of a threshold on many ideal scores, TPR ≤ e^ε FPR + δ holds with near equality somewhere."""
    event = dp_event.PoissonSampledDpEvent(sample_rate, dp_event.GaussianDpEvent(1.0))
    event = event.event if sample_rate == 1.0 else event
    released = Counter({Kind(1.0, sample_rate, False, event): 3})
    stream = np.random.default_rng(3)
    coins = np.arange(400_000) % 2 == 0
    scores = ideal_scores(released, coins, stream)
    delta = 0.05
    truth = PldAccountant().epsilon_of({event: 3}, delta, ADD_OR_REMOVE)
    cuts = np.quantile(scores, np.linspace(0.01, 0.99, 99))
    tpr = (scores[coins][:, None] > cuts).mean(0)
    fpr = (scores[~coins][:, None] > cuts).mean(0)
    reached = np.max(np.log(np.maximum(tpr - delta, 1e-9) / fpr))
    assert truth * 0.9 < reached < truth * 1.05


def test_a_ledger_of_very_many_kinds_has_no_family_of_its_own():
    def released(kinds: int) -> Counter:
        sigmas = [1.0 + number / 100 for number in range(kinds)]
        events = [dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(z)) for z in sigmas]
        return Counter({Kind(z, 0.1, False, e): 1 for z, e in zip(sigmas, events, strict=True)})

    few, many = (evaluate.AuditSetup(DELTA, 0.95, False, released(n)).family() for n in (3, 100))
    assert isinstance(few, families.LedgerFamily)
    assert many is None
