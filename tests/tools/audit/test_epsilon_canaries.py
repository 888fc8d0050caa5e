"""Canaries in real trainings: what an auditor sees is what the ledger charges for, and faults stand out."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
import torch

from fedpriv.attacks.canaries import marked
from fedpriv.common import config as configuration
from fedpriv.privacy.clippers.step_clip import ChunkClip
from fedpriv.privacy.mechanisms import GaussianQuery
from fedpriv.store.canary_file import FINAL, RELEASES
from fedpriv.tools.audit.epsilon_evaluate import AuditSetup, one_run_bound
from fedpriv.tools.audit.epsilon_families import gaussian_epsilon
from fedpriv.tools.audit.epsilon_trial import pooled, train_apart, train_with_canaries

TINY = (
    "dataset=digits", "epsilon=null", "noise_schedule=constant", "model.hidden=null", "accountant=rdp",
)  # fmt: skip


def compose(*overrides: str):
    known = [o for o in TINY if "model.hidden" not in o]
    return configuration.compose([*known, *overrides])


def trial(*overrides: str, canaries: int = 400, rounds: int = 2, seed: int = 0):
    return train_with_canaries(compose(*overrides, f"rounds={rounds}"), canaries, rounds, seed)


WHOLE = {
    "records of clients": ("algorithm=dp_fl", "algorithm.sample_rate=1"),
    "two local steps": ("algorithm=dp_fl", "algorithm.sample_rate=1", "algorithm.local_steps=2"),
    "one linear layer": ("algorithm=dp_fl", "algorithm.sample_rate=1", "model=logistic"),
    "replaced records": ("algorithm=wei_cdp",),
    "clients of a server": ("algorithm=cdp_fedavg", "algorithm.client_rate=1"),
}
APART = {
    "weights": ("algorithm=wei_cdp", "algorithm.sensitivity=weights"),
    "single uploads": ("algorithm=ldp_fedsgd",),
    "a record": ("algorithm=dp_fl", "algorithm.sample_rate=1"),
    "a client of a server": ("algorithm=cdp_fedavg", "algorithm.client_rate=1"),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", [*WHOLE, *APART])
def test_scores_of_whole_data_are_those_of_the_ledgers_gaussian(name):
    """Log-likelihood ratios of two Gaussians μ apart are N(±μ²/2, μ²)."""
    if name in WHOLE:
        found = trial(*WHOLE[name], "noise_schedule.noise_multiplier=2")
    else:
        config = compose(*APART[name], "noise_schedule.noise_multiplier=2", "rounds=2")
        found = train_apart(config, 80, 2, 0)
    (kind,) = found.released
    steps = found.released[kind]
    mu = math.sqrt(steps) / kind.noise_multiplier * (2 if kind.signed else 1)
    scores = found.scores[RELEASES]
    for coin, sign in ((True, 1), (False, -1)):
        own = scores.values[scores.included == coin]
        assert own.mean() == pytest.approx(sign * mu**2 / 2, abs=5 * mu / math.sqrt(len(own)))
        assert own.std() == pytest.approx(mu, rel=5 / math.sqrt(2 * len(own)))


def test_the_scores_are_independent_of_one_another():
    found = trial(*WHOLE["records of clients"], "noise_schedule.noise_multiplier=3", canaries=1000)
    scores = found.scores[RELEASES]
    noise = scores.values - np.where(scores.included, 1, -1) * (2 / 9 / 2)
    correlation = np.corrcoef(noise[:-1], noise[1:])[0, 1]
    assert abs(correlation) < 5 / math.sqrt(1000)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("overrides", "rounds"),
    [
        (("algorithm=dp_fl", "algorithm.sample_rate=0.3"), 6),
        (("algorithm=dp_fl", "algorithm.sample_rate=0.3", "algorithm.sampling=fixed_size"), 6),
        (("algorithm=cdp_fedavg", "algorithm.client_rate=0.3"), 6),
        (("algorithm=naseri_ldp", "algorithm.sample_rate=0.3"), 2),
        (("algorithm=adap_dpfl",), 6),
    ],
)
def test_sampled_canaries_are_found_too(overrides, rounds):
    found = trial(*overrides, "noise_schedule.noise_multiplier=0.3", rounds=rounds, canaries=250)
    scores = found.scores[RELEASES]
    assert scores.values[scores.included].mean() > scores.values[~scores.included].mean()
    setup = AuditSetup(1e-5, 0.95, found.independent, found.released)
    assert one_run_bound(scores, setup.delta, setup.significance) > 0.5


def test_without_canaries_included_or_not_the_sizes_are_the_same():
    """What is public (denominators, sample rates) does not tell the coins."""
    from fedpriv.experiment.assemble import make_context
    from fedpriv.experiment.build import build_parts

    found = []
    for seed in (0, 1):
        parts = build_parts(compose("algorithm=dp_fl", "rounds=1"))
        context = make_context(parts, torch.device("cpu"), 50, seed)
        found.append(context)
        mine = context.canaries.canaries
        there = sum(len(context.records_of(0, k)) for k in range(context.data.client_count))
        assert there == len(context.data.train) - int((~mine.coins).sum())
    assert (found[0].data.records_per_client == found[1].data.records_per_client).all()
    assert (found[0].canaries.canaries.coins != found[1].canaries.canaries.coins).any()


def test_marks_are_read_back_and_no_record_has_one():
    from fedpriv.attacks.canaries import make_canaries
    from fedpriv.experiment.assemble import make_context
    from fedpriv.experiment.build import build_parts

    data = make_context(
        build_parts(compose("algorithm=dp_fl", "rounds=1")), torch.device("cpu")
    ).data
    made = make_canaries(
        data, count=700, unit="record", neighbours="add_or_remove", size=650, seed=0
    )
    found = marked(made.data.train.inputs)
    assert (found[: len(data.train)] == -1).all()
    assert (found[len(data.train) :] == torch.arange(700)).all()
    for home in np.unique(made.homes):  # two of one upload have no weight in common
        own = made.coordinates[made.homes == home]
        assert len(set(own.tolist())) == len(own)


def test_canary_clients_have_losses_like_any_others(ran):
    run = ran("algorithm=cdp_fedavg", "rounds=2", "audit=epsilon:20")
    metrics = pd.read_csv(run.folder / "metrics.csv")
    assert (metrics["train_loss"].dropna() < 10).all()


def test_trials_are_pooled():
    one = trial(*WHOLE["records of clients"], canaries=20, rounds=1)
    other = trial(*WHOLE["records of clients"], canaries=20, rounds=1, seed=1)
    both = pooled([one, other])
    assert len(both.scores[RELEASES]) == len(both.scores[FINAL]) == 40
    assert (one.scores[RELEASES].values != other.scores[RELEASES].values).all()


# ---- faults: the bound is above what the ledger charges


FAULTLESS = (*WHOLE["records of clients"], "noise_schedule.noise_multiplier=8")
CHARGED = gaussian_epsilon(math.sqrt(20) / 8, 1e-5)


def bound(found) -> float:
    return one_run_bound(found.scores[RELEASES], 1e-5, 0.05)


def test_no_fault_no_refutation():
    found = trial(*FAULTLESS, rounds=20, canaries=1000)
    assert 0.3 < bound(found) < CHARGED


def test_without_clipping_canaries_stand_out(monkeypatch):
    monkeypatch.setattr(ChunkClip, "factors", lambda self, norms, owners: norms * 0 + self._mark())
    monkeypatch.setattr(
        ChunkClip, "_mark", lambda self: setattr(self, "scaled", True) or 1.0, raising=False
    )
    for name in ("records of clients", "clients of a server"):
        found = trial(*WHOLE[name], "noise_schedule.noise_multiplier=8")
        assert bound(found) > 4


@pytest.mark.parametrize("divisor", [math.sqrt(10), 100.0])
def test_less_noise_than_is_charged_for_is_found(monkeypatch, divisor):
    """Such as a share of 1/√K of a sum that nobody adds up. The mechanism is told that it was enough."""
    plain = GaussianQuery.release

    def release(self, answer, noise):
        before = answer.values.clone()
        std = plain(self, answer, noise)
        answer.values.copy_(before + (answer.values - before) / divisor)
        return std

    monkeypatch.setattr(GaussianQuery, "release", release)
    found = trial(*FAULTLESS, rounds=20, canaries=1000)
    assert bound(found) > CHARGED
