"""The contract of a mechanism, tried on the hard cases: announced, then released, then charged.

Each test is an example of one case: what is announced, what is let go, and what the ledger is given.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.algorithms import CdpFedAvg, DpFl, FedAvg, LdpFedSgd, NaseriCdp, wei_cdp
from fedpriv.common.errors import ReleaseError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.clippers import (
    AdapClipper,
    ConstantClipper,
    MedianHistogramClipper,
    NoClipper,
    QuantileClipper,
)
from fedpriv.privacy.clippers.clip import Clip
from fedpriv.privacy.core.names import AGGREGATOR, CLIENT, REPLACE_ONE, SOUND
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling, WholeData
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    TRAINING_LOSS,
    Bounded,
    GaussianQuery,
    JointQuery,
    Mechanism,
    OpenRound,
    RandomizedBit,
    Release,
    Released,
    Unprotected,
)
from fedpriv.privacy.mechanisms.bounded import mean_of_reports
from fedpriv.privacy.noise_schedules import (
    ConstantNoise,
    LossQuery,
    NoiseSchedule,
    NoNoise,
    RecalculatedNoise,
    ValidationDecay,
)
from fedpriv.privacy.target import Adaptation, Target

SIGMA, DELTA, SIZE = 3.0, 1e-5, 20_000
RECORDS = np.array([100, 100, 200])
EVERYONE = np.arange(3)
DP_FL = DpFl("dp_fl", 0.1)
LDP = LdpFedSgd("ldp_fedsgd", 1.0)
CDP = CdpFedAvg("cdp_fedavg", client_rate=0.5)


def mechanism(algorithm, clipper=None, schedule: NoiseSchedule | None = None) -> Mechanism:
    found = algorithm.mechanism(clipper or ConstantClipper(0.5), schedule or ConstantNoise(SIGMA))
    found.join(RECORDS)
    return found


def streams(seed: int = 0) -> SecretStreams:
    return SecretStreams.simulated(seed, 0)


def opened(of: Mechanism, cohort=EVERYONE, round_index: int = 0, seed: int = 0) -> OpenRound:
    return of.open(of.announce(round_index), np.array(cohort), streams(seed))


def clipped(of: Mechanism, rows: int, value: float = 0.0, divided_by: float = 1.0) -> Bounded:
    """A clipped sum of ``rows`` holders whose numbers are all ``value``."""
    clipper = of.clipper
    clipper.start(3 if of.algorithm.unit == "record" else 1, "cpu", lambda: 1.0)
    clip = Clip(clipper, 0, torch.arange(rows))
    clip.factors(torch.ones(rows), torch.arange(rows))
    values = torch.full((rows, SIZE), value, dtype=torch.float64)
    return clip.bounded(values, divided_by)


def measured(values: torch.Tensor) -> np.ndarray:
    """The standard deviation of every row."""
    return values.double().square().mean(dim=1).sqrt().numpy()


WITHIN = 5 / math.sqrt(2 * SIZE)  # five standard errors of a measured standard deviation


def budget(of: Mechanism, epsilon: float | None = None, **settings) -> Budget:
    first = of.announce(0).groups[0]
    bound = of.bound(first.upload.joint.sampling)
    view, accountant = settings.pop("view", SOUND), settings.pop("accountant", RdpAccountant())
    return Budget(
        clients=len(RECORDS),
        target=Target(epsilon, DELTA, view, accountant),
        first=first,
        adaptation=Adaptation(bound) if of.schedule.adaptive else None,
        trust=of.algorithm.trust,
        **{"claim": of.algorithm.claim, **settings},
    )


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
    clip = Clip(clipper, 0, torch.arange(3))
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
    clip = Clip(clipper, 0, torch.zeros(1, dtype=torch.long))
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
    clip = Clip(clipper, 0, torch.zeros(1, dtype=torch.long))
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


def released_without_data(of: Mechanism, announced) -> tuple[Release, ...]:
    run = of.open(announced, EVERYONE, streams())
    run.release({GRADIENT: clipped_small(of)})
    return run.close()


def clipped_small(of: Mechanism) -> Bounded:
    of.clipper.start(3, "cpu", None)
    clip = Clip(of.clipper, 0, torch.arange(3))
    clip.factors(torch.ones(3), torch.arange(3))
    return clip.bounded(torch.zeros(3, 1, dtype=torch.float64))


def test_the_bound_of_a_recalculated_budget_is_all_that_it_can_spend():
    schedule = RecalculatedNoise(10.0, 0.01, 50, trigger="noised")
    schedule._whole, schedule._sigma = 4.0, math.sqrt(50 / 4.0)
    of = mechanism(wei_cdp("wei_crd"), schedule=schedule)
    bound = of.bound(WholeData(REPLACE_ONE))
    uploads, losses = bound.items()
    assert uploads[0].noise_multiplier == pytest.approx(4.0**-0.5 / 2)
    assert uploads[1] == 1
    assert losses[1] == 50


class AsksForLosses(ConstantNoise):
    """A schedule that asks the clients for their losses on all of their records."""

    @property
    def loss_query(self) -> LossQuery:
        return LossQuery(GaussianQuery(TRAINING_LOSS, 2.0, replaced=1.0), bound=5.0)


def ask(run: OpenRound):
    losses = [torch.ones(4) * k for k in range(len(run.cohort))]
    return run.release_after(TRAINING_LOSS, mean_of_reports(losses, 5.0, whole_clients=False))


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
    with pytest.raises(ReleaseError, match="gradient_sum is a Tensor, not a Bounded"):
        opened(of).release({GRADIENT: torch.zeros(3, SIZE)})


def test_a_unit_that_moves_more_than_announced_when_replaced_is_refused():
    class Understated(Mechanism):
        def joint(self, sampling, noise_multiplier, round_index):
            query = GaussianQuery(GRADIENT, noise_multiplier, replaced=1.0)
            return JointQuery(sampling, (query,))

    of = Understated(DP_FL, ConstantClipper(0.5), ConstantNoise(SIGMA))
    of.join(RECORDS)
    with pytest.raises(ReleaseError, match="a unit replaced moves gradient_sum by 2 times"):
        opened(of).release({GRADIENT: clipped(of, 3)})


def test_less_noise_than_the_multiplier_asks_for_is_refused():
    joint = JointQuery(PoissonSampling(0.1), (GaussianQuery(GRADIENT, SIGMA),))
    ones = {GRADIENT: np.ones(1)}
    Release(joint, EVERYONE, ones, {GRADIENT: np.full(1, SIGMA)})
    with pytest.raises(ReleaseError, match=r"standard deviation 2.9, less than the 3 that"):
        Release(joint, EVERYONE, ones, {GRADIENT: np.full(1, 2.9)})
    with pytest.raises(ReleaseError, match=r"standard deviation 0, less than the 3 that"):
        Release(joint, EVERYONE, ones, {})


def test_bounded_and_released_values_are_not_made_by_hand():
    with pytest.raises(ReleaseError, match="made by a clipper or a bounded statistic"):
        Bounded(torch.zeros(1), torch.full((1,), 1e-9), 2.0)
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
    clip = Clip(clipper, 0, torch.zeros(1, dtype=torch.long))
    bits = clip.statistic(torch.ones(3), torch.zeros(3, dtype=torch.long))
    before = clipper._norms.clone()
    for private in (bits, bits.values, answer):
        with pytest.raises(ReleaseError, match="a clipper takes what a mechanism released"):
            clipper.observe(torch.zeros(1).long(), private, Unprotected(None), torch.ones(1))
    assert torch.equal(clipper._norms, before)
    with pytest.raises(ReleaseError, match="a noise schedule takes what a mechanism released"):
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
