"""The larger models for images: exact per-record gradients, and a step of training."""

from __future__ import annotations

import pytest
import torch

from fedpriv.engine import FlatModel, make_engine
from fedpriv.models import CnnEmnist
from fedpriv.models.checks import refuse_record_mixing

MODELS = {"cnn_emnist": (CnnEmnist(0), (1, 12, 12), 10)}


def built(name: str) -> tuple[FlatModel, torch.Tensor, torch.Tensor]:
    """The model in double precision, inputs [5, …] and targets [5]."""
    factory, shape, classes = MODELS[name]
    stream = torch.Generator().manual_seed(0)
    inputs = torch.randn(5, *shape, generator=stream, dtype=torch.float64)
    targets = torch.randint(classes, (5,), generator=stream)
    return FlatModel(factory.build(shape, classes).double()), inputs, targets


def naive(model: FlatModel, inputs, targets, clip_norm: float):
    """(clipped gradients [n, d], norms [n]), one backward pass for each record."""
    rows = []
    for x, y in zip(inputs.split(1), targets.split(1), strict=True):
        grads = torch.autograd.grad(model.loss(model(x), y).sum(), model.parameters())
        rows.append(torch.cat([g.flatten() for g in grads]))
    rows = torch.stack(rows)
    norms = rows.norm(dim=1)
    return rows * (clip_norm / norms).clamp(max=1)[:, None], norms


@pytest.mark.parametrize("name", MODELS)
def test_auto_takes_book_keeping(name):
    assert make_engine(built(name)[0]).name == "fast"


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", MODELS)
def test_clipped_sums_equal_one_backward_pass_per_record(name, engine):
    model, inputs, targets = built(name)
    rows, norms = naive(model, inputs, targets, 0.5)
    result = make_engine(model, engine=engine).clipped_sums(
        inputs, targets, torch.tensor([0, 0, 2, 2, 2]), 3, lambda n, k: (0.5 / n).clamp(max=1)
    )
    torch.testing.assert_close(result.norms, norms)
    expected = torch.stack([rows[:2].sum(0), torch.zeros_like(rows[0]), rows[2:].sum(0)])
    torch.testing.assert_close(result.sums, expected)


@pytest.mark.parametrize("name", MODELS)
def test_a_record_alone_decides_its_gradient(name):
    refuse_record_mixing(built(name)[0].module)


@pytest.mark.parametrize("name", MODELS)
def test_steps_against_the_gradient_lower_the_loss(name):
    model, inputs, targets = built(name)
    engine, before = make_engine(model), model.evaluate(inputs, targets)[0]
    for _ in range(3):
        sums = engine.clipped_sums(inputs, targets, torch.zeros(5).long(), 1, None).sums
        model.flat.sub_(sums[0], alpha=0.01)
    assert model.evaluate(inputs, targets)[0] < before
