"""Demonstrations of the rows on JAX Privacy.

python jax_library.py accounting | banded
"""

from __future__ import annotations

import json
import sys

import numpy as np


def accounting():
    """Ask for the epsilon of DP-SGD, of fixed batches, and of banded noise in 8 groups."""
    from jax_privacy.accounting import accountants, analysis

    config = accountants.PldAccountantConfig()
    tell = analysis.DpsgdTrainingAccountant(dp_accountant_config=config)

    def epsilon(steps, **settings):
        params = analysis.DpParams(
            noise_multipliers=1.0, num_samples=10_000, delta=1e-6, batch_size=100, **settings
        )
        return float(tell.compute_epsilon(steps, params))

    return {
        "measured": {
            "epsilon_poisson": epsilon(500),
            "epsilon_banded_8_groups": epsilon(512, cycle_length=8),
            "epsilon_fixed_batches": epsilon(
                500, sampling_method=analysis.SamplingMethod.FIXED_BATCH_SIZE
            ),
        },
        "control": {},
    }


def banded():
    """Measure the sensitivity of a banded strategy by hand."""
    from jax_privacy.matrix_factorization import banded as library

    rounds, bands = 64, 8
    strategy = library.ColumnNormalizedBanded.default(rounds, bands=bands)
    matrix = np.asarray(strategy.materialize(), dtype=float)
    charged = float(library.minsep_sensitivity_squared(strategy, min_sep=bands))
    by_hand = max(
        float(np.linalg.norm(np.abs(matrix[:, first::bands]).sum(axis=1)) ** 2)
        for first in range(bands)
    )
    return {
        "measured": {
            "largest_squared_column_norm": float((matrix**2).sum(axis=0).max()),
            "sensitivity_squared_by_hand_over_charged": by_hand / charged,
        },
        "control": {},
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
