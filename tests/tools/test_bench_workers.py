"""``fedpriv bench --workers``: what is printed and written of rounds over several processes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.experiment import spread
from fedpriv.tools import bench_workers
from fedpriv.tools.bench_workers import TimedRun

sys.path.append(str(Path(__file__).parents[1] / "experiment"))
from spread_runs import thread_workers

SMALL = TimedRun(
    "digits", ("dataset=digits", "algorithm=dp_fl", "partition.clients=8"), chunk=2, bar=1.5
)
ABSENT = TimedRun("absent", ("dataset=mnist", "dataset.path=nowhere", "algorithm=dp_fl"), chunk=2)


@pytest.fixture
def small(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bench_workers, "SETTINGS", {"mlp": (SMALL, ABSENT)})
    with thread_workers():
        monkeypatch.setattr(bench_workers, "team_of", spread.team_of)
        yield


def test_times_traffic_and_bits_are_told(small, capsys, tmp_path):
    assert bench_workers.run(2, 1, json_path=tmp_path / "bench.json") == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "2 processes × 1 threads" in said
    assert "the same bits" in said
    assert "bar: ≥ 1.5 × faster than one process" in said
    assert "absent: left out" in said
    written = json.loads((tmp_path / "bench.json").read_text())
    assert written["conditions"]["workers"] == 2
    rows = [row["row"] for row in written["settings"][0]["rows"]]
    assert rows == ["one process", "one process, same chunks", "2 processes"]


def test_one_process_shares_nothing():
    with pytest.raises(ConfigError, match="bench --workers must be >= 2, got 1"):
        bench_workers.run(1, 1)
