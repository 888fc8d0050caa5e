"""Records that are several copies each: the mean of their gradients is one gradient, measured and clipped."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.func import functional_call, grad
from torch.nn import functional

from fedpriv.engine import FlatModel, StackedModel, cross_entropy, lots, make_engine
from fedpriv.engine.parts import asking_for, layers_of
from fedpriv.models import LstmClassifier
from fedpriv.models.layers import standardize
from fedpriv.privacy.clippers.parts import LayerGroups

CLASSES, COPIES = 3, 4
COUNTS = [0, 3, 1, 0, 5]


@dataclass
class Copied:
    """Copies [n, K, …]; notes how many were asked for at a time."""

    values: torch.Tensor
    asked: list[int]

    @property
    def copies(self) -> int:
        return self.values.shape[1]

    def __len__(self) -> int:
        return len(self.values)

    def __getitem__(self, place: slice) -> torch.Tensor:
        self.asked.append(len(self.values[place]) * self.copies)
        return self.values[place]


def head(features: int) -> list[nn.Module]:
    return [nn.Flatten(), nn.Linear(features, CLASSES)]


MODELS = {
    "linear": (lambda: [nn.Flatten(), nn.Linear(18, 4), nn.Tanh(), *head(4)], (2, 3, 3)),
    "linear without bias": (lambda: [nn.Linear(5, CLASSES, bias=False)], (5,)),
    "linear on sequences": (lambda: [nn.Linear(5, 4), nn.Tanh(), *head(12)], (3, 5)),
    "wide linear, ghost norm": (lambda: [nn.Linear(130, 128), nn.Tanh(), *head(128)], (130,)),
    "conv": (
        lambda: [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(inplace=True), nn.MaxPool2d(2), *head(36)],
        (2, 6, 6),
    ),
    "wide conv, ghost norm": (lambda: [nn.Conv2d(32, 64, 3), nn.Tanh(), *head(256)], (32, 4, 4)),
    "standardized conv": (
        lambda: [standardize(nn.Sequential(nn.Conv2d(2, 4, 3, 2, 1), nn.Tanh(), *head(36)))],
        (2, 6, 6),
    ),
    "group norm": (
        lambda: [nn.Conv2d(2, 4, 3), nn.GroupNorm(2, 4), nn.Tanh(), *head(36)],
        (2, 5, 5),
    ),
    "layer norm": (lambda: [nn.Linear(5, 4), nn.LayerNorm(4), nn.Tanh(), *head(12)], (3, 5)),
    "embedding, repeated tokens": (lambda: [nn.Embedding(6, 4), *head(20)], (5,)),
    "frozen layer": (
        lambda: [nn.Linear(5, 4).requires_grad_(False), nn.Tanh(), nn.Linear(4, CLASSES)],
        (5,),
    ),
}
GHOSTS = [name for name in MODELS if "ghost" in name]


def case(name: str, dtype=torch.float64, copies: int = COPIES):
    torch.manual_seed(5)
    make, shape = MODELS[name]
    model, n = FlatModel(nn.Sequential(*make()).to(dtype)), sum(COUNTS)
    if "embedding" in name:
        values = torch.randint(0, 6, (n, copies, *shape))
    else:  # alike, as copies of an image are: their gradients add up
        values = torch.randn(n, 1, *shape) + 0.5 * torch.randn(n, copies, *shape)
        values = values.to(dtype)
    return model, Copied(values, []), torch.randint(0, CLASSES, (n,))


def clients_of(counts: list[int] = COUNTS) -> torch.Tensor:
    return torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))


def each(model: FlatModel, copies: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """The gradient of each record's mean loss [n, d], one after the other."""
    weights = {k: p.detach() for k, p in model.module.named_parameters()}
    trained = {k for k, p in model.module.named_parameters() if p.requires_grad}

    def mean_loss(weights, inputs, target):
        outputs = functional_call(model.module, weights, (inputs,))
        return functional.cross_entropy(outputs, target.expand(len(inputs)))

    rows = []
    for inputs, target in zip(copies, targets, strict=True):
        found = grad(mean_loss)(weights, inputs, target)
        rows.append(torch.cat([g.flatten() for k, g in found.items() if k in trained]))
    return torch.stack(rows)


