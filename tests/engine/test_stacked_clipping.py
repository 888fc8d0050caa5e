"""Per-record clipped sums of clients with weights of their own, against the engine client by client."""

from __future__ import annotations

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from torch import nn

from fedpriv.engine import ClippedSums, FlatModel, StackedModel, make_engine
from fedpriv.models import Cnn, Mlp, Svm

CLASSES = 3
ACTIVATIONS = [nn.ReLU, nn.Tanh, nn.GELU, nn.Identity, lambda: nn.ReLU(inplace=True)]
layers = st.lists(
    st.tuples(st.integers(1, 20), st.booleans(), st.integers(0, len(ACTIVATIONS) - 1)), max_size=3
)
masks = st.integers(1, 5).flatmap(
    lambda width: st.lists(
        st.lists(st.booleans(), min_size=width, max_size=width), min_size=1, max_size=5
    )
)


def chain_of(hidden, shape=(2, 3)) -> nn.Sequential:
    modules, width = [nn.Flatten()], shape[0] * shape[1]
    for size, bias, activation in hidden:
        modules += [nn.Linear(width, size, bias=bias), ACTIVATIONS[activation]()]
        width = size
    return nn.Sequential(*modules, nn.Linear(width, CLASSES)).double()


def clients(model: FlatModel, present: torch.Tensor, shape=(2, 3), classes=CLASSES, seed: int = 0):
    """(weights [c, d], inputs, targets): every client has weights and records of its own."""
    stream, dtype = torch.Generator().manual_seed(seed), model.flat.dtype
    weights = torch.randn(len(present), model.size, generator=stream, dtype=dtype)
    inputs = torch.randn(*present.shape, *shape, generator=stream, dtype=dtype)
    return (
        model.flat + 0.3 * weights,
        inputs,
        torch.randint(classes, present.shape, generator=stream),
    )


def loop(model: FlatModel, weights, inputs, targets, present, factors, name="fast") -> ClippedSums:
    """The engine on a copy of the module, one client after the other."""
    results = []
    for k, own in enumerate(present):
        alone = FlatModel(copy.deepcopy(model.module))
        alone.set(weights[k])

        def of_client(norms, clients, k=k):
            return factors(norms, torch.full_like(clients, k))

        lot = (inputs[k][own], targets[k][own], torch.zeros(int(own.sum()), dtype=torch.int64))
        engine = make_engine(alone, engine=name)
        results.append(engine.clipped_sums(*lot, 1, None if factors is None else of_client))
    columns = ("sums", "norms", "losses", "finite")
    return ClippedSums(*(torch.cat([getattr(r, column) for r in results]) for column in columns))


def own_bounds(norms, clients):
    """Each client clips at a norm of its own."""
    return ((0.3 + 0.2 * clients) / norms).clamp(max=1)


def assert_same(result: ClippedSums, expected: ClippedSums, tolerance: float) -> None:
    assert torch.equal(result.finite, expected.finite)
    within = {"rtol": tolerance, "atol": tolerance * 1e-2, "equal_nan": True}
    torch.testing.assert_close(result.losses, expected.losses, **within)
    kept = expected.finite
    if len(expected.norms):
        torch.testing.assert_close(result.norms[kept], expected.norms[kept], **within)
    assert result.norms.shape == expected.norms.shape
    difference = (result.sums - expected.sums).norm()
    assert difference <= tolerance * expected.sums.norm().clamp(min=1e-30)


@settings(max_examples=examples(80))
@given(layers, masks, st.integers(0, 10**6), st.booleans(), st.booleans())
def test_of_any_chain_they_are_those_of_each_client_on_its_own(
    hidden, present, seed, clipped, broken
):
    torch.manual_seed(seed)
    model, present = FlatModel(chain_of(hidden)), torch.tensor(present)
    data = clients(model, present, seed=seed)
    if clipped and broken:
        data[1][0, 0, 1, 1] = float("nan")
        data[1][-1, -1, 0, 0] = float("inf")
    factors = own_bounds if clipped else None
    result = StackedModel(model).clipped_sums(*data, present, factors)
    assert_same(result, loop(model, *data, present, factors), 1e-9)


PRESENT = torch.tensor(
    [[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [0, 0, 0, 0, 0], [0, 1, 0, 1, 1]], dtype=torch.bool
)
MODELS = {
    "mlp": (lambda: Mlp(seed=0).build((1, 8, 8), 10), (1, 8, 8), 10),
    "svm": (lambda: Svm(seed=0).build((1, 8, 8), 2), (1, 8, 8), 2),
    "cnn": (lambda: Cnn(seed=0).build((1, 8, 8), 10), (1, 8, 8), 10),
    "several rows of a record": (
        lambda: nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(18, 5)),
        (6, 4),
        5,
    ),
    "layer norm": (
        lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(6), nn.Linear(6, 5)),
        (2, 3),
        5,
    ),
}


@pytest.fixture(params=MODELS)
def case(request):
    """(model, shape of a record, classes), in float32."""
    build, shape, classes = MODELS[request.param]
    torch.manual_seed(0)
    return FlatModel(build()), shape, classes


