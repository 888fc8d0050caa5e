"""Demonstrations of the rows on pfl-research. They call the installed pfl and need nothing else.

    python pfl_research.py banded | sampling | adaptive | accountants

Each prints one JSON object: what was measured, and what the same calls measure in the control.
"""

from __future__ import annotations

import json
import sys
import tempfile
from types import SimpleNamespace

import numpy as np


def banded():
    """Measure the sensitivity of the strategy matrix that the noise is correlated by."""
    from pfl.internal.ops import pytorch_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.internal.platform.selector import get_platform
    from pfl.privacy import PLDPrivacyAccountant
    from pfl.privacy.ftrl_mechanism import BandedMatrixFactorizationMechanism

    set_framework_module(pytorch_ops)
    folder = tempfile.mkdtemp()
    platform = get_platform()
    platform.create_checkpoint_directories = lambda names: [folder for _ in names]
    compositions = []

    def accountant(count):
        compositions.append(count)
        return PLDPrivacyAccountant(
            num_compositions=count, sampling_probability=0.001, mechanism="gaussian",
            noise_parameter=1.0, delta=1e-6,
        )  # fmt: skip

    rounds, separation = 32, 4
    mechanism = BandedMatrixFactorizationMechanism(1.0, rounds, separation, accountant)
    strategy = mechanism.query_matrix

    def sensitivity(matrix):
        """Return the largest movement of C x by a user of norm 1 who comes every fourth round."""
        return max(
            float(np.linalg.norm(matrix[:, first::separation].sum(axis=1)))
            for first in range(separation)
        ) / np.sqrt(np.ceil(rounds / separation))

    def columns(matrix):
        return float((matrix**2).sum(axis=0).max())

    # X = C^T C with a lower triangular C: Cholesky of X in reversed order, reversed again.
    gram = strategy @ strategy.T
    mended = np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1]
    return {
        "measured": {
            "largest_squared_column_norm": columns(strategy),
            "sensitivity_over_charged": sensitivity(strategy),
            "compositions": compositions[0],
        },
        "control": {
            "largest_squared_column_norm": columns(mended),
            "sensitivity_over_charged": sensitivity(mended),
        },
    }


def sampling():
    """Draw cohorts of 100 of 1,000 users, and count who is there twice."""
    from pfl.data.sampling import get_user_sampler

    np.random.seed(0)
    users = list(range(1000))
    sample = get_user_sampler("random", users)
    cohorts = [[sample() for _ in range(100)] for _ in range(500)]
    twice = [len(set(cohort)) < 100 for cohort in cohorts]
    most = max(np.bincount(cohort).max() for cohort in cohorts)
    sizes = {len(cohort) for cohort in cohorts}
    poisson = [np.flatnonzero(np.random.random(1000) < 0.1) for _ in range(500)]
    return {
        "measured": {
            "share_of_cohorts_with_a_repeated_user": float(np.mean(twice)),
            "most_times_in_one_cohort": int(most),
            "different_cohort_sizes": len(sizes),
        },
        "control": {
            "most_times_in_one_cohort": int(max(np.bincount(c).max() for c in poisson)),
            "different_cohort_sizes_above_1": float(len({len(c) for c in poisson}) > 1),
        },
    }


def adaptive():
    """Check what a user adds, with its bit, against the noise on the sum."""
    from pfl.privacy import GaussianMechanism
    from pfl.privacy.adaptive_clipping import AdaptiveClippingGaussianMechanism
    from pfl.stats import MappedVectorStatistics

    multiplier, indicator_std, clip, size = 1.0, 5.0, 0.7, 20_000
    mechanism = AdaptiveClippingGaussianMechanism(
        lambda bound: GaussianMechanism(bound, multiplier), clip, indicator_std, 0.5
    )

    def user(norm):
        update = np.zeros(size)
        update[0] = norm
        stats, _ = mechanism.postprocess_one_user(
            stats=MappedVectorStatistics({"w": update}, weight=1),
            user_context=SimpleNamespace(seed=1),
        )
        return stats

    def vector(stats):
        return np.concatenate([np.ravel(stats[name]) for name in sorted(stats)])

    norms = [float(np.linalg.norm(vector(user(norm)))) for norm in (0.1, 0.7, 100.0)]
    bits = [float(user(norm)[mechanism._CLIPPING_INDICATOR_NAME][0]) for norm in (0.1, 100.0)]
    total = user(0.1)
    before = vector(total).copy()
    noised, _ = mechanism._underlying_mechanism.add_noise(statistics=total, cohort_size=1, seed=3)
    unscaled = float(np.std((vector(noised) - before)[1:]))

    moved = user(0.1)
    server, _ = mechanism.postprocess_server(
        stats=moved, central_context=SimpleNamespace(cohort_size=1, seed=5), aggregate_metrics=None
    )
    noise = float(np.std(np.ravel(server["w"])[1:]))

    def follow(start):
        clip_norms = AdaptiveClippingGaussianMechanism(
            lambda bound: GaussianMechanism(bound, multiplier), start, indicator_std, 0.5
        )
        np.random.seed(2)
        for _ in range(60):
            below = np.mean(
                [0.5 + i / 100 <= clip_norms.mutable_clipping_bound.value() for i in range(100)]
            )
            clip_norms._geometric_update(below + np.random.normal(0, 0.05))
        return clip_norms.mutable_clipping_bound.value()

    return {
        "measured": {
            "noise_over_largest_contribution": noise / max(norms),
            "bits_are_opposite": float(bits[0] == -bits[1]),
            "noise_without_the_bit_over_clip_norm": unscaled / clip,
            "clip_norm_from_0.3": follow(0.3),
            "clip_norm_from_3": follow(3.0),
        },
        "control": {},
    }


def accountants():
    """Ask pfl's three accountants for the epsilon of 500 rounds."""
    from pfl.privacy import PLDPrivacyAccountant, PRVPrivacyAccountant, RDPPrivacyAccountant

    settings = {
        "num_compositions": 500, "sampling_probability": 0.01, "mechanism": "gaussian",
        "noise_parameter": 1.0, "delta": 1e-6,
    }  # fmt: skip
    epsilons = {}
    for name, kind in (("pld", PLDPrivacyAccountant), ("rdp", RDPPrivacyAccountant),
                       ("prv", PRVPrivacyAccountant)):  # fmt: skip
        epsilons[f"epsilon_{name}"] = float(kind(**settings).epsilon)
    return {"measured": epsilons, "control": {}}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
