"""Three learning rates, over which figures are made."""

from __future__ import annotations

POINTS = {"x": {"algorithm.learning_rate": [0.1, 0.5, 2]}, "x_label": "η", "x_quick": [0.5]}
