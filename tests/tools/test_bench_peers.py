"""Rows of other libraries in ``scripts/bench_peers.py``; what they measure is not asserted."""

from __future__ import annotations

import importlib.util
import json
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
import torch

from fedpriv.engine import FlatModel
from fedpriv.models import Mlp
from fedpriv.tools import bench_clients as clients
from fedpriv.tools import bench_gradients as gradients
from fedpriv.tools.bench_clients import LocalTraining

SCRIPT = Path(__file__).parents[2] / "scripts" / "bench_peers.py"
WORK = LocalTraining(records=6, batch=3, epochs=2)


@pytest.fixture
def peers():
    spec = importlib.util.spec_from_file_location("bench_peers", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.thorough
def test_opacus_stands_beside_the_engine(peers, monkeypatch, tmp_path):
    path = tmp_path / "peers.json"
    monkeypatch.setattr(
        sys, "argv", ["bench_peers.py", "--repeats=1", "--model=mlp", f"--json={path}"]
    )
    assert peers.main() == 0
    ten_clients, one_client, *_ = json.loads(path.read_text())["settings"]
    for setting in (ten_clients, one_client):
        rows = {row["row"] for row in setting["rows"]}
        assert {peers.HOOKS, peers.GHOST, peers.ENGINE, gradients.PLAIN, gradients.FAST} <= rows
    bars = {(bar["row"], bar["reference"]) for bar in ten_clients["bar"]}
    assert {(gradients.FAST, peers.HOOKS), (gradients.FAST, peers.ENGINE)} <= bars
    assert one_client["bar"] == []


def test_pfl_research_ends_at_the_same_weights(peers, monkeypatch):
    try:
        version("pfl")
    except PackageNotFoundError:
        pytest.skip("needs pfl: pip install '.[bench]'")
    torch.manual_seed(0)
    monkeypatch.setattr(clients, "CLIENTS", 3)
    records = clients.records_of(WORK)
    loop, pfl = (FlatModel(Mlp(seed=0).build(clients.SHAPE, clients.CLASSES)) for _ in range(2))
    start, users = loop.flat.clone(), clients.per_client(records, WORK)
    steps = (
        clients.loop_round(loop.module, records, WORK),
        peers.pfl_research_round(pfl.module, users, WORK.epochs, WORK.batch, clients.RATE),
    )
    for step in steps:
        step()
        step()
    moved = (loop.flat - start).norm()
    assert moved > 1e-3
    assert (pfl.flat - loop.flat).norm() < 1e-4 * moved
