"""Planted faults of the release of feature statistics, and what it does not go with."""

from __future__ import annotations

import pytest
from feature_runs import FEATURES, NORMALIZED, RUNS

import fedpriv
from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.loop import Loop
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import OpenRound

pytestmark = pytest.mark.usefixtures("cache_of_module")


# ---- planted faults


def test_planted_the_charge_is_left_out(train, monkeypatch):
    monkeypatch.setattr(Budget, "charge_before", lambda *_: None)
    with pytest.raises(
        ReleaseError, match=r"every client must be charged for feature_statistics=4"
    ):
        train(*RUNS["distributed"])


def test_planted_the_release_is_left_out(train, monkeypatch):
    monkeypatch.setattr(Loop, "_release_statistics", lambda *_: None)
    with pytest.raises(
        ReleaseError, match=r"every client must be charged for feature_statistics=4"
    ):
        train(*RUNS["distributed"])


def test_planted_the_record_of_the_release_is_empty(train, monkeypatch):
    closed = OpenRound.close
    monkeypatch.setattr(
        OpenRound, "close", lambda self: closed(self) if self.announcement.before else ()
    )
    with pytest.raises(ReleaseError, match="every client must be charged"):
        train(*RUNS["distributed"])


# ---- what is refused


NORMALIZATION = "features.normalization must be groups, statistics or none with algorithm="


MULTIPLIER = "features.statistics_noise_multiplier must be "


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("algorithm=dp_scaffold",), NORMALIZATION + "dp_scaffold, got released"),
        (
            ("algorithm=dp_fl", "warm_start.records=public"),
            "warm_start.records must be null with features.normalization=released, got public",
        ),
        (("algorithm=adap_dpfl",), "noise_schedule=validation_decay does not go with"),
        (("algorithm=dp_fl", "budget_view=published"), "budget_view must be sound, got published"),
        (("algorithm=fedavg",), NORMALIZATION + "fedavg, got released"),
        (("algorithm=ddp_fedavg", "noise_schedule=constant"), NORMALIZATION + "ddp_fedavg"),
        (
            ("algorithm.shares=skellam", "algorithm.sample_rate=1"),
            "algorithm.shares must be continuous, got skellam",
        ),
        (("algorithm.clients_per_round=5",), "algorithm.clients_per_round must be null, got 5"),
        (
            ("algorithm.dropout=0.1", "algorithm.tolerated_dropouts=2"),
            "algorithm.dropout must be 0, got 0.1",
        ),
        (
            ("noise_schedule=validation_decay", "accountant=rdp"),
            "noise_schedule=validation_decay does not go with",
        ),
        (
            ("noise_schedule=validation_decay", "noise_schedule.beta=1"),
            "noise_schedule=validation_decay does not go with",
        ),
        (
            ("noise_schedule=uniform_budget", "noise_schedule.epsilon=2", "accountant=gdp"),
            "noise_schedule=uniform_budget does not go with",
        ),
        (
            ("noise_schedule=calibrated", "noise_schedule.epsilon_per_draw=1"),
            "noise_schedule.epsilon_per_draw must be null, got 1",
        ),
        (("features.statistics_noise_multiplier=0",), MULTIPLIER + "> 0 and <= 1e.06, got 0"),
        (("features.statistics_noise_multiplier=null",), MULTIPLIER + "a number > 0"),
        (("features.statistics_clip_norm=null",), "features.statistics_clip_norm must be a number"),
        (
            ("features.normalization=groups", "features.groups=1"),
            MULTIPLIER + "null unless normalization=released, got 4",
        ),
        (
            ("features.statistics=other",),
            "features.statistics must be null: there are statistics of the default sizes",
        ),
    ],
)
def test_what_it_does_not_go_with_is_refused_in_a_sentence(overrides, sentence):
    settings = ("algorithm=dp_fl_server", "epsilon=null", "rounds=4", *NORMALIZED)
    config = fedpriv.compose([*FEATURES, *settings, *overrides])
    with pytest.raises(ConfigError, match=sentence):
        build_parts(config)


def test_attacks_and_canaries_are_refused(command):
    attacked = command("train", *RUNS["local"], "attack=backdoor", "attack.trigger=feature")
    assert attacked.status == 2
    audited = command("train", *RUNS["local"], "audit=epsilon")
    assert "audit of epsilon does not go with algorithm=dp_fl_server" in audited.sentence
    audited = command("train", *RUNS["dp_fl"], "audit=epsilon")
    words = "audit of epsilon does not go with features.normalization=released"
    assert words in audited.sentence
