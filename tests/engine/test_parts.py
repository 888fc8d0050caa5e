"""Clipping layer by layer against autograd, one record after the other."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.engine import FlatModel, StackedModel, make_engine
from fedpriv.engine.parts import asking_for, layers_of, scaled_sum, upload_norms
from fedpriv.models import Cnn, Mlp
from fedpriv.privacy.clippers.parts import grouped

COUNTS = [3, 0, 9, 140]
"""The last one is long enough to be added up in pieces."""
SHAPES = {"mlp": (Mlp(seed=0, hidden=7), (1, 8, 8)), "cnn": (Cnn(seed=0), (1, 28, 28))}


def setting(name: str):
    factory, shape = SHAPES[name]
    model = FlatModel(factory.build(shape, 10))
    stream = torch.Generator().manual_seed(0)
    n = sum(COUNTS)
    inputs = torch.rand(n, *shape, generator=stream)
    targets = torch.randint(10, (n,), generator=stream)
    owners = torch.repeat_interleave(torch.arange(len(COUNTS)), torch.tensor(COUNTS))
    return model, inputs, targets, owners


def rows_of(model, inputs, targets) -> torch.Tensor:
    """The gradient of every record [n, d]."""
    found = []
    for x, y in zip(inputs, targets, strict=True):
        loss = model.loss(model(x[None]), y[None]).sum()
        grads = torch.autograd.grad(loss, model.parameters())
        found.append(torch.cat([g.reshape(-1) for g in grads]))
    return torch.stack(found)


def limits(parts) -> torch.Tensor:
    return torch.linspace(0.2, 0.9, len(parts))


def clip_to(parts, seen: list):
    """Factors that clip each part to its own norm, and note what they were asked."""

    def factors(norms, clients):
        seen.append(norms)
        return (limits(parts) / norms.clamp_min(1e-30)).clamp_max(1.0)

    return asking_for(parts, factors)


def groups_of(model, kind: str):
    layers = layers_of(model)
    names = [name for name, _ in layers]
    return grouped(layers, {"layers": None, "two": [names[::2], names[1::2]]}[kind])


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", ["layers", "two"])
@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", SHAPES)
def test_every_part_of_every_record_is_clipped_by_itself(name, engine, kind):
    model, inputs, targets, owners = setting(name)
    parts, seen = groups_of(model, kind), []
    found = make_engine(model, engine=engine).clipped_sums(
        inputs, targets, owners, len(COUNTS), clip_to(parts, seen)
    )
    rows = rows_of(model, inputs, targets)
    norms = upload_norms(rows, parts)
    torch.testing.assert_close(found.norms, norms, rtol=2e-4, atol=1e-6)
    factors = (limits(parts) / norms).clamp_max(1.0)
    for client in range(len(COUNTS)):
        own = owners == client
        expected = scaled_sum(rows[own], factors[own], parts)
        torch.testing.assert_close(found.sums[client].float(), expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("kind", ["layers", "two"])
@pytest.mark.parametrize("name", SHAPES)
def test_so_it_is_at_weights_of_their_own(name, kind):
    model, inputs, targets, _ = setting(name)
    parts = groups_of(model, kind)
    weights = torch.stack([model.flat, model.flat * 1.1])
    lots = inputs[:8].view(2, 4, *inputs.shape[1:]), targets[:8].view(2, 4)
    present = torch.tensor([[True] * 4, [True] * 3 + [False]])
    found = StackedModel(model).clipped_sums(weights, *lots, present, clip_to(parts, []))
    before = model.flat.clone()
    for client in range(2):
        model.set(weights[client])
        own = present[client]
        rows = rows_of(model, lots[0][client][own], lots[1][client][own])
        factors = (limits(parts) / upload_norms(rows, parts)).clamp_max(1.0)
        expected = scaled_sum(rows, factors, parts)
        torch.testing.assert_close(found.sums[client].float(), expected, rtol=1e-3, atol=1e-5)
    model.set(before)
    assert found.norms.shape == (7, len(parts))


@pytest.mark.parametrize("name", SHAPES)
def test_a_record_that_is_not_finite_counts_as_none(name):
    model, inputs, targets, owners = setting(name)
    parts = groups_of(model, "layers")
    inputs[1] = float("nan")
    engine = make_engine(model)
    found = engine.clipped_sums(inputs, targets, owners, len(COUNTS), clip_to(parts, []))
    rest = np.array([k for k in range(len(targets)) if k != 1])
    without = engine.clipped_sums(
        inputs[rest], targets[rest], owners[rest], len(COUNTS), clip_to(parts, [])
    )
    assert found.finite.tolist() == [k != 1 for k in range(len(targets))]
    torch.testing.assert_close(found.sums, without.sums, rtol=1e-4, atol=1e-6)


def test_layers_are_places_of_the_flat_vector_without_gaps():
    model = setting("cnn")[0]
    layers = layers_of(model)
    assert [own.start for _, own in layers[1:]] == [own.stop for _, own in layers[:-1]]
    assert layers[-1][1].stop == model.size
