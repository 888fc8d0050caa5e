"""Central DP-FedAvg as a numpy function: clip each client's update, add noise to the sum, divide.

fedpriv verify --adapter docs/examples/adapters/numpy_fedavg.py
"""

import numpy as np

CLIENTS, RATE, CLIP_NORM, NOISE_MULTIPLIER = 20, 0.25, 1.0, 1.1
DENOMINATOR = RATE * CLIENTS

claim = {
    "unit": "client",
    "neighbours": "add_or_remove",
    "sampling": "poisson",
    "sample_rate": RATE,
    "clip_norm": CLIP_NORM,
    "noise_multiplier": NOISE_MULTIPLIER,
    "denominator": DENOMINATOR,
    "rounds": 10,
    "observer": "sees the noisy mean of each round",
    "clients": CLIENTS,
}
holds_still = ["seed"]


def round(state, data, seed):
    """Return the noisy mean of clipped updates, and the number of the next round."""
    number = state or 0
    random = np.random.default_rng([seed, number])
    total = np.zeros_like(data[0])
    members = random.random(len(data)) < RATE
    for update, member in zip(data, members):  # noqa: B905
        if member and np.isfinite(update).all():
            total += update * min(1.0, CLIP_NORM / max(np.linalg.norm(update), 1e-12))
    total += NOISE_MULTIPLIER * CLIP_NORM * random.standard_normal(len(total))
    return total / DENOMINATOR, number + 1
