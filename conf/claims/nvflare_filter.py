"""Demonstration of the row on NVIDIA FLARE: whether a filter adds noise.

python nvflare_filter.py percentile
"""

from __future__ import annotations

import json
import logging
import sys

import numpy as np
from nvflare.apis.dxo import DXO, DataKind
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

logging.disable(logging.CRITICAL)


def percentile():
    """Send one update twice and the opposite update once through the filter with its default settings."""

    def sent(update):
        update = DXO(DataKind.WEIGHT_DIFF, data={"w": update.copy()})
        return PercentilePrivacy().process_dxo(update, Shareable(), FLContext()).data["w"]

    update = 0.005 * np.random.default_rng(0).standard_normal(1000)
    return {
        "measured": {
            "largest_difference_of_two_outputs_of_one_update":
                float(np.abs(sent(update) - sent(update)).max()),
            "distance_of_the_outputs_of_opposite_updates":
                float(np.linalg.norm(sent(update) - sent(-update))),
        },
        "control": {},
    }  # fmt: skip


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
