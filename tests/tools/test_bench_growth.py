"""The benchmark of growth runs, and writes a table and a picture; what it measures is not asserted."""

from __future__ import annotations

import pandas as pd
import pytest

from fedpriv.tools.bench_growth import MEASURES, points, run


def test_numbers_grow_from_small_runs_to_a_million_clients():
    varied = {point.varied for point in points()}
    assert varied == {"clients", "records of a client", "rounds", "parameters"}
    largest = {p.kind: p.value for p in points() if p.varied == "clients"}
    assert largest == {"cdp_fedavg": 10**6, "dp_ftrl": 10**6, "dp_fl": 10**5}


@pytest.mark.thorough
def test_each_algorithm_is_measured_in_a_process_of_its_own(tmp_path, capsys):
    smallest = [point for point in points() if point.varied == "clients" and point.value == 100]
    assert run(tmp_path / "growth", smallest) == 0
    rows = pd.read_csv(tmp_path / "growth" / "growth.csv")
    assert rows["algorithm"].tolist() == ["cdp_fedavg", "dp_ftrl", "dp_fl"]
    assert (rows[[*MEASURES]] > 0).all(axis=None)
    assert (tmp_path / "growth" / "growth.png").stat().st_size > 0
    assert "cdp_fedavg, 100 clients" in capsys.readouterr().out
