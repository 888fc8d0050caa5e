"""A round that does something else than it announced, and releases that are none: refused."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rounds import (
    CDP,
    DP_FL,
    EVERYONE,
    LDP,
    RECORDS,
    SIGMA,
    SIZE,
    AsksForLosses,
    ask,
    budget,
    clipped,
    mechanism,
    opened,
    released_without_data,
)

from fedpriv.algorithms import DpFl
from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.clippers import ConstantClipper, QuantileClipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.core.names import AGGREGATOR
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    GaussianQuery,
    JointQuery,
    Mechanism,
    Release,
    Released,
    Unprotected,
)
from fedpriv.privacy.noise_schedules import ConstantNoise, ValidationDecay

# ---- a round that does something else than it announced


def test_a_release_that_was_not_announced_is_refused_before_it_is_let_go():
    of = mechanism(DP_FL)
    run = opened(of)
    answers = {GRADIENT: clipped(of, 3), CLIP_STATISTIC: clipped(of, 3)}
    with pytest.raises(
        ReleaseError, match="round 1 released clip_statistic, which was not announced"
    ):
        run.release(answers)


def test_a_release_that_was_announced_and_is_missing_is_refused():
    of = mechanism(DP_FL, QuantileClipper(1.0))
    run = opened(of)
    with pytest.raises(ReleaseError, match="did not release clip_statistic, which was announced"):
        run.release({GRADIENT: clipped(of, 3)})


def test_fewer_or_more_samples_than_announced_are_refused():
    of = mechanism(DpFl("dp_fl", 0.1, local_steps=2))
    run = opened(of)
    run.release({GRADIENT: clipped(of, 3)})
    with pytest.raises(ReleaseError, match="2 samples of each client"):
        run.close()
    for _ in range(2):
        run.release({GRADIENT: clipped(of, 3)})
    with pytest.raises(ReleaseError, match="2 samples of each client"):
        run.refuse_unless_complete()


def test_a_loss_that_was_announced_and_is_not_asked_is_refused():
    of = mechanism(DP_FL, schedule=AsksForLosses(SIGMA))
    run = opened(of)
    run.release({GRADIENT: clipped(of, 3)})
    with pytest.raises(ReleaseError, match="training_loss"):
        run.close()


def test_a_loss_that_was_not_announced_is_refused():
    of = mechanism(DP_FL)
    run = opened(of)
    with pytest.raises(ReleaseError, match="training_loss"):
        ask(run)


def test_what_is_released_has_a_bound_that_was_enforced():
    of = mechanism(DP_FL)
    with pytest.raises(ReleaseError, match=r"gradient_sum must be a Bounded, .* got a Tensor"):
        opened(of).release({GRADIENT: torch.zeros(3, SIZE)})


def test_a_unit_that_moves_more_than_announced_when_replaced_is_refused():
    class Understated(Mechanism):
        def joint(self, sampling, noise_multiplier, round_index):
            query = GaussianQuery(GRADIENT, noise_multiplier, replaced=1.0)
            return JointQuery(sampling, (query,))

    of = Understated(DP_FL, ConstantClipper(0.5), ConstantNoise(SIGMA))
    of.join(RECORDS)
    with pytest.raises(ReleaseError, match="replacing a unit moves gradient_sum 2 times as far"):
        opened(of).release({GRADIENT: clipped(of, 3)})


def test_less_noise_than_the_multiplier_asks_for_is_refused():
    joint = JointQuery(PoissonSampling(0.1), (GaussianQuery(GRADIENT, SIGMA),))
    ones = {GRADIENT: np.ones(1)}
    Release(joint, EVERYONE, ones, {GRADIENT: np.full(1, SIGMA)})
    with pytest.raises(ReleaseError, match=r"standard deviation 2.9, less than the 3 of"):
        Release(joint, EVERYONE, ones, {GRADIENT: np.full(1, 2.9)})
    with pytest.raises(ReleaseError, match=r"standard deviation 0, less than the 3 of"):
        Release(joint, EVERYONE, ones, {})


def test_released_values_are_not_made_by_hand():
    with pytest.raises(ReleaseError, match="made by a mechanism"):
        Released(torch.zeros(1))


def test_post_processing_keeps_the_kind():
    of = mechanism(DP_FL)
    visible = opened(of).release({GRADIENT: clipped(of, 3)})[GRADIENT]
    assert isinstance(visible.then(lambda values: 2 * values), Released)
    assert isinstance(Unprotected(torch.ones(1)).then(torch.neg), Unprotected)


@pytest.mark.parametrize("cohort", [[], [0], [0, 1, 2]])
def test_under_a_secret_cohort_everyone_pays(cohort):
    of = mechanism(CDP)
    run = opened(of, np.array(cohort, dtype=int))
    run.release({GRADIENT: clipped(of, 1, divided_by=1.5)})
    (record,) = run.close()
    np.testing.assert_array_equal(record.clients, EVERYONE)
    assert record.joint.query(GRADIENT).by == AGGREGATOR


def test_clippers_and_schedules_observe_what_is_visible_and_nothing_else():
    clipper = QuantileClipper(1.0)
    of = mechanism(LDP, clipper)
    answer = clipped(of, 1)
    clip = StepClip(clipper, 0, torch.zeros(1, dtype=torch.long))
    bits = clip.statistic(torch.ones(3), torch.zeros(3, dtype=torch.long))
    before = clipper._norms.clone()
    for private in (bits, bits.values, answer):
        with pytest.raises(ReleaseError, match="a clipper takes released or public values"):
            clipper.observe(torch.zeros(1).long(), private, Unprotected(None), torch.ones(1))
    assert torch.equal(clipper._norms, before)
    with pytest.raises(ReleaseError, match="a noise schedule takes released or public values"):
        ValidationDecay(SIGMA, beta=0.5).observe(0, 0.3)


def test_a_mean_over_a_secret_cohort_is_not_let_go():
    of = mechanism(CDP, schedule=AsksForLosses(SIGMA))
    run = opened(of, [0, 2])
    run.release({GRADIENT: clipped(of, 1, divided_by=1.5)})
    with pytest.raises(ReleaseError, match="would tell how many took part"):
        ask(run)


@pytest.mark.parametrize(
    ("sensitivity", "std", "count"),
    [
        (np.zeros(0), np.full(1, SIGMA), 1),
        (np.ones(2), np.full(1, SIGMA), 1),
        (np.ones(1), np.full(2, SIGMA), 1),
        (np.ones(1), np.full(1, SIGMA), -3),
    ],
)
def test_a_record_that_does_not_fit_its_clients_is_refused(sensitivity, std, count):
    joint = JointQuery(PoissonSampling(0.1), (GaussianQuery(GRADIENT, SIGMA),))
    with pytest.raises(ReleaseError):
        Release(joint, EVERYONE, {GRADIENT: sensitivity}, {GRADIENT: std}, count=count)
    with pytest.raises(ReleaseError):
        Release(joint, EVERYONE, {}, {GRADIENT: np.full(1, SIGMA)})


def test_a_release_that_no_round_announced_is_not_charged():
    of = mechanism(DP_FL)
    spent, announced = budget(of), of.announce(0)
    right = released_without_data(of, announced)
    other = JointQuery(PoissonSampling(0.1), (GaussianQuery(GRADIENT, 2 * SIGMA),))
    wrong = Release(other, EVERYONE, {GRADIENT: np.ones(1)}, {GRADIENT: np.full(1, 2 * SIGMA)})
    with pytest.raises(ReleaseError, match="gradient_sum=6 was released"):
        spent.charge((*right, wrong), announced)
    assert len(spent.ledger) == 0
