"""The larger models for images: exact per-record gradients, and a step of training."""

from __future__ import annotations

import pytest
import torch

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.engine import FlatModel, make_engine
from fedpriv.engine.probe import refuse_own_randomness, refuse_record_mixing
from fedpriv.models import CnnEmnist, CnnScattering, ResNet18Gn

MODELS = {
    "cnn_emnist": (CnnEmnist(0), (1, 12, 12), 10),
    "cnn_scattering": (CnnScattering(0, width=8), (27, 5, 4), 10),
    "cnn_scattering, narrow kernel": (CnnScattering(0, width=8, first_kernel=1), (27, 4, 4), 10),
    "resnet18_gn": (ResNet18Gn(0, groups=8), (3, 8, 8), 4),
}


def built(factory, shape, classes) -> tuple[FlatModel, torch.Tensor, torch.Tensor]:
    """The model in double precision, inputs [4, …] and targets [4]."""
    stream = torch.Generator().manual_seed(0)
    inputs = torch.randn(4, *shape, generator=stream, dtype=torch.float64)
    targets = torch.randint(classes, (4,), generator=stream)
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


@pytest.mark.thorough
@pytest.mark.parametrize("name", MODELS)
def test_auto_takes_book_keeping(name):
    assert make_engine(built(*MODELS[name])[0]).name == "fast"


@pytest.mark.parametrize(
    ("name", "engine"),
    [
        ("cnn_emnist", "fast"),
        ("cnn_emnist", "opacus"),
        ("cnn_scattering", "fast"),
        ("cnn_scattering", "opacus"),
        ("cnn_scattering, narrow kernel", "fast"),
        ("cnn_scattering, narrow kernel", "opacus"),
    ],
)
def test_clipped_sums_equal_one_backward_pass_per_record(name, engine):
    model, inputs, targets = built(*MODELS[name])
    rows, norms = naive(model, inputs, targets, 0.5)
    result = make_engine(model, engine=engine).clipped_sums(
        inputs, targets, torch.tensor([0, 2, 2, 2]), 3, lambda n, k: (0.5 / n).clamp(max=1)
    )
    torch.testing.assert_close(result.norms, norms)
    expected = torch.stack([rows[0], torch.zeros_like(rows[0]), rows[1:].sum(0)])
    torch.testing.assert_close(result.sums, expected)


@pytest.mark.thorough
def test_standardized_the_norms_of_the_residual_network_are_those_of_autograd():
    model, inputs, targets = built(
        ResNet18Gn(0, groups=8, weight_standardization=True), (3, 8, 8), 4
    )
    inputs, targets = inputs[:2], targets[:2]
    rows, norms = naive(model, inputs, targets, 0.5)
    result = make_engine(model, engine="fast").clipped_sums(
        inputs, targets, torch.tensor([0, 0]), 1, lambda n, k: (0.5 / n).clamp(max=1)
    )
    torch.testing.assert_close(result.norms, norms)
    torch.testing.assert_close(result.sums[0], rows.sum(0))


@pytest.mark.few(3)
@pytest.mark.parametrize("name", MODELS)
def test_a_record_alone_decides_its_gradient(name):
    model, inputs, targets = built(*MODELS[name])
    refuse_record_mixing(model.module, lambda n: (inputs[:n], targets[:n]), (2, 4), per_record=True)
    refuse_own_randomness(model.module, inputs)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", MODELS)
def test_steps_against_the_clipped_gradient_lower_the_loss(name):
    model, inputs, targets = built(*MODELS[name])
    engine, before = make_engine(model), model.evaluate(inputs, targets)[0]
    lot = (inputs, targets, torch.zeros(4).long(), 1)
    for _ in range(3):
        sums = engine.clipped_sums(*lot, lambda n, k: (0.5 / n).clamp(max=1)).sums
        model.flat.sub_(sums[0], alpha=0.02)
    assert model.evaluate(inputs, targets)[0] < before


@pytest.mark.thorough
def test_a_private_round_runs(train):
    result = train(
        "algorithm=dp_fl", "dataset=digits", "model=cnn_emnist", "partition.clients=2", "rounds=1",
        "algorithm.sample_rate=0.01", "evaluation_interval=1",
    )  # fmt: skip
    assert result.summary["rounds"] == 1


def test_the_residual_network_has_11173962_parameters():
    assert FlatModel(ResNet18Gn(0).build((3, 32, 32), 10)).size == 11_173_962


def test_the_network_on_scattering_has_the_parameters_of_the_paper():
    assert FlatModel(CnnScattering(0).build((243, 8, 8), 10)).size == 187_210
    assert FlatModel(CnnScattering(0, first_kernel=1).build((243, 8, 8), 10)).size == 62_794


@pytest.mark.parametrize("shape", [(64,), (1, 1, 8), (0, 8, 8)])
def test_the_network_on_scattering_refuses_what_it_cannot_read(shape):
    with pytest.raises(ConfigError, match=r"model must be .* got cnn_scattering; it reads images"):
        CnnScattering(0).build(shape, 10)


@pytest.mark.parametrize("first_kernel", [0, 2, 5, True, "3", None])
def test_the_first_kernel_of_the_network_on_scattering_is_3_or_1(first_kernel):
    with pytest.raises(ArgumentError, match="first_kernel must be 3 or 1"):
        CnnScattering(0, first_kernel=first_kernel)


@pytest.mark.parametrize("width", [0, 1.5, True, None])
def test_the_network_on_scattering_has_channels(width):
    with pytest.raises(ArgumentError, match="width must be"):
        CnnScattering(0, width=width)


@pytest.mark.parametrize("shape", [(64,), (1, 7, 8), (0, 32, 32)])
def test_the_residual_network_refuses_what_it_cannot_read(shape):
    with pytest.raises(ConfigError, match=r"model must be .* got resnet18_gn; it reads images"):
        ResNet18Gn(0).build(shape, 10)


@pytest.mark.parametrize("groups", [0, 3, 128, True, "many", None])
def test_the_groups_divide_the_channels(groups):
    with pytest.raises(ArgumentError, match="groups must be one of 1, 2, 4"):
        ResNet18Gn(0, groups=groups)
