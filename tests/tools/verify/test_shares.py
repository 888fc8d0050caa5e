"""Shares of whole numbers are tested from inside: their sum modulo 2^b, and what rounding moves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedpriv.privacy.clippers.step_clip import ChunkClip
from fedpriv.privacy.core import modular
from fedpriv.privacy.mechanisms.discrete_count import DiscreteCount
from fedpriv.privacy.mechanisms.discrete_gaussian import DiscreteGaussianQuery
from fedpriv.privacy.mechanisms.skellam import SkellamQuery
from fedpriv.tools.verify.shares import law_of_sum

pytestmark = pytest.mark.usefixtures("unpublished")
CLIENTS = ("algorithm=ddp_fedavg", "partition.clients=4", "rounds=5")
GAUSSIAN, SKELLAM = "algorithm.shares=discrete_gaussian", "algorithm.shares=skellam"


def queries(kind):
    return kind("gradient_sum", 2.0, 3.0, 6, 4, 64, 16, "vectors")


def test_discrete_shares_pass(caught):
    assert caught(*CLIENTS, GAUSSIAN, rounds=2) == []


@pytest.mark.parametrize("kind", [DiscreteGaussianQuery, SkellamQuery])
def test_the_law_of_a_sum_has_the_variance_of_its_shares(kind):
    query, places = queries(kind), np.arange(-400, 401)
    below, exactly = law_of_sum(query, 6, places)
    assert exactly.sum() == pytest.approx(1.0, abs=1e-12)
    assert float(exactly @ places**2) == pytest.approx(6 * query.variance, rel=1e-3)
    assert below[400] == pytest.approx((1.0 - exactly[400]) / 2.0, abs=1e-12)


@pytest.mark.thorough
def test_planted_shares_of_less_noise(caught, monkeypatch):
    table = DiscreteGaussianQuery._table
    monkeypatch.setattr(
        DiscreteGaussianQuery,
        "_table",
        lambda self: table(replace(self, noise_multiplier=0.9 * self.noise_multiplier)),
    )
    found = caught(*CLIENTS, GAUSSIAN, rounds=2)
    assert "noise: gradient_sum: sums of shares, spread" in found


@pytest.mark.thorough
def test_planted_counts_of_less_noise(caught, monkeypatch):
    honest = DiscreteCount.variance.fget
    release = DiscreteCount.release

    def quiet(self, answer, noise):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(DiscreteCount, "variance", property(lambda own: 0.3 * honest(own)))
            return release(self, answer, noise)

    monkeypatch.setattr(DiscreteCount, "release", quiet)
    found = caught(*CLIENTS, SKELLAM, "clipper=quantile", "clipper.bit_noise=8", rounds=2)
    assert found == ["noise: clip_statistic: sums of shares, spread"]


@pytest.mark.thorough
def test_planted_shares_minus_their_mean(caught, monkeypatch):
    table = DiscreteGaussianQuery._table

    class Centred:
        def __init__(self, honest):
            self._honest = honest

        def draw(self, stream, count):
            drawn = self._honest.draw(stream, count)
            return drawn - round(float(drawn.mean()))

    monkeypatch.setattr(DiscreteGaussianQuery, "_table", lambda self: Centred(table(self)))
    found = caught(*CLIENTS, GAUSSIAN, rounds=2)
    assert "noise: gradient_sum: sums of shares, spread" in found


@pytest.mark.thorough
def test_planted_rounding_without_a_bound(caught, monkeypatch):
    """Vectors twice as long as the clip norm are rounded as they are."""

    def rounded(vector, longest, bound, stream):
        return np.floor(vector + stream.random(len(vector))).astype(np.int64)

    factors = ChunkClip.factors
    monkeypatch.setattr(ChunkClip, "factors", lambda *own: 2.0 * factors(*own))
    monkeypatch.setattr(modular, "conditionally_rounded", rounded)
    found = caught(*CLIENTS, GAUSSIAN, rounds=2)
    assert any(one.startswith("sensitivity: gradient_sum: client") for one in found)
