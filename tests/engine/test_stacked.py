"""Many models side by side, against a loop of autograd over the clients."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from torch import nn
from torch.nn import functional

from fedpriv.engine import FlatModel, StackedModel
from fedpriv.models import Cnn, Logistic, Mlp

SHAPE, CLASSES, RECORDS = (1, 8, 8), 10, 5
PRESENT = torch.tensor(
    [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 1]], dtype=torch.bool
)
CHAINS = {
    "mlp": lambda: Mlp(seed=0, hidden=7).build(SHAPE, CLASSES),
    "logistic": lambda: Logistic(seed=0).build(SHAPE, CLASSES),
    "no bias, other activations": lambda: nn.Sequential(
        nn.Identity(),
        nn.Flatten(),
        nn.Linear(64, 6, bias=False),
        nn.Tanh(),
        nn.Linear(6, 5),
        nn.Softplus(),
        nn.Linear(5, CLASSES, bias=False),
    ),
}
OTHERS = {
    "cnn": lambda: Cnn(seed=0).build(SHAPE, CLASSES),
    "layer norm": lambda: nn.Sequential(
        nn.Flatten(), nn.Linear(64, 6), nn.LayerNorm(6), nn.Linear(6, CLASSES)
    ),
    "a chain within a chain": lambda: nn.Sequential(
        nn.Sequential(nn.Flatten(), nn.Linear(64, CLASSES))
    ),
}
MODELS = {**CHAINS, **OTHERS}


def stacked(name: str) -> StackedModel:
    torch.manual_seed(0)
    return StackedModel(FlatModel(MODELS[name]()))


def clients(model: FlatModel, count: int = len(PRESENT), seed: int = 1):
    """(weights [c, d], inputs, targets): every client has weights and records of its own."""
    stream = torch.Generator().manual_seed(seed)
    weights = model.flat + 0.2 * torch.randn(count, model.size, generator=stream)
    inputs = torch.randn(count, RECORDS, *SHAPE, generator=stream)
    return weights, inputs, torch.randint(CLASSES, (count, RECORDS), generator=stream)


def one_by_one(model: FlatModel, weights, inputs, targets, present) -> torch.Tensor:
    """Gradient of the mean loss of each client [c, d], by autograd on a copy of the module."""
    rows = []
    for w, x, y, p in zip(weights, inputs, targets, present, strict=True):
        own = FlatModel(copy.deepcopy(model.module))
        own.set(w)
        if not p.any():
            rows.append(torch.zeros_like(w))
            continue
        loss = functional.cross_entropy(own.module(x[p]), y[p])
        grads = torch.autograd.grad(loss, own.parameters())
        rows.append(torch.cat([g.reshape(-1) for g in grads]))
    return torch.stack(rows)


@pytest.mark.parametrize("name", MODELS)
def test_the_gradients_are_those_of_each_client_on_its_own(name, difference):
    model = stacked(name)
    data = clients(model.model)
    gradients, _ = model.gradients(*data, PRESENT)
    assert difference(gradients, one_by_one(model.model, *data, PRESENT)) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_with_every_record_present_the_gradients_are_those_of_each_client(name, difference):
    model = stacked(name)
    data = clients(model.model)
    everything = torch.ones_like(PRESENT)
    gradients, _ = model.gradients(*data, everything)
    assert difference(gradients, one_by_one(model.model, *data, everything)) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_a_client_without_a_record_has_a_gradient_of_zero(name):
    model = stacked(name)
    gradients, _ = model.gradients(*clients(model.model), PRESENT)
    assert [bool(row.any()) for row in gradients] == [True, True, False, True]


@pytest.mark.parametrize("name", MODELS)
def test_the_losses_are_those_of_the_records_and_zero_where_there_is_none(name):
    model = stacked(name)
    weights, inputs, targets = clients(model.model)
    _, losses = model.gradients(weights, inputs, targets, PRESENT)
    assert not losses[~PRESENT].any()
    for k in range(len(PRESENT)):
        own = FlatModel(copy.deepcopy(model.model.module))
        own.set(weights[k])
        expected = functional.cross_entropy(own.module(inputs[k]), targets[k], reduction="none")
        torch.testing.assert_close(losses[k][PRESENT[k]], expected.detach()[PRESENT[k]])


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_of_the_model_stay_as_they_are(name):
    model = stacked(name)
    before = model.model.flat.clone()
    model.gradients(*clients(model.model), PRESENT)
    assert torch.equal(model.model.flat, before)


@pytest.mark.parametrize("name", MODELS)
def test_the_weights_of_the_clients_stay_as_they_are(name):
    model = stacked(name)
    weights, inputs, targets = clients(model.model)
    before = weights.clone()
    model.gradients(weights, inputs, targets, PRESENT)
    assert torch.equal(weights, before)


@pytest.mark.parametrize("name", MODELS)
def test_nothing_is_left_attached_to_a_graph(name):
    model = stacked(name)
    gradients, losses = model.gradients(*clients(model.model), PRESENT)
    assert not any(t.requires_grad for t in (gradients, losses))


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_the_weights_come_back_when_a_record_cannot_be_used(name):
    model = stacked(name)
    before = model.model.flat.clone()
    weights, inputs, targets = clients(model.model)
    with pytest.raises((IndexError, RuntimeError)):
        model.gradients(weights, inputs, targets + CLASSES, torch.ones_like(PRESENT))
    assert torch.equal(model.model.flat, before)


def test_gradients_are_computed_where_the_caller_has_switched_them_off(difference):
    model = stacked("mlp")
    data = clients(model.model)
    with torch.no_grad():
        gradients, _ = model.gradients(*data, PRESENT)
    assert difference(gradients, one_by_one(model.model, *data, PRESENT)) < 1e-5


@pytest.mark.parametrize("name", CHAINS)
def test_a_chain_of_linear_layers_goes_through_one_batched_product(name):
    assert stacked(name).batched


@pytest.mark.parametrize("name", OTHERS)
def test_any_other_model_goes_client_by_client(name):
    assert not stacked(name).batched


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_frozen_parameter_has_no_gradient(name, difference):
    torch.manual_seed(0)
    module = MODELS[name]()
    next(module.parameters()).requires_grad_(False)
    model = StackedModel(FlatModel(module))
    data = clients(model.model)
    gradients, _ = model.gradients(*data, PRESENT)
    rest = list(module.parameters())[1:]
    assert gradients.shape[1] == sum(p.numel() for p in rest)
    assert difference(gradients, one_by_one(model.model, *data, PRESENT)) < 1e-5


@pytest.mark.parametrize("name", ["mlp", "cnn"])
def test_a_model_brings_its_loss_and_its_weight_decay(name, difference):
    torch.manual_seed(0)
    module = MODELS[name]()
    module.record_loss, module.weight_decay = lambda outputs, targets: outputs[:, 0].square(), 0.3
    model = StackedModel(FlatModel(module))
    weights, inputs, targets = clients(model.model)
    gradients, losses = model.gradients(weights, inputs, targets, PRESENT)
    for k, own in enumerate(PRESENT):
        flat = weights[k].clone().requires_grad_()
        parts = flat.split([p.numel() for p in module.parameters()])
        named = zip(module.named_parameters(), parts, strict=True)
        parameters = {key: part.view(p.shape) for (key, p), part in named}
        outputs = torch.func.functional_call(module, parameters, inputs[k][own])
        of_records = outputs[:, 0].square() + 0.15 * flat.square().sum()
        expected = torch.zeros_like(flat)
        if own.any():
            (expected,) = torch.autograd.grad(of_records.mean(), flat)
        assert difference(gradients[k], expected) < 1e-5
        torch.testing.assert_close(losses[k][own], of_records.detach(), rtol=1e-5, atol=1e-6)
        assert not losses[k][~own].any()


def test_shared_weights_add_up_their_gradients(difference):
    torch.manual_seed(0)
    layer = nn.Linear(64, 64)
    model = StackedModel(FlatModel(nn.Sequential(nn.Flatten(), layer, nn.Tanh(), layer)))
    weights, inputs, targets = clients(model.model)
    gradients, _ = model.gradients(weights, inputs, targets, PRESENT)
    expected = one_by_one(model.model, weights, inputs, targets, PRESENT)
    assert difference(gradients, expected) < 1e-5


def test_linear_layers_on_the_rows_of_an_image_are_treated_too(difference):
    """The engines treat such models (tests/engine/test_clipped_sums.py), so this one should."""
    torch.manual_seed(0)
    layers = [nn.Linear(8, 3), nn.Tanh(), nn.Flatten(), nn.Linear(24, CLASSES)]
    model = StackedModel(FlatModel(nn.Sequential(*layers)))
    data = clients(model.model)
    gradients, _ = model.gradients(*data, PRESENT)
    assert difference(gradients, one_by_one(model.model, *data, PRESENT)) < 1e-5


@pytest.mark.parametrize("value", [1e30, float("inf"), float("nan")])
@pytest.mark.parametrize("name", ["mlp", "logistic", "cnn"])
def test_an_absent_record_has_no_influence_whatever_it_holds(name, value):
    model = stacked(name)
    weights, inputs, targets = clients(model.model)
    gradients, losses = model.gradients(weights, inputs, targets, PRESENT)
    inputs = torch.where(PRESENT[:, :, None, None, None], inputs, value)
    broken, broken_losses = model.gradients(weights, inputs, targets, PRESENT)
    assert torch.equal(broken, gradients)
    assert torch.equal(broken_losses, losses)


@pytest.mark.parametrize("name", ["mlp", "logistic", "cnn"])
def test_a_client_whose_records_are_not_finite_harms_no_other(name):
    model = stacked(name)
    weights, inputs, targets = clients(model.model)
    gradients, _ = model.gradients(weights, inputs, targets, PRESENT)
    inputs[0] = float("nan")
    broken, _ = model.gradients(weights, inputs, targets, PRESENT)
    assert not broken[0].isfinite().all()
    torch.testing.assert_close(broken[1:], gradients[1:])


MLP = stacked("mlp")


@settings(max_examples=examples(40))
@given(
    st.lists(st.lists(st.booleans(), min_size=RECORDS, max_size=RECORDS), min_size=1, max_size=6),
    st.integers(0, 10**6),
)
def test_a_client_has_the_gradient_that_it_has_alone(present, seed):
    present = torch.tensor(present)
    weights, inputs, targets = clients(MLP.model, len(present), seed)
    together, _ = MLP.gradients(weights, inputs, targets, present)
    for k in range(len(present)):
        one = slice(k, k + 1)
        alone, _ = MLP.gradients(weights[one], inputs[one], targets[one], present[one])
        torch.testing.assert_close(together[one], alone, rtol=1e-4, atol=1e-6)


@settings(max_examples=examples(40))
@given(st.permutations(range(RECORDS)), st.integers(0, 10**6))
def test_the_order_of_a_clients_records_does_not_matter(order, seed):
    weights, inputs, targets = clients(MLP.model, 3, seed)
    present = PRESENT[[0, 1, 3]]
    gradients, _ = MLP.gradients(weights, inputs, targets, present)
    shuffled, _ = MLP.gradients(weights, inputs[:, order], targets[:, order], present[:, order])
    torch.testing.assert_close(shuffled, gradients, rtol=1e-4, atol=1e-6)
