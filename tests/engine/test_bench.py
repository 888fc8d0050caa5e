"""The benchmark runs and reports; what it measures is not asserted."""

from __future__ import annotations

import json

import pytest
import torch

from fedpriv import bench
from fedpriv.common.errors import ConfigError
from fedpriv.engine import FlatModel
from fedpriv.models import Mlp


def test_it_prints_and_writes_every_row_and_bar(tmp_path, capsys):
    path = tmp_path / "bench.json"
    assert bench.run(1, ["mlp"], 1, str(path)) == 0
    report = json.loads(path.read_text())
    ten_clients, one_client = report["settings"]
    rows = {row["row"] for row in ten_clients["rows"]}
    assert {bench.PLAIN, bench.HOOKS, bench.GHOST, bench.LOOP, bench.FAST, bench.ROUND} <= rows
    assert {bar["row"] for bar in ten_clients["bar"]} <= rows
    assert one_client["bar"] == []
    printed = capsys.readouterr().out
    assert "mlp, 10 × 78 records" in printed
    assert printed.count("met") >= len(ten_clients["bar"])


def test_ratios_are_to_the_floor_and_bars_to_their_reference():
    setting = bench.Setting("s", "a", (), (bench.Bar("b", "a", 1.5), bench.Bar("b", "c", 1 / 2)))
    report = bench.Result(setting, {"a": 2.0, "b": 4.0, "c": 8.0}).as_dict()
    assert [row["ratio"] for row in report["rows"]] == [1.0, 2.0, 4.0]
    assert [bar["met"] for bar in report["bar"]] == [False, True]
    assert [str(bar) for bar in setting.bars] == ["≤ 1.5 × a", "≥ 2 × faster than c"]


def test_rows_take_turns():
    order = []
    rows = tuple(bench.Row(name, lambda name=name: order.append(name)) for name in "ab")
    bench.measure(bench.Setting("s", "a", rows), 2)
    assert order == list("aabb") * 2


def test_the_round_trains_the_model():
    torch.manual_seed(0)
    module = Mlp(0).build((4,), 2)
    before = FlatModel(module).flat.clone()
    inputs, targets = torch.randn(6, 4), torch.randint(0, 2, (6,))
    bench.round_step(module, inputs, targets, [3, 3])()
    after = torch.cat([p.detach().flatten() for p in module.parameters()])
    assert not torch.equal(before, after)
    assert (before - after).abs().max() < 0.0011  # Adam's first step is the learning rate


def test_ragged_lots_have_the_same_total():
    counts = bench.ragged(10, 78)
    assert sum(counts) == 780
    assert len(set(counts)) > 1
    assert min(counts) > 0


def test_the_number_of_threads_is_restored(tmp_path):
    before = torch.get_num_threads()
    bench.run(1, [], before + 1)
    assert torch.get_num_threads() == before


@pytest.mark.parametrize(
    "arguments", [{"repeats": 0}, {"models": ["resnet"]}, {"threads": 0}, {"repeats": "many"}]
)
def test_wrong_arguments_are_refused(arguments):
    with pytest.raises(ConfigError, match=r"bench\."):
        bench.run(**arguments)
