"""Which engine is used, and what is refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

from fedpriv.common.errors import ConfigError
from fedpriv.engine import FlatModel, cross_entropy, make_engine


def pairs(records_of, *shape: int, counts=(2, 3)):
    torch.manual_seed(0)
    n = sum(counts)
    return records_of(torch.randn(n, *shape).double(), torch.randint(0, 3, (n,)), list(counts))


class Twice(nn.Module):
    """Calls its hidden layer two times."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.hidden(torch.tanh(self.hidden(x)))))


class Functional(nn.Module):
    """Uses a layer's weight behind the layer's back."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(torch.tanh(functional.linear(self.hidden(x), self.hidden.weight)))


class InPlace(nn.Module):
    """Changes what a layer gave in place."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(5, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.hidden(x).mul_(2.0))


class Reshaped(nn.Module):
    """Gives a layer rows that are not records."""

    def __init__(self):
        super().__init__()
        self.hidden, self.out = nn.Linear(5, 4), nn.Linear(8, 3)

    def forward(self, x):
        return self.out(self.hidden(x.reshape(-1, 5)).reshape(len(x), -1))


class Tied(nn.Module):
    """Two layers with one weight."""

    def __init__(self):
        super().__init__()
        self.one, self.two, self.out = nn.Linear(5, 5), nn.Linear(5, 5), nn.Linear(5, 3)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.out(torch.tanh(self.two(torch.tanh(self.one(x)))))


class Unused(nn.Module):
    """Has a layer that the outputs do not depend on."""

    def __init__(self):
        super().__init__()
        self.spare, self.out = nn.Linear(5, 4), nn.Linear(5, 3)

    def forward(self, x):
        self.spare(x)
        return self.out(x)


def test_auto_is_fast_where_every_layer_has_a_rule():
    layers = [nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2, 3)]
    assert make_engine(nn.Sequential(*layers)).name == "fast"


NO_RULE = {
    "groups": lambda: nn.Conv2d(2, 4, 3, groups=2),
    "circular padding": lambda: nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"),
    "conv1d": lambda: nn.Conv1d(2, 4, 3),
    "partly frozen": lambda: partly_frozen(nn.Linear(5, 4)),
    "max_norm": lambda: nn.Embedding(5, 4, max_norm=1.0),
}


def partly_frozen(layer: nn.Module) -> nn.Module:
    layer.bias.requires_grad_(False)
    return layer


@pytest.mark.parametrize("name", NO_RULE)
def test_auto_is_opacus_where_a_layer_has_no_rule_and_fast_names_the_layer(name):
    model = nn.Sequential(NO_RULE[name](), nn.Flatten(), nn.Linear(4, 3))
    assert make_engine(model, engine="auto").name == "opacus"
    with pytest.raises(ConfigError, match=r"runtime.engine must be .* got fast; layer 0 \("):
        make_engine(model, engine="fast")


