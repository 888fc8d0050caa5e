"""Scores from classifiers that never saw the record that they score."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold

from fedpriv.common.random_streams import stream_key

FOLDS, TREES = 5, 100


class Classifier(Protocol):
    """The interface of scikit-learn's classifiers."""

    def fit(self, features: np.ndarray, labels: np.ndarray) -> object:
        """Learn from features [n, d] and labels [n]."""

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        """Return the probability of each label [m, labels] for features [m, d]."""


def forest(seed: int, smallest_leaf: int = 5) -> Classifier:
    """Return a random forest of ``TREES`` trees.

    Args:
        seed: Seed of the forest.
        smallest_leaf: Smallest number of rows in a leaf.
    """
    return RandomForestClassifier(
        n_estimators=TREES,
        min_samples_leaf=smallest_leaf,
        random_state=_seed_of_32_bits(seed),
        n_jobs=1,
    )


def folds(labels: np.ndarray, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield (rows to learn from, rows to score).

    Every row is scored once. Both parts have rows of both labels.

    Args:
        labels: Label of each row, 0 or 1 [n].
        seed: Seed of the split.
    """
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=_seed_of_32_bits(seed))
    return splitter.split(np.zeros(len(labels)), labels)


def out_of_fold(
    features: np.ndarray,
    labels: np.ndarray,
    seed: int,
    make: Callable[[int], Classifier] = forest,
) -> np.ndarray:
    """Return P(label 1) of each row by a classifier that was trained on the other folds.

    Args:
        features: Features of each row [n, f].
        labels: Label of each row, 0 or 1 [n].
        seed: Seed of the folds and of the classifiers.
        make: Function that makes a classifier from a seed.

    Returns:
        Scores [n].
    """
    scores = np.empty(len(labels))
    for training_rows, test_rows in folds(labels, seed):
        classifier = make(seed)
        classifier.fit(features[training_rows], labels[training_rows])
        scores[test_rows] = classifier.predict_proba(features[test_rows])[:, 1]
    return scores


def _seed_of_32_bits(seed: int) -> int:
    """Return a seed that scikit-learn accepts (32 bits)."""
    return stream_key(seed, "audit_classifier") % 2**32
