"""Models of text: exact per-record gradients whatever the lengths, and padding that nothing depends on."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from opacus import GradSampleModule
from opacus.layers import DPLSTM
from torch import nn
from torch.nn import functional

from fedpriv.engine import FlatModel, StackedModel, lots, make_engine
from fedpriv.models import LstmClassifier, LstmLm

LENGTH, VOCABULARY, CLASSES = 6, 9, 3
FACTORIES = {"lstm_classifier": LstmClassifier, "lstm_lm": LstmLm}
SIZES = {  # layers, hidden, embedding: gradients formed, several layers, ghost norms
    "one layer": (1, 5, 4),
    "three layers": (3, 4, 3),
    "wide": (2, 64, 32),
}


def model_of(name: str, sizes: str = "one layer", dtype=torch.float64) -> FlatModel:
    layers, hidden, embedding = SIZES[sizes]
    factory = FACTORIES[name](0, layers=layers, hidden=hidden, embedding=embedding)
    return FlatModel(factory.build((LENGTH,), CLASSES, VOCABULARY).to(dtype))


def texts(lengths: list[int], seed: int = 0, vocabulary: int = VOCABULARY) -> torch.Tensor:
    """Tokens [n, L] of these lengths, padded on the right; so few that they repeat."""
    stream = torch.Generator().manual_seed(seed)
    tokens = torch.randint(1, vocabulary, (len(lengths), LENGTH), generator=stream)
    return tokens.masked_fill(torch.arange(LENGTH) >= torch.tensor(lengths)[:, None], 0)


def targets_of(name: str, tokens: torch.Tensor) -> torch.Tensor:
    if name == "lstm_classifier":
        return tokens.sum(1) % CLASSES
    return functional.pad(tokens[:, 1:], (0, 1))


LOTS = {
    "ragged with empty ones": [0, 3, 0, 1, 4, 0],
    "equal": [3, 3, 3],
    "many clients": [i % 3 for i in range(40)],
}


def case(name, records_of, counts, sizes="one layer", dtype=torch.float64, seed=0):
    stream = torch.Generator().manual_seed(seed)
    lengths = torch.randint(0, LENGTH + 1, (sum(counts),), generator=stream).tolist()
    tokens = texts(lengths, seed)
    return model_of(name, sizes, dtype), records_of(tokens, targets_of(name, tokens), counts)


@pytest.mark.few(3)
@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("sizes_of_lots", LOTS)
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", FACTORIES)
def test_clipped_sums_equal_one_backward_pass_per_record(
    name, sizes, sizes_of_lots, engine, records_of, naive, difference, clip_at
):
    model, records = case(name, records_of, LOTS[sizes_of_lots], sizes)
    result = records.clipped_sums(make_engine(model, engine=engine), clip_at(0.3))
    sums, norms = naive(model, model.loss, records, clip_at(0.3))
    assert difference(result.sums, sums) < 1e-10
    assert difference(result.norms, norms) < 1e-10
    assert result.finite.all()


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("name", FACTORIES)
def test_fast_equals_opacus_in_single_precision(name, sizes, records_of, difference, clip_at):
    model, records = case(name, records_of, [5, 0, 7], sizes, torch.float32)
    results = [
        records.clipped_sums(make_engine(model, engine=engine), clip_at(0.3))
        for engine in ("fast", "opacus")
    ]
    assert difference(results[0].sums, results[1].sums) < 1e-4  # ghost norms carry their rounding
    assert difference(results[0].norms, results[1].norms) < 1e-4


@settings(max_examples=examples(40))
@given(
    name=st.sampled_from(list(FACTORIES)),
    lengths=st.lists(st.integers(0, LENGTH), min_size=1, max_size=6),
    vocabulary=st.integers(2, VOCABULARY),
    seed=st.integers(0, 10**6),
    clip_norm=st.floats(1e-3, 10),
)
def test_any_lengths_and_repeated_tokens(name, lengths, vocabulary, seed, clip_norm):
    model = MODELS[name]
    tokens = texts(lengths, seed, vocabulary)
    targets = targets_of(name, tokens)
    lot = (tokens, targets, torch.zeros(len(tokens)).long())
    result = ENGINES[name].clipped_sums(*lot, 1, lambda norms, _: (clip_norm / norms).clamp(max=1))
    expected = torch.zeros(model.size, dtype=torch.float64)
    for i, (x, y) in enumerate(zip(tokens.split(1), targets.split(1), strict=True)):
        grads = torch.autograd.grad(model.loss(model(x), y).sum(), model.parameters())
        row = torch.cat([g.flatten() for g in grads])
        torch.testing.assert_close(result.norms[i], row.norm(), rtol=1e-9, atol=1e-12)
        expected += row * min(1.0, clip_norm / max(row.norm().item(), 1e-300))
    torch.testing.assert_close(result.sums[0], expected, rtol=1e-9, atol=1e-12)
    assert result.sums.norm() <= clip_norm * len(tokens) * (1 + 1e-9)


MODELS = {name: model_of(name, "three layers") for name in FACTORIES}
ENGINES = {name: make_engine(model, engine="fast") for name, model in MODELS.items()}


@pytest.mark.parametrize("name", FACTORIES)
def test_auto_takes_book_keeping(name):
    assert make_engine(model_of(name)).name == "fast"


class Reference(nn.Module):
    """The classifier of Opacus's own layers, for texts without padding."""

    def __init__(self, layers: int, hidden: int, embedding: int):
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, embedding)
        self.lstm = DPLSTM(embedding, hidden, num_layers=layers, batch_first=True)
        self.output = nn.Linear(hidden, CLASSES)

    def forward(self, tokens):
        return self.output(self.lstm(self.embedding(tokens))[0][:, -1])


