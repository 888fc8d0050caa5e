"""AUC, TPR at a low FPR and their intervals, against hand-computed values and scikit-learn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score, roc_curve

from fedpriv.tools.audit.statistics import auc, roc, tpr_at

SCORES = st.lists(st.integers(0, 6), min_size=2, max_size=30).map(np.array)


def stream() -> np.random.Generator:
    return np.random.default_rng(0)


def labels(members, others) -> np.ndarray:
    return np.arange(len(members) + len(others)) < len(members)


def test_auc_by_hand():
    """Of the six pairs, four are in order, one is a tie and one is not."""
    found = auc(np.array([3.0, 2.0]), np.array([1.0, 2.0, 2.5]))
    assert found.value == pytest.approx((3 + 1 + 0.5) / 6)


@given(SCORES, SCORES)
def test_auc_is_that_of_scikit_learn(members, others):
    expected = roc_auc_score(labels(members, others), np.concatenate([members, others]))
    found = auc(members, others)
    assert found.value == pytest.approx(expected)
    assert 0 <= found.low <= found.value <= found.high <= 1


@given(SCORES, SCORES)
def test_the_curve_is_that_of_scikit_learn(members, others):
    scores = np.concatenate([members, others])
    fpr, tpr, _ = roc_curve(labels(members, others), scores, drop_intermediate=False)
    np.testing.assert_allclose(roc(members, others), (fpr, tpr))


@given(SCORES, SCORES, st.floats(0.05, 0.9))
def test_tpr_is_the_highest_point_of_the_curve_up_to_the_rate(members, others, rate):
    found = tpr_at(members, others, rate, stream())
    if len(others) * rate < 1 - 1e-9:
        assert found is None
        return
    fpr, tpr = roc(members, others)
    assert found.value == pytest.approx(tpr[fpr <= rate + 1e-9].max())
    assert found.low <= found.value <= found.high


def test_tpr_by_hand():
    """Two of ten others may be at or above the threshold, so it lies below 8: 9 and 10 are above 7."""
    others = np.arange(10.0)
    members = np.array([10.0, 9.0, 7.0, 0.0])
    assert tpr_at(members, others, 0.2, stream()).value == pytest.approx(0.5)


def test_too_few_others_have_no_tpr():
    assert tpr_at(np.ones(50), np.zeros(999), 0.001, stream()) is None
    assert tpr_at(np.ones(50), np.zeros(1000), 0.001, stream()).value == 1.0


def test_delongs_interval_by_hand():
    """Two members above, in the middle of two others: components (1, .5), (.5, 1), AUC .75."""
    found = auc(np.array([4.0, 2.0]), np.array([1.0, 3.0]))
    variance = 0.125 / 2 + 0.125 / 2
    reach = 1.959964 * variance**0.5 / (0.75 * 0.25)
    centre = np.log(3.0)
    expected = [1 / (1 + np.exp(-x)) for x in (centre - reach, centre + reach)]
    assert [found.low, found.high] == pytest.approx(expected, abs=1e-6)


def test_separated_scores_leave_room_below():
    """Ten disjoint pairs in order: the lower end p solves p^10 = .025."""
    found = auc(np.arange(10.0) + 100, np.arange(20.0))
    assert (found.value, found.high) == (1.0, 1.0)
    assert found.low == pytest.approx(0.025**0.1)
    mirrored = auc(np.arange(20.0), np.arange(10.0) + 100)
    assert (mirrored.value, mirrored.low) == (0.0, 0.0)
    assert mirrored.high == pytest.approx(1 - 0.025**0.1)


def test_the_interval_covers_chance_as_often_as_it_says():
    draw = np.random.default_rng(1)
    covered = 0
    for _ in range(400):
        found = auc(draw.normal(size=40), draw.normal(size=40))
        covered += found.low <= 0.5 <= found.high
    assert covered >= 0.92 * 400


def test_the_interval_of_a_rate_is_at_least_the_exact_one():
    """No member of 50 above: the upper end p solves (1 - p)^50 = .025."""
    found = tpr_at(np.zeros(50), np.ones(1000), 0.01, stream())
    assert (found.value, found.low) == (0.0, 0.0)
    assert found.high == pytest.approx(1 - 0.025 ** (1 / 50))
