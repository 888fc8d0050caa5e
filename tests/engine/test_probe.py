"""Models that mix or remember records are refused, or harmless where each record is computed alone."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import torch_stream
from fedpriv.engine import FlatModel, make_engine
from fedpriv.engine.probe import lot_sizes, refuse_dependent_records
from fedpriv.models import Cnn, CnnScattering, Logistic, Mlp, Svm
from fedpriv.models.cnn_emnist import CnnEmnist
from fedpriv.models.lstm import LstmClassifier, LstmLm
from fedpriv.models.normalized import NormalizedInputs

SHAPE, CLASSES = (6,), 3
SIZES = [2, 9, 65, 70]


def lots_of(shape, classes):
    def draw(n):
        stream = torch_stream(0, "lots of tests")
        x = torch.rand(n, *shape, generator=stream)
        return x, torch.randint(classes, (n,), generator=stream)

    return draw


def probe(module, draw=None, sizes=SIZES, engine="auto", isolated=False):
    draw = lots_of(SHAPE, CLASSES) if draw is None else draw
    sizes = sizes[:2] if isolated else sizes
    refuse_dependent_records(module, draw, sizes, engine, isolated)


class Net(nn.Module):
    """A linear model, to which a fault is added."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.linear = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.linear(x)


class CountsInTheLoss(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("counts", torch.zeros(CLASSES))

    def record_loss(self, outputs, targets):
        self.counts += torch.bincount(targets, minlength=CLASSES)
        return functional.cross_entropy(outputs, targets, reduction="none")


class ClassBalanced(Net):
    def record_loss(self, outputs, targets):
        counts = torch.bincount(targets, minlength=CLASSES)
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        return losses * len(targets) / (CLASSES * counts[targets])


class CentreLoss(Net):
    def record_loss(self, outputs, targets):
        return (outputs - outputs.mean(0)).square().sum(1)


class HardExamples(Net):
    def record_loss(self, outputs, targets):
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        return losses * (losses >= losses.detach().median())


class RunningMaximum(Net):
    """In a plain attribute."""

    largest = 1.0

    def forward(self, x):
        self.largest = max(self.largest, float(x.detach().abs().nan_to_num().max()))
        return self.linear(x / self.largest)


class MaximumInAParameter(Net):
    """In a parameter that is not trained, through ``.data``, and used for nothing."""

    def __init__(self):
        super().__init__()
        self.largest = nn.Parameter(torch.ones(1), requires_grad=False)

    def forward(self, x):
        self.largest.data = torch.maximum(self.largest.data, x.detach().abs().max())
        return self.linear(x)


class MaximumWritten(MaximumInAParameter):
    def forward(self, x):
        self.largest.data.copy_(x.detach().abs().max())
        return self.linear(x)


class CentredIfMany(Net):
    def forward(self, x):
        return self.linear(x - x.mean(0) if len(x) > 64 else x)


class CentredFromTheEighth(Net):
    def forward(self, x):
        return self.linear(torch.cat([x[:8], x[8:] - x.mean(0)]))


class BackwardHook(Net):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 6)
        self.linear.register_full_backward_hook(self.divide)

    @staticmethod
    def divide(module, to_inputs, of_outputs):
        return (to_inputs[0] / to_inputs[0].norm(),)

    def forward(self, x):
        return self.linear(torch.tanh(self.hidden(x)))


class SmallDetachedMean(Net):
    def forward(self, x):
        return self.linear(x - 1e-4 * x.mean(0).detach())


class InfiniteAlone(Net):
    """A mean that is so small that it counts only where a record is huge."""

    def forward(self, x):
        return self.linear(x - 1e-12 * x.mean(0).detach())


class ExtraState(Net):
    seen = 0.0

    def forward(self, x):
        self.seen = float(x.detach().sum())
        return self.linear(x)

    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


class Closure(Net):
    """Remembers in a closure."""

    def __init__(self):
        super().__init__()
        seen = [1.0]

        def forward(x):
            seen[0] = max(seen[0], float(x.detach().abs().nan_to_num().max()))
            return self.linear(x / seen[0])

        self.forward = forward


LARGEST = [1.0]


class Global(Net):
    def forward(self, x):
        LARGEST[0] = max(LARGEST[0], float(x.detach().abs().nan_to_num().max()))
        return self.linear(x / LARGEST[0])


class FirstLotKept(Net):
    """Standardized by the mean of the first lot that it sees."""

    mean = None

    def forward(self, x):
        if self.mean is None:
            self.mean = x.detach().mean(0)
        return self.linear(x - self.mean)


class FailsForInfinity(Net):
    def forward(self, x):
        if not bool(x.isfinite().all()):
            raise ValueError("not finite")
        return self.linear(x)


BAD = [
    CountsInTheLoss, ClassBalanced, CentreLoss, HardExamples, RunningMaximum, MaximumInAParameter,
    MaximumWritten, CentredIfMany, CentredFromTheEighth, BackwardHook, SmallDetachedMean, InfiniteAlone,
    ExtraState, Closure, Global, FirstLotKept, FailsForInfinity,
]  # fmt: skip


@pytest.fixture(autouse=True)
def nothing_global():
    LARGEST[0] = 1.0


@pytest.mark.parametrize("model", BAD, ids=lambda model: model.__name__)
def test_a_model_that_mixes_or_remembers_records_is_refused(model):
    module = model()
    weights = [p.clone() for p in module.parameters()]
    with pytest.raises(ConfigError, match="cannot be trained with differential privacy"):
        probe(module)
    assert all(map(torch.equal, weights, module.parameters()))


# What is outside the module is not restored between records, and the probe has to find it.
OUTSIDE = (Closure, Global)