def ours_from(named: dict[str, torch.Tensor], layers: int) -> torch.Tensor:
    """Weights or gradients [n, …] of the reference in the order of ours [n, d]: its quarters are i, f, g,
    o, and of its two biases, which have the same gradient, the first is taken."""

    def quarters(values: torch.Tensor) -> torch.Tensor:
        i, f, g, o = values.chunk(4, dim=1)
        return torch.cat([i, f, o, g], dim=1)

    parts = [named["embedding.weight"]]
    for k in range(layers):
        weights = [named[f"lstm.weight_{kind}_l{k}"] for kind in ("ih", "hh")]
        parts += [quarters(torch.cat(weights, dim=2)), quarters(named[f"lstm.bias_ih_l{k}"])]
    parts += [named["output.weight"], named["output.bias"]]
    return torch.cat([part.flatten(1) for part in parts], dim=1)


@pytest.mark.filterwarnings("ignore:Full backward hook is firing")
@pytest.mark.parametrize("sizes", SIZES)
def test_outputs_and_gradients_are_those_of_opacus_own_lstm(sizes, difference):
    torch.manual_seed(0)
    layers = SIZES[sizes][0]
    reference, model = Reference(*SIZES[sizes]).double(), model_of("lstm_classifier", sizes)
    with torch.no_grad():
        for name, p in reference.named_parameters():
            if "bias_hh" in name:
                p.zero_()
    weights = {name: p.detach()[None] for name, p in reference.named_parameters()}
    model.set(ours_from(weights, layers)[0])
    tokens = texts([LENGTH] * 8)
    targets = targets_of("lstm_classifier", tokens)
    torch.testing.assert_close(model(tokens), reference(tokens))
    wrapped = GradSampleModule(reference, loss_reduction="sum")
    functional.cross_entropy(wrapped(tokens), targets, reduction="sum").backward()
    found = {name: p.grad_sample for name, p in reference.named_parameters()}
    rows = ours_from(found, layers)
    result = make_engine(model, engine="fast").clipped_sums(
        tokens, targets, torch.arange(8), 8, lambda norms, _: torch.ones_like(norms)
    )
    assert difference(result.sums, rows) < 1e-10
    assert difference(result.norms, rows.norm(dim=1)) < 1e-10


