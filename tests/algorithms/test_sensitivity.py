"""Brute force over neighbouring data sets: no record moves a release by more than the ledger says."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.privacy.clippers import AdapClipper, AutomaticClipper, ConstantClipper
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT

RECORDS = 12  # of the client under attack
ROUNDING = 1.0 + 1e-4
CLIPPERS = {
    "constant": lambda: ConstantClipper(0.3),
    "constant, larger than any norm": lambda: ConstantClipper(1e3),
    "automatic": AutomaticClipper,
    "automatic, small gamma": lambda: AutomaticClipper(1e-6),
    "sound": lambda: AdapClipper("sound", initial_clip_norm=0.5),
    "scalar": lambda: AdapClipper("scalar", initial_clip_norm=0.5),
    "vector": lambda: AdapClipper("vector", initial_clip_norm=0.5),
    "unclipped": lambda: AdapClipper("unclipped", initial_clip_norm=0.5),
}
NASTY = {
    "nan": float("nan"),
    "inf": float("inf"),
    "1e30": 1e30,
    "1e18": 1e18,
    "-1e5": -1e5,
    "1e-30": 1e-30,
}


def small(digits: FederatedData, order: list[int]) -> FederatedData:
    """Two clients: one whose records are ``order``, positions among RECORDS, and one beside it."""
    own = digits.clients[0][:RECORDS][order]
    return replace(digits, clients=[own, digits.clients[1][:RECORDS]])


def neighbours(digits: FederatedData, left_out: int) -> tuple[FederatedData, FederatedData]:
    """With and without one record. It stands last, so that the others' coins of the lot agree."""
    rest = [i for i in range(RECORDS) if i != left_out]
    return small(digits, [*rest, left_out]), small(digits, rest)


def with_inputs(digits: FederatedData, value: float) -> FederatedData:
    """The digits with every pixel of the first client's first record set to a value."""
    inputs = digits.train.inputs.clone()
    inputs[digits.clients[0][0]] = value
    return replace(digits, train=Records(inputs, digits.train.targets))


def differences(computation, make, pair) -> tuple[float, float]:
    """(change of the first client's exact gradient sum, sensitivity in the ledger)."""
    sums = []
    for data in pair:
        training = computation(data=data, clipper=make(), sample_rate=1.0)
        released, _ = training.released()
        sums.append(released[0])
    return (sums[0] - sums[1]).norm().item(), float(training.sensitivity(GRADIENT)[0])


@pytest.mark.parametrize("name", CLIPPERS)
def test_leaving_out_any_record_moves_the_sum_by_at_most_the_sensitivity(name, computation, digits):
    for left_out in range(0, RECORDS, 3):
        pair = neighbours(digits, left_out)
        change, sensitivity = differences(computation, CLIPPERS[name], pair)
        assert 0 < change <= sensitivity * ROUNDING


@pytest.mark.parametrize("value", NASTY)
@pytest.mark.parametrize("name", CLIPPERS)
def test_a_nasty_record_moves_the_sum_by_at_most_the_sensitivity(name, value, computation, digits):
    pair = neighbours(with_inputs(digits, NASTY[value]), left_out=0)
    change, sensitivity = differences(computation, CLIPPERS[name], pair)
    assert change <= sensitivity * ROUNDING


@pytest.mark.parametrize("name", CLIPPERS)
def test_the_sensitivity_holds_at_weights_that_training_has_moved(name, computation, digits):
    with_it, without = neighbours(digits, left_out=5)
    sums = []
    for data in (with_it, without):
        training = computation(data=data, clipper=CLIPPERS[name](), sample_rate=1.0)
        stream = torch.Generator().manual_seed(1)
        training.weights.copy_(5 * torch.randn(len(training.weights), generator=stream))
        released, _ = training.released()
        sums.append(released[0])
    sensitivity = float(training.sensitivity(GRADIENT)[0])
    assert (sums[0] - sums[1]).norm() <= sensitivity * ROUNDING


@pytest.mark.parametrize("name", ["constant", "automatic", "sound"])
def test_the_sensitivity_holds_in_later_local_steps(name, computation, digits, lots_sampled):
    """Rounds whose second lot alone has the record, against the same with a record that counts 0."""
    sensitivities, sums, joined = [], [], []
    for value in (1e5, float("nan")):
        data = with_inputs(small(digits, list(range(RECORDS))), value)
        training = computation(data=data, clipper=CLIPPERS[name](), sample_rate=0.5, local_steps=2)
        for round_index in range(12):
            lots_sampled.clear()
            released, _ = training.released(round_index)
            sums.append(released[0])
            sensitivities.append(
                [float(training.sensitivity(GRADIENT, step)[0]) for step in (0, 1)]
            )
            joined.append([data.clients[0][0] in lot for lot in lots_sampled])
    only_second = [r for r in range(12) if joined[r] == [False, True]]
    assert only_second
    for r in only_second:
        assert 0 < (sums[r] - sums[r + 12]).norm() <= sensitivities[r][1] * ROUNDING