@pytest.mark.few(2)
@pytest.mark.parametrize("model", [m for m in BAD if m not in (*OUTSIDE, FailsForInfinity)],
                         ids=lambda model: model.__name__)  # fmt: skip
def test_computed_alone_no_record_and_no_client_reaches_another(model):
    probe(model(), isolated=True)


@pytest.mark.parametrize("model", OUTSIDE, ids=lambda model: model.__name__)
def test_what_a_model_keeps_outside_itself_is_found_where_records_are_alone(model):
    with pytest.raises(
        ConfigError, match=r"depend on the first records|after other lots than before"
    ):
        probe(model(), isolated=True)


class Attention(nn.Module):
    """Self-attention over tokens, with a padding mask (token 0) and a table of positions made when needed."""

    def __init__(self, tokens=11, width=4):
        super().__init__()
        self.embedding = nn.Embedding(tokens, width)
        self.queries, self.keys = nn.Linear(width, width), nn.Linear(width, width)
        self.output = nn.Linear(width, CLASSES)
        self.positions = None

    def forward(self, tokens):
        mask = tokens != 0
        if self.positions is None:
            places = torch.arange(tokens.shape[1])[:, None] / 10 ** torch.arange(4)
            self.positions = places.sin()
        x = self.embedding(tokens) + self.positions.to(self.output.weight.dtype)
        scores = self.queries(x) @ self.keys(x).transpose(1, 2) / math.sqrt(x.shape[2])
        scores = scores.masked_fill(~mask[:, None], -1e9).softmax(2)
        pooled = (scores @ x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)
        return self.output(pooled)


class CachedBuffer(Net):
    """A cache in a buffer that is made in the first call."""

    def forward(self, x):
        if not hasattr(self, "cache"):
            self.register_buffer("cache", torch.linspace(0, 1, x.shape[1]), persistent=False)
        return self.linear(x + self.cache.to(x))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.output = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.output(functional.linear(torch.tanh(self.up(x)), self.up.weight.t()))


class TiedModules(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.output = nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 3)
        self.second.weight = self.first.weight

    def forward(self, x):
        return self.output(torch.tanh(self.second(torch.tanh(self.first(x)))))


def test_weights_used_twice_have_gradients_where_records_are_alone():
    """No engine has rules for a weight that a function uses."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        probe(Tied(), isolated=True)


def tokens_of(n):
    stream = torch_stream(0, "tokens of tests")
    tokens = torch.randint(11, (n, 5), generator=stream)
    return tokens, torch.randint(CLASSES, (n,), generator=stream)


GOOD = {
    "attention with a padding mask": (Attention, tokens_of),
    "cache in a buffer": (CachedBuffer, None),
    "weights of two layers": (TiedModules, None),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("isolated", [False, True])
@pytest.mark.parametrize("name", GOOD)
def test_models_that_treat_each_record_alone_pass(name, isolated):
    model, draw = GOOD[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = model()
    probe(module, draw, isolated=isolated)


OURS = {
    "logistic": lambda: (Logistic(0), (1, 8, 8)),
    "mlp": lambda: (Mlp(0), (1, 8, 8)),
    "cnn": lambda: (Cnn(0), (1, 28, 28)),
    "cnn, standardized": lambda: (Cnn(0, weight_standardization=True), (1, 28, 28)),
    "cnn_scattering": lambda: (CnnScattering(0), (81, 8, 8)),
    "cnn_emnist": lambda: (CnnEmnist(0), (1, 28, 28)),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", OURS)
def test_our_models_pass(name):
    factory, shape = OURS[name]()
    probe(factory.build(shape, CLASSES), lots_of(shape, CLASSES), [2, 9])


def test_our_other_losses_and_layers_pass():
    probe(Svm(0).build(SHAPE, 2), lots_of(SHAPE, 2))
    behind = Cnn(0).build((1, 28, 28), CLASSES)
    probe(NormalizedInputs(behind, 1), lots_of((1, 28, 28), CLASSES), [2])


@pytest.mark.parametrize("factory", [LstmClassifier, LstmLm])
def test_our_models_of_text_pass(factory):
    module = factory(0, layers=1, hidden=5, embedding=4).build((7,), CLASSES, 11)

    def draw(n):
        return module.random_records(n, torch_stream(0, "texts of tests"))

    probe(module, draw, [2, 9])


def test_lots_are_as_large_as_the_runs_and_beyond_and_bounded():
    assert lot_sizes(100, [78.2, 780], False) == [2, 9, 65, 78, 156, 780, 1560]
    assert max(lot_sizes(10_000_000, [780], False)) == 9
    assert lot_sizes(100, [780], True) == [2, 9]


# ---- computed alone


def gradients(engine, lot):
    n = len(lot[1])
    return engine.clipped_sums(*lot, torch.arange(n), n, lambda norms, clients: norms * 0 + 1)


@pytest.mark.parametrize("model", [Net, TiedModules])
def test_the_isolated_engine_gives_what_the_others_give(model):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = model()
    lot = lots_of(SHAPE, CLASSES)(12)
    expected = gradients(make_engine(FlatModel(module)), lot)
    engine = make_engine(FlatModel(module, isolated=True))
    found = gradients(engine, lot)
    assert engine.name == "isolated"
    for name in ("sums", "norms", "losses"):
        torch.testing.assert_close(getattr(found, name), getattr(expected, name))


def test_a_record_alone_cannot_write_into_the_weights():
    flat = FlatModel(MaximumWritten(), isolated=True)
    before = flat.flat.clone()
    gradients(make_engine(flat), lots_of(SHAPE, CLASSES)(3))
    assert torch.equal(flat.flat, before)
    assert flat.is_flat()
