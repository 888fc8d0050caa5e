"""Rules called by themselves: options with their settings, and a round of uploads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

import fedpriv.aggregation as aggregation

RULES = {
    "median": "CoordinateMedian", "trimmed_mean": "TrimmedMean", "krum": "Krum", "multi_krum": "MultiKrum",
    "geometric_median": "GeometricMedian", "centered_clipping": "CenteredClipping",
    "caf": "CovarianceFilter", "dnc": "DivideAndConquer", "rlr": "RobustLearningRate", "fltrust": "FlTrust",
    "foolsgold": "FoolsGold", "flame": "Flame",
}  # fmt: skip
"""Option → class."""


def started(option: str, root: torch.Tensor | None = None, **settings: Any) -> Any:
    """Return the rule of one run; ``root``: what fltrust trusts."""
    made = getattr(aggregation, RULES[option])(**settings)
    rule = made.start(None)
    if made.reads_validation:
        rule.trust(lambda records, steps, learning_rate: root)
    return rule


def combine(
    rule: Any,
    uploads: Any,
    t: int = 0,
    weights: Sequence[float] | None = None,
    clients: Sequence[int] | None = None,
) -> np.ndarray:
    """Return what a rule makes of uploads [c, d], in float64."""
    rows = torch.as_tensor(np.asarray(uploads))
    shares = torch.full((len(rows),), 1.0 / len(rows)) if weights is None else torch.tensor(weights)
    numbers = np.arange(len(rows)) if clients is None else np.asarray(clients)
    before = rows.clone()
    result = rule.combine(t, numbers, rows, shares)
    assert torch.equal(rows.nan_to_num(), before.nan_to_num())  # uploads must not be changed
    assert result.dtype == rows.dtype
    assert result.shape == rows.shape[1:]
    return result.double().numpy()


def result_of(
    option: str, uploads: Any, *, root: Any = None, weights: Any = None, **settings: Any
) -> np.ndarray:
    """Return what a new rule makes of uploads in its first round."""
    root = None if root is None else torch.as_tensor(np.asarray(root))
    return combine(started(option, root, **settings), uploads, weights=weights)


def uploads(count: int = 11, size: int = 12, seed: int = 0, outliers: int = 0) -> np.ndarray:
    """Return made-up uploads in float64, the last of which lie far away."""
    generator = np.random.default_rng(seed)
    rows = generator.normal(0.3, 1.0, (count, size))
    if outliers:
        rows[-outliers:] += generator.normal(4.0, 3.0, (outliers, size))
    return rows
