from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedpriv.models import Cnn, ResNet18Gn
from fedpriv.models.layers import StandardizedConv2d, standardize

IMAGES = torch.randn(2, 3, 9, 9, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def layer(*args, **kwargs) -> StandardizedConv2d:
    torch.manual_seed(0)
    return standardize(nn.Sequential(nn.Conv2d(3, 5, *args, **kwargs))).double()[0]


def test_kernels_have_mean_0_and_length_1():
    found = layer(3, stride=2, padding=1)
    weight = found.weight.detach()
    kernels = (weight - weight.mean((1, 2, 3), keepdim=True)).flatten(1)
    kernels = kernels / kernels.norm(dim=1, keepdim=True)
    expected = functional.conv2d(IMAGES, kernels.view_as(weight), found.bias, 2, 1)
    assert torch.allclose(found(IMAGES), expected, rtol=1e-3, atol=1e-3)


def test_neither_the_mean_nor_the_size_of_the_weights_counts():
    found = layer(3)
    before = found(IMAGES)
    with torch.no_grad():
        found.weight.mul_(7).add_(2)
    assert torch.allclose(found(IMAGES), before, atol=1e-3)


def test_before_group_norm_it_is_weight_standardization_as_published():
    """Qiao et al. divide by the standard deviation: kernels longer by √p."""
    found, norm = layer(3, bias=False), nn.GroupNorm(1, 5).double()
    weight = found.weight.detach()
    spread = weight.std((1, 2, 3), keepdim=True, unbiased=False)
    published = (weight - weight.mean((1, 2, 3), keepdim=True)) / spread
    expected = norm(functional.conv2d(IMAGES, published))
    assert torch.allclose(norm(found(IMAGES)), expected, atol=1e-3)


def test_gradients_are_pulled_back_as_autograd_does():
    found = layer((3, 2))
    given = torch.randn(4, *found.weight.shape, dtype=torch.float64)
    kernels = found._standardized()[0].view_as(found.weight)
    rows = [torch.autograd.grad(kernels, found.weight, g, retain_graph=True)[0] for g in given]
    with torch.no_grad():
        pulled = found.pulled_back(given)
    assert torch.allclose(pulled, torch.stack(rows).flatten(1), rtol=1e-10, atol=1e-12)


def test_weights_that_are_all_alike_give_zeros_and_finite_gradients():
    found = layer(3, bias=False)
    nn.init.constant_(found.weight, 0.3)
    outputs = found(IMAGES)
    outputs.sum().backward()
    assert float(outputs.detach().abs().max()) < 1e-10
    assert found.weight.grad.isfinite().all()


@pytest.mark.parametrize(("factory", "shape"), [(Cnn, (1, 28, 28)), (ResNet18Gn, (3, 8, 8))])
def test_a_network_keeps_its_parameters_and_the_random_state(factory, shape):
    state = torch.get_rng_state()
    plain, found = (factory(0, weight_standardization=on).build(shape, 4) for on in (None, True))
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(type(layer) is nn.Conv2d for layer in found.modules())
    before, after = plain.state_dict(), found.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[name], after[name]) for name in before)
    images = torch.ones(2, *shape)
    assert not torch.allclose(plain(images), found(images))


def test_off_is_the_network_without_it():
    off = Cnn(0, weight_standardization=False).build((1, 28, 28), 10)
    assert not any(isinstance(layer, StandardizedConv2d) for layer in off)
