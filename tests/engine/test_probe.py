"""Models that mix or keep records, or draw random numbers, are refused; models that do not are left alone."""

from __future__ import annotations

import math
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import torch_stream
from fedpriv.engine.probe import multiply_adds, refuse_own_randomness, refuse_record_mixing
from fedpriv.models import Cnn, CnnEmnist, CnnScattering, Logistic, LstmClassifier, LstmLm, Mlp, Svm
from fedpriv.models.normalized import NormalizedInputs

SHAPE, CLASSES = (6,), 3
IMAGES = torch.rand(64, 1, 28, 28)


def lots_of(shape, classes=CLASSES):
    def draw(n):
        stream = torch_stream(0, "lots of tests")
        x = torch.rand(n, *shape, generator=stream)
        return x, torch.randint(classes, (n,), generator=stream)

    return draw


def refuse(module, draw=None, sizes=(2, 9, 40), per_record=True):
    refuse_record_mixing(module, draw or lots_of(SHAPE), sizes, per_record=per_record)


MIXING = {
    "BatchNorm1d": nn.BatchNorm1d(4),
    "BatchNorm2d": nn.BatchNorm2d(4),
    "BatchNorm2d without parameters": nn.BatchNorm2d(4, affine=False),
    "BatchNorm2d, frozen": nn.BatchNorm2d(4).requires_grad_(False),
    "SyncBatchNorm": nn.SyncBatchNorm(4),
    "InstanceNorm2d with statistics": nn.InstanceNorm2d(4, track_running_stats=True),
}


@pytest.mark.parametrize("per_record", [True, False])
@pytest.mark.parametrize("name", MIXING)
def test_a_layer_that_mixes_records_is_refused_with_name_reason_and_remedy(name, per_record):
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Sequential(MIXING[name]))
    with pytest.raises(ConfigError) as caught:
        refuse(model, per_record=per_record)
    message = str(caught.value)
    assert f"layer 1.0 ({name.split()[0].rstrip(',')})" in message
    assert "use GroupNorm" in message
    assert "\n" not in message


class Pretrained(nn.Module):
    """A batch norm that stays in evaluation mode."""

    def __init__(self, trained=False):
        super().__init__()
        self.norm, self.head = nn.BatchNorm1d(6), nn.Linear(6, 3)
        self.norm.requires_grad_(trained)

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()
        return self

    def forward(self, x):
        return self.head(self.norm(x))


def test_a_batch_norm_frozen_in_evaluation_mode_is_accepted():
    refuse(Pretrained())
    refuse(Pretrained(trained=True), per_record=False)
    with pytest.raises(ConfigError, match="requires_grad_"):
        refuse(Pretrained(trained=True))


def test_an_embedding_scaled_by_frequency_is_refused():
    with pytest.raises(ConfigError, match="scale_grad_by_freq=False"):
        refuse(nn.Embedding(5, 3, scale_grad_by_freq=True))


def test_a_layer_opacus_cannot_treat_names_its_counterpart():
    with pytest.raises(ConfigError, match=r"\(LSTM\) .* opacus.layers"):
        refuse(nn.LSTM(3, 4))


def test_opacus_is_imported_only_for_layers_that_it_may_refuse(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus.validators", None)
    refuse(nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)))
    with pytest.raises(ImportError):
        refuse(nn.GRU(3, 4))


PIXELS = torch.zeros(2, 3, 8, 8)
MULTIPLY_ADDS = {
    "linear": (nn.Linear(6, 4), torch.zeros(2, 6), 7 * 4),
    "tokens": (nn.Linear(6, 4), torch.zeros(2, 5, 6), 5 * 7 * 4),
    "pixels": (nn.Conv2d(3, 4, 3), PIXELS, 6 * 6 * (27 + 1) * 4),
    "groups": (nn.Conv2d(3, 3, 3, stride=2, groups=3), PIXELS, 3 * 3 * (9 + 1) * 3),
    "gates": (nn.LSTM(6, 4, batch_first=True), torch.zeros(2, 5, 6), 5 * 4 * 4 * (6 + 4 + 2)),
    "a sequence": (nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU()), PIXELS, 193 * 4),
    "a lookup": (nn.Embedding(50, 4), torch.zeros(2, 5, dtype=torch.int64), 200),
}


@pytest.mark.parametrize("name", MULTIPLY_ADDS)
def test_the_work_of_a_record_is_counted(name):
    module, inputs, count = MULTIPLY_ADDS[name]
    assert multiply_adds(module, inputs) == count
    assert not any(layer._forward_hooks for layer in module.modules())


class Net(nn.Module):
    """A linear model, to which a fault is added."""

    def __init__(self):
        super().__init__()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            self.linear = nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.linear(self.own(x))

    def own(self, x):
        return x


