"""Statistics of features: what is released of them, how much noise it has, and what a record moves."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch

import fedpriv
from fedpriv.algorithms import feature_statistics
from fedpriv.algorithms.feature_statistics import FeatureStatistics
from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.errors import ReleaseError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.core.noise import Noise
from fedpriv.privacy.mechanisms import FEATURE_STATISTICS, GaussianQuery
from fedpriv.privacy.mechanisms.shares import SharedGaussian

CLIENTS, RECORDS, MULTIPLIER, CLIP_NORM = 10, 1437, 8.0, 0.5
RUN = (
    "algorithm=dp_fl_server", "dataset=digits", "features=scattering", "features.scales=1",
    "features.angles=4", "features.normalization=released", "model=logistic", "epsilon=null", "rounds=1",
    f"features.statistics_noise_multiplier={MULTIPLIER}",
    f"features.statistics_clip_norm={CLIP_NORM}",
)  # fmt: skip
TRUSTS = {
    "distributed": ("algorithm.trust=distributed",),
    "distributed, some collude": ("algorithm.trust=distributed", "algorithm.tolerated_collusion=6"),
    "local": ("algorithm.trust=local",),
    "dp_fl": ("algorithm=dp_fl",),
}
NOISE = {"distributed": 1.0, "distributed, some collude": math.sqrt(10 / 4), "local": math.sqrt(10),
         "dp_fl": math.sqrt(10)}  # fmt: skip
"""Of the sum, in units of noise multiplier × clip norm."""


@pytest.fixture(scope="module", autouse=True)
def cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def made() -> Callable[..., tuple[Parts, RunContext]]:
    """(overrides) → the parts of a run and what it works on; to be left as they are."""
    kept: dict[tuple[str, ...], tuple[Parts, RunContext]] = {}

    def make(*overrides: str) -> tuple[Parts, RunContext]:
        if overrides not in kept:
            parts = build_parts(fedpriv.compose([*RUN, *overrides]))
            kept[overrides] = parts, make_context(parts, torch.device("cpu"))
        return kept[overrides]

    return make


def released(parts: Parts, context: RunContext, noise: int = 0) -> torch.Tensor:
    """The sums that leave the clients, from the means that the first layer then has [2 C]."""
    sums = []
    statistics = FeatureStatistics(
        context, parts.released_statistics, parts.algorithm.row_per_client
    )
    everyone, streams = np.arange(CLIENTS), SecretStreams.simulated(0, noise, "a run")
    opened = parts.mechanism.open(parts.mechanism.announce_before(), everyone, streams, everyone)
    let_go = opened.release

    def seen(answers):
        visible = let_go(answers)
        sums.append(visible[FEATURE_STATISTICS].values.sum(0))
        return visible

    opened.release = seen
    statistics.release(opened)
    assert statistics.known
    opened.close()
    return sums[0]


def exact(context: RunContext) -> torch.Tensor:
    """Σ of the records' statistics, each shortened to the clip norm, without noise [2 C]."""
    x = context.data.train.inputs.double().flatten(2)
    both = torch.cat([x.mean(2), x.square().mean(2)], dim=1)
    norms = both.norm(dim=1, keepdim=True)
    return (both * (CLIP_NORM / norms).clamp_max(1.0)).sum(0)


def noise_over_exact(parts: Parts, context: RunContext, keys: int = 60) -> float:
    """The standard deviation of what was added, in units of noise multiplier × clip norm."""
    sums = torch.stack([released(parts, context, key) for key in range(keys)])
    return float((sums - exact(context)).square().mean().sqrt()) / (MULTIPLIER * CLIP_NORM)


def moved_by_one_record(parts: Parts, context: RunContext, factor: float) -> float:
    """How far the sum goes for one record ``factor`` times as large, L2."""
    inputs = context.data.train.inputs.clone()
    inputs[context.data.clients[3][0]] *= factor
    train = replace(context.data.train, inputs=inputs)
    other = replace(context, data=replace(context.data, train=train))
    return float((released(parts, other) - released(parts, context)).norm())


@pytest.mark.parametrize("trust", TRUSTS)
def test_the_noise_is_what_is_charged(trust, made):
    # 600 numbers: the standard deviation is found to 3 %
    assert noise_over_exact(*made(*TRUSTS[trust])) == pytest.approx(NOISE[trust], rel=0.15)


