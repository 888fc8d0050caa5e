"""One record moves the clipped sum by at most its clip norm, whatever its gradient looks like.

The engine's own output is compared with and without the record. Gradients whose terms cancel, are huge or
tiny are where a norm measured in single precision is too small.
"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpriv.engine import FlatModel, StackedModel, make_engine
from fedpriv.engine.norms import norms_above
from fedpriv.models.recurrent import Lstm

CLIP_NORM = 0.5
ALLOWED = CLIP_NORM * (1 + 1e-5)
OTHERS = 5


class Weighted(nn.Module):
    """``layers`` between inputs and outputs; the loss of a record is Σ outputs · target, so that a target
    chooses the gradient with respect to what the layers give."""

    def __init__(self, *layers: nn.Module):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.layers(inputs)

    @staticmethod
    def record_loss(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return (outputs * targets).flatten(1).sum(1)


class LastState(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = Lstm(6, 70)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        return self.lstm(inputs, torch.ones(inputs.shape[:2], dtype=torch.bool))


POSITIONS = 12


def floats(*shape: int):
    return lambda n: torch.randn(n, *shape)


def tokens(n: int) -> torch.Tensor:
    return torch.randint(1, 4, (n, POSITIONS))  # few tokens, so that each comes several times


RULES = {
    "linear": (lambda: Weighted(nn.Linear(300, 20)), floats(300)),
    "linear, rows": (lambda: Weighted(nn.Linear(30, 20)), floats(POSITIONS, 30)),
    "linear, ghost": (lambda: Weighted(nn.Linear(300, 200)), floats(POSITIONS, 300)),
    "linear, ghost, no bias": (
        lambda: Weighted(nn.Linear(300, 200, bias=False)),
        floats(POSITIONS, 300),
    ),
    "conv, rows": (lambda: Weighted(nn.Conv2d(2, 4, 3)), floats(2, 8, 8)),
    "conv, ghost": (lambda: Weighted(nn.Conv2d(64, 64, 3)), floats(64, 5, 5)),
    "embedding": (lambda: Weighted(nn.Embedding(6, 30)), tokens),
    "group norm": (lambda: Weighted(nn.GroupNorm(2, 4)), floats(4, 6, 6)),
    "layer norm": (lambda: Weighted(nn.LayerNorm(40)), floats(POSITIONS, 40)),
    "lstm": (lambda: Weighted(LastState()), floats(POSITIONS, 6)),
}
GHOST = ("linear, ghost", "linear, ghost, no bias", "conv, ghost")


def shape_of(model: FlatModel, inputs: torch.Tensor) -> torch.Size:
    with torch.no_grad():
        return model(inputs).shape


def plain(inputs, targets):
    return inputs, targets


def cancelling(inputs, targets):
    """The positions of the record come in pairs whose gradients all but cancel, each of them huge."""
    positions = inputs.dim() > 2 or not inputs.is_floating_point()
    if not positions:
        return inputs, targets
    inputs, targets = inputs.clone(), targets.clone()
    axis = -1 if inputs.dim() == 4 else 1  # columns of an image, positions of a sequence
    half = targets.shape[axis] // 2
    first = targets.narrow(axis, 0, half)
    targets.narrow(axis, half, half).copy_(-first)
    if inputs.is_floating_point() and inputs.dim() == 3:
        half = inputs.shape[1] // 2
        noise = 1e-4 * torch.randn_like(inputs[:, :half])
        inputs[:, half : 2 * half] = inputs[:, :half] + noise
    elif not inputs.is_floating_point():
        inputs[:, half : 2 * half] = inputs[:, :half]
    return inputs, targets * 1e4


def constant(inputs, targets):
    """All inputs equal: what a difference of products cancels to."""
    inputs = torch.full_like(inputs, 3) if inputs.is_floating_point() else inputs
    signs = torch.ones_like(targets)
    signs.flatten(1)[:, ::2] = -1
    return inputs, signs * 1e3 + 1e-2 * targets


def huge(inputs, targets):
    return inputs, targets * 1e12


def tiny(inputs, targets):
    return inputs, targets * 1e-25


RECORDS = (plain, cancelling, constant, huge, tiny)


def clip(norms: torch.Tensor, clients: torch.Tensor) -> torch.Tensor:
    return (CLIP_NORM / norms.clamp_min(1e-30)).clamp_max(1.0)


def moved(engine, inputs, targets) -> float:
    """By how much the first record moves the sum of a lot."""
    sums = []
    for first in (0, 1):
        lot = (inputs[first:], targets[first:])
        clients = torch.zeros(len(lot[0]), dtype=torch.int64)
        sums.append(engine.clipped_sums(*lot, clients, 1, clip).sums.double())
    return float((sums[0] - sums[1]).norm())


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@pytest.mark.parametrize("name", RULES)
def test_a_record_moves_the_sum_by_at_most_the_clip_norm(name, record):
    torch.manual_seed(0)
    make, draw = RULES[name]
    model = FlatModel(make())
    engine = make_engine(model, engine="fast")
    inputs = draw(OTHERS + 1)
    targets = torch.randn(shape_of(model, inputs))
    moved(engine, inputs, targets)  # the engine proves its rules on what it sees first
    mine = record(inputs[:1], targets[:1])
    inputs = torch.cat([mine[0], inputs[1:]])
    targets = torch.cat([mine[1], targets[1:]])
    assert moved(engine, inputs, targets) <= ALLOWED


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.__name__)
@pytest.mark.parametrize("name", GHOST)
def test_a_ghost_norm_is_never_too_small(name, record):
    """Against the norm of the gradient formed in double precision."""
    make, draw = RULES[name]
    for seed in range(5):
        torch.manual_seed(seed)
        model = FlatModel(make())
        inputs = draw(1)
        inputs, targets = record(inputs, torch.randn(shape_of(model, inputs)))
        engine = make_engine(model, engine="fast")
        found = engine.clipped_sums(inputs, targets, torch.zeros(1).long(), 1, clip).norms
        exact = FlatModel(make().double())
        exact.set(model.flat.double())
        loss = exact.module.record_loss(exact(inputs.double()), targets.double()).sum()
        gradient = torch.cat(
            [g.flatten() for g in torch.autograd.grad(loss, list(exact.module.parameters()))]
        )
        assert float(found) >= float(gradient.norm()) * (1 - 1e-6)


@pytest.mark.parametrize("counts", [[100], [128], [129], [700], [40, 300, 3]])
def test_long_lots_are_added_up_in_pieces(counts):
    """All records alike, so that the rounding errors of a plain float32 sum add up as well."""
    torch.manual_seed(0)
    model = FlatModel(Weighted(nn.Linear(50, 20)))
    engine = make_engine(model, engine="fast")
    n = sum(counts)
    inputs, targets = torch.randn(1, 50).repeat(n, 1), torch.randn(1, 20).repeat(n, 1) * 100
    clients = torch.repeat_interleave(torch.arange(len(counts)), torch.tensor(counts))
    sums = engine.clipped_sums(inputs, targets, clients, len(counts), clip).sums
    expected = torch.tensor(counts, dtype=torch.float64) * CLIP_NORM
    error = (sums.double().norm(dim=1) - expected) / CLIP_NORM
    assert (error.abs() < 1e-4 * expected).all()
    assert sums.dtype == (torch.float64 if max(counts) > 128 else torch.float32)


@pytest.mark.parametrize("name", ["linear", "linear, rows", "conv, rows"])
@pytest.mark.parametrize("lot", [78, 129, 1500, 6000])
def test_a_record_of_a_long_lot_moves_it_by_at_most_the_clip_norm(name, lot):
    """All gradients point one way, so that the sum is large and its rounding coarse."""
    torch.manual_seed(lot)
    make, draw = RULES[name]
    model = FlatModel(make())
    engine = make_engine(model, engine="fast")
    one = draw(1)
    targets = torch.randn(shape_of(model, one)) * 100
    inputs = one.expand(lot, *one.shape[1:]) * (1 + 1e-3 * torch.rand(lot, *[1] * (one.dim() - 1)))
    assert moved(engine, inputs, targets.expand(lot, *targets.shape[1:])) <= ALLOWED


@pytest.mark.parametrize("b", [40, 200])
def test_side_by_side_a_record_moves_its_client_by_at_most_the_clip_norm(b):
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(30, 16), nn.Tanh(), nn.Linear(16, 5))
    model = FlatModel(module)
    stacked = StackedModel(model)
    weights = model.flat.repeat(3, 1)
    inputs, targets = torch.randn(3, b, 30) * 50, torch.randint(0, 5, (3, b))
    present = torch.ones(3, b, dtype=torch.bool)
    whole = stacked.clipped_sums(weights, inputs, targets, present, clip).sums.double()
    present[1, 7] = False
    without = stacked.clipped_sums(weights, inputs, targets, present, clip).sums.double()
    difference = (whole - without).norm(dim=1)
    assert difference[1] <= ALLOWED
    assert difference[0] == difference[2] == 0


@pytest.mark.parametrize("terms", [1, 7, 512, 513, 5000])
@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1.0, 1e15])
def test_a_measured_norm_is_at_least_the_true_one(terms, scale):
    torch.manual_seed(terms)
    rows = torch.randn(50, terms) * scale
    rows[:, 0] *= 1e3  # small terms beside a large one are what a sum of squares loses
    exact = rows.double().norm(dim=1)
    found = norms_above(rows).double()
    assert (found >= exact).all()
    floor = 1e-17 if scale < 1e-15 else 0
    assert (found <= exact * (1 + 3e-5) + floor).all()


def test_squares_that_stagnate_are_made_up_for():
    """1 and two million terms of 1e-4: each square is lost beside 1 in single precision."""
    rows = torch.full((1, 2_000_001), 1e-4)
    rows[0, 0] = 1.0
    assert float(norms_above(rows)) >= float(rows.double().norm())


def test_reduced_precision_of_products_is_paid_for():
    torch.manual_seed(0)
    a, g = torch.randn(2, POSITIONS, 300), torch.randn(2, POSITIONS, 200)
    from fedpriv.engine.rules import OuterProducts

    products = OuterProducts(a, g, {"weight": slice(0, 60_000)})
    plain = products.squared_norms()
    before = torch.get_float32_matmul_precision()
    try:
        torch.set_float32_matmul_precision("medium")
        careful = products.squared_norms()
    finally:
        torch.set_float32_matmul_precision(before)
    assert (careful > 1.5 * plain).all()
