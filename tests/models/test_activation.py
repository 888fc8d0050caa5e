from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpriv.common.errors import ArgumentError
from fedpriv.models import Cnn
from fedpriv.models.activation import Activation


def test_relu_is_the_default():
    assert isinstance(Activation().module(), nn.ReLU)
    assert sum(isinstance(layer, nn.ReLU) for layer in Cnn(0).build((1, 28, 28), 10)) == 3


def test_the_tempered_sigmoid_is_tanh_unless_it_is_tempered():
    x = torch.linspace(-6, 6, 101)
    default = Activation("tempered_sigmoid").module()
    assert torch.allclose(default(x), torch.tanh(x), atol=1e-6)
    tempered = Activation("tempered_sigmoid", [3, 0.5, 1.5]).module()
    assert torch.allclose(tempered(x), 3 / (1 + torch.exp(-0.5 * x)) - 1.5, atol=1e-6)


@pytest.mark.parametrize("name", ["tanh", "tempered_sigmoid"])
def test_a_network_has_it_in_each_place_of_relu_and_the_same_initial_weights(name):
    plain, other = (Cnn(0, activation=a).build((1, 28, 28), 10) for a in (None, name))
    assert not any(isinstance(layer, nn.ReLU) for layer in other)
    assert len(other) == len(plain)
    for one, two in zip(plain.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
    hidden = other[:-1](5 * torch.randn(3, 1, 28, 28))
    assert float(hidden.detach().abs().max()) <= 1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("relu",), r"activation must be tanh, tempered_sigmoid or null \(ReLU\), got relu"),
        (("tanh", [2, 2, 1]), "tempering must be null unless activation=tempered_sigmoid"),
        (("tempered_sigmoid", [2, 2]), r"tempering must be three numbers \[s, T, o\]"),
        (("tempered_sigmoid", [2, 0, 1]), r"tempering must be three numbers .* T > 0"),
        (("tempered_sigmoid", "2,2,1"), "tempering must be three numbers"),
        (("tempered_sigmoid", [2, "x", 1]), "tempering must be three numbers"),
    ],
)
def test_arguments_that_are_not_allowed(arguments, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        Activation(*arguments)
