"""Shares of noise: how many are honest, what a query states, what a checkpoint keeps of it."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.ledger import joint_of, joint_row
from fedpriv.privacy.mechanisms import GRADIENT, JointQuery
from fedpriv.privacy.mechanisms.bounded import clipped_sum
from fedpriv.privacy.mechanisms.discrete import SUMS, VECTORS, largest_cells, rounded_norm
from fedpriv.privacy.mechanisms.query import Noising
from fedpriv.privacy.mechanisms.shares import (
    FAMILIES,
    DiscreteShares,
    SharedGaussian,
    Tolerance,
    left_over,
)

STREAMS = SecretStreams.simulated(0, 0)


def query(family: str, rounding: str = VECTORS, **changes):
    settings = {
        "name": GRADIENT, "noise_multiplier": 2.0, "cells": 300.0, "clients": 10, "honest": 7,
        "dimension": 64, "bits": 18, "rounding": rounding, **changes,
    }  # fmt: skip
    return FAMILIES[family](**settings)


@pytest.mark.parametrize(
    ("s", "t", "left"), [(0, 0, 10), (3, 0, 7), (0, 4, 6), (3, 4, 3), (9, 0, 1)]
)
def test_the_honest_shares_are_those_of_who_neither_drops_nor_colludes(s, t, left):
    assert Tolerance(s, t).honest(10) == left


@pytest.mark.parametrize(
    ("s", "t", "name", "most"),
    [(10, 0, "tolerated_dropouts", 9), (0, 12, "tolerated_collusion", 9), (5, 5, "tolerated_dropouts", 4)],
)  # fmt: skip
def test_somebody_honest_must_be_left(s, t, name, most):
    with pytest.raises(ArgumentError) as error:
        Tolerance(s, t).honest(10)
    assert (error.value.argument, error.value.allowed) == (name, f"at most {most}")
    assert "one at least must be honest" in error.value.hint


@pytest.mark.parametrize("shares", [7, 8, 10])
def test_a_shared_gaussian_adds_all_shares_and_returns_the_standard_deviation_of_one(shares):
    answer = clipped_sum(torch.zeros(1, 50_000, dtype=torch.float64), torch.tensor([0.5]), 4.0)
    noising = Noising([STREAMS.noise("x", shares)], shares=shares)
    std = SharedGaussian(GRADIENT, 3.0, honest=7).release(answer, noising)
    assert float(std) * math.sqrt(7) == pytest.approx(3.0 * 0.5)  # of the sum, not of the mean
    whole = 3.0 * 0.5 / 4.0 * math.sqrt(shares / 7)
    assert float(answer.values.std()) == pytest.approx(whole, rel=0.02)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rounding", [VECTORS, SUMS])
def test_the_event_is_of_honest_shares_and_of_what_a_rounded_unit_moves(family, rounding):
    made = query(family, rounding)
    event = made.event()
    assert event.l2_sensitivity == rounded_norm(300.0, 64, rounding)
    total = event.variance * getattr(event, "shares", 1)
    assert total == pytest.approx((2.0 * 300.0) ** 2)
    fewer = query(family, rounding, honest=3, noise_multiplier=2.0)
    assert fewer.variance > made.variance  # a share of fewer is larger, and the sum the same


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_keeps_it(family):
    joint = JointQuery(WholeData(), (query(family, masked=True),))
    assert joint_of(joint_row(joint)) == joint


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_noised_by_clients_alone(family):
    made = query(family)
    assert made.noised_by("client") is made
    for shared in (made, SharedGaussian(GRADIENT, 1.0)):
        with pytest.raises(ConfigError, match="clients' shares"):
            shared.noised_by("aggregator")


@pytest.mark.parametrize("family", FAMILIES)
def test_a_plan_tells_bits_bytes_and_the_probability_of_wrapping_around(family):
    words = query(family).describe_in_full()
    for part in ("noise multiplier 2", "18 bits", "144 bytes", "300 steps", "wraps around"):
        assert part in words


def test_the_grid_is_as_fine_as_the_modulus_allows_unless_it_is_given():
    chosen = DiscreteShares("skellam", 16, None, 1e-3, VECTORS, size=600)
    asked = SharedGaussian(GRADIENT, 2.0)
    auto = chosen.query(asked, 50, 40, False)
    assert auto.wrap_probability <= 1e-3
    given = DiscreteShares("skellam", 16, auto.cells / 2, 1e-3, VECTORS, size=600)
    assert given.query(asked, 50, 40, False).cells == auto.cells / 2
    finer = DiscreteShares("skellam", 16, auto.cells * 1.5, 1e-3, VECTORS, size=600)
    with pytest.raises(ConfigError, match="modulus too small"):
        finer.query(asked, 50, 40, False)


def test_clients_drop_out_by_chance_and_not_by_data():
    everyone = np.arange(2000)
    left = left_over(STREAMS, everyone, 0.3, 5)
    assert len(left) == pytest.approx(1400, abs=80)
    assert left.tolist() == left_over(STREAMS, everyone, 0.3, 5).tolist()
    assert left.tolist() != left_over(STREAMS, everyone, 0.3, 6).tolist()
    assert left_over(STREAMS, everyone, 0.0, 5) is everyone


@pytest.mark.parametrize("family", ["discrete_gaussian", "skellam"])
@pytest.mark.parametrize(("clients", "bits"), [(15, 5), (30, 6), (28, 6), (16, 5), (3, 3)])
def test_a_modulus_hardly_above_the_number_of_clients_fits_no_grid(clients, bits, family):
    assert largest_cells(family, 1.0, clients, clients, 64, bits, 1e-9) == 0.0
