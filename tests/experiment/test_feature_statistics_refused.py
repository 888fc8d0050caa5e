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


MULTIPLIER = "features.statistics_noise_multiplier must be "


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
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
def test_a_wrong_key_is_refused_in_a_sentence(overrides, sentence):
    settings = ("algorithm=dp_fl_server", "epsilon=null", "rounds=4", *NORMALIZED)
    config = fedpriv.compose([*FEATURES, *settings, *overrides])
    with pytest.raises(ConfigError, match=sentence):
        build_parts(config)