@pytest.mark.parametrize("name", FACTORIES)
def test_padding_may_stand_anywhere_and_changes_nothing(name, records_of, clip_at, difference):
    model = model_of(name, "three layers")
    short = torch.tensor([[3, 4, 3, 0, 0, 0], [5, 2, 0, 0, 0, 0]])
    spread = torch.tensor([[0, 3, 0, 4, 3, 0], [0, 0, 0, 0, 5, 2]])
    moved = {0: [1, 3, 4], 1: [4, 5]}
    targets = targets_of(name, short)
    spread_targets = targets.clone()
    if name == "lstm_lm":
        spread_targets.zero_()
        for i, places in moved.items():
            spread_targets[i, places] = targets[i, : len(places)]
    results = [
        records_of(x, y, [1, 1]).clipped_sums(make_engine(model), clip_at(0.3))
        for x, y in ((short, targets), (spread, spread_targets))
    ]
    assert difference(results[0].sums, results[1].sums) < 1e-12
    torch.testing.assert_close(results[0].losses, results[1].losses)
    before = model.evaluate(short, targets)
    with torch.no_grad():
        model.module.embedding.weight[0] = float("nan")  # as noise may leave it: anything
    assert model.evaluate(short, targets) == before
    again = records_of(short, targets, [1, 1]).clipped_sums(make_engine(model), clip_at(0.3))
    assert torch.equal(again.sums, results[0].sums)


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", FACTORIES)
def test_a_record_of_padding_only_has_no_gradient(name, engine, records_of, clip_at):
    model = model_of(name)
    tokens = texts([4, 0, 3])
    result = records_of(tokens, targets_of(name, tokens), [1, 1, 1]).clipped_sums(
        make_engine(model, engine=engine), clip_at(0.3)
    )
    assert not result.sums[1].any()
    assert result.norms[1] < 1e-100  # all that rounding could have hidden
    assert result.finite.all()
    assert result.sums[0].any()


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", FACTORIES)
def test_a_record_that_is_not_finite_contributes_zero(
    name, engine, records_of, clip_at, difference
):
    model = model_of(name, "wide")
    tokens = texts([6, 5, 4, 6], vocabulary=VOCABULARY - 1)
    targets = targets_of(name, tokens)
    good = records_of(tokens[1:], targets[1:], [0, 3])
    expected = good.clipped_sums(make_engine(model), clip_at(0.3))
    tokens[0, 2] = VOCABULARY - 1
    with torch.no_grad():
        model.module.embedding.weight[VOCABULARY - 1] = float("nan")
    records = records_of(tokens, targets, [1, 3])
    result = records.clipped_sums(make_engine(model, engine=engine), clip_at(0.3))
    assert result.finite.tolist() == [False, True, True, True]
    assert difference(result.sums, expected.sums) < 1e-12


@pytest.mark.parametrize("engine", ["fast", "opacus"])
@pytest.mark.parametrize("name", FACTORIES)
def test_no_record_at_all_gives_zeros(name, engine, records_of, clip_at):
    model = model_of(name)
    records = records_of(texts([]).long(), targets_of(name, texts([])), [0, 0])
    result = records.clipped_sums(make_engine(model, engine=engine), clip_at(0.3))
    assert result.sums.shape == (2, model.size)
    assert not result.sums.any()


def test_blocks_are_small_enough_for_the_logits(
    records_of, naive, difference, clip_at, monkeypatch
):
    model, records = case("lstm_lm", records_of, [3, 0, 8, 1])
    monkeypatch.setattr(lots, "BLOCK_VALUES", 2 * 4 * LENGTH * VOCABULARY)
    sizes = []
    model.module.register_forward_hook(lambda module, args, output: sizes.append(len(output)))
    result = records.clipped_sums(make_engine(model), clip_at(0.3))
    assert max(sizes) == 2
    sums, _ = naive(model, model.loss, records, clip_at(0.3))
    assert difference(result.sums, sums) < 1e-10


@pytest.mark.parametrize("name", FACTORIES)
def test_the_engine_leaves_the_layer_as_it_was(name, records_of, clip_at):
    model, records = case(name, records_of, [3, 4])
    engine = make_engine(model, engine="fast")
    for _ in range(2):  # with and without the proof against autograd
        records.clipped_sums(engine, clip_at(0.3))
        assert all(layer.tap is None and layer.recurrent_gradient for layer in model.module.lstm)


