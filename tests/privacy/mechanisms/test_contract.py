"""The contract of a mechanism, tried on the hard cases: announced, then released, then charged.

Each test is an example of one case: what is announced, what is let go, and what the ledger is given.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from rounds import (
    DELTA,
    DP_FL,
    EVERYONE,
    LDP,
    SIGMA,
    SIZE,
    WITHIN,
    AsksForLosses,
    ask,
    budget,
    clipped,
    clipped_small,
    measured,
    mechanism,
    opened,
    released_without_data,
    streams,
)

from fedpriv.algorithms import DpFl, FedAvg, NaseriCdp, wei_cdp
from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.accountants import GdpAccountant, PldAccountant
from fedpriv.privacy.clippers import (
    AdapClipper,
    ConstantClipper,
    MedianHistogramClipper,
    NoClipper,
    QuantileClipper,
)
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.core.names import AGGREGATOR, CLIENT, REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling, WholeData
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    TRAINING_LOSS,
    Bounded,
    GaussianQuery,
    JointQuery,
    RandomizedBit,
    Release,
    Released,
    Unprotected,
)
from fedpriv.privacy.noise_schedules import NoNoise, RecalculatedNoise, ValidationDecay

# ---- what is announced is what is noised is what is entered


def test_the_announced_multiplier_is_that_of_the_noise_and_of_the_record():
    of = mechanism(DP_FL)
    announced = of.announce(0)
    (query,) = announced.groups[0].upload.joint.queries
    assert query == GaussianQuery(GRADIENT, SIGMA)
    run = opened(of)
    visible = run.release({GRADIENT: clipped(of, 3)})[GRADIENT]
    assert isinstance(visible, Released)
    (record,) = run.close()
    assert record.joint == announced.groups[0].upload.joint
    np.testing.assert_array_equal(record.clients, EVERYONE)
    np.testing.assert_allclose(record.sensitivity[GRADIENT], 0.5)
    np.testing.assert_allclose(record.noise_std[GRADIENT], SIGMA * 0.5)
    np.testing.assert_allclose(measured(visible.values), record.noise_std[GRADIENT], rtol=WITHIN)


def test_clip_norms_of_each_client_with_a_statistic_on_the_same_sample_are_one_release():
    clipper = AdapClipper("sound", initial_clip_norm=1.0, bit_noise=20.0)
    of = mechanism(DP_FL, clipper)
    answer = clipped(of, 3)
    clipper._norms.copy_(torch.tensor([0.1, 1.0, 10.0]))
    clip = StepClip(clipper, 0, torch.arange(3))
    clip.factors(torch.ones(3), torch.arange(3))
    answer = clip.bounded(torch.zeros(3, SIZE, dtype=torch.float64))
    bits = clip.statistic(torch.ones(30), torch.arange(3).repeat_interleave(10))
    run = opened(of)
    visible = run.release({GRADIENT: answer, CLIP_STATISTIC: bits})
    (record,) = run.close()
    assert [q.name for q in record.joint.queries] == [GRADIENT, CLIP_STATISTIC]
    np.testing.assert_allclose(record.noise_std[GRADIENT], SIGMA * np.array([0.1, 1, 10]), 1e-6)
    np.testing.assert_allclose(record.noise_std[CLIP_STATISTIC], 20.0)
    np.testing.assert_allclose(
        measured(visible[GRADIENT].values), record.noise_std[GRADIENT], WITHIN
    )
    joint = 1 / math.sqrt(1 / SIGMA**2 + 1 / 40**2)  # a centred bit has sensitivity one half
    assert record.joint.event() == PoissonSampling(0.1).event(pytest.approx(joint))


def test_randomized_bits_are_charged_beside_the_gaussian():
    clipper = QuantileClipper(
        1.0, bit_mechanism="randomized_response", bit_epsilon=1.0, bit_noise=None, noised_by=CLIENT
    )
    of = mechanism(LDP, clipper)
    answer = clipped(of, 1)
    clip = StepClip(clipper, 0, torch.zeros(1, dtype=torch.long))
    bits = clip.statistic(torch.tensor([0.1, 0.1, 9.0]), torch.zeros(3, dtype=torch.long))
    run = opened(of)
    visible = run.release({GRADIENT: answer, CLIP_STATISTIC: bits})
    (record,) = run.close()
    assert record.joint.query(CLIP_STATISTIC) == RandomizedBit(CLIP_STATISTIC, 1.0)
    assert CLIP_STATISTIC not in record.noise_std  # flipped, not added to
    flip = 1 / (1 + math.e)
    # an estimate of two ones less a half of three, from so many ones after flipping
    ones = (float(visible[CLIP_STATISTIC].values) + 1.5) * (1 - 2 * flip) + 3 * flip
    assert round(ones, 6) in (0, 1, 2, 3)


def test_a_query_that_an_aggregator_noises_gets_its_noise_once_for_all_reports():
    clipper = MedianHistogramClipper(1.0, update_interval=1, updates=2)
    of = mechanism(LDP, clipper)
    query = of.announce(0).groups[0].upload.joint.query(CLIP_STATISTIC)
    assert query.by == AGGREGATOR
    answer = clipped(of, 1)
    clip = StepClip(clipper, 0, torch.zeros(1, dtype=torch.long))
    counts = clip.statistic(torch.ones(3), torch.zeros(3, dtype=torch.long))
    run = opened(of)
    run.release({GRADIENT: answer, CLIP_STATISTIC: counts})
    (record,) = run.close()
    np.testing.assert_allclose(record.noise_std[CLIP_STATISTIC], query.noise_multiplier)
    np.testing.assert_allclose(record.noise_std[GRADIENT], SIGMA * 0.5 * 2)  # C is 1


@pytest.mark.parametrize("cohort", [[1], [0, 2], [0, 1, 2]])
def test_one_gaussian_for_the_sum_of_many_reports_states_the_share_and_how_many(cohort):
    of = mechanism(LDP)
    run = opened(of, cohort)
    m = len(cohort)
    mean = run.release({GRADIENT: clipped(of, 1, divided_by=m)})[GRADIENT].values
    (record,) = run.close()
    np.testing.assert_array_equal(record.clients, cohort)
    np.testing.assert_allclose(record.noise_std[GRADIENT], SIGMA * 0.5)
    assert record.shares == {GRADIENT: m}
    assert measured(mean * m)[0] == pytest.approx(SIGMA * 0.5 * math.sqrt(m), rel=WITHIN)


@pytest.mark.parametrize("noise", ["fixed_denominator", "as_printed"])
def test_nothing_depends_on_the_size_of_a_secret_cohort(noise):
    """As printed the noise is on the mean of whoever came, which one client moves by up to C: value,
    sensitivity and noise are of that mean, bounded over all cohorts."""
    algorithm = NaseriCdp("naseri_cdp", client_rate=0.5, noise=noise)
    of = mechanism(algorithm)
    found = []
    for cohort in ([], [1], [0, 1, 2]):
        run = opened(of, np.array(cohort, dtype=int))
        # the denominator is public, or the sensitivity that of the mean
        divided_by = 1.0 if noise == "as_printed" else algorithm.denominator(len(cohort), 3)
        released = run.release({GRADIENT: clipped(of, 1, divided_by=divided_by)})[GRADIENT]
        (record,) = run.close()
        found.append((released.values, record))
    (first, record), *others = found
    for values, other in others:
        assert torch.equal(values, first)  # the same noise on the same grid, whoever came
        assert other.noise_std[GRADIENT] == record.noise_std[GRADIENT]
        np.testing.assert_array_equal(other.clients, EVERYONE)
    scale = 2.0 if noise == "as_printed" else 1.0
    assert record.noise_std[GRADIENT] == pytest.approx(SIGMA * 0.5 * scale)


def test_weights_clipped_as_they_are_move_by_twice_the_clip_norm():
    of = mechanism(wei_cdp("wei_cdp", sensitivity="weights", records=100), ConstantClipper(10.0))
    joint = of.announce(0).groups[0].upload.joint
    assert joint.sampling == WholeData(REPLACE_ONE)
    assert joint.event().noise_multiplier == SIGMA / 2


def test_clients_that_sample_differently_are_groups_with_records_of_their_own():
    of = mechanism(DpFl("dp_fl", 0.1, sampling="fixed_size"))
    run = opened(of)
    run.release({GRADIENT: clipped(of, 3)})
    small, large = run.close()
    assert small.joint.sampling == FixedSizeSampling(100, 10)
    assert large.joint.sampling == FixedSizeSampling(200, 20)
    np.testing.assert_array_equal(small.clients, [0, 1])
    np.testing.assert_array_equal(large.clients, [2])


# ---- schedules: filters, bounds, and queries of their own


def test_noise_that_adapts_is_announced_with_the_least_that_could_have_come():
    schedule = ValidationDecay(SIGMA, beta=0.5)
    of = mechanism(DP_FL, schedule=schedule)
    sample = of.announce(6).groups[0].upload
    assert sample.joint.query(GRADIENT).noise_multiplier == SIGMA
    assert sample.lowest.query(GRADIENT).noise_multiplier == SIGMA * 0.5**2


class Faster(ValidationDecay):
    """It falls faster than the inherited ``lowest`` says."""

    def noise_multiplier(self, round_index):
        return SIGMA * 0.1**round_index


def test_noise_below_the_least_that_was_stated_is_never_drawn():
    """The sound ε counts the least, and once stood below the running total."""
    of = mechanism(DP_FL, schedule=Faster(SIGMA, beta=0.5))
    of.announce(0)
    with pytest.raises(ReleaseError, match=r"below noise_schedule\.lowest"):
        of.announce(6)


def test_a_filter_lets_no_round_run_that_would_exceed_the_budget():
    schedule = ValidationDecay(SIGMA, beta=0.5)
    of = mechanism(DP_FL, schedule=schedule)
    guarded = budget(of, epsilon=1.0)
    assert guarded.filtered
    for t in range(10_000):
        announced = of.announce(t)
        if not guarded.eligible(announced).any():
            break
        guarded.charge(released_without_data(of, announced), announced)
    assert t > 0
    assert guarded.epsilon_sound() == pytest.approx(1.0)
    assert (guarded.epsilon() <= 1.0).all()


def test_the_bound_of_a_recalculated_budget_is_all_that_it_can_spend():
    schedule = RecalculatedNoise(10.0, 0.01, 50, trigger="noised")
    schedule._whole, schedule._sigma = 4.0, math.sqrt(50 / 4.0)
    of = mechanism(wei_cdp("wei_crd"), schedule=schedule)
    bound = of.bound(WholeData(REPLACE_ONE))
    uploads, losses = bound.items()
    assert uploads[0].noise_multiplier == pytest.approx(4.0**-0.5 / 2)
    assert uploads[1] == 1
    assert losses[1] == 50


def test_a_query_about_all_records_is_no_part_of_the_sample_of_a_lot():
    of = mechanism(DP_FL, schedule=AsksForLosses(SIGMA))
    group = of.announce(0).groups[0]
    assert group.upload.joint.names == {GRADIENT}
    assert group.after.joint == JointQuery(
        WholeData(), (GaussianQuery(TRAINING_LOSS, 2.0, replaced=1.0),)
    )
    run = opened(of)
    run.release({GRADIENT: clipped(of, 3)})
    ask(run)
    lot, losses = run.close()
    assert lot.joint.sampling == PoissonSampling(0.1)
    assert losses.joint.sampling == WholeData()
    np.testing.assert_allclose(losses.sensitivity[TRAINING_LOSS], 5 / 4)
    np.testing.assert_allclose(losses.noise_std[TRAINING_LOSS], 2.0 * 5 / 4)


def test_a_query_on_the_same_sample_is_charged_jointly():
    of = mechanism(wei_cdp("wei_cdp"), schedule=AsksForLosses(SIGMA))
    run = opened(of)
    run.release({GRADIENT: clipped(of, 3)})
    ask(run)
    (record,) = run.close()
    assert record.joint.names == {GRADIENT, TRAINING_LOSS}
    joint = 1 / math.sqrt((2 / SIGMA) ** 2 + (1 / 2.0) ** 2)
    assert record.joint.event().noise_multiplier == pytest.approx(joint)


# ---- what is charged without a round, or not at all


def test_a_vocabulary_before_the_first_round_leaves_no_finite_epsilon():
    of = mechanism(DP_FL)
    spent = budget(of)
    spent.expose(["vocabulary"])
    assert np.isinf(spent.epsilon_sound()).all()
    assert spent.epsilon_published().max() == 0.0


def test_a_search_is_charged_before_the_run_by_what_its_ledgers_hold():
    of = mechanism(wei_cdp("wei_cdp_optimal"))
    spent = budget(of, accountant=GdpAccountant())
    joint = of.announce(0).groups[0].upload.joint
    searched = Release(
        joint, EVERYONE, {GRADIENT: np.ones(1)}, {GRADIENT: np.full(1, SIGMA)}, count=30
    )
    spent.charge_prior(searched)
    expected = GdpAccountant().epsilon_of({joint.event(): 30}, DELTA, REPLACE_ONE)
    np.testing.assert_allclose(spent.epsilon_sound(), expected)


def test_attackers_are_charged_nothing_and_come_as_often_as_if_they_were_honest():
    of = mechanism(DP_FL)
    honest, attacked = budget(of, epsilon=0.5), budget(of, epsilon=0.5, attackers=[1])
    rounds = 0
    while True:
        announced = of.announce(rounds)
        same = honest.eligible(announced)
        np.testing.assert_array_equal(attacked.eligible(announced), same)
        if not same.any():
            break
        for spent in (honest, attacked):
            run = of.open(announced, EVERYONE, streams(), spent.payers(EVERYONE))
            run.release({GRADIENT: clipped_small(of)})
            spent.charge(run.close(), announced, EVERYONE)
        rounds += 1
    assert rounds > 0
    np.testing.assert_array_equal(attacked.ledger.samples_of(), [rounds, 0, rounds])


def test_sampled_clients_have_budgets_of_their_own():
    of = mechanism(DP_FL)
    spent = budget(of, epsilon=0.5, accountant=PldAccountant())
    while spent.eligible(of.announce(0))[0]:
        announced = of.announce(0)
        run = of.open(announced, np.array([0]), streams(), spent.payers(np.array([0])))
        run.release({GRADIENT: first_row(clipped_small(of))})
        spent.charge(run.close(), announced, np.array([0]))
    np.testing.assert_array_equal(spent.eligible(of.announce(0)), [False, True, True])


def first_row(answer: Bounded) -> Bounded:
    answer.values, answer.sensitivity = answer.values[:1], answer.sensitivity[:1]
    return answer


# ---- what has no noise is called so


def test_without_noise_a_value_is_unprotected_and_the_ledger_says_so():
    of = mechanism(DP_FL, schedule=NoNoise())
    run = opened(of)
    assert isinstance(run.release({GRADIENT: clipped(of, 3)})[GRADIENT], Unprotected)
    (record,) = run.close()
    assert record.joint.unprotected == (GRADIENT,)


def test_an_algorithm_that_claims_no_privacy_releases_unprotected_values_and_no_record():
    of = mechanism(FedAvg("fedavg", 0.5), NoClipper(), NoNoise())
    run = opened(of)
    assert isinstance(run.release({GRADIENT: clipped(of, 3)})[GRADIENT], Unprotected)
    assert run.close() == ()
