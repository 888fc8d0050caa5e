from __future__ import annotations

import torch

from fedpriv.engine import FlatModel
from fedpriv.models import Mlp
from fedpriv.tools import bench_gradients as gradients


def test_the_round_trains_the_model():
    torch.manual_seed(0)
    module = Mlp(0).build((4,), 2)
    before = FlatModel(module).flat.clone()
    inputs, targets = torch.randn(6, 4), torch.randint(0, 2, (6,))
    gradients.round_step(module, inputs, targets, [3, 3])()
    after = torch.cat([p.detach().flatten() for p in module.parameters()])
    assert not torch.equal(before, after)
    assert (before - after).abs().max() < 0.0011  # Adam's first step is the learning rate


def test_ragged_lots_have_the_same_total():
    counts = gradients.ragged(10, 78)
    assert sum(counts) == 780
    assert len(set(counts)) > 1
    assert min(counts) > 0


def test_isolated_records_have_a_row_of_their_own():
    rows = {row.name: row.step for row in gradients.isolated_rows_of("logistic", 3)}
    assert list(rows) == [gradients.PLAIN, gradients.ISOLATED]
    assert rows[gradients.ISOLATED]().shape == (1, 7850)
