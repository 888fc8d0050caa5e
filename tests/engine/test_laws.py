"""What holds for any records: sensitivity, independence of clients, order and company."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from torch import nn

from fedpriv.engine import FlatModel, make_engine


def network() -> FlatModel:
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 3, 3), nn.ReLU(), nn.Flatten(), nn.Linear(27, 3)]
    return FlatModel(nn.Sequential(*layers).double())


MODEL = network()
ENGINE = make_engine(MODEL, engine="fast")


def sums_of(inputs, targets, counts, clip_norm):
    clients = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    return ENGINE.clipped_sums(
        inputs, targets, clients, len(counts), lambda norms, _: (clip_norm / norms).clamp(max=1)
    )


def records(n: int, seed: int, size: float = 1.0):
    generator = torch.Generator().manual_seed(seed)
    inputs = size * torch.randn(n, 1, 5, 5, generator=generator, dtype=torch.float64)
    return inputs, torch.randint(0, 3, (n,), generator=generator)


counts_of_clients = st.lists(st.integers(0, 5), min_size=1, max_size=45)


@settings(max_examples=examples(40))
@given(st.integers(0, 10**6), st.floats(1e-3, 1e3), st.floats(1e-3, 1e3))
def test_no_record_contributes_more_than_the_clip_norm(seed, clip_norm, size):
    inputs, targets = records(6, seed, size)
    sums = sums_of(inputs, targets, [1] * 6, clip_norm).sums
    assert (sums.norm(dim=1) <= clip_norm * (1 + 1e-9)).all()


@settings(max_examples=examples(40))
@given(counts_of_clients, st.integers(0, 10**6))
def test_a_clients_sum_does_not_depend_on_the_other_clients(counts, seed):
    inputs, targets = records(sum(counts), seed)
    together = sums_of(inputs, targets, counts, 0.5).sums
    stop = 0
    for client, count in enumerate(counts):
        start, stop = stop, stop + count
        alone = sums_of(inputs[start:stop], targets[start:stop], [count], 0.5).sums
        torch.testing.assert_close(together[client], alone[0], rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(25))
@given(counts_of_clients, st.integers(0, 10**6), st.randoms())
def test_the_order_of_a_clients_records_does_not_matter(counts, seed, random):
    inputs, targets = records(sum(counts), seed)
    order, stop = [], 0
    for count in counts:
        start, stop = stop, stop + count
        own = list(range(start, stop))
        random.shuffle(own)
        order += own
    order = torch.tensor(order, dtype=torch.int64)
    one = sums_of(inputs, targets, counts, 0.5)
    other = sums_of(inputs[order], targets[order], counts, 0.5)
    torch.testing.assert_close(one.sums, other.sums, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(one.norms[order], other.norms, rtol=1e-9, atol=1e-12)


@settings(max_examples=examples(25))
@given(st.integers(2, 12), st.data())
def test_adding_one_record_moves_the_sum_by_at_most_the_clip_norm(n, data):
    inputs, targets = records(n, data.draw(st.integers(0, 10**6)), 10.0)
    with_it = sums_of(inputs, targets, [n], 0.7).sums
    without = sums_of(inputs[1:], targets[1:], [n - 1], 0.7).sums
    assert (with_it - without).norm() <= 0.7 * (1 + 1e-9)
