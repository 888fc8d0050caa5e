"""Further mistakes, which nobody listed beforehand."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from dp_accounting import dp_event
from planted import CLIENTS, RECORDS

from fedpriv.algorithms import run_context
from fedpriv.algorithms.base import UnsampledReports
from fedpriv.algorithms.trainer import Trainer
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.experiment.loop import Loop
from fedpriv.privacy.clippers import quantile
from fedpriv.privacy.clippers.step_clip import ChunkClip
from fedpriv.privacy.core.sampling import PoissonSampling, sample_lot
from fedpriv.privacy.core.trust import Trust
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import GaussianQuery, Public, joint
from fedpriv.privacy.mechanisms.bounded import bounded_sum

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("unpublished")]
REPORTS = ("algorithm=ldp_fedsgd", "partition.clients=6", "noise_schedule=constant")
QUERIES = (*CLIENTS, "clipper=quantile", "clipper.initial_clip_norm=0.1", "clipper.bit_noise=8")


@pytest.fixture(autouse=True)
def events_made_anew():
    joint._event.cache_clear()
    yield
    joint._event.cache_clear()


def about(found: list[str], *kinds: str) -> bool:
    return all(any(one.startswith(kind) for one in found) for kind in kinds)


def test_reports_that_share_the_noise_of_one(caught, monkeypatch):
    monkeypatch.setattr(Trust, "shares", lambda self, by, reports: 1)
    assert about(caught(*REPORTS), "noise: std of gradient_sum")


def test_reports_charged_as_sampled_though_their_senders_are_seen(caught, monkeypatch):
    monkeypatch.setattr(UnsampledReports, "sampling_of", lambda self, records: PoissonSampling(0.5))
    found = caught(*REPORTS, "accountant=rdp", "algorithm.clients_per_round=3")
    assert about(found, "sampling: cohorts")


@pytest.mark.parametrize("overrides", [RECORDS, CLIENTS])
def test_no_noise_on_what_is_empty(caught, monkeypatch, overrides):
    release = GaussianQuery.release

    def skipping(self, answer, noising):
        empty, exact = (answer.values == 0).all(dim=1), answer.values.clone()
        std = release(self, answer, noising)
        answer.values[empty] = exact[empty]
        return std

    monkeypatch.setattr(GaussianQuery, "release", skipping)
    assert about(caught(*overrides), "noise: the same with")


def test_lots_that_come_again_in_the_round_after_the_next(caught, monkeypatch):
    monkeypatch.setattr(
        run_context,
        "sample_lot",
        lambda streams, sampling, records, t, *place: sample_lot(
            streams, sampling, records, t % 2, *place
        ),
    )
    assert about(caught(*RECORDS, rounds=4), "sampling: lots: rounds")


def test_two_lots_that_are_noised_and_charged_as_one(caught):
    own = ("algorithm._target_=planted.OwnWork", "+algorithm.computation=TwoLotsAsOne")
    assert about(caught(*RECORDS, *own, rounds=8), "sensitivity: gradient_sum")


def test_a_client_that_counts_twice(caught):
    own = ("algorithm._target_=planted.OwnClientWork", "+algorithm.computation=CountsOneTwice")
    assert about(caught(*CLIENTS, *own), "sampling: cohorts: uploads")


def test_a_record_that_is_in_every_lot(caught):
    own = ("algorithm._target_=planted.OwnSampling", "+algorithm.how=AlwaysTheFirst")
    assert about(caught(*RECORDS, *own), "sampling: lots drawn alone: worst member")


@pytest.mark.parametrize(("overrides", "what"), [(RECORDS, "lots"), (CLIENTS, "cohorts")])
def test_a_rate_that_is_charged_by_half(caught, monkeypatch, overrides, what):
    def halved(self, noise_multiplier):
        gaussian = dp_event.GaussianDpEvent(noise_multiplier)
        return dp_event.PoissonSampledDpEvent(self.sample_rate / 2, gaussian)

    monkeypatch.setattr(PoissonSampling, "event", halved)
    assert about(caught(*overrides), f"sampling: {what}: sizes")


def test_a_run_that_ends_by_the_exact_loss(caught, monkeypatch):
    one_round = Loop._round

    def ends(self, announced, eligible):
        opened, outcome, signal = one_round(self, announced, eligible)
        if outcome.train_loss < 2.25:
            self.settings = replace(self.settings, rounds=1)
        return opened, outcome, signal

    monkeypatch.setattr(Loop, "_round", ends)
    assert about(caught(*CLIENTS), "outside: with one client changed")


def test_a_schedule_that_hears_the_exact_loss(caught, monkeypatch):
    computation = Trainer.round

    def remembered(self, opened):
        outcome = computation(self, opened)
        self.last = outcome.train_loss
        return outcome

    monkeypatch.setattr(Trainer, "round", remembered)
    monkeypatch.setattr(Loop, "_release_signal", lambda self, opened: Public(self.trainer.last))
    assert about(caught(*RECORDS), "outside: with one record changed")


def test_a_ledger_that_forgets(caught, monkeypatch):
    record, seen = Ledger.record, []

    def every_other(self, release, claimed=None):
        seen.append(release)
        if len(seen) % 2:
            record(self, release, claimed)

    monkeypatch.setattr(Ledger, "record", every_other)
    assert "charge: gradient_sum in the ledger" in caught(*CLIENTS)


@pytest.mark.parametrize(
    "event",
    [
        lambda own: own.sampling.event(own.query("gradient_sum").noise_multiplier),
        lambda own: own.sampling.event(
            1.05 * joint.joint_noise_multiplier(joint._multipliers(own))
        ),
        lambda own: dp_event.ComposedDpEvent(
            tuple(own.sampling.event(query.noise_multiplier) for query in own.queries)
        ),
    ],
)
def test_an_event_that_is_too_cheap_for_its_queries(caught, monkeypatch, event):
    monkeypatch.setattr(joint.JointQuery, "event", event)
    assert caught(*QUERIES) == ["charge: event ÷ its queries"]


@pytest.mark.parametrize("overrides", [RECORDS, CLIENTS])
def test_a_norm_that_is_three_percent_too_large(caught, monkeypatch, overrides):
    factors = ChunkClip.factors
    monkeypatch.setattr(ChunkClip, "factors", lambda *own: 1.03 * factors(*own))
    assert about(caught(*overrides), "sensitivity: gradient_sum")


def test_a_statistic_that_moves_twice_as_far(caught, monkeypatch):
    def doubled(values, at_most, owners):
        answer = bounded_sum(2 * values, 2 * at_most, owners)
        answer.sensitivity = at_most
        return answer

    monkeypatch.setattr(quantile, "bounded_sum", doubled)
    assert about(caught(*QUERIES), "sensitivity: clip_statistic")


def test_noise_of_a_generator_with_a_seed_of_its_own(caught, monkeypatch):
    def fixed(self, answer, noising):
        stream = torch.Generator().manual_seed(1)
        std = answer.sensitivity.double() * self.noise_multiplier / answer.divided_by
        noise = torch.randn(answer.values.shape, generator=stream, dtype=torch.float64)
        answer.values.add_(noise * std[:, None])
        return std * answer.divided_by

    monkeypatch.setattr(GaussianQuery, "release", fixed)
    assert about(caught(*CLIENTS), "noise: std of gradient_sum")


def test_noise_of_the_process_and_not_of_the_run(caught, monkeypatch):
    def of_torch(self, answer, noising):
        std = answer.sensitivity.double() * self.noise_multiplier / answer.divided_by
        answer.values.add_(torch.randn(answer.values.shape, dtype=torch.float64) * std[:, None])
        return std * answer.divided_by

    monkeypatch.setattr(GaussianQuery, "release", of_torch)
    assert about(caught(*CLIENTS), "noise: the same run again")


def test_runs_that_all_have_the_noise_of_their_seed(caught, monkeypatch):
    simulated = SecretStreams.simulated.__func__
    monkeypatch.setattr(
        SecretStreams,
        "simulated",
        classmethod(lambda cls, seed, noise_seed, run="": simulated(cls, seed, noise_seed)),
    )
    assert about(caught(*RECORDS), "independence: of two runs: another T", "independence: of runs")


def test_published_runs_that_do_not_use_their_key(caught, monkeypatch):
    of_run = SecretStreams.of_run.__func__
    monkeypatch.setattr(
        SecretStreams, "of_run", classmethod(lambda cls, root, run: of_run(cls, bytes(32), run))
    )
    assert about(caught(*RECORDS), "independence: of runs")
