"""Runs whose models hold statistics that were released before the first round."""

from __future__ import annotations

import pytest
import torch

from fedpriv.tools.audit.membership import choose
from fedpriv.tools.audit.request import MembershipOptions
from fedpriv.tools.audit.shadow_runs import Training, pool_outside, shadow_runs, signals_of
from fedpriv.tools.audit.subject import open_run

RELEASED = (
    "algorithm=dp_fl_server", "dataset=digits", "features=scattering", "features.scales=1",
    "features.angles=4", "features.normalization=released", "features.statistics_noise_multiplier=4",
    "features.statistics_clip_norm=0.5", "model=logistic", "epsilon=null", "rounds=2",
    "partition=fixed_size", "partition.clients=4", "partition.records=100",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


def test_the_model_of_a_run_that_has_ended_or_not_normalizes_with_them(ran, train, tmp_path):
    stored = torch.load(ran(*RELEASED).folder / "model.pt")
    stop = tmp_path / "stop"
    stop.touch()
    stopped = train(*RELEASED, f"runtime.stop_file={stop}")
    (stopped.folder / "summary.json").unlink()
    for folder in (ran(*RELEASED).folder, stopped.folder):
        layer = open_run(folder).context.model.module
        assert torch.equal(layer.mean, stored["mean"])
        assert torch.equal(layer.variance, stored["variance"])


def test_shadow_models_are_looked_at_with_their_own_and_the_run_keeps_its(ran, tmp_path):
    subject = open_run(ran(*RELEASED).folder)
    layer = subject.context.model.module
    before = layer.mean.clone()
    options = MembershipOptions(shadows=2, shadow_runs=str(tmp_path), nonmembers="held_out")
    pool = pool_outside(subject, options)
    candidates = choose(subject, options.nonmembers, options.records, options.seed, pool)
    runs = shadow_runs(subject, options, Training())
    signals = signals_of(subject, candidates, runs, options)
    assert torch.equal(layer.mean, before)
    shadow = open_run(runs[0].folder.path)
    assert not torch.equal(shadow.context.model.module.mean, before)
    from fedpriv.tools.audit.records import log_odds, records_at

    asked = records_at(subject.context.data, candidates.numbers)
    own = log_odds(shadow.context.model, shadow.final, asked)
    assert signals.shadows[0] == pytest.approx(own, abs=1e-6)


def test_an_audit_of_epsilon_is_refused_after_the_run_too(ran, command):
    run = ran(*RELEASED, "algorithm=dp_fl", "noise_schedule.noise_multiplier=3").folder
    words = "an audit of epsilon does not go with features.normalization=released"
    assert words in command("audit", "epsilon", str(run)).sentence