def clipped(rows: torch.Tensor, clip_norm: float) -> torch.Tensor:
    """The sum of each client's rows [n, d], clipped one by one."""
    scale = (clip_norm / rows.norm(dim=1, keepdim=True)).clamp(max=1)
    return rows.new_zeros(len(COUNTS), rows.shape[1]).index_add_(0, clients_of(), rows * scale)


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", MODELS)
def test_the_mean_over_copies_is_clipped_as_one_gradient(name, engine, clip_at, difference):
    model, copied, targets = case(name)
    rows = each(model, copied.values, targets)
    chosen = make_engine(model, engine=engine)
    found = chosen.clipped_sums(copied, targets, clients_of(), len(COUNTS), clip_at(0.2))
    assert chosen.name == engine
    assert difference(found.norms, rows.norm(dim=1)) < 1e-7
    assert difference(found.sums, clipped(rows, 0.2)) < 1e-7
    outputs = model(copied.values.flatten(0, 1))
    losses = cross_entropy(outputs, targets.repeat_interleave(COPIES)).view(-1, COPIES).mean(1)
    assert difference(found.losses, losses) < 1e-10


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", sorted(set(MODELS) - set(GHOSTS)))
def test_in_single_precision_too(name, engine, clip_at, difference):
    model, copied, targets = case(name, torch.float32)
    found = make_engine(model, engine=engine).clipped_sums(
        copied, targets, clients_of(), len(COUNTS), clip_at(0.2)
    )
    exact = FlatModel(copy.deepcopy(model.module).double())
    inputs = copied.values.double() if copied.values.is_floating_point() else copied.values
    assert difference(found.sums.double(), clipped(each(exact, inputs, targets), 0.2)) < 1e-5