@pytest.mark.parametrize("present", [PRESENT, torch.ones_like(PRESENT)], ids=["ragged", "full"])
@pytest.mark.parametrize("factors", [own_bounds, None], ids=["clipped", "plain"])
def test_they_are_those_of_each_client_on_its_own(case, present, factors):
    model, shape, classes = case
    data = clients(model, present, shape, classes)
    result = StackedModel(model).clipped_sums(*data, present, factors)
    assert_same(result, loop(model, *data, present, factors), 1e-5)


def test_with_the_reference_engine_every_client_goes_through_it(case):
    model, shape, classes = case
    data, engine = clients(model, PRESENT, shape, classes), make_engine(model, engine="opacus")
    calls = []
    asked = engine.clipped_sums
    engine.clipped_sums = lambda *lot: calls.append(len(lot[1])) or asked(*lot)
    result = StackedModel(model, engine=engine).clipped_sums(*data, PRESENT, own_bounds)
    assert calls == [5, 2, 0, 3]
    assert_same(result, loop(model, *data, PRESENT, own_bounds, "opacus"), 1e-5)


@pytest.mark.parametrize("value", [1e30, float("inf"), float("nan")])
def test_a_broken_record_contributes_nothing_and_harms_nobody(case, value):
    model, shape, classes = case
    weights, inputs, targets = clients(model, PRESENT, shape, classes)
    whole = StackedModel(model).clipped_sums(weights, inputs, targets, PRESENT, own_bounds)
    inputs[0, 2] = value
    broken = StackedModel(model).clipped_sums(weights, inputs, targets, PRESENT, own_bounds)
    if not broken.finite[2]:
        left = PRESENT.clone()
        left[0, 2] = False
        expected = StackedModel(model).clipped_sums(weights, inputs, targets, left, own_bounds)
        torch.testing.assert_close(broken.sums, expected.sums, rtol=1e-4, atol=1e-6)
    assert broken.finite.tolist()[3:] == [True] * 7
    assert torch.equal(broken.sums[1:], whole.sums[1:])


def test_an_absent_record_has_no_influence_whatever_it_holds(case):
    model, shape, classes = case
    weights, inputs, targets = clients(model, PRESENT, shape, classes)
    whole = StackedModel(model).clipped_sums(weights, inputs, targets, PRESENT, own_bounds)
    inputs[~PRESENT] = float("nan")
    again = StackedModel(model).clipped_sums(weights, inputs, targets, PRESENT, own_bounds)
    for column in ("sums", "norms", "losses", "finite"):
        assert torch.equal(getattr(again, column), getattr(whole, column))


def test_a_client_whose_weights_are_not_finite_harms_no_other(case):
    model, shape, classes = case
    weights, inputs, targets = clients(model, PRESENT, shape, classes)
    whole = StackedModel(model).clipped_sums(weights, inputs, targets, PRESENT, own_bounds)
    weights[1] = float("nan")
    broken = StackedModel(model).clipped_sums(weights, inputs, targets, PRESENT, own_bounds)
    assert broken.finite.tolist() == [True] * 5 + [False] * 2 + [True] * 3
    assert not broken.sums[1].any()
    torch.testing.assert_close(broken.sums[[0, 2, 3]], whole.sums[[0, 2, 3]])


@pytest.mark.parametrize("width", [0, 4])
def test_lots_without_a_record_have_sums_of_zero(case, width):
    model, shape, classes = case
    present = torch.zeros(3, width, dtype=torch.bool)
    data = clients(model, present, shape, classes)
    result = StackedModel(model).clipped_sums(*data, present, own_bounds)
    assert not result.sums.any()
    assert result.sums.shape == (3, model.size)
    assert [len(result.norms), len(result.losses), len(result.finite)] == [0, 0, 0]


def test_the_weights_of_model_and_clients_stay_as_they_are(case):
    model, shape, classes = case
    weights, inputs, targets = clients(model, PRESENT, shape, classes)
    before = model.flat.clone(), weights.clone()
    StackedModel(model).clipped_sums(weights, inputs, targets, PRESENT, own_bounds)
    assert torch.equal(model.flat, before[0])
    assert torch.equal(weights, before[1])


def test_the_norm_of_a_clipped_record_is_the_clip_norm():
    model = FlatModel(chain_of([(7, True, 0)]))
    present = torch.ones(6, 1, dtype=torch.bool)
    data = clients(model, present)
    result = StackedModel(model).clipped_sums(
        *data, present, lambda norms, clients: (0.05 / norms).clamp(max=1)
    )
    assert (result.norms > 0.05).all()
    torch.testing.assert_close(result.sums.norm(dim=1), torch.full((6,), 0.05, dtype=torch.float64))


def test_the_weight_decay_of_a_model_is_not_clipped():
    svm = FlatModel(Svm(seed=0, weight_decay=5.0).build((2, 3), 2))
    plain = FlatModel(Svm(seed=0, weight_decay=0.0).build((2, 3), 2))
    data = clients(svm, PRESENT, classes=2)
    results = [StackedModel(m).clipped_sums(*data, PRESENT, own_bounds) for m in (svm, plain)]
    assert torch.equal(results[0].sums, results[1].sums)
    assert torch.equal(results[0].losses, results[1].losses)
