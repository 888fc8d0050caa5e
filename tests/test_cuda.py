"""Runs on a GPU: the streams of the CPU, nearly its numbers, its ledger, and the same bits again."""

from __future__ import annotations

import json
from pathlib import Path

import pandas as pd
import pytest
import torch

import fedpriv

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")

COMMON = [
    "dataset=digits",
    "rounds=4",
    "evaluation_interval=2",
    "runtime.progress=none",
    "runtime.plots=false",
]
RUNS = {
    "records at the clients": ["algorithm=dp_fl", "epsilon=8"],
    "an adaptive clip norm": ["algorithm=adap_dpfl", "epsilon=8"],
    "a loss that is asked": ["algorithm=wei_crd", "epsilon=30", "noise_schedule.trigger=noised"],
    "uploads of an MLP": ["algorithm=cdp_fedavg", "model=mlp", "epsilon=30"],
    "uploads of a CNN": ["algorithm=cdp_fedavg", "model=cnn", "epsilon=30"],
    "correlated noise": ["algorithm=dp_ftrl", "epsilon=30", "algorithm.min_separation=2"],
    "a robust rule": [
        *("algorithm=fedavg", "aggregation=krum", "aggregation.tolerated=1"),
        *("attack=pixel_pattern", "attack.trigger.size=2", "attack.attackers=1"),
    ],
}


def run(folder: Path, device: str, *words: str) -> Path:
    given = [*COMMON, f"runtime.device={device}", f"runtime.run_dir={folder}", *words]
    fedpriv.run(fedpriv.compose(given))
    return folder


def ledger(folder: Path) -> bytes:
    """Bytes of the ledger; none in a run without privacy."""
    path = folder / "ledger.csv"
    return path.read_bytes() if path.exists() else b""


@pytest.mark.parametrize("name", RUNS)
def test_a_run_has_the_ledger_of_the_cpu_and_nearly_its_numbers(name, tmp_path):
    cpu = run(tmp_path / "cpu", "cpu", *RUNS[name])
    cuda = run(tmp_path / "cuda", "cuda", *RUNS[name])
    assert ledger(cpu) == ledger(cuda)
    before, after = (pd.read_csv(folder / "metrics.csv") for folder in (cpu, cuda))
    numbers = [key for key in before.select_dtypes("number") if "seconds" not in key]
    pd.testing.assert_frame_equal(before[numbers], after[numbers], rtol=1e-2, atol=1e-2)
    facts = json.loads((cuda / "environment.json").read_text())
    assert facts["device"].startswith("cuda")


@pytest.mark.parametrize("name", RUNS)
def test_a_run_gives_the_same_bits_again(name, tmp_path):
    first = run(tmp_path / "first", "cuda", *RUNS[name])
    again = run(tmp_path / "again", "cuda", *RUNS[name])
    weights = [torch.load(folder / "model.pt", weights_only=True) for folder in (first, again)]
    assert all(torch.equal(a, b) for a, b in zip(*(w.values() for w in weights), strict=True))


@pytest.mark.parametrize("name", ["records at the clients", "uploads of a CNN", "correlated noise"])
def test_a_resumed_run_gives_the_bits_of_one_that_went_through(name, tmp_path):
    through = run(tmp_path / "through", "cuda", *RUNS[name])
    stop = tmp_path / "stop"
    stop.touch()
    begun = [*RUNS[name], f"runtime.stop_file={stop}"]
    run(tmp_path / "resumed", "cuda", *begun)
    stop.unlink()
    resumed = run(tmp_path / "resumed", "cuda", *begun, f"resume={tmp_path / 'resumed'}")
    weights = [torch.load(folder / "model.pt", weights_only=True) for folder in (through, resumed)]
    assert all(torch.equal(a, b) for a, b in zip(*(w.values() for w in weights), strict=True))


def test_two_workers_share_a_gpu(tmp_path):
    words = RUNS["records at the clients"]
    alone = run(tmp_path / "alone", "cuda", *words, "runtime.threads=1")
    two = run(tmp_path / "two", "cuda", *words, "runtime.threads=1", "runtime.workers=2")
    assert ledger(alone) == ledger(two)
    weights = [torch.load(folder / "model.pt", weights_only=True) for folder in (alone, two)]
    assert {value.device.type for value in weights[0].values()} == {"cpu"}
    assert all(torch.equal(a, b) for a, b in zip(*(w.values() for w in weights), strict=True))
