"""The median of buckets: its settings, and its noise beside that of the mean."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.aggregation import BucketedMedian
from fedpriv.common.errors import ArgumentError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.core.sampling import sample_buckets


def combine(rows: torch.Tensor) -> torch.Tensor:
    weights = torch.full((len(rows),), 1.0 / len(rows))
    return BucketedMedian(5).start(None).combine(0, np.arange(len(rows)), rows, weights)


@pytest.mark.parametrize(("buckets", "tolerated", "allowed"), [
    (1, 0, True), (2, 1, False), (3, 1, True), (4, 2, False), (5, 2, True), (0, 0, False),
])  # fmt: skip
def test_more_buckets_than_twice_the_attackers(buckets, tolerated, allowed):
    if allowed:
        assert BucketedMedian(buckets, tolerated).buckets == buckets
        return
    with pytest.raises(ArgumentError, match="buckets must be"):
        BucketedMedian(buckets, tolerated)


@pytest.mark.parametrize("buckets", [1, 2, 3, 4, 5, 8])
def test_it_is_the_median_of_each_number(buckets):
    rows = torch.randn(buckets, 7, generator=torch.Generator().manual_seed(0))
    np.testing.assert_allclose(combine(rows), np.median(rows, axis=0), rtol=1e-6)


@pytest.mark.parametrize(("buckets", "attackers"), [(3, 1), (5, 2), (9, 4)])
def test_spoilt_buckets_do_not_move_it_beyond_the_honest_ones(buckets, attackers):
    rows = torch.randn(buckets, 50, generator=torch.Generator().manual_seed(1))
    honest = rows[attackers:].clone()
    for value in (1e30, -1e30, 0.0):
        rows[:attackers] = value
        median = combine(rows)
        assert bool((median >= honest.min(0).values).all())
        assert bool((median <= honest.max(0).values).all())
    rows[: attackers + 1] = 1e30  # one more spoils it
    assert bool((combine(rows) > honest.max(0).values).all())


@pytest.mark.parametrize("buckets", [15, 41])
def test_its_noise_is_root_half_pi_b_times_that_of_the_mean(buckets):
    """At equal ε each bucket's mean has the noise z C B/m, the mean of all z C/m."""
    noise = torch.randn(buckets, 40_000, generator=torch.Generator().manual_seed(2))
    std = float(combine(buckets * noise).std())
    assert std == pytest.approx(math.sqrt(math.pi * buckets / 2), rel=0.03)


def test_a_client_s_bucket_does_not_depend_on_who_else_takes_part():
    streams = SecretStreams.simulated(seed=0, noise_seed=1)
    everyone = np.arange(60)
    of_all = sample_buckets(streams, 5, 3, 0, everyone)
    some = np.array([2, 3, 17, 59])
    assert sample_buckets(streams, 5, 3, 0, some).tolist() == of_all[some].tolist()
    assert sample_buckets(streams, 5, 4, 0, everyone).tolist() != of_all.tolist()
    assert len(sample_buckets(streams, 5, 3, 0, everyone[:0])) == 0


@pytest.mark.thorough
def test_buckets_are_drawn_uniformly_and_independently():
    streams = SecretStreams.simulated(seed=4, noise_seed=1)
    draws = np.stack([sample_buckets(streams, 4, t, 0, np.arange(200)) for t in range(100)])
    counts = np.bincount(draws.ravel(), minlength=4)
    assert (np.abs(counts - 5000) < 5 * math.sqrt(20_000 * 3 / 16)).all()
    alike = (draws[1:] == draws[:-1]).mean()  # of one client in rounds that follow each other
    assert abs(alike - 0.25) < 5 * math.sqrt(3 / 16 / 19_800)
