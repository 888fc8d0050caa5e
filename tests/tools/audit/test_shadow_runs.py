"""Shadow runs: trained once, found again, gone on with; what they find of a run."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

import fedpriv
from fedpriv.common.config import flatten
from fedpriv.common.errors import ConfigError, Interrupted
from fedpriv.data.names import Shadow
from fedpriv.engine import cross_entropy
from fedpriv.experiment.settings import read_settings
from fedpriv.tools.audit.membership import audit_membership
from fedpriv.tools.audit.records import log_odds
from fedpriv.tools.audit.request import MembershipOptions, wanted
from fedpriv.tools.audit.shadow_runs import Training, shadow_configuration, shadow_runs
from fedpriv.tools.audit.subject import open_run

TINY = (
    "dataset=digits", "model=mlp", "model.hidden=64", "partition=fixed_size", "partition.clients=6",
    "partition.records=100", "evaluation_interval=100",
)  # fmt: skip
BY_HEART = (
    *TINY, "algorithm=fedavg", "algorithm.optimizer=adam", "algorithm.learning_rate=0.02",
    "algorithm.sample_rate=0.2", "algorithm.local_steps=10", "rounds=10",
)  # fmt: skip


def options(shadows: int, store: Path, **more) -> MembershipOptions:
    more = {"nonmembers": "held_out", **more}
    return MembershipOptions(shadows=shadows, shadow_runs=str(store), **more)


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture
def by_heart(ran) -> Path:
    return ran(*BY_HEART).folder


@pytest.fixture
def brief(ran) -> Path:
    """A run of which it does not matter what it learnt."""
    return ran(*TINY, "algorithm=fedavg", "rounds=1").folder


def aucs(audit) -> dict[str, float]:
    return {outcome.attack: outcome.auc for outcome in audit.outcomes}


@pytest.mark.thorough
def test_lira_finds_more_than_the_loss_in_what_was_learnt_by_heart(by_heart, store):
    audit = audit_membership(open_run(by_heart), options(8, store))
    found = aucs(audit)
    assert found["lira"].low > 0.5
    assert found["lira"].value > found["loss"].value + 0.03
    assert found["rmia"].low > 0.5
    assert audit.shadows.records == audit.shadows.records_of_run == 600
    assert audit.shadows.population > 100
    written = json.loads(json.dumps(audit.as_json()))
    assert list(written["attacks"]) == [
        "loss", "calibrated", "white_box", "lira", "lira_offline", "rmia", "rmia_offline",
    ]  # fmt: skip
    assert len(written["shadows"]["runs"]) == 8


@pytest.mark.thorough
def test_a_second_audit_trains_only_what_is_missing(by_heart, tmp_path):
    said: list[str] = []

    def models() -> dict[Path, int]:
        return {path: path.stat().st_mtime_ns for path in tmp_path.glob("*/model.pt")}

    subject = open_run(by_heart)
    shadow_runs(subject, options(4, tmp_path), Training())
    before = models()
    shadow_runs(subject, options(6, tmp_path), Training(said.append))
    assert said[0].startswith("6 shadow runs, 4 done, in ")
    assert before.items() <= models().items()


def test_an_interrupted_one_goes_on(brief, tmp_path):
    stop = tmp_path / "stop"
    said: list[str] = []

    def say(line: str) -> None:
        said.append(line)
        if line == "shadow run 1 of 4 done":
            stop.touch()

    subject, asked = open_run(brief), options(4, tmp_path / "runs")
    with pytest.raises(Interrupted, match="the same command goes on"):
        shadow_runs(subject, asked, Training(say, stop_file=str(stop)))
    assert said[1:] == ["shadow run 1 of 4 done"]
    stop.unlink()
    assert len(shadow_runs(subject, asked, Training(said.append))) == 4
    assert said[2].startswith("4 shadow runs, 1 done, in ")
    assert said[-1] == "shadow run 4 of 4 done"


@pytest.mark.thorough
def test_a_shadow_run_is_the_run_with_other_seeds_and_data(by_heart):
    subject = open_run(by_heart)
    given = flatten(OmegaConf.to_container(subject.config))
    other = flatten(OmegaConf.to_container(shadow_configuration(subject, Shadow(3, "test", 0))))
    changed = {key for key in other if not key.startswith(("runtime.", "shadow"))}
    changed = {key for key in changed if other[key] != given[key]}
    assert changed == {"seed", "noise_seed", "model.seed"}
    assert other["partition.seed"] == given["partition.seed"]


def test_shadow_runs_of_a_paired_run_have_noise_of_their_own(ran):
    subject = open_run(ran(*TINY, "algorithm=dp_fl", "rounds=1", "paired=one").folder)
    shadows = [shadow_configuration(subject, Shadow(half, "test", 0)) for half in (0, 1)]
    assert subject.config.paired == "one"
    assert [config.paired for config in shadows] == [None, None]
    assert len({subject.config.noise_seed, *(config.noise_seed for config in shadows)}) == 3
    assert read_settings(shadows[0]).paired is None
    shadows[0].paired = "one"
    with pytest.raises(ConfigError, match=r"^paired must be"):
        read_settings(shadows[0])


@pytest.mark.thorough
def test_non_members_of_the_test_set_are_half_of_what_shadow_runs_train_on(brief, tmp_path):
    audit = audit_membership(open_run(brief), options(4, tmp_path, nonmembers="test", records=100))
    assert audit.each == 100
    assert audit.shadows.records == (600 + 360) // 2
    assert any("480 records and the run on 600" in words for words in audit.warnings)


@pytest.mark.thorough
def test_what_a_shadow_run_trains_on_is_what_the_audit_takes_it_to(by_heart, store):
    runs = shadow_runs(open_run(by_heart), options(4, store), Training())
    shadow = open_run(runs[2].folder.path)
    data = shadow.context.data
    trained = runs[2].trained_on()
    np.testing.assert_array_equal(np.sort(trained), np.sort(np.concatenate(data.clients)))
    odds = log_odds(shadow.context.model, shadow.final, data.train)
    inside = np.isin(np.arange(len(odds)), trained)
    assert (odds[inside] < 0).mean() < 0.01 < (odds[~inside] < 0).mean()
    with pytest.raises(ConfigError, match="is a shadow run, part of an audit"):
        audit_membership(shadow, options(0, store))


def test_log_odds_are_told_apart_where_the_probability_is_one(by_heart):
    subject = open_run(by_heart)
    model, data = subject.context.model, subject.context.data
    few = data.train.subset(data.clients[0])
    seen = log_odds(model, 20 * subject.final, few)
    assert np.isfinite(seen).all()
    assert len(np.unique(seen)) > 90
    mild = log_odds(model, 0.1 * subject.final, few)
    p = torch.softmax(model(few.inputs).double(), 1).gather(1, few.targets[:, None])[:, 0]
    np.testing.assert_allclose(mild, torch.logit(p).detach().numpy(), rtol=1e-5)


def test_a_model_with_a_loss_of_its_own_has_odds_of_it(by_heart, monkeypatch):
    subject = open_run(by_heart)
    model = subject.context.model
    few = subject.context.data.test.subset(np.arange(50))
    expected = log_odds(model, 0.1 * subject.final, few)
    monkeypatch.setattr(model, "loss", lambda outputs, targets: cross_entropy(outputs, targets))
    np.testing.assert_allclose(log_odds(model, 0.1 * subject.final, few), expected, rtol=1e-5)


def test_the_key_asks_for_shadow_runs():
    settings = read_settings(fedpriv.compose(["audit=membership:held_out:16"]))
    asked = MembershipOptions("held_out", shadows=16, shadow_runs="outputs/shadows")
    assert wanted(settings) == {"membership": asked}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--shadows", "5"), "--shadows must be 0 (no LiRA, no RMIA) or an even number from 4 to 64"),
        (("--shadows", "66"), "even number from 4 to 64, got 66"),
        (("--shadows", "x"), "even number from 4 to 64, got x"),
        (("--shadows", "-2"), "even number from 4 to 64, got -2"),
        (("--jobs", "0"), "--jobs must be a whole number >= 1, got 0"),
        (("--jobs", "1000"), " cores, got 1000"),
    ],
)  # fmt: skip
def test_a_bad_number_is_said_in_a_sentence(command, by_heart, arguments, words):
    outcome = command("audit", "membership", str(by_heart), *arguments)
    assert outcome.status == 2
    assert words in outcome.sentence


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("audit=membership:held_out:3",), "audit=membership:SET:SHADOWS must be 0"),
        (("audit=membership:held_out:x",), "audit=membership:SET:SHADOWS must be 0"),
        (("shadow=3",), "shadow must be null, or a group of the keys half, nonmembers, seed"),
        (("shadow={half:0,nonmembers:all,seed:0}",), "shadow.nonmembers must be one of test, held_out"),
        (("shadow={half:-1,nonmembers:test,seed:0}",), "shadow.half must be a whole number"),
        (("shadow={half:0,nonmembers:test,seed:0}", "publish=true"), "publish must be null with shadow"),
        (("shadow={half:0,nonmembers:test,seed:0}", "audit=membership"), "audit must be null with"),
    ],
)  # fmt: skip
def test_bad_keys_are_refused_before_the_run(command, settings, words):
    outcome = command("train", "dataset=digits", "dry_run=true", *settings)
    assert outcome.status == 2
    assert words in outcome.sentence


def test_runs_that_have_no_shadows_are_refused(ran, by_heart, command, tmp_path):
    attacked = ran(
        "dataset=digits", "partition=iid", "rounds=1", "algorithm=norm_bounding", "attack=pixel_pattern",
        "attack.trigger.size=2", "attack.attackers=3",
    ).folder  # fmt: skip
    outcome = command("audit", "membership", str(attacked), "--shadows", "4")
    assert (outcome.status, "without an attack" in outcome.sentence) == (2, True)
    subject = open_run(by_heart)
    subject.run = type(subject.run)(tmp_path)
    with pytest.raises(ConfigError, match="is not finished"):
        audit_membership(subject, options(4, tmp_path))


def test_without_shadow_runs_nothing_of_them_is_said(by_heart):
    audit = audit_membership(open_run(by_heart), MembershipOptions(records=60))
    assert list(aucs(audit)) == ["loss", "calibrated", "white_box"]
    assert audit.as_json()["shadows"] is None