@pytest.mark.parametrize("name", FACTORIES)
def test_clients_with_weights_of_their_own_go_several_steps(name, difference):
    model = model_of(name, dtype=torch.float32)
    stacked, clients, batch = StackedModel(model), 3, 4
    tokens = texts([6, 2, 0, 1] * clients).view(clients, batch, LENGTH)
    targets = targets_of(name, tokens.flatten(0, 1))
    targets = targets.view(clients, batch, *targets.shape[1:])
    present = torch.ones(clients, batch, dtype=torch.bool)
    present[1, 2:] = present[2] = False
    weights = model.flat.repeat(clients, 1)
    alone = weights.clone()
    for _ in range(3):
        gradients, _ = stacked.gradients(weights, tokens, targets, present)
        weights = weights - 0.5 * gradients
        for k in range(clients):
            x, y = tokens[k][present[k]], targets[k][present[k]]
            if len(x):
                copy = model_of(name, dtype=torch.float32)
                copy.set(alone[k])
                grads = torch.autograd.grad(copy.loss(copy(x), y).mean(), copy.parameters())
                alone[k] -= 0.5 * torch.cat([g.flatten() for g in grads])
    assert difference(weights, alone) < 1e-5
    clipped = stacked.clipped_sums(weights, tokens, targets, present, lambda n, k: 0.1 / (1 + n))
    assert clipped.sums.shape == weights.shape
    assert clipped.norms.shape == (6,)


def test_the_loss_and_accuracy_of_a_language_model_count_next_tokens():
    """Right is the likeliest token that is one; unknown ones are in the loss alone."""
    model = model_of("lstm_lm")
    tokens = texts([6, 3, 1, 0, 5])
    tokens[0, 1:4] = torch.tensor([1, 5, 1])
    targets = targets_of("lstm_lm", tokens)
    outputs = model(tokens)
    losses, right, there = [], 0, 0
    for i in range(5):
        places = targets[i].nonzero()[:, 0].tolist()
        own = [functional.cross_entropy(outputs[i, t], targets[i, t]).item() for t in places]
        losses.append(sum(own) / len(own) if own else 0.0)
        known = [t for t in places if targets[i, t] != 1]
        answers = [max(range(2, outputs.shape[2]), key=outputs[i, t].__getitem__) for t in known]
        right += sum(int(a == targets[i, t]) for a, t in zip(answers, known, strict=True))
        there += len(known)
    assert 0 < there <= int((targets != 0).sum()) - 2
    for batch in (2, 100):
        loss, accuracy = model.evaluate(tokens, targets, batch)
        assert loss == pytest.approx(sum(losses) / 5)
        assert accuracy == pytest.approx(right / there)


def test_unknown_is_no_answer():
    """However likely it is, it neither counts as right nor hides the likeliest token."""
    model, tokens = model_of("lstm_lm"), texts([6, 6, 5])
    tokens[0] = 1
    targets = targets_of("lstm_lm", tokens)
    accuracy = model.evaluate(tokens, targets)[1]
    with torch.no_grad():
        model.module.output.bias[1] += 100.0
    assert model.evaluate(tokens, targets)[1] == accuracy
    right, there = model.module.record_correct(model(tokens), targets)
    assert (right[0].item(), there[0].item()) == (0, 0)


def test_the_accuracy_is_nan_where_no_answer_counts():
    model, tokens = model_of("lstm_lm"), texts([1, 0])
    loss, accuracy = model.evaluate(tokens, targets_of("lstm_lm", tokens))
    assert loss == 0.0
    assert accuracy != accuracy


def test_a_classifier_reads_the_state_at_the_last_token():
    model = model_of("lstm_classifier", "three layers")
    tokens = texts([6, 3, 1])
    for i, length in enumerate([6, 3, 1]):
        alone = model(tokens[i : i + 1, :length])
        torch.testing.assert_close(model(tokens)[i : i + 1], alone)
