"""Scores from a classifier that never saw the record it scores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Protocol

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import StratifiedKFold

from fedpriv.common.random_streams import stream_key

FOLDS, TREES = 5, 100


class Classifier(Protocol):
    """What scikit-learn's classifiers offer."""

    def fit(self, features: np.ndarray, labels: np.ndarray) -> object: ...

    def predict_proba(self, features: np.ndarray) -> np.ndarray: ...


def forest(seed: int, smallest_leaf: int = 5) -> Classifier:
    """A random forest of ``TREES`` trees."""
    return RandomForestClassifier(
        n_estimators=TREES, min_samples_leaf=smallest_leaf, random_state=_small(seed), n_jobs=1
    )


def folds(labels: np.ndarray, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """(rows to learn from, rows to score): every row is scored once, with both labels in each part."""
    splitter = StratifiedKFold(FOLDS, shuffle=True, random_state=_small(seed))
    return splitter.split(np.zeros(len(labels)), labels)


def out_of_fold(
    features: np.ndarray,
    labels: np.ndarray,
    seed: int,
    make: Callable[[int], Classifier] = forest,
) -> np.ndarray:
    """P(label 1) of each row of ``features`` [n, f] by a classifier trained on the other folds [n]."""
    scores = np.empty(len(labels))
    for learnt, scored in folds(labels, seed):
        classifier = make(seed)
        classifier.fit(features[learnt], labels[learnt])
        scores[scored] = classifier.predict_proba(features[scored])[:, 1]
    return scores


def _small(seed: int) -> int:
    """A seed of the size scikit-learn takes."""
    return stream_key(seed, "audit_classifier") % 2**32