class RunningMaximum(Net):
    """In a plain attribute."""

    largest = 1.0

    def own(self, x):
        self.largest = max(self.largest, float(x.abs().max()))
        return x / self.largest


class MaximumInAParameter(Net):
    """In a parameter that is not trained, through ``.data``, and used for nothing."""

    def __init__(self):
        super().__init__()
        self.largest = nn.Parameter(torch.ones(1), requires_grad=False)

    def own(self, x):
        self.largest.data = torch.maximum(self.largest.data, x.detach().abs().max())
        return x


class ActNorm(Net):
    """Initialises itself from the first lot."""

    def __init__(self):
        super().__init__()
        self.shift, self.scale = nn.Parameter(torch.zeros(6)), nn.Parameter(torch.ones(6))
        self.register_buffer("initialised", torch.tensor(False))

    def own(self, x):
        if not self.initialised:
            self.shift.data.copy_(-x.mean(0))
            self.scale.data.copy_(1 / (x.std(0) + 1e-6))
            self.initialised.fill_(True)
        return (x + self.shift) * self.scale


class FirstLotKept(Net):
    mean = None

    def own(self, x):
        if self.mean is None:
            self.mean = x.detach().mean(0)
        return x - self.mean


class FrozenBatchNorm(Net):
    """A batch norm by a function, with frozen weights, that still runs in training mode."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("variance", torch.ones(6))

    def own(self, x):
        return functional.batch_norm(x, self.mean, self.variance, training=self.training)


class WithoutStatistics(Net):
    def own(self, x):
        return (x - x.mean(0)) / (x.std(0, correction=0) + 1e-5)


class UsedInEvaluation(Net):
    """Running statistics in an attribute, which only evaluation reads."""

    mean = torch.zeros(6)

    def own(self, x):
        if self.training:
            self.mean = 0.9 * self.mean + 0.1 * x.detach().mean(0)
            return x
        return x - self.mean


class CountsInTheLoss(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("counts", torch.zeros(CLASSES), persistent=False)

    def record_loss(self, outputs, targets):
        self.counts += torch.bincount(targets, minlength=CLASSES)
        return functional.cross_entropy(outputs, targets, reduction="none")


class ClassBalanced(Net):
    """A loss that balances classes within the lot."""

    def record_loss(self, outputs, targets):
        counts = torch.bincount(targets, minlength=CLASSES)
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        return losses * len(targets) / (CLASSES * counts[targets])


class HardExamples(Net):
    def record_loss(self, outputs, targets):
        losses = functional.cross_entropy(outputs, targets, reduction="none")
        return losses * (losses >= losses.detach().median())


class BackwardHook(Net):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(6, 6)
        self.linear.register_full_backward_hook(
            lambda module, inputs, outputs: (inputs[0] + inputs[0].mean(0),)
        )

    def own(self, x):
        return torch.tanh(self.hidden(x))


class ExtraState(Net):
    seen = 0.0

    def own(self, x):
        self.seen = float(x.detach().sum())
        return x

    def get_extra_state(self):
        return {"seen": self.seen}

    def set_extra_state(self, state):
        self.seen = state["seen"]


class ClosedGate(Net):
    """Mixes records once training has opened a gate that starts at zero."""

    def __init__(self):
        super().__init__()
        self.gate = nn.Parameter(torch.zeros(6))

    def own(self, x):
        return x + self.gate * x.mean(0).detach()


class WhenLarge(Net):
    """Mixes records only where one is large."""

    def own(self, x):
        return x / x.abs().amax().clamp_min(10.0)


class InLargeLots(Net):
    def own(self, x):
        return x - x.mean(0) if len(x) > 30 else x


class NeedsSeveral(Net):
    def own(self, x):
        if len(x) < 2:
            raise ValueError("at least two records")
        return x


BESIDE, BEFORE, KEPT = "depends on the records beside it", "saw before", "follows from the records"
BAD = {
    RunningMaximum: BEFORE, MaximumInAParameter: "largest " + KEPT, ActNorm: "shift " + KEPT,
    FirstLotKept: BEFORE, FrozenBatchNorm: "mean " + KEPT, WithoutStatistics: BESIDE,
    UsedInEvaluation: BEFORE, CountsInTheLoss: "counts " + KEPT, ClassBalanced: BESIDE,
    HardExamples: BESIDE, BackwardHook: BESIDE, ExtraState: "_extra_state " + KEPT,
    ClosedGate: BESIDE, WhenLarge: BESIDE, InLargeLots: BESIDE,
    NeedsSeveral: "together or one by one .at least two records",
}  # fmt: skip


@pytest.mark.parametrize("per_record", [True, False])
@pytest.mark.parametrize("model", BAD, ids=lambda model: model.__name__)
def test_a_model_that_mixes_or_keeps_records_is_refused(model, per_record):
    module = model()
    before = {name: str(value) for name, value in module.state_dict().items()}
    with pytest.raises(ConfigError, match=BAD[model]):
        refuse(module, per_record=per_record)
    # looked at, not touched
    assert before == {name: str(value) for name, value in module.state_dict().items()}


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
        x = self.embedding(tokens) + self.positions
        scores = self.queries(x) @ self.keys(x).transpose(1, 2) / math.sqrt(x.shape[2])
        scores = scores.masked_fill(~mask[:, None], -1e9).softmax(2)
        pooled = (scores @ x * mask[:, :, None]).sum(1) / mask.sum(1, keepdim=True).clamp_min(1)
        return self.output(pooled)


class CachedBuffer(Net):
    """A cache in a buffer that is made in the first call."""

    def own(self, x):
        if not hasattr(self, "cache"):
            self.register_buffer("cache", torch.linspace(0, 1, x.shape[1]), persistent=False)
        return x + self.cache


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.output = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        return self.output(functional.linear(torch.tanh(self.up(x)), self.up.weight.t()))


class StaysInEvaluation(Net):
    """A batch norm that never runs in training mode, by the usual override, which returns nothing."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mean", torch.zeros(6))
        self.register_buffer("variance", torch.ones(6))
        self.norm = nn.Identity()

    def train(self, mode=True):
        super().train(mode)
        self.norm.eval()

    def own(self, x):
        return functional.batch_norm(x, self.mean, self.variance, training=self.norm.training)


