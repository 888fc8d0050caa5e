"""A record whose gradient is not finite contributes nothing and harms nobody."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpriv.engine import FlatModel, make_engine

BAD = 4
COUNTS = [3, 0, 4, 2]


def images(value: float) -> torch.Tensor:
    inputs = torch.randn(9, 2, 6, 6, dtype=torch.float64)
    inputs[BAD, 1, 2, 3] = value
    return inputs


def convolutional() -> FlatModel:
    torch.manual_seed(0)
    layers = [nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 3)]
    return FlatModel(nn.Sequential(*layers).double())


def without_bad(records):
    keep = [i for i in range(9) if i != BAD]
    counts = [3, 0, 3, 2]
    return type(records)(records.inputs[keep], records.targets[keep], counts)


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_a_record_that_is_not_finite_is_flagged_and_contributes_zero(
    engine, value, records_of, difference, clip_at
):
    model = convolutional()
    torch.manual_seed(1)
    records = records_of(images(value), torch.randint(0, 3, (9,)), COUNTS)
    result = records.clipped_sums(make_engine(model, engine=engine), clip_at(0.5))
    expected = without_bad(records).clipped_sums(make_engine(model, engine=engine), clip_at(0.5))
    assert result.finite.tolist() == [i != BAD for i in range(9)]
    assert not result.norms[BAD].isfinite() or not result.losses[BAD].isfinite()
    assert difference(result.sums, expected.sums) < 1e-12


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_a_norm_too_large_to_represent_counts_as_not_finite(engine, records_of, clip_at):
    model = FlatModel(nn.Linear(3, 2))
    records = records_of(torch.ones(3, 3), torch.tensor([0, 1, 0]), [3])
    records.inputs[1] = 1e30
    chosen = make_engine(model, lambda outputs, targets: outputs.sum(1), engine)
    result = records.clipped_sums(chosen, clip_at(0.5))
    assert result.finite.tolist() == [True, False, True]
    assert result.sums.norm() <= 2 * 0.5 * (1 + 1e-6)


def test_on_sequences_embeddings_and_layer_norms(records_of, difference, clip_at):
    torch.manual_seed(0)
    layers = [nn.Embedding(6, 4), nn.Linear(4, 4), nn.LayerNorm(4), nn.Flatten(), nn.Linear(12, 3)]
    model = FlatModel(nn.Sequential(*layers).double())
    with torch.no_grad():
        model.module[0].weight[5] = float("inf")
    tokens = torch.randint(0, 5, (9, 3))
    tokens[BAD, 1] = 5
    records = records_of(tokens, torch.randint(0, 3, (9,)), COUNTS)
    result = records.clipped_sums(make_engine(model, engine="fast"), clip_at(0.5))
    expected = without_bad(records).clipped_sums(make_engine(model, engine="fast"), clip_at(0.5))
    assert result.finite.tolist() == [i != BAD for i in range(9)]
    assert difference(result.sums, expected.sums) < 1e-12


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_when_no_record_is_finite_the_sums_are_zero(engine, records_of, clip_at):
    model = convolutional()
    records = records_of(torch.full((2, 2, 6, 6), float("nan")), torch.zeros(2).long(), [1, 1])
    records.inputs = records.inputs.double()
    result = records.clipped_sums(make_engine(model, engine=engine), clip_at(0.5))
    assert not result.finite.any()
    assert torch.equal(result.sums, torch.zeros_like(result.sums))


def test_a_factor_that_is_not_finite_for_a_broken_record_does_no_harm(records_of):
    model = convolutional()
    records = records_of(images(float("nan")), torch.randint(0, 3, (9,)), COUNTS)
    result = records.clipped_sums(make_engine(model), lambda norms, clients: 0.5 / norms)
    assert result.sums.isfinite().all()


def test_a_gradient_of_zero_stays_zero(records_of, clip_at):
    model = FlatModel(nn.Sequential(nn.Linear(3, 2)).double())
    engine = make_engine(model, lambda outputs, targets: outputs.sum(1) * 0)
    records = records_of(torch.randn(4, 3).double(), torch.zeros(4), [4])
    result = records.clipped_sums(engine, clip_at(0.5))
    assert result.finite.all()
    assert not result.sums.any()