def test_a_subclass_of_a_known_layer_has_no_rule():
    class Doubled(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    assert make_engine(nn.Sequential(Doubled(5, 3))).name == "opacus"


def test_an_unknown_engine_is_refused():
    with pytest.raises(ConfigError, match=r"runtime\.engine must be one of auto, opacus, fast"):
        make_engine(nn.Linear(2, 2), engine="quick")


@pytest.mark.parametrize("module", [Twice, Tied])
def test_a_layer_called_twice_or_tied_falls_back_to_opacus(
    module, records_of, naive, difference, clip_at
):
    model = FlatModel(module().double())
    engine = make_engine(model)
    records = pairs(records_of, 5)
    result = records.clipped_sums(engine, clip_at(0.2))
    assert engine.name == "opacus"
    sums, norms = naive(model, cross_entropy, records, clip_at(0.2))
    assert difference(result.sums, sums) < 1e-10
    assert difference(result.norms, norms) < 1e-10


@pytest.mark.parametrize(
    ("module", "shape", "why"),
    [
        (Twice, (5,), "hidden .* more than once"),
        (Functional, (5,), "do not account for all of its gradient"),
        (InPlace, (5,), "hidden .* changed in place"),
        (Reshaped, (2, 5), "hidden .* first dimension is not the record"),
    ],
)
def test_fast_says_why_it_cannot(module, shape, why, records_of, clip_at):
    engine = make_engine(FlatModel(module().double()), engine="fast")
    with pytest.raises(ConfigError, match=why):
        pairs(records_of, *shape).clipped_sums(engine, clip_at(1.0))


class SlightlyFunctional(nn.Module):
    """A weight that is also used a little outside its layer."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        return self.layer(x) + 1e-3 * (x @ self.layer.weight.t())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_small_use_of_a_weight_outside_its_layer_is_seen(dtype, records_of, clip_at):
    engine = make_engine(FlatModel(SlightlyFunctional().to(dtype)))
    records = pairs(records_of, 5)
    records.inputs = records.inputs.to(dtype)
    with pytest.raises(ConfigError, match="do not account for all of its gradient"):
        records.clipped_sums(engine, clip_at(1.0))


class InSinglePrecision(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(5, 3)

    def forward(self, x):
        return self.layer(x.float())


def test_a_model_that_is_not_computed_in_double_precision_is_compared_in_its_own(
    records_of, clip_at
):
    engine = make_engine(FlatModel(InSinglePrecision()))
    records = pairs(records_of, 5)
    records.inputs = records.inputs.float()
    assert bool(records.clipped_sums(engine, clip_at(1.0)).finite.all())
    assert engine.name == "fast"


@pytest.mark.parametrize(
    ("module", "shape"), [(Functional, (5,)), (Reshaped, (2, 5)), (InPlace, (5,))]
)
def test_a_model_no_engine_can_treat_is_refused(module, shape, records_of, clip_at):
    engine = make_engine(FlatModel(module().double()))
    with pytest.raises(ConfigError, match="model has no per-record gradients"):
        pairs(records_of, *shape).clipped_sums(engine, clip_at(1.0))


@pytest.mark.parametrize("engine", ["fast", "opacus"])
def test_a_layer_the_outputs_do_not_depend_on_has_no_gradient(
    engine, records_of, naive, difference, clip_at
):
    model = FlatModel(Unused().double())
    records = pairs(records_of, 5)
    result = records.clipped_sums(make_engine(model, engine=engine), clip_at(0.2))
    sums, _ = naive(model, cross_entropy, records, clip_at(0.2))
    assert difference(result.sums, sums) < 1e-10


def test_batch_norm_has_no_per_record_gradients(records_of, clip_at):
    model = nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Linear(4, 3)).double()
    with pytest.raises(ConfigError, match="model has no per-record gradients"):
        pairs(records_of, 5).clipped_sums(make_engine(model), clip_at(1.0))


class OneToken(nn.Module):
    """Gives its embedding a single token, without a dimension of records."""

    def __init__(self):
        super().__init__()
        self.embedding, self.out = nn.Embedding(4, 5), nn.Linear(5, 3)

    def forward(self, x):
        return self.out(self.embedding(x[0, 0].long() * 0).expand(len(x), -1))


def test_a_layer_that_reads_a_single_number_is_no_layer_of_records(records_of, clip_at):
    engine = make_engine(FlatModel(OneToken().double()), engine="fast")
    with pytest.raises(ConfigError, match=r"embedding .* first dimension is not the record"):
        pairs(records_of, 5).clipped_sums(engine, clip_at(1.0))


class PositionsFirst(nn.Module):
    """Computes with the positions of a sequence in the dimension of the records."""

    def __init__(self):
        super().__init__()
        self.each, self.out = nn.Linear(3, 4), nn.Linear(4, 3)

    def forward(self, x):
        return self.out(torch.tanh(self.each(x.transpose(0, 1))).mean(0))


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("records", [1, 4, 5])
def test_a_sequence_as_long_as_the_lot_is_not_taken_for_the_records(engine, records, clip_at):
    inputs = torch.randn(records, 4, 3, dtype=torch.float64)
    targets = torch.zeros(records, dtype=torch.int64)
    made = make_engine(FlatModel(PositionsFirst().double()), engine=engine)
    with pytest.raises(ConfigError, match="first dimension"):
        made.clipped_sums(inputs, targets, targets, 1, clip_at(1.0))