@pytest.mark.parametrize("factor", [1e3, -1e3, 0.0])
def test_one_record_moves_the_sum_by_no_more_than_twice_the_clip_norm(factor, made):
    """From what it was to what it is; added or removed it moves the sum by the clip norm."""
    moved = moved_by_one_record(*made(), factor)
    assert moved <= 2 * CLIP_NORM + 1e-2  # rounding to the grid of the noise
    assert factor == 0 or moved > 0.1 * CLIP_NORM


def test_one_record_more_moves_the_sum_by_the_clip_norm(made):
    parts, context = made()
    absent = moved_by_one_record(parts, context, 0.0)  # contributes zeros
    assert 0.9 * CLIP_NORM < absent <= CLIP_NORM + 1e-2


def test_a_record_that_is_not_finite_counts_as_zeros(made):
    parts, context = made()
    there = moved_by_one_record(parts, context, math.inf)
    assert there == pytest.approx(moved_by_one_record(parts, context, 0.0), abs=1e-6)


def test_mean_and_variance_are_those_of_the_training_records(made):
    """With little noise and no clipping."""
    parts, context = made(
        "features.statistics_noise_multiplier=1e-4", "features.statistics_clip_norm=100"
    )
    released(parts, context)
    x = context.data.train.inputs.double().transpose(0, 1).flatten(1)
    layer = context.model.module
    assert torch.allclose(layer.mean.double(), x.mean(1), atol=1e-4)
    assert torch.allclose(layer.variance.double(), x.var(1, unbiased=False) + 1e-5, atol=2e-4)
    normalized = (x - layer.mean[:, None]) * layer.variance.rsqrt()[:, None]
    assert torch.allclose(normalized.var(1), torch.ones(5).double(), atol=0.05)


def test_a_variance_below_the_noise_is_cut_there(made):
    parts, context = made("features.statistics_noise_multiplier=1e4")
    released(parts, context)
    floor = 1e4 * CLIP_NORM / RECORDS
    assert float(context.model.module.variance.min()) == pytest.approx(floor, rel=1e-3)


def test_the_same_streams_release_the_same_and_others_something_else(made):
    parts, context = made()
    assert torch.equal(released(parts, context, 1), released(parts, context, 1))
    assert not torch.equal(released(parts, context, 1), released(parts, context, 2))


def test_what_no_mechanism_released_does_not_become_part_of_the_model(made):
    parts, context = made()
    statistics = FeatureStatistics(
        context, parts.released_statistics, parts.algorithm.row_per_client
    )
    with pytest.raises(
        ReleaseError, match=r"the model's first layer takes released or public values"
    ):
        statistics._set((torch.zeros(5), torch.ones(5)))
    assert not statistics.known


# ---- planted faults, which the above would find


def test_planted_no_noise_is_added_though_it_is_said(made, monkeypatch):
    monkeypatch.setattr(Noise, "add_to", lambda self, values, std: values)
    assert noise_over_exact(*made(), keys=3) < 1e-3


def test_planted_nothing_is_clipped(made, monkeypatch):
    honest = feature_statistics.bounded_rows

    def unclipped(values, at_most, owners):
        found = honest(values, at_most * 1e12, owners)
        found.sensitivity = at_most
        return found

    monkeypatch.setattr(feature_statistics, "bounded_rows", unclipped)
    assert moved_by_one_record(*made(), 1e3) > 100 * CLIP_NORM


def test_planted_less_noise_than_is_announced_is_stopped(made, monkeypatch):
    honest = SharedGaussian.release

    def half(self, answer, noise):
        return honest(replace(self, noise_multiplier=self.noise_multiplier / 2), answer, noise)

    monkeypatch.setattr(SharedGaussian, "release", half)
    with pytest.raises(
        ReleaseError, match=r"feature_statistics was released with noise of .* less"
    ):
        released(*made())


def test_planted_a_release_without_noise_is_stopped(made, monkeypatch):
    parts, context = made()
    monkeypatch.setattr(parts.mechanism, "before", GaussianQuery(FEATURE_STATISTICS, 0.0))
    with pytest.raises(ReleaseError, match="feature_statistics was released without noise"):
        released(parts, context)


def test_planted_something_else_is_released_than_announced(made, monkeypatch):
    parts, context = made()
    monkeypatch.setattr(parts.mechanism, "before", GaussianQuery("other_statistics", 8.0))
    with pytest.raises(ReleaseError, match=r"feature_statistics, which was not announced"):
        released(parts, context)