@pytest.mark.parametrize("name", MODELS)
def test_copies_clipped_one_by_one_would_be_seen(name, difference):
    """What the tests above would miss if gradients of copies were no longer than their mean."""
    model, copied, targets = case(name)
    rows = each(model, copied.values, targets)
    alone = torch.stack(
        [each(model, copied.values[:, [j]], targets) for j in range(COPIES)]
    )  # [K, n, d]
    assert difference(alone.mean(0), rows) < 1e-7
    fault = torch.stack([clipped(own / COPIES, 0.2) for own in alone]).sum(0)
    other = torch.stack([clipped(own, 0.2) for own in alone]).mean(0)
    assert min(difference(wrong, clipped(rows, 0.2)) for wrong in (fault, other)) > 1e-3


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_one_copy_is_the_record(engine, clip_at):
    model, copied, targets = case("group norm", copies=1)
    chosen, clients = make_engine(model, engine=engine), clients_of()
    found = chosen.clipped_sums(copied, targets, clients, len(COUNTS), clip_at(0.2))
    plain = chosen.clipped_sums(
        copied.values.squeeze(1), targets, clients, len(COUNTS), clip_at(0.2)
    )
    for column in ("sums", "norms", "losses", "finite"):
        assert torch.equal(getattr(found, column), getattr(plain, column))


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_an_lstm_reads_copies_too(engine, clip_at, difference):
    torch.manual_seed(2)
    model = FlatModel(LstmClassifier(0, layers=1, hidden=5, embedding=4).build((6,), 3, 9).double())
    copied = Copied(torch.randint(1, 9, (9, COPIES, 6)), [])
    targets = torch.randint(0, 3, (9,))
    rows = []
    for inputs, target in zip(copied.values, targets, strict=True):
        loss = model.loss(model(inputs), target.expand(COPIES)).mean()
        rows.append(torch.cat([g.flatten() for g in torch.autograd.grad(loss, model.parameters())]))
    found = make_engine(model, engine=engine).clipped_sums(
        copied, targets, clients_of(), len(COUNTS), clip_at(0.05)
    )
    assert difference(found.sums, clipped(torch.stack(rows), 0.05)) < 1e-7


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", ["linear", "conv"])
def test_parts_of_the_mean_are_clipped_apart(name, engine, difference):
    model, copied, targets = case(name)
    layers = layers_of(model)
    parts = LayerGroups(
        tuple(k for k, _ in layers), tuple((own, i) for i, (_, own) in enumerate(layers))
    )
    factors = asking_for(parts, lambda norms, clients: (0.1 / norms).clamp(max=1))
    found = make_engine(model, engine=engine).clipped_sums(
        copied, targets, clients_of(), len(COUNTS), factors
    )
    rows = each(model, copied.values, targets)
    expected = torch.cat([clipped(rows[:, own], 0.1) for _, own in layers], dim=1)
    assert difference(found.sums, expected) < 1e-7


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_one_copy_that_is_not_finite_makes_its_record_zero(engine, clip_at, difference):
    model, copied, targets = case("conv")
    rows = each(model, copied.values, targets)
    copied.values[2, 1] = torch.nan
    rows[2] = 0.0
    found = make_engine(model, engine=engine).clipped_sums(
        copied, targets, clients_of(), len(COUNTS), clip_at(0.2)
    )
    assert found.finite.tolist() == [i != 2 for i in range(9)]
    rows[2] = 1e-300  # its factor is a number
    assert difference(found.sums, clipped(rows, 0.2)) < 1e-7


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_blocks_are_cut_by_copies(engine, clip_at, difference, monkeypatch):
    monkeypatch.setattr(lots, "BLOCK_RECORDS", 2 * COPIES)
    model, copied, targets = case("conv")
    rows = each(model, copied.values, targets)
    found = make_engine(model, engine=engine).clipped_sums(
        copied, targets, clients_of(), len(COUNTS), clip_at(0.2)
    )
    assert max(copied.asked) == 2 * COPIES
    assert difference(found.sums, clipped(rows, 0.2)) < 1e-7


def test_blocks_of_models_that_say_what_they_hold_are_cut_by_copies(monkeypatch):
    monkeypatch.setattr(lots, "BLOCK_VALUES", 120)
    assert [b.stop - b.start for b in lots.blocks([7], 10, copies=4)] == [3, 3, 1]
    assert [b.stop - b.start for b in lots.blocks([2], 10, copies=100)] == [1, 1]


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", ["linear", "conv"])
def test_clients_with_weights_of_their_own(name, engine, difference):
    """Also of a chain, whose batched norms are of one row a record."""
    model, copied, targets = case(name)
    before, bounds = model.flat.clone(), torch.tensor([0.1, 0.2, 0.3, 0.4, 0.5])
    weights = model.flat + 0.1 * torch.randn(len(COUNTS), model.size, dtype=torch.float64)
    ends = torch.tensor(COUNTS).cumsum(0).tolist()
    own = [slice(end - count, end) for end, count in zip(ends, COUNTS, strict=True)]
    stacked = StackedModel(model, engine=make_engine(model, engine=engine))
    found = stacked.clipped_apart(
        weights,
        [(Copied(copied.values[place], []), targets[place]) for place in own],
        lambda norms, clients: (bounds[clients] / norms).clamp(max=1),
    )
    assert torch.equal(model.flat, before)
    for k, place in enumerate(own):
        expected = torch.zeros(model.size, dtype=torch.float64)
        if COUNTS[k]:
            model.set(weights[k])
            rows = each(model, copied.values[place], targets[place])
            expected = (rows * (bounds[k] / rows.norm(dim=1, keepdim=True)).clamp(max=1)).sum(0)
        assert difference(found.sums[k], expected) < 1e-7
