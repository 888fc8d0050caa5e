"""Intervals of paired differences, against Student's by hand."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from fedpriv.store.pairs import interval_words, paired_differences, share_noise, spread, table_of


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


def test_the_table_names_the_baseline_and_counts_points():
    runs = runs_of({"none": [0.1, 0.2, 0.3], "mine": [0.2, 0.4, 0.5]})
    table = table_of(paired_differences(runs, ["clipper"], ["test_accuracy"]))
    assert table.title.startswith("Paired differences to clipper=none, the first row")
    assert "+16.67 points" in table.rows[0]


@pytest.mark.parametrize(
    ("epsilons", "share"), [((1, 2), True), ((1, None), False), ((None, None), False)]
)
def test_only_private_runs_of_one_pair_share_noise(epsilons, share):
    runs = runs_of({"none": [0.1], "mine": [0.2]}).assign(epsilon_sound=epsilons)
    assert share_noise(runs) is share
    assert not share_noise(runs.assign(seed=[0, 1]))


def test_one_pair_has_no_interval():
    found = paired_differences(
        runs_of({"none": [0.1], "mine": [0.2]}), ["clipper"], ["test_accuracy"]
    )
    assert np.isnan(found["low"]).all()
    assert len(table_of(found).rows) == 1


def test_runs_of_other_pairs_are_not_compared():
    runs = pd.concat([runs_of({"none": [0.1]}, "one"), runs_of({"mine": [0.2]}, "two")])
    found = paired_differences(runs, ["clipper"], ["test_accuracy"])
    assert found["pairs"].tolist() == [0]


def only_row(values: dict[str, list[float]], name: str | None = "one"):
    (row,) = paired_differences(runs_of(values, name), ["clipper"], ["test_accuracy"]).itertuples()
    return row


@pytest.mark.parametrize("other", [[0.2], [0.2, 0.5], [0.2, 0.3]])
def test_fewer_than_three_pairs_are_shown_one_by_one_without_an_interval(other):
    row = only_row({"none": [0.1, 0.2], "mine": other})
    assert np.isnan([row.low, row.high]).all()
    assert interval_words(row, "{:+.2f}".format).startswith("too few pairs for an interval")
    if len(other) > 1:
        differences = [b - a for a, b in zip([0.1, 0.2], other, strict=True)]
        assert row.differences == pytest.approx(differences)
        assert ", ".join(f"{d:+.2f}" for d in differences) in interval_words(row, "{:+.2f}".format)


def test_equal_differences_have_no_interval():
    row = only_row({"none": [0.1, 0.2, 0.3], "mine": [0.2, 0.3, 0.4]})
    assert np.isnan([row.low, row.high]).all()
    assert interval_words(row, str) == "all differences equal"


def test_an_interval_beyond_what_an_accuracy_can_be_says_so():
    row = only_row({"none": [0.0, 0.0, 1.0], "mine": [1.0, 0.1, 0.0]})
    assert row.low < -1
    assert "beyond" in interval_words(row, str)
    loss = only_row({"none": [0.0, 0.0, 0.3], "mine": [0.2, 0.1, 0.4]})
    assert "(" not in interval_words(loss, str)


def test_pairs_of_one_seed_under_several_names_count_once():
    """They share partition and initial weights: seeds are what is independent."""
    several = pd.concat(
        [
            runs_of({"none": [0.0, 0.0, 0.0], "mine": [0.10, 0.20, 0.30]}, "d"),
            runs_of({"none": [0.0, 0.0, 0.0], "mine": [0.12, 0.22, 0.38]}, "e"),
        ]
    )
    (row,) = paired_differences(several, ["clipper"], ["test_accuracy"]).itertuples()
    assert row.pairs == 3
    assert row.differences == pytest.approx((0.11, 0.21, 0.34))
    by_hand = stats.ttest_1samp([0.11, 0.21, 0.34], 0).confidence_interval(0.95)
    assert (row.low, row.high) == pytest.approx((by_hand.low, by_hand.high))


def test_noise_seeds_of_one_seed_count_once():
    runs = pd.concat(
        runs_of({"none": [0.0] * 3, "mine": [0.1 + shift, 0.2, 0.4]}).assign(noise_seed=noise_seed)
        for noise_seed, shift in ((0, 0.0), (1, 0.02))
    )
    (row,) = paired_differences(runs, ["clipper"], ["test_accuracy"]).itertuples()
    assert row.differences == pytest.approx((0.11, 0.2, 0.4))


@pytest.mark.parametrize("kind", ["t", "sd"])
def test_intervals_stay_within_0_and_100_percent_and_above_0_on_a_log_axis(kind):
    seeds = np.array([[0.2, 99.0, 0.0, 50.0], [0.1, 99.9, 0.0, 50.2], [2.0, 97.0, 0.0, 49.8]])
    plain, share, log = (spread(np.arange(4), seeds, kind, s) for s in ("linear", "share", "log"))
    assert plain["low"].min() < 0
    assert plain["high"].max() > 100
    assert share["low"].min() == share["high"].iloc[2] == 0  # all seeds are 0
    assert share["high"].max() < 100
    assert log["low"].iloc[0] > 0
    np.testing.assert_allclose(
        share.iloc[3], plain.iloc[3], rtol=1e-4
    )  # far from the ends they agree
