from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.engine.lots import Lots, blocks, lot_sizes, padded_lots, rows_at

many_counts = st.lists(st.integers(0, 40), min_size=1, max_size=80)


def lots_of(counts):
    clients = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    torch.manual_seed(0)
    return Lots(counts, clients, torch.rand(sum(counts), dtype=torch.float64)), clients


@settings(max_examples=examples(60))
@given(many_counts)
def test_row_sums_are_scaled_sums_per_client(counts):
    lots, clients = lots_of(counts)
    rows = torch.randn(len(clients), 6, dtype=torch.float64)
    out = torch.zeros(len(counts), 9, dtype=torch.float64)
    lots.row_sums(rows, out[:, 2:8])
    expected = torch.zeros(len(counts), 6, dtype=torch.float64)
    expected.index_add_(0, clients, rows * lots.scale[:, None])
    torch.testing.assert_close(out[:, 2:8], expected)
    assert not out[:, :2].any()
    assert not out[:, 8:].any()


def test_row_sums_of_wide_rows():
    lots, clients = lots_of([3, 0, 2])
    rows = torch.randn(5, 60_000, dtype=torch.float64)
    out = torch.zeros(3, 60_000, dtype=torch.float64)
    lots.row_sums(rows, out)
    expected = torch.zeros_like(out).index_add_(0, clients, rows * lots.scale[:, None])
    torch.testing.assert_close(out, expected)


@settings(max_examples=examples(60))
@given(many_counts, st.integers(1, 3))
def test_outer_sums_are_scaled_sums_per_client(counts, positions):
    lots, clients = lots_of(counts)
    left = torch.randn(len(clients), positions, 4, dtype=torch.float64)
    right = torch.randn(len(clients), positions, 3, dtype=torch.float64)
    buffer = torch.zeros(len(counts), 20, dtype=torch.float64)
    lots.outer_sums(left, right, buffer[:, 5:17].unflatten(1, (4, 3)))
    each = torch.einsum("nto,nti->noi", left, right) * lots.scale[:, None, None]
    expected = torch.zeros(len(counts), 4, 3, dtype=torch.float64).index_add_(0, clients, each)
    torch.testing.assert_close(buffer[:, 5:17].unflatten(1, (4, 3)), expected)


@given(st.lists(st.sampled_from([0, 1, 3, 1000, 4096, 4097, 9000]), max_size=600))
def test_blocks_cover_every_record_and_client_once_and_stay_small(counts):
    covered = [0] * len(counts)
    position = last = 0
    for block in blocks(counts):
        assert block.start == position
        position = block.stop
        assert block.first == (last - 1 if block.continued else last)
        last = block.last
        assert block.stop - block.start <= 4096
        assert 1 <= block.last - block.first <= 256
        for client, size in zip(range(block.first, block.last), block.sizes(counts), strict=True):
            covered[client] += size
    assert covered == counts
    assert last == len(counts)


@given(st.lists(st.sampled_from([0, 1, 2, 3, 7, 40, 900, 4096, 9000]), max_size=600))
def test_padded_lots_hold_every_record_once_and_at_most_twice_as_many_rows(counts):
    starts = np.cumsum([0, *counts])
    seen = [0] * len(counts)
    for lots in padded_lots(counts):
        assert len(lots.clients) <= 256
        assert lots.records.shape == lots.present.shape
        assert lots.records.numel() <= max(4096, int(lots.present.sum()))
        assert lots.records.numel() <= 2 * int(lots.present.sum())
        for client, records, present in zip(
            lots.clients.tolist(), lots.records, lots.present, strict=True
        ):
            own = range(starts[client], starts[client + 1])
            assert records[present].tolist() == list(own)
            assert set(records[~present].tolist()) <= {own[0]}
            seen[client] += 1
    assert seen == [int(count > 0) for count in counts]


def test_rows_at_positions():
    values, positions = torch.randn(5, 2, 3), torch.tensor([[4, 0, 0], [1, 1, 3]])
    assert torch.equal(rows_at(values, positions), values[positions])


def test_lot_sizes_count_clients_without_records():
    assert lot_sizes(torch.tensor([1, 1, 4]), 6) == [0, 2, 0, 0, 1, 0]
    assert lot_sizes(torch.zeros(0, dtype=torch.int64), 2) == [0, 0]


def test_lot_sizes_refuse_a_client_twice():
    with pytest.raises(ValueError, match="non-decreasing"):
        lot_sizes(torch.tensor([0, 1, 0]), 2)
