"""Means and variances of the channels of features, on public images.

``public_statistics.json`` holds those of the training images of public data sets, made by
``scripts/public_statistics.py``. Who trains on one of these data sets takes another's.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path


def names(key: str) -> list[str]:
    """Whose statistics there are of the features with this key."""
    return sorted(_stored().get(key, {}))


def of(key: str, name: str, channels: int) -> tuple[list[float], list[float]]:
    """Mean and variance of each of so many channels; of colour images each colour has those of grey ones."""
    stored = _stored()[key][name]
    colours = channels // len(stored["mean"])
    return stored["mean"] * colours, stored["variance"] * colours


@cache
def _stored() -> dict[str, dict[str, dict[str, list[float]]]]:
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
