"""Means and variances of the channels of features on public images.

``public_statistics.json`` holds the statistics of the training images of public data sets, made by
``scripts/public_statistics.py``. A run must not take the statistics of the data set it trains on.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path


def names(key: str) -> list[str]:
    """Return the names of the data sets that have statistics of the features with this key."""
    return sorted(_stored().get(key, {}))


def of(key: str, name: str, channels: int) -> tuple[list[float], list[float]]:
    """Return mean and variance of each channel.

    The statistics are those of grey images. For colour images they are repeated for each colour.

    Args:
        key: Key of the features, see :meth:`fedpriv.features.Features.key`.
        name: Public data set, one of :func:`names`.
        channels: Number of channels of the features.
    """
    stored = _stored()[key][name]
    colours = channels // len(stored["mean"])
    return stored["mean"] * colours, stored["variance"] * colours


@cache
def _stored() -> dict[str, dict[str, dict[str, list[float]]]]:
    return json.loads(Path(__file__).with_suffix(".json").read_text(encoding="utf-8"))
