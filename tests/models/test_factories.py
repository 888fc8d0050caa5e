from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.models import Cnn, CnnEmnist, CnnScattering, Logistic, Mlp, ResNet18Gn

FACTORIES = [Cnn, CnnEmnist, CnnScattering, Mlp, Logistic]


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


def flat(module: nn.Module) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in module.parameters()])


@pytest.mark.parametrize("padding", [2, 3])
def test_the_cnn_has_26010_parameters(padding):
    assert parameters(Cnn(0, padding=padding).build((1, 28, 28), 10)) == 26_010


def test_the_cnn_for_emnist_has_1199882_parameters():
    assert parameters(CnnEmnist(0).build((1, 28, 28), 10)) == 1_199_882


def test_glorot_weights_of_the_cnn_for_emnist_fill_their_range():
    plain, glorot = (
        CnnEmnist(0, initial_weights=w).build((3, 32, 32), 10) for w in (None, "glorot")
    )
    assert parameters(plain) == parameters(glorot) == 1_626_442
    for layer in (glorot[0], glorot[2], glorot[6], glorot[8]):
        area = layer.weight[0, 0].numel()
        fans = area * (layer.weight.shape[0] + layer.weight.shape[1])
        assert layer.weight.abs().max().item() == pytest.approx((6 / fans) ** 0.5, rel=0.02)
    assert torch.equal(flat(CnnEmnist(0).build((3, 32, 32), 10)), flat(plain))


def test_the_mlp_has_25450_and_the_logistic_regression_7850_parameters():
    assert parameters(Mlp(0).build((1, 28, 28), 10)) == 25_450
    assert parameters(Logistic(0).build((1, 28, 28), 10)) == 7_850


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("shape", [(1, 28, 28), (3, 32, 32), (1, 8, 8), (2, 17, 40)])
def test_every_model_reads_images_of_any_size(factory, shape):
    module = factory(0).build(shape, 7)
    assert module(torch.randn(2, *shape)).shape == (2, 7)


@pytest.mark.parametrize("side", [5, 6, 7, 8, 28, 39])
@pytest.mark.parametrize("padding", [0, 1, 2, 3])
def test_the_cnn_reads_an_image_or_says_that_it_is_too_small(side, padding):
    if side + 2 * (padding // 2) < 7:
        with pytest.raises(ConfigError, match="too small"):
            Cnn(0, padding).build((1, side, side), 10)
    else:
        module = Cnn(0, padding).build((1, side, side), 10)
        assert module(torch.randn(1, 1, side, side)).shape == (1, 10)


def test_small_images_leave_the_cnn_as_many_features_as_large_ones():
    assert Cnn(0).build((1, 8, 8), 10)[7].in_features == 512


@pytest.mark.parametrize("factory", [Mlp, Logistic])
def test_records_need_not_be_images(factory):
    assert factory(0).build((5,), 3)(torch.randn(2, 5)).shape == (2, 3)


@pytest.mark.parametrize("shape", [(5,), (28, 28), (1, 3, 3), (1, 28, 2)])
def test_the_cnn_refuses_what_it_cannot_read(shape):
    with pytest.raises(ConfigError, match=r"model must be .* got cnn"):
        Cnn(0).build(shape, 10)


@pytest.mark.parametrize("shape", [(36,), (28, 28), (1, 5, 28), (1, 28, 5)])
def test_the_cnn_for_emnist_refuses_what_it_cannot_read(shape):
    with pytest.raises(ConfigError, match=r"model must be .* got cnn_emnist; it reads images"):
        CnnEmnist(0).build(shape, 10)


@pytest.mark.parametrize("factory", FACTORIES)
def test_an_empty_record_is_refused(factory):
    with pytest.raises(ConfigError, match="model must be"):
        factory(0).build((0, 28, 28), 10)


@pytest.mark.parametrize("factory", FACTORIES)
def test_the_weights_depend_on_the_seed_alone(factory):
    torch.manual_seed(1)
    first = flat(factory(0).build((1, 28, 28), 10))
    torch.manual_seed(2)
    again = flat(factory(0).build((1, 28, 28), 10))
    other = flat(factory(1).build((1, 28, 28), 10))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


@pytest.mark.parametrize("factory", FACTORIES)
def test_building_leaves_the_random_state_alone(factory):
    state = torch.get_rng_state()
    factory(0).build((1, 28, 28), 10)
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("factory", "arguments", "argument"),
    [
        (Cnn, {"seed": -1}, "seed"),
        (Mlp, {"seed": 0.5}, "seed"),
        (Logistic, {"seed": None}, "seed"),
        (Cnn, {"seed": 0, "padding": -1}, "padding"),
        (Cnn, {"seed": 0, "weight_standardization": "yes"}, "weight_standardization"),
        (ResNet18Gn, {"seed": 0, "weight_standardization": 1}, "weight_standardization"),
        (Mlp, {"seed": 0, "hidden": 0}, "hidden"),
    ],
)
def test_constructors_name_the_argument(factory, arguments, argument):
    with pytest.raises(ArgumentError, match=f"^{argument} must be"):
        factory(**arguments)


def test_the_factories_can_be_made_without_torch():
    code = "import sys; sys.modules['torch'] = None; from fedpriv.models import *; Cnn(0); Mlp(0)"
    subprocess.run([sys.executable, "-c", code], check=True)
