"""The factories of models of text, and the LSTM layer against torch's."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data.base import Dataset
from fedpriv.engine.probe import refuse_own_randomness, refuse_record_mixing
from fedpriv.models import Cnn, LstmClassifier, LstmLm
from fedpriv.models.fit import build_for
from fedpriv.models.recurrent import Lstm

FACTORIES = [LstmClassifier, LstmLm]


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def small(factory, seed: int = 0) -> nn.Module:
    return factory(seed, layers=2, hidden=5, embedding=3).build((6,), 4, 20)


def test_the_published_sizes_are_the_defaults():
    vocabulary, hidden = 5000, 200
    layer = 4 * hidden * (2 * hidden + 1)
    shared = vocabulary * hidden + 2 * layer
    assert len(flat(LstmClassifier(0).build((20,), 2, vocabulary))) == shared + 2 * (hidden + 1)
    outputs = vocabulary * (hidden + 1)
    assert len(flat(LstmLm(0).build((20,), vocabulary, vocabulary))) == shared + outputs


def test_a_classifier_gives_a_row_for_each_record_and_a_language_model_one_for_each_token():
    tokens = torch.randint(0, 20, (7, 6))
    assert small(LstmClassifier)(tokens).shape == (7, 4)
    assert small(LstmLm)(tokens).shape == (7, 6, 20)


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_weights_depend_on_the_seed_alone(factory):
    state = torch.get_rng_state()
    assert torch.equal(flat(small(factory)), flat(small(factory)))
    assert not torch.equal(flat(small(factory)), flat(small(factory, seed=1)))
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("factory", FACTORIES)
def test_a_record_alone_decides_its_gradient(factory):
    module = small(factory)

    def draw(n):
        return module.random_records(n, torch.Generator().manual_seed(0))

    refuse_record_mixing(module, draw, (2, 9), per_record=True)
    refuse_own_randomness(module, draw(9)[0])


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("shape", [(1, 28, 28), (), (0,)])
def test_records_that_are_no_texts_are_refused(factory, shape):
    with pytest.raises(ConfigError, match=f"model must be .* got {factory.name}; it reads token"):
        factory(0).build(shape, 10, 10)


def test_a_classifier_needs_the_size_of_the_vocabulary():
    with pytest.raises(ConfigError, match="got lstm_classifier; it reads token ids of a vocab"):
        LstmClassifier(0).build((6,), 2)


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("key", ["seed", "layers", "hidden", "embedding"])
@pytest.mark.parametrize("value", [-1, 0.5, None, "many", True])
def test_constructors_name_the_argument(factory, key, value):
    with pytest.raises(ArgumentError, match=f"^{key} must be"):
        factory(**{"seed": 0, key: value})


def test_a_data_set_without_a_vocabulary_gets_the_model_as_before():
    class Images(Dataset):
        name, input_shape, classes = "images", (1, 28, 28), 10

        def load(self):
            raise NotImplementedError

    assert torch.equal(flat(build_for(Cnn(0), Images())), flat(Cnn(0).build((1, 28, 28), 10)))


def test_the_factories_can_be_made_without_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from fedpriv.models import *; LstmLm(0);"
        "ResNet18Gn(0); CnnEmnist(0); import fedpriv.models.fit"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def ours_and_torchs(inputs: int, hidden: int) -> tuple[Lstm, nn.LSTM]:
    """Both with the same weights; the quarters of torch's are i, f, g, o."""
    ours, theirs = Lstm(inputs, hidden).double(), nn.LSTM(inputs, hidden, batch_first=True).double()

    def quarters(values: torch.Tensor) -> torch.Tensor:
        i, f, g, o = values.chunk(4)
        return torch.cat([i, f, o, g])

    with torch.no_grad():
        weights = [quarters(theirs.weight_ih_l0), quarters(theirs.weight_hh_l0)]
        ours.weight.copy_(torch.cat(weights, dim=1))
        ours.bias.copy_(quarters(theirs.bias_ih_l0 + theirs.bias_hh_l0))
    return ours, theirs


def test_states_and_gradients_are_those_of_torchs_layer_without_padding():
    ours, theirs = ours_and_torchs(3, 5)
    inputs = torch.randn(4, 6, 3, dtype=torch.float64, requires_grad=True)
    there = torch.ones(4, 6, dtype=torch.bool)
    states, expected = ours(inputs, there), theirs(inputs)[0]
    torch.testing.assert_close(states, expected)
    direction = torch.randn_like(states)
    grads = [torch.autograd.grad(s, inputs, direction)[0] for s in (states, expected)]
    torch.testing.assert_close(*grads)


@pytest.mark.parametrize("full", [True, False])
def test_the_backward_pass_is_that_of_finite_differences(full):
    layer = Lstm(3, 4).double()
    inputs = torch.randn(3, 5, 3, dtype=torch.float64, requires_grad=True)
    real = torch.ones(3, 5, dtype=torch.bool)
    if not full:
        real = torch.rand(3, 5) > 0.4
        real[0] = False

    def states(inputs, weight, bias):
        named = {"weight": weight, "bias": bias}
        return torch.func.functional_call(layer, named, (inputs, real))

    assert torch.autograd.gradcheck(states, (inputs, layer.weight, layer.bias))


def test_a_step_without_a_token_keeps_the_state():
    layer, inputs = Lstm(3, 4), torch.randn(2, 5, 3)
    real = torch.tensor([[True, False, True, True, False], [False] * 5])
    states = layer(inputs, real)
    packed = layer(inputs[:1, [0, 2, 3]], torch.ones(1, 3, dtype=torch.bool))
    torch.testing.assert_close(states[0, [0, 2, 3]], packed[0])
    assert torch.equal(states[0, 1], states[0, 0])
    assert torch.equal(states[0, 4], states[0, 3])
    assert not states[1].any()
