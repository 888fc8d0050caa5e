"""Every layer × every shape of lots, against one backward pass per record and against Opacus."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpriv.engine import FlatModel, cross_entropy, lots, make_engine, plain_gradient
from fedpriv.models.layers import standardize

CLASSES = 3
LOTS = {
    "one client": [9],
    "equal": [4, 4, 4],
    "ragged with empty ones": [0, 5, 0, 1, 7, 0],
    "many clients": [i % 4 for i in range(70)],
    "many equal clients": [2] * 40,
    "single records": [1] * 33,
}


class Mean(nn.Module):
    """Averages over all dimensions between the first and the last."""

    def forward(self, x):
        return x.flatten(1, -2).mean(1) if x.dim() > 2 else x


def head(features: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(features, CLASSES)]


def images(*shape: int):
    return lambda n, dtype: torch.randn(n, *shape, dtype=dtype)


def tokens(*shape: int, high: int = 6):
    return lambda n, dtype: torch.randint(0, high, (n, *shape))


def conv(channels: int, size: int, *args, **kwargs):
    """A convolution on size × size images with a head that fits."""
    layer = nn.Conv2d(channels, *args, **kwargs)
    features = layer(torch.zeros(1, channels, size, size)).numel()
    return [layer, nn.Tanh(), *head(features)]


MODELS = {
    "linear": (lambda: [nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, CLASSES)], images(5)),
    "linear without bias": (lambda: [nn.Linear(5, CLASSES, bias=False)], images(5)),
    "linear on sequences": (lambda: [nn.Linear(5, 4), nn.Tanh(), *head(12)], images(3, 5)),
    "linear on grids": (lambda: [nn.Linear(5, 4), nn.Tanh(), *head(24)], images(2, 3, 5)),
    "wide linear, ghost norm": (
        lambda: [nn.Linear(130, 128), nn.Tanh(), Mean(), nn.Linear(128, CLASSES)],
        images(3, 130),
    ),
    "wide linear without bias, ghost norm": (
        lambda: [nn.Linear(130, 128, bias=False), Mean(), nn.Linear(128, CLASSES)],
        images(2, 130),
    ),
    "conv": (lambda: conv(1, 6, 4, 3), images(1, 6, 6)),
    "conv without bias": (lambda: conv(2, 6, 4, 3, bias=False), images(2, 6, 6)),
    "conv with stride and padding": (lambda: conv(3, 7, 4, 3, 2, 1), images(3, 7, 7)),
    "conv with dilation": (lambda: conv(2, 7, 4, 3, dilation=2), images(2, 7, 7)),
    "conv, uneven kernel": (
        lambda: conv(2, 7, 4, (3, 2), stride=(1, 2), padding=(0, 1)),
        images(2, 7, 7),
    ),
    "conv, padding valid": (lambda: conv(2, 6, 4, 3, padding="valid"), images(2, 6, 6)),
    "wide conv, ghost norm": (lambda: conv(32, 4, 64, 3), images(32, 4, 4)),
    "standardized conv with stride, padding and dilation": (
        lambda: [standardize(nn.Sequential(*conv(3, 9, 4, (3, 2), 2, 1, 2)))],
        images(3, 9, 9),
    ),
    "wide standardized convs without bias": (
        lambda: [
            standardize(
                nn.Sequential(
                    nn.Conv2d(2, 32, 1, bias=False),
                    nn.GroupNorm(2, 32),
                    nn.ReLU(),
                    *conv(32, 4, 64, 3, bias=False),
                )
            )
        ],
        images(2, 4, 4),
    ),
    "two convs and pools": (
        lambda: [
            nn.Conv2d(2, 4, 3, padding=1),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, 1),
            nn.Conv2d(4, 5, 2),
            nn.ReLU(inplace=True),
            nn.AvgPool2d(2),
            *head(20),
        ],
        images(2, 6, 6),
    ),
    "embedding, repeated tokens": (lambda: [nn.Embedding(6, 4), *head(20)], tokens(5)),
    "embedding, one token": (lambda: [nn.Embedding(6, 4), nn.Linear(4, CLASSES)], tokens()),
    "embedding with padding": (lambda: [nn.Embedding(6, 4, padding_idx=2), *head(20)], tokens(5)),
    "embedding of grids": (lambda: [nn.Embedding(6, 4), nn.Tanh(), *head(24)], tokens(2, 3)),
    "group norm": (
        lambda: [nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), *head(36)],
        images(2, 5, 5),
    ),
    "group norm on vectors": (
        lambda: [nn.Linear(5, 4), nn.GroupNorm(2, 4), nn.Tanh(), *head(4)],
        images(5),
    ),
    "layer norm": (lambda: [nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh(), *head(12)], images(3, 5)),
    "layer norm over two dimensions": (
        lambda: [nn.LayerNorm((3, 5)), nn.Tanh(), *head(15)],
        images(3, 5),
    ),
    "frozen layer": (
        lambda: [nn.Linear(5, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, CLASSES)],
        images(5),
    ),
}


def case(name: str, counts: list[int], records_of, dtype=torch.float64):
    torch.manual_seed(7)
    make, sample = MODELS[name]
    model = FlatModel(nn.Sequential(*make()).to(dtype))
    n = sum(counts)
    return model, records_of(sample(n, dtype), torch.randint(0, CLASSES, (n,)), counts)


@pytest.mark.few(3)
@pytest.mark.parametrize("lots_name", LOTS)
@pytest.mark.parametrize("name", MODELS)
def test_fast_equals_one_backward_pass_per_record(
    name, lots_name, records_of, naive, difference, clip_at
):
    model, records = case(name, LOTS[lots_name], records_of)
    factors = clip_at(0.3)
    result = records.clipped_sums(make_engine(model, engine="fast"), factors)
    sums, norms = naive(model, cross_entropy, records, factors)
    assert difference(result.sums, sums) < 1e-10
    assert difference(result.norms, norms) < 1e-10
    assert result.finite.all()


@pytest.mark.parametrize("name", MODELS)
def test_opacus_equals_one_backward_pass_per_record(name, records_of, naive, difference, clip_at):
    model, records = case(name, LOTS["ragged with empty ones"], records_of)
    factors = clip_at(0.3)
    result = records.clipped_sums(make_engine(model, engine="opacus"), factors)
    sums, norms = naive(model, cross_entropy, records, factors)
    assert difference(result.sums, sums) < 1e-10
    assert difference(result.norms, norms) < 1e-10


@pytest.mark.parametrize("lots_name", ["ragged with empty ones", "many clients"])
@pytest.mark.parametrize("name", MODELS)
def test_fast_equals_opacus_in_single_precision(name, lots_name, records_of, difference, clip_at):
    model, records = case(name, LOTS[lots_name], records_of, torch.float32)
    fast = records.clipped_sums(make_engine(model, engine="fast"), clip_at(0.3))
    opacus = records.clipped_sums(make_engine(model, engine="opacus"), clip_at(0.3))
    tolerance = 1e-4 if "ghost" in name else 1e-5  # ghost norms carry their rounding error
    assert difference(fast.sums, opacus.sums) < tolerance
    assert difference(fast.norms, opacus.norms) < tolerance
    assert difference(fast.losses, opacus.losses) < 1e-5


@pytest.mark.parametrize("name", ["conv with stride and padding", "two convs and pools"])
def test_images_already_laid_out_channels_last_give_the_same(
    name, records_of, naive, difference, clip_at
):
    model, records = case(name, [3, 4], records_of)
    records.inputs = records.inputs.to(memory_format=torch.channels_last)
    sums, _ = naive(model, cross_entropy, records, clip_at(0.3))
    for engine in ("fast", "opacus"):
        result = records.clipped_sums(make_engine(model, engine=engine), clip_at(0.3))
        assert difference(result.sums, sums) < 1e-10


@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize("padding", ["same", 2])
def test_padding_by_name_equals_autograd(padding, records_of, naive, difference, clip_at):
    torch.manual_seed(3)
    model = FlatModel(nn.Sequential(*conv(2, 6, 4, 4, padding=padding)).double())
    records = records_of(torch.randn(6, 2, 6, 6).double(), torch.randint(0, 3, (6,)), [2, 4])
    result = records.clipped_sums(make_engine(model, engine="fast"), clip_at(0.3))
    sums, _ = naive(model, cross_entropy, records, clip_at(0.3))
    assert difference(result.sums, sums) < 1e-10


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_no_record_at_all_gives_zeros(engine, records_of, clip_at):
    model, records = case("two convs and pools", [0, 0, 0], records_of)
    result = records.clipped_sums(make_engine(model, engine=engine), clip_at(1.0))
    assert result.sums.shape == (3, model.size)
    assert not result.sums.any()
    assert len(result.norms) == len(result.losses) == len(result.finite) == 0


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_without_factors_the_sums_are_plain_gradients(engine, records_of, naive, difference):
    model, records = case("two convs and pools", [3, 0, 4], records_of)
    chosen = make_engine(model, engine=engine)
    sums, losses = plain_gradient(
        chosen, records.inputs, records.targets, records.client_of_record, 3
    )
    assert difference(sums, naive(model, cross_entropy, records, None)[0]) < 1e-10
    assert len(losses) == 7


@pytest.mark.parametrize("counts", [[9], [0, 3, 8, 0, 1, 2], [1, 1, 1, 1, 1, 1]])
def test_cutting_into_blocks_changes_nothing(
    counts, records_of, naive, difference, clip_at, monkeypatch
):
    monkeypatch.setattr(lots, "BLOCK_RECORDS", 3)
    monkeypatch.setattr(lots, "BLOCK_CLIENTS", 2)
    model, records = case("two convs and pools", counts, records_of)
    result = records.clipped_sums(make_engine(model, engine="fast"), clip_at(0.3))
    sums, norms = naive(model, cross_entropy, records, clip_at(0.3))
    assert difference(result.sums, sums) < 1e-10
    assert difference(result.norms, norms) < 1e-10


def test_each_client_may_have_its_own_clip_norm(records_of, naive, difference):
    bounds = torch.tensor([0.1, 1.0, 0.01, 10.0], dtype=torch.float64)

    def factors(norms, clients):
        return (bounds[clients] / norms).clamp(max=1)

    model, records = case("linear", [3, 0, 2, 4], records_of)
    result = records.clipped_sums(make_engine(model), factors)
    assert difference(result.sums, naive(model, cross_entropy, records, factors)[0]) < 1e-10


def test_the_loss_may_be_any_loss_per_record(records_of, naive, difference, clip_at):
    def squared_error(outputs, targets):
        return (outputs.sum(1) - targets).square()

    model, records = case("linear", [3, 2], records_of)
    result = records.clipped_sums(make_engine(model, squared_error), clip_at(0.5))
    sums, _ = naive(model, squared_error, records, clip_at(0.5))
    assert difference(result.sums, sums) < 1e-10


def test_a_loss_that_is_not_per_record_is_refused(records_of, clip_at):
    model, records = case("linear", [3, 2], records_of)
    engine = make_engine(
        model, lambda outputs, targets: nn.functional.cross_entropy(outputs, targets)
    )
    with pytest.raises(ValueError, match="one per record"):
        records.clipped_sums(engine, clip_at(1.0))


@pytest.mark.parametrize("clients", [[1, 0, 2], [0, 1, 3], [-1, 0, 1], [0.0, 1.0, 2.0]])
def test_clients_out_of_order_or_range_are_refused(clients, records_of, clip_at):
    model, records = case("linear", [3], records_of)
    with pytest.raises(ValueError, match="client_of_record must be"):
        make_engine(model).clipped_sums(
            records.inputs, records.targets, torch.tensor(clients), 3, clip_at(1.0)
        )
