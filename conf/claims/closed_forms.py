"""Demonstrations that need numpy and scipy only: closed forms, and one query on two neighbouring inputs.

python closed_forms.py shuffled | unclipped_norms | trained_weights
"""

from __future__ import annotations

import json
import sys

import numpy as np
from scipy.special import log_ndtr, ndtr


def shuffled():
    """Bound ε of one shuffled epoch from below, by a test of the largest batch sum.

    All other records have the gradient -1. With the record the sums are 0 except 2 in one batch of unknown
    place, without it 0 except 1, up to a known constant. The test asks whether the largest sum exceeds c.
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


def unclipped_norms():
    """Move the mean of gradient norms of a lot by one record."""
    norms = np.ones(78)
    moved = []
    for outlier in (10.0, 1e6):
        other = norms.copy()
        other[0] = outlier
        moved.append(float(abs(other.mean() - norms.mean())))
    clipped = float(abs(np.minimum(other, 1.0).mean() - np.minimum(norms, 1.0).mean()))
    return {
        "measured": {"movement_with_norm_10": moved[0], "movement_with_norm_1e6": moved[1]},
        "control": {"movement_of_clipped_norms": clipped},
    }


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
