"""Intervals of paired differences, against Student's by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedpriv.store.pairs import paired_differences, table_of


def runs_of(values: dict[str, list[float]], name: str | None = "one") -> pd.DataFrame:
    return pd.DataFrame(
        {"paired": name, "seed": seed, "clipper": clipper, "test_accuracy": value}
        for clipper, each in values.items()
        for seed, value in enumerate(each)
    )


def test_the_interval_is_that_of_the_differences():
    rng = np.random.default_rng(0)
    chance = rng.normal(0, 0.2, 6)
    other = chance + 0.01 + rng.normal(0, 0.001, 6)
    (row,) = paired_differences(
        runs_of({"none": [*chance], "mine": [*other]}), ["clipper"], ["test_accuracy"]
    ).itertuples()
    by_hand = stats.ttest_rel(other, chance).confidence_interval(0.95)
    assert (row.low, row.high) == pytest.approx((by_hand.low, by_hand.high))
    assert row.low > 0.005  # chance of ± 0.2 that both have cancels
    assert (row.clipper, row.pairs) == ("mine", 6)


def test_seeds_that_only_one_of_the_two_has_do_not_count():
    runs = runs_of({"none": [0.1, 0.2, 0.3], "mine": [0.2, 0.4]})
    (row,) = paired_differences(runs, ["clipper"], ["test_accuracy"]).itertuples()
    assert row.pairs == 2
    assert row.mean == pytest.approx(0.15)


def test_one_pair_has_no_interval():
    found = paired_differences(
        runs_of({"none": [0.1], "mine": [0.2]}), ["clipper"], ["test_accuracy"]
    )
    assert np.isnan(found["low"]).all()
    assert table_of(found).row_count == 1


def test_runs_of_other_pairs_are_not_compared():
    runs = pd.concat([runs_of({"none": [0.1]}, "one"), runs_of({"mine": [0.2]}, "two")])
    found = paired_differences(runs, ["clipper"], ["test_accuracy"])
    assert found["pairs"].tolist() == [0]
