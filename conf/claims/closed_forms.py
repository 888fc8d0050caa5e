"""Demonstrations that need numpy and scipy only: closed forms, and one query on two neighbouring inputs.

python closed_forms.py shuffled | second_query | trained_weights
"""

from __future__ import annotations

import json
import sys

import numpy as np
from scipy.special import log_ndtr, ndtr


def shuffled():
    """Bound ε of one shuffled epoch from below, by a test of the largest batch sum.

    All other records have the gradient -1, the record 1. Up to a known constant the sums are 0, except 2 in
    one batch of unknown place; where the record is zeroed, 1 there. The test asks whether the largest sum
    exceeds c.
    """
    sigma, batches, delta = 0.5, 100, 1e-5
    c = np.linspace(0, 8, 200_001)

    def exceeds(shift):
        log_below = (batches - 1) * log_ndtr(c / sigma) + log_ndtr((c - shift) / sigma)
        return -np.expm1(log_below)

    with_record, without = exceeds(2.0), exceeds(1.0)
    usable = with_record > delta
    bound = np.log((with_record[usable] - delta) / without[usable]).max()
    return {"measured": {"epsilon_from_below": float(bound)}, "control": {}}


def second_query():
    """Compare two lots that differ in one record: by the sum of gradients, and also by the sum of norms.

    Both sums have noise of standard deviation σC, as eqs. (6) to (8) print it.
    """
    sigma, clip, size = 3.0, 1.0, 78
    random = np.random.default_rng(0)
    gradients = random.standard_normal((size, 20))

    def distance(query):
        lot, fewer = query(gradients), query(gradients[1:])
        return float(np.linalg.norm(lot - fewer) / (sigma * clip))

    def clipped_sum(lot):
        norms = np.linalg.norm(lot, axis=1, keepdims=True)
        return (lot * np.minimum(1.0, clip / norms)).sum(axis=0)

    def clipped_norms(lot):
        return np.minimum(np.linalg.norm(lot, axis=1), clip).sum()

    return {
        "measured": {
            "distance_over_noise_of_both_queries":
                float(np.hypot(distance(clipped_sum), distance(clipped_norms))),
        },
        "control": {"distance_over_noise_of_the_gradient_alone": distance(clipped_sum)},
    }  # fmt: skip


def trained_weights():
    """Train logistic regressions on neighbouring data sets of 128 records, and clip the final weights.

    Records are (1, y) but for one, whose feature is huge: its sign decides where the weights end.
    """
    size, clip = 128, 1.0

    def trained(label):
        x, y = np.full(size, 1e-3), np.tile([1.0, -1.0], size // 2)
        x[0], y[0] = 1e4, label
        weight = 0.0
        for _ in range(200):
            slope = -(y * x * ndtr(-np.clip(y * x * weight, -30, 30))).mean()
            weight -= 0.1 * slope
        return float(np.clip(weight, -clip, clip))

    def one_clipped_step(label):
        x, y = np.full(size, 1e-3), np.tile([1.0, -1.0], size // 2)
        x[0], y[0] = 1e4, label
        gradients = np.clip(-(y * x) / 2, -clip, clip)
        return float(-gradients.mean())

    return {
        "measured": {"movement_of_final_weights": abs(trained(1.0) - trained(-1.0))},
        "control": {"movement_of_one_step_with_clipped_records":
                    abs(one_clipped_step(1.0) - one_clipped_step(-1.0))},
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