def tokens_of(n):
    stream = torch_stream(0, "tokens of tests")
    tokens = torch.randint(11, (n, 5), generator=stream)
    return tokens, torch.randint(CLASSES, (n,), generator=stream)


GOOD = {
    "attention with a padding mask": (Attention, tokens_of),
    "cache in a buffer": (CachedBuffer, None),
    "tied weights": (Tied, None),
    "batch norm in evaluation mode": (StaysInEvaluation, None),
    "group norm": (lambda: nn.Sequential(nn.Linear(6, 4), nn.GroupNorm(2, 4)), None),
    "layer norm": (lambda: nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 3)), None),
    "logistic": (lambda: Logistic(0).build((1, 8, 8), 3), lots_of((1, 8, 8))),
    "mlp": (lambda: Mlp(0).build((1, 8, 8), 3), lots_of((1, 8, 8))),
    "cnn": (lambda: Cnn(0).build((1, 28, 28), 3), lots_of((1, 28, 28))),
    "cnn, standardized": (
        lambda: Cnn(0, activation="tempered_sigmoid", weight_standardization=True).build((1, 28, 28), 3),
        lots_of((1, 28, 28)),
    ),
    "cnn, normalized": (
        lambda: NormalizedInputs(Cnn(0).build((1, 28, 28), 3), 1),
        lots_of((1, 28, 28)),
    ),
    "cnn_scattering": (lambda: CnnScattering(0).build((81, 8, 8), 3), lots_of((81, 8, 8))),
    "cnn_emnist": (lambda: CnnEmnist(0).build((1, 28, 28), 3), lots_of((1, 28, 28))),
    "svm": (lambda: Svm(0).build(SHAPE, 2), lots_of(SHAPE, 2)),
}  # fmt: skip


@pytest.mark.parametrize("per_record", [True, False])
@pytest.mark.parametrize("name", GOOD)
def test_models_that_treat_each_record_alone_pass(name, per_record):
    made, draw = GOOD[name]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        module = made()
    refuse(module, draw, (2, 9), per_record)


@pytest.mark.parametrize("factory", [LstmClassifier, LstmLm])
def test_our_models_of_text_pass(factory):
    module = factory(0, layers=1, hidden=5, embedding=4).build((7,), CLASSES, 11)
    refuse(module, lambda n: module.random_records(n, torch_stream(0, "texts of tests")), (2, 9))


@pytest.mark.filterwarnings("ignore:dropout2d. Received a 2-D input")
@pytest.mark.parametrize("layer", [nn.Dropout(0.5), nn.Dropout2d(0.3), nn.AlphaDropout(0.1)])
def test_a_model_that_draws_random_numbers_is_refused(layer):
    module = nn.Sequential(nn.Flatten(), nn.Linear(784, 30), nn.Sequential(layer))
    with pytest.raises(ConfigError) as caught:
        refuse_own_randomness(module, IMAGES)
    assert f"layer 2.0 ({type(layer).__name__})" in str(caught.value)
    assert "no seed of the run controls" in str(caught.value)


def test_dropout_of_nothing_passes_and_the_global_generator_is_left_alone():
    module = nn.Sequential(nn.Flatten(), nn.Dropout(0.0), nn.Linear(6, 3))
    before = torch.get_rng_state()
    refuse(module)
    refuse_own_randomness(module, IMAGES[:, 0, 0, :6])
    assert torch.equal(torch.get_rng_state(), before)
