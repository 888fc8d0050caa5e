"""``scripts/bench.py``: what it compares is the same work, and every comparison is printed and written."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pandas as pd
import pytest
import torch

SCRIPT = Path(__file__).parents[1] / "scripts" / "bench.py"


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_script", SCRIPT)
    module = sys.modules["bench_script"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)  # a run looks its data set up by the name of the module
    yield module
    del sys.modules["bench_script"]


@pytest.mark.filterwarnings("ignore")  # Opacus warns about its hooks
@pytest.mark.parametrize("model", ["cnn", "mlp"])
def test_fedpriv_and_opacus_sum_the_same_clipped_gradients(bench, model):
    lots = bench.random_lots(2, 3)
    ours = bench.sums_of_fedpriv(model, lots)().sum(0)
    for make in (bench.sums_of_hooks, bench.sums_of_ghost_clipping):
        theirs = torch.cat([part.flatten() for part in make(model, lots)()])
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


@pytest.mark.thorough
def test_every_comparison_is_printed_and_written(bench, tmp_path, capsys):
    threads = str(torch.get_num_threads())
    words = ["--models", "logistic", "--pairs", "1", "--threads", threads]
    bench.main([*words, "--csv", str(tmp_path / "bench.csv")])
    rows, printed = pd.read_csv(tmp_path / "bench.csv"), capsys.readouterr().out
    assert len(rows) == 5 + (importlib.util.find_spec("pfl") is not None)
    assert all(f"| {name} |" in printed for name in rows["against"])
    assert (rows["ratio"] > 0).all()
