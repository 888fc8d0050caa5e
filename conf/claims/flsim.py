"""Demonstration of the row on FLSim: whether two rounds have the same noise.

It imports flsim.privacy without running the package's __init__, which Python 3.11 refuses.

    python flsim.py seed
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from pathlib import Path

folder = str(Path(__file__).resolve().parent)
sys.path[:] = [
    path for path in sys.path if path not in ("", folder)
]  # this file is called flsim, too
ROOT = Path(importlib.util.find_spec("flsim").submodule_search_locations[0])
for package in ("flsim", "flsim.privacy", "flsim.common"):
    module = types.ModuleType(package)
    module.__path__ = [str(ROOT.joinpath(*package.split(".")[1:]))]
    sys.modules[package] = module

import numpy as np  # noqa: E402
import torch  # noqa: E402
from flsim.privacy.common import PrivacySetting  # noqa: E402
from flsim.privacy.privacy_engine import GaussianPrivacyEngine  # noqa: E402


def noises(seed):
    """Return the noise of two rounds; the server attaches the engine before each round."""
    setting = PrivacySetting(noise_multiplier=1.0, clipping_value=1.0, noise_seed=seed)
    engine = GaussianPrivacyEngine(setting, users_per_round=10, num_total_users=100)
    found = []
    for _ in range(2):
        model = torch.nn.Linear(100, 100, bias=False)
        with torch.no_grad():
            model.weight.zero_()
        engine.attach(model)  # as SyncDPSGDServer.init_round does
        engine.add_noise(model, 1.0)
        found.append(model.weight.detach().numpy().ravel())
    return found, engine.get_privacy_spent().epsilon


def seed():
    """Compare the noise of two rounds with a seed and without."""
    (first, second), epsilon = noises(3)
    (other, another), _ = noises(None)
    return {
        "measured": {
            "correlation_of_two_rounds": float(np.corrcoef(first, second)[0, 1]),
            "epsilon_after_two_rounds": float(epsilon),
        },
        "control": {
            "correlation_of_two_rounds": float(abs(np.corrcoef(other, another)[0, 1])),
            "noise_std": float(np.std(other)),
        },
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