@pytest.mark.parametrize("name", CLIPPERS)
def test_the_sensitivity_holds_on_sampled_lots(name, computation, digits):
    """Over many lots: those that have the record change by at most the sensitivity, the others by 0."""
    pair = neighbours(digits, left_out=3)
    trainings = [computation(data=data, clipper=CLIPPERS[name](), sample_rate=0.5) for data in pair]
    joined = 0
    for round_index in range(12):
        sums, sizes = [], []
        for training in trainings:
            released, outcome = training.released(round_index)
            sums.append(released[0])
            sizes.append(int((outcome.units == 0).sum()))
        change = (sums[0] - sums[1]).norm()
        sensitivity = float(training.sensitivity(GRADIENT)[0])
        has_it = sizes[0] - sizes[1]
        joined += has_it
        assert change <= has_it * sensitivity * ROUNDING + 1e-5
    assert 0 < joined < 12


@pytest.mark.parametrize("name", CLIPPERS)
def test_another_clients_upload_does_not_change(name, computation, digits):
    with_it, without = (
        computation(data=data, clipper=CLIPPERS[name](), sample_rate=1.0).released(sigma=2.0)[0]
        for data in neighbours(with_inputs(digits, 1e5), left_out=0)
    )
    np.testing.assert_allclose(with_it[1], without[1], atol=1e-4)


def statistics(computation, reading: str, pair) -> tuple[list[float], float]:
    """(what the first client answers about its norms on both data sets, its sensitivity).

    The noise, where there is some, is the same on both."""
    heard: list[float] = []

    class Heard(AdapClipper):
        def observe(self, holders, statistic, gradients, denominators):
            heard.append(statistic.values[0].item())
            super().observe(holders, statistic, gradients, denominators)

    for data in pair:
        clipper = Heard(reading, initial_clip_norm=1.0)
        training = computation(data=data, clipper=clipper, sample_rate=1.0)
        training.released()
    return heard, float(training.sensitivity(CLIP_STATISTIC)[0])


@pytest.mark.parametrize("reading", ["scalar", "sound"])
@pytest.mark.parametrize("left_out", range(0, RECORDS, 3))
def test_the_clipping_statistic_moves_by_at_most_its_sensitivity(
    reading, left_out, computation, digits
):
    heard, sensitivity = statistics(computation, reading, neighbours(digits, left_out))
    assert 0 < abs(heard[0] - heard[1]) <= sensitivity * ROUNDING


@pytest.mark.parametrize("reading", ["scalar", "sound"])
@pytest.mark.parametrize("value", NASTY)
def test_a_nasty_record_moves_the_clipping_statistic_by_at_most_its_sensitivity(
    reading, value, computation, digits
):
    pair = neighbours(with_inputs(digits, NASTY[value]), left_out=0)
    heard, sensitivity = statistics(computation, reading, pair)
    assert abs(heard[0] - heard[1]) <= sensitivity * ROUNDING


def test_the_unclipped_statistic_is_entered_with_infinite_sensitivity(computation):
    training = computation(clipper=AdapClipper("unclipped"))
    training.released()
    assert np.isinf(training.sensitivity(CLIP_STATISTIC)).all()


@pytest.mark.parametrize("value", ["nan", "inf", "1e30"])
def test_a_record_without_a_finite_gradient_contributes_zero_and_is_counted(
    value, computation, digits
):
    with_it, without = neighbours(with_inputs(digits, NASTY[value]), left_out=0)
    released, outcome = computation(data=with_it, sample_rate=1.0).released()
    alone, clean = computation(data=without, sample_rate=1.0).released()
    assert (outcome.not_finite, clean.not_finite) == (1, 0)
    np.testing.assert_allclose(released[0], alone[0], atol=1e-6)


def test_a_round_in_which_no_gradient_is_finite_goes_on_like_one_of_empty_lots(computation, digits):
    """Whether it happens is private: stopping would tell."""
    broken = replace(
        digits, train=Records(digits.train.inputs * float("nan"), digits.train.targets)
    )
    released, outcome = computation(data=broken).released(sigma=1.0)
    assert outcome.healthy
    assert released.isfinite().all()
    nobody, _ = computation(sample_rate=1e-9).released(sigma=1.0)
    np.testing.assert_allclose(released, nobody, rtol=1e-4)
