"""Holes that reviewers of the mechanisms found, each as it was reproduced."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import dp_event

import fedpriv
from fedpriv.algorithms import CdpFedAvg, LdpFedSgd, wei_cdp
from fedpriv.common.errors import ConfigError, DataError, ReleaseError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.data.digits import Digits
from fedpriv.data.federated import federate
from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.budget import Adaptation, Budget, Target
from fedpriv.privacy.clippers import ConstantClipper, MedianHistogramClipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.core.events import parse_event
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.core.sampling import PoissonSampling, WholeData
from fedpriv.privacy.mechanisms import GRADIENT, GaussianQuery, JointQuery, Mechanism, Query
from fedpriv.privacy.noise_schedules import ConstantNoise, NoiseSchedule


def test_the_bound_of_an_adaptive_schedule_counts_what_a_clipper_asks_in_later_rounds(train):
    """Round 0 asks nothing where histograms come every other round."""
    result = train(
        "algorithm=wei_crd", "dataset=digits", "algorithm.sensitivity=update", "partition.clients=5",
        "rounds=20", "epsilon=null", "noise_schedule.epsilon=5", "clipper=median_histogram",
        "clipper.updates=10", "clipper.epsilon=50", "clipper.delta=0.01",
    )  # fmt: skip
    ledger = pd.read_csv(result.folder / "ledger.csv")
    events = [parse_event(text) for text in ledger["event_sound"]]
    spent = dict(zip(events, ledger["draws_per_client"], strict=True))
    composed = GdpAccountant().epsilon_of(spent, 0.01, REPLACE_ONE)
    privacy = json.loads((result.folder / "privacy.json").read_text())
    assert composed > 20  # the histograms are nearly without noise
    assert privacy["epsilon_sound"] >= composed


@pytest.mark.thorough
def test_attackers_do_not_prolong_a_run_whose_theorem_charges_everyone(train):
    """The theorem charges all clients in every round, also in one in which attackers alone take part."""
    settings = (
        "algorithm=wei_cdp", "partition.clients=8", "algorithm.clients_per_round=2", "rounds=400",
        "epsilon=3", "budget_view=published", "accountant=published", "noise_schedule=constant",
        "noise_schedule.noise_multiplier=8",
    )  # fmt: skip
    rounds = []
    for name, attack in (("honest", ()), ("attacked", ("attack=label_flip", "attack.attackers=2",
                         "attack.trigger.writers=4"))):  # fmt: skip
        result = train(*settings, *attack, name=name)
        summary = json.loads((result.folder / "summary.json").read_text())
        ledger = pd.read_csv(result.folder / "ledger.csv")
        rounds.append(summary["rounds"])
        assert set(ledger["claimed_of_everyone"]) == {summary["rounds"]}
        assert summary["epsilon_published"] <= 3
    assert rounds[0] == rounds[1]


class Laplace(Query):
    """A family that fedpriv has not."""

    name, by, replaced, protects = "clip_statistic", "client", 2.0, True

    def event(self):
        return dp_event.LaplaceDpEvent(0.001)

    def noised_by(self, by):
        return self

    def release(self, answer, noise):
        return None

    def describe(self):
        return "clip_statistic=laplace(0.001)"


def test_noise_of_another_family_is_charged_or_refused():
    queries = (GaussianQuery(GRADIENT, 1.0), Laplace())
    whole = JointQuery(WholeData(), queries).event()
    assert whole == dp_event.ComposedDpEvent(
        (dp_event.GaussianDpEvent(1.0), dp_event.LaplaceDpEvent(0.001))
    )
    with pytest.raises(ConfigError, match=r"laplace.* on a sampled lot has no known privacy cost"):
        JointQuery(PoissonSampling(0.1), queries).event()


class Realised(CdpFedAvg):
    def denominator(self, cohort, clients):
        return float(max(1, cohort))


def test_a_denominator_that_tells_how_many_took_part_is_refused(monkeypatch, tmp_path):
    monkeypatch.setattr("fedpriv.algorithms.CdpFedAvg", Realised)
    with pytest.raises(ConfigError, match="denominator depends on how many take part"):
        fedpriv.run(
            fedpriv.compose(
                ["algorithm=cdp_fedavg", "rounds=1", "runtime.progress=none",
                 "runtime.plots=false", f"runtime.run_dir={tmp_path / 'run'}"]
            )
        )  # fmt: skip


def test_two_steps_of_a_cohort_have_noise_of_their_own():
    algorithm = LdpFedSgd("ldp_fedsgd", 1.0)
    algorithm.samples_per_round = 2
    of = algorithm.mechanism(ConstantClipper(1.0), ConstantNoise(2.0))
    of.join([10, 10])
    run = of.open(of.announce(0), np.arange(2), SecretStreams.simulated(0, 0))
    of.clipper.start(1, "cpu", None)
    found = []
    for _ in range(2):
        clip = StepClip(of.clipper, 0, torch.zeros(1, dtype=torch.long))
        answer = clip.bounded(torch.zeros(1, 50, dtype=torch.float64))
        found.append(run.release({GRADIENT: answer})[GRADIENT].values)
    assert not torch.isclose(*found).any()


class Growing(Mechanism):
    """One whose releases depend on the round."""

    def joint(self, sampling, noise_multiplier, round_index):
        return super().joint(sampling, noise_multiplier / (1 + round_index), round_index)


def test_what_is_announced_is_of_the_round():
    of = Growing(wei_cdp("wei_cdp"), ConstantClipper(1.0), ConstantNoise(8.0))
    of.join([10, 10])
    found = [of.announce(t).groups[0].upload.joint.query(GRADIENT) for t in range(3)]
    assert [query.noise_multiplier for query in found] == [8.0, 4.0, 8.0 / 3]


class Falls(NoiseSchedule):
    """Follows the loss; ``says``: whether it says so."""

    reads_validation = True

    def __init__(self, says: bool):
        self.adaptive, self.sigma = says, 4.0

    def noise_multiplier(self, round_index):
        return self.sigma

    def observe(self, round_index, loss):
        self.sigma *= 0.9


def test_a_schedule_that_follows_what_it_observes_must_say_so():
    of = wei_cdp("wei_cdp").mechanism(ConstantClipper(1.0), Falls(False))
    of.join([10, 10])
    of.announce(0)
    of.schedule.observe(0, None)
    with pytest.raises(ReleaseError, match="sets adaptive = True"):
        of.announce(1)


def test_a_schedule_that_does_not_say_how_low_it_falls_has_no_sound_epsilon_without_a_budget():
    schedule = Falls(True)
    of = wei_cdp("wei_cdp").mechanism(ConstantClipper(1.0), schedule)
    of.join([10, 10])
    assert not schedule.lowest_known
    spent = Budget(
        clients=2, target=Target(None, 1e-5, "sound", GdpAccountant()), claim=None,
        first=of.announce(0).groups[0], adaptation=Adaptation(None, schedule.lowest_known),
    )  # fmt: skip
    spent._took_part[:] = True
    assert np.isinf(spent.epsilon_sound()).all()


@pytest.mark.parametrize("sigma", [-4.0, float("nan"), float("inf"), None, "4"])
def test_a_noise_multiplier_that_is_none_is_named(sigma):
    class Bad(NoiseSchedule):
        def noise_multiplier(self, round_index):
            return sigma

    of = wei_cdp("wei_cdp").mechanism(ConstantClipper(1.0), Bad())
    with pytest.raises(ConfigError, match="noise_multiplier must return a finite number >= 0"):
        of.group(WholeData(REPLACE_ONE), sigma, 0)


@pytest.mark.parametrize("query", [20.0, GaussianQuery("my_tail", 20.0)])
def test_a_query_that_is_none_is_named(query):
    class Asks(ConstantClipper):
        def query(self, round_index, noise_multiplier):
            return query

    of = wei_cdp("wei_cdp").mechanism(Asks(1.0), ConstantNoise(4.0))
    with pytest.raises(ConfigError, match="a query named 'clip_statistic'"):
        of.group(WholeData(REPLACE_ONE), 4.0, 0)


@pytest.mark.parametrize("norms", [1.0, torch.ones(1), None])
def test_a_clip_norm_that_is_not_one_for_each_holder_is_named(norms):
    class Bad(MedianHistogramClipper):
        def clip_norm(self, round_index, holders):
            return norms

    clipper = Bad(1.0, update_interval=1, updates=1)
    with pytest.raises(ReleaseError, match="one number for each of 3 holders"):
        StepClip(clipper, 0, torch.arange(3))


@pytest.mark.parametrize(
    ("clients", "sentence"),
    [
        ([np.array([0, 1]), np.array([1, 2])], "each record to one client at most"),
        ([np.array([0, 1]), np.array([], dtype=int)], "give every client a record"),
        ([np.array([0, 10**6])], "give indices from 0 to"),
    ],
)
def test_a_record_is_at_one_client(clients, sentence):
    class Own:
        clients = None

        def assign(self, labels, client_ids=None):
            return dealt

    dealt = clients
    with pytest.raises(DataError, match=sentence):
        federate(Digits(), Own(), validation=False, seed=0)
