"""No record is scored by a classifier that was trained on it."""

from __future__ import annotations

import numpy as np
import pytest

from fedpriv.tools.audit.classifier import FOLDS, folds, out_of_fold
from fedpriv.tools.audit.statistics import auc


class Memory:
    """Knows the labels of the rows it was trained on, by heart; refuses to score one of them."""

    def __init__(self, seed: int):
        self.known: dict[bytes, int] = {}

    def fit(self, features, labels):
        self.known = {row.tobytes(): int(y) for row, y in zip(features, labels, strict=True)}

    def predict_proba(self, features):
        assert not any(row.tobytes() in self.known for row in features)
        return np.full((len(features), 2), 0.5)


def numbered(rows: int) -> tuple[np.ndarray, np.ndarray]:
    return np.arange(rows, dtype=float)[:, None], np.arange(rows) % 2 == 0


def test_no_row_is_scored_by_a_classifier_that_was_trained_on_it():
    features, labels = numbered(50)
    assert (out_of_fold(features, labels, 0, Memory) == 0.5).all()


def test_every_row_is_scored_once_and_each_fold_has_both_labels():
    _, labels = numbered(50)
    parts = list(folds(labels, 0))
    assert len(parts) == FOLDS
    np.testing.assert_array_equal(np.sort(np.concatenate([s for _, s in parts])), np.arange(50))
    assert all(labels[s].sum() == 5 for _, s in parts)


def test_a_label_that_cannot_be_known_is_not_found():
    draw = np.random.default_rng(0)
    features, labels = draw.normal(size=(400, 5)), np.arange(400) < 200
    found = auc(*(out_of_fold(features, labels, 0)[part] for part in (labels, ~labels)))
    assert 0.4 < found.value < 0.6


@pytest.mark.thorough
def test_the_same_seed_gives_the_same_scores():
    draw = np.random.default_rng(0)
    features, labels = draw.normal(size=(60, 3)), np.arange(60) < 30
    one, other, third = (out_of_fold(features, labels, seed) for seed in (1, 1, 2))
    np.testing.assert_array_equal(one, other)
    assert not np.array_equal(one, third)
