"""What is released before the first round is looked at as the releases of rounds are."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedpriv.algorithms import feature_statistics
from fedpriv.algorithms.feature_statistics import FeatureStatistics
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import FEATURE_STATISTICS
from fedpriv.privacy.mechanisms.shares import SharedGaussian
from fedpriv.tools.verify.table import failed

pytestmark = pytest.mark.usefixtures("unpublished")

RELEASED = (
    "algorithm=dp_fl_server", "dataset=digits", "features=scattering", "features.scales=1",
    "features.angles=4", "features.normalization=released", "features.statistics_noise_multiplier=4",
    "features.statistics_clip_norm=0.5", "model=logistic", "epsilon=null", "rounds=3",
    "algorithm.sample_rate=0.2", "noise_schedule.noise_multiplier=3",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.mark.thorough
@pytest.mark.parametrize("overrides", [(), ("algorithm.trust=local",)])
def test_released_statistics_pass_and_are_in_the_table(overrides, verified):
    checks = verified(*RELEASED, *overrides)
    assert failed(checks) == []
    names = [check.name for check in checks]
    assert "std of feature_statistics ÷ the ledger's" in names
    assert "feature_statistics in the ledger" in names
    assert "feature_statistics: huge" in names


def test_planted_less_noise_than_is_said_is_caught(caught_by, monkeypatch):
    honest = SharedGaussian.release

    def less(self, answer, noise):
        if self.name != FEATURE_STATISTICS:
            return honest(self, answer, noise)
        quiet = replace(self, noise_multiplier=0.8 * self.noise_multiplier)
        return honest(quiet, answer, noise) / 0.8

    monkeypatch.setattr(SharedGaussian, "release", less)
    assert "noise: std of feature_statistics ÷ the ledger's" in caught_by("noise", *RELEASED)


@pytest.mark.thorough
def test_planted_no_clipping_is_caught(caught_by, monkeypatch):
    honest = feature_statistics.bounded_rows

    def unclipped(values, at_most, owners):
        found = honest(values, at_most * 1e12, owners)
        found.sensitivity = at_most
        return found

    monkeypatch.setattr(feature_statistics, "bounded_rows", unclipped)
    assert any(
        name.startswith("sensitivity: feature_statistics")
        for name in caught_by("sensitivity", *RELEASED)
    )


@pytest.mark.thorough
def test_planted_exact_statistics_in_the_model_are_caught(caught_by, monkeypatch):
    honest = FeatureStatistics._set

    def exact(self, statistics):
        moments = self._of_records(range(10))[0].mean(0)
        honest(self, statistics.then(lambda own: (own[0] + 1e-3 * moments[:5], own[1])))

    monkeypatch.setattr(FeatureStatistics, "_set", exact)
    found = caught_by("sensitivity, outside", *RELEASED)
    assert any(name.startswith("outside: with one record changed") for name in found)


def test_planted_no_charge_is_caught(caught, monkeypatch):
    monkeypatch.setattr(Budget, "charge_before", lambda *_: None)
    assert caught(*RELEASED) == ["charge: the run"]  # which stops by itself
