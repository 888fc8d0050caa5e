"""The trainer lets nothing through that was not announced, clipped and noised."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.algorithms import DpFl, LdpFedSgd, NaseriLdp
from fedpriv.algorithms.losses import ReportedLoss
from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.clippers import AdapClipper, ConstantClipper
from fedpriv.privacy.mechanisms import GRADIENT, TRAINING_LOSS, GaussianQuery, Mechanism, Public
from fedpriv.privacy.noise_schedules import ConstantNoise, LossQuery

NORM, LOSS_BOUND, LOSS_NOISE = 0.3, 5.0, 7.0
LDP = LdpFedSgd("ldp_fedsgd", learning_rate=1.0)


class Greedy(ConstantClipper):
    """A rule that forgets the clip norm."""

    def __init__(self, scale: float):
        super().__init__(NORM)
        self.scale = scale

    def factors(self, norms, clip_norms):
        return torch.full_like(norms, self.scale)


@pytest.fixture(params=["records", "clients"])
def either(request, computation, serve, ragged):
    """(clipper) → a training whose unit is the record, or the client."""

    def build(clipper=None):
        if request.param == "records":
            return computation(data=ragged, clipper=clipper, sample_rate=1.0, local_steps=2)
        return serve(LDP, data=ragged, clipper=clipper)

    return build


@pytest.mark.parametrize("scale", [1e4, -1e4])
def test_a_rule_that_scales_a_unit_beyond_the_clip_norm_is_cut(scale, computation, serve, ragged):
    """Client 0 has one record; of both kinds of sums it is the one unit."""
    records = computation(data=ragged, clipper=Greedy(scale), sample_rate=1.0)
    sums = [records.released()[0][0]]
    sums.append(serve(LDP, data=ragged, clipper=Greedy(scale)).released(cohort=[0])[0])
    for own in sums:
        assert own.norm() == pytest.approx(NORM, rel=1e-4)
    assert records.sensitivity(GRADIENT)[0] == pytest.approx(NORM)


def test_a_rule_that_gives_no_number_leaves_the_unit_out(either):
    training = either(Greedy(float("nan")))
    assert not training.released()[0].any()


def test_a_statistic_whose_sensitivity_nobody_enforced_is_refused(either):
    class Plain(AdapClipper):
        def statistic(self, norms, owners, clip_norms):
            return super().statistic(norms, owners, clip_norms).values

    training = either(Plain("sound", initial_clip_norm=NORM))
    before = training.weights.clone()
    with pytest.raises(ReleaseError, match="statistic must return a bounded statistic"):
        training.play(sigma=1.0)
    assert torch.equal(training.weights, before)


@pytest.mark.parametrize(
    ("asks", "reading", "message"),
    [
        (True, "vector", "clip_statistic, which was not announced"),
        (False, "sound", "did not release clip_statistic, which was announced"),
    ],
)
def test_a_clipper_that_asks_something_else_than_it_announces_is_refused(
    asks, reading, message, either
):
    class Other(AdapClipper):
        def asks(self, round_index):
            return asks

        def statistic(self, norms, owners, clip_norms):
            return AdapClipper("sound", 1.0).statistic(norms, owners, clip_norms)

    training = either(Other(reading, initial_clip_norm=NORM))
    before = training.weights.clone()
    with pytest.raises(ReleaseError, match=message):
        training.play(sigma=1.0)
    assert torch.equal(training.weights, before)


@pytest.mark.parametrize("announced", [1, 3])
def test_another_number_of_samples_than_announced_is_refused_before_the_weights_move(
    announced, computation, ragged
):
    training = computation(data=ragged, local_steps=2)
    training.algorithm.samples_per_round = announced
    before = training.weights.clone()
    with pytest.raises(ReleaseError, match=f"did not release {announced} samples of each client"):
        training.play(sigma=1.0)
    assert torch.equal(training.weights, before)


def test_work_that_moves_the_global_weights_itself_is_refused(either):
    training = either()
    clipped = training.trainer.computation.compute_cohort

    def leaky(local_step, changes, clip):
        found = clipped(local_step, changes, clip)
        training.weights.add_(1e-3 * found.answer.values[0].to(training.weights.dtype))
        return found

    training.trainer.computation.compute_cohort = leaky
    with pytest.raises(ReleaseError, match="changed outside the server step"):
        training.play(sigma=1.0)


def test_a_server_step_takes_nothing_private(either):
    training = either()
    before = training.weights.clone()
    with pytest.raises(ReleaseError, match="the server step takes released or public values"):
        training.trainer.server.apply(np.array([0]), torch.ones(1, len(before)))
    assert torch.equal(training.weights, before)
    training.trainer.server.apply(np.array([0]), Public(torch.ones(1, len(before))))
    assert not torch.equal(training.weights, before)


# ---- what a schedule asks of the clients


class Asking(ConstantNoise):
    """It asks for the clients' losses after each round."""

    @property
    def loss_query(self) -> LossQuery:
        return LossQuery(GaussianQuery(TRAINING_LOSS, LOSS_NOISE, replaced=1.0), LOSS_BOUND)


ALIKE_OR_NOT = {
    "all alike": lambda: DpFl("alike", 0.5, optimizer="sgd"),
    "lots of fixed size": lambda: DpFl("fixed", 0.5, sampling="fixed_size", optimizer="sgd"),
    "noise by records": lambda: NaseriLdp("naseri_ldp", 0.5, noise="as_printed"),
}


@pytest.mark.parametrize("name", ALIKE_OR_NOT)
def test_losses_asked_on_all_records_are_charged_to_every_client_however_it_samples(
    name, computation, ragged
):
    """Clients of several groups answer one query; the sample of the upload does not have it."""
    algorithm = ALIKE_OR_NOT[name]()
    training = computation(algorithm=algorithm, data=ragged)
    context = training.context
    schedule = Asking(2.0)
    mechanism = Mechanism(algorithm, context.clipper, schedule)
    mechanism.join(ragged.records_per_client)
    opened = mechanism.open(mechanism.announce(0), training.everyone, context.streams)
    training.trainer.round(opened)
    announced = [group.after for group in mechanism.announce(0).groups if group.after is not None]
    assert announced
    assert all(sample.times == 1 for sample in announced)
    reported = ReportedLoss(context, schedule.loss_query, algorithm.unit).ask(opened)
    assert np.isfinite(reported.values)
    losses = [r for r in opened.close() if r.joint.names == {TRAINING_LOSS}]
    assert sorted(np.concatenate([r.clients for r in losses])) == training.everyone.tolist()
    for release in losses:
        own = LOSS_BOUND / ragged.records_per_client[release.clients]
        np.testing.assert_allclose(release.sensitivity[TRAINING_LOSS], own)
        np.testing.assert_allclose(release.noise_std[TRAINING_LOSS], LOSS_NOISE * own)
