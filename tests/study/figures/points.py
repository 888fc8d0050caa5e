"""Three learning rates, over which figures are made."""

from __future__ import annotations

POINTS = {"key": "algorithm.learning_rate", "values": [0.1, 0.5, 2], "label": "η", "quick": [0.5]}
