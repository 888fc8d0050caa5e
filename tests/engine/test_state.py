"""An engine leaves nothing behind in the model it works on."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpriv.engine import FlatModel, cross_entropy, make_engine


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 3, 3), nn.ReLU(inplace=True), nn.Flatten(), nn.Linear(27, 3)
    ).double()


def hooks(module: nn.Module) -> int:
    kinds = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return sum(len(getattr(m, kind)) for m in module.modules() for kind in kinds)


@pytest.fixture
def setting(records_of):
    torch.manual_seed(1)
    model = FlatModel(network())
    records = records_of(torch.randn(7, 1, 5, 5).double(), torch.randint(0, 3, (7,)), [3, 0, 4])
    return model, records


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_no_hook_attribute_or_gradient_stays(engine, setting, clip_at):
    model, records = setting
    before = {name: set(vars(m)) for name, m in model.module.named_modules()}
    weights = model.flat.clone()
    records.clipped_sums(make_engine(model, engine=engine), clip_at(0.5))
    assert hooks(model.module) == 0
    assert {name: set(vars(m)) for name, m in model.module.named_modules()} == before
    for p in model.parameters():
        assert p.grad is None
        assert not hasattr(p, "grad_sample")
    assert torch.equal(model.flat, weights)


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_gradients_the_caller_accumulated_stay(engine, setting, clip_at):
    model, records = setting
    for p in model.parameters():
        p.grad = torch.ones_like(p)
    records.clipped_sums(make_engine(model, engine=engine), clip_at(0.5))
    assert all(torch.equal(p.grad, torch.ones_like(p)) for p in model.parameters())


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_a_second_call_gives_the_same_and_follows_the_weights(
    engine, setting, naive, difference, clip_at
):
    model, records = setting
    chosen = make_engine(model, engine=engine)
    first = records.clipped_sums(chosen, clip_at(0.5))
    assert torch.equal(first.sums, records.clipped_sums(chosen, clip_at(0.5)).sums)
    model.set(torch.randn_like(model.flat))
    moved = records.clipped_sums(chosen, clip_at(0.5))
    assert difference(moved.sums, naive(model, cross_entropy, records, clip_at(0.5))[0]) < 1e-10


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_autograd_and_evaluation_work_afterwards(engine, setting, clip_at):
    model, records = setting
    expected = model.evaluate(records.inputs, records.targets)
    records.clipped_sums(make_engine(model, engine=engine), clip_at(0.5))
    assert model.evaluate(records.inputs, records.targets) == expected
    cross_entropy(model(records.inputs), records.targets).sum().backward()
    assert all(p.grad is not None for p in model.parameters())


def test_hooks_are_removed_when_the_forward_pass_fails(setting, records_of, clip_at):
    model, _ = setting
    wrong = records_of(torch.randn(2, 1, 9, 9).double(), torch.zeros(2).long(), [2])
    with pytest.raises(RuntimeError):
        wrong.clipped_sums(make_engine(model, engine="fast"), clip_at(0.5))
    assert hooks(model.module) == 0


def test_it_works_where_the_caller_has_switched_gradients_off(setting, clip_at):
    model, records = setting
    engine = make_engine(model, engine="fast")
    expected = records.clipped_sums(engine, clip_at(0.5)).sums
    with torch.no_grad():
        result = records.clipped_sums(engine, clip_at(0.5))
    assert torch.equal(result.sums, expected)
    assert not result.sums.requires_grad
    assert not result.losses.requires_grad


def test_it_trains_after_evaluation(setting, clip_at):
    """Dropout is active in the engine although the model was left in evaluation mode."""
    model, records = setting
    model.module.add_module("drop", nn.Dropout(0.5))
    model.module.eval()
    engine = make_engine(model, engine="fast")
    torch.manual_seed(0)
    one = records.clipped_sums(engine, clip_at(0.5)).losses
    two = records.clipped_sums(engine, clip_at(0.5)).losses
    assert not torch.equal(one, two)


def test_the_random_state_is_not_touched(setting, clip_at):
    model, records = setting
    state = torch.get_rng_state()
    records.clipped_sums(make_engine(model, engine="fast"), clip_at(0.5))
    assert torch.equal(torch.get_rng_state(), state)
