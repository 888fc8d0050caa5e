"""Demonstration of the row on FedML: what the base classes do with each kind of differential privacy.

It imports the installed classes without running the package's __init__, which needs much else. Attacks,
defences and encryption, which these classes also ask, are replaced by switches that are off.

    python fedml.py noise
"""

from __future__ import annotations

import importlib.util
import json
import sys
import types
from collections import OrderedDict
from pathlib import Path
from types import SimpleNamespace

import torch

folder = str(Path(__file__).resolve().parent)
sys.path[:] = [
    path for path in sys.path if path not in ("", folder)
]  # this file is called fedml, too
ROOT = Path(importlib.util.find_spec("fedml").submodule_search_locations[0])
for package in ("fedml", "fedml.core", "fedml.core.common", "fedml.core.alg_frame"):
    module = types.ModuleType(package)
    module.__path__ = [str(ROOT.joinpath(*package.split(".")[1:]))]
    sys.modules[package] = module


class Off:
    """An attack, a defence or an encryption that is not used."""

    @classmethod
    def get_instance(cls):
        """Return the class itself."""
        return cls

    @staticmethod
    def init(args):
        """Do nothing."""

    @staticmethod
    def is_fhe_enabled():
        """Return False."""
        return False

    is_defense_enabled = is_fhe_enabled


for module, name in (
    ("fedml.core.security.fedml_attacker", "FedMLAttacker"),
    ("fedml.core.security.fedml_defender", "FedMLDefender"),
    ("fedml.core.fhe.fhe_agg", "FedMLFHE"),
    ("fedml.core.contribution.contribution_assessor_manager", "ContributionAssessorManager"),
    ("fedml.ml.aggregator.agg_operator", "FedMLAggOperator"),
    ("fedml.core", "Context"),
):
    sys.modules.setdefault(module, types.ModuleType(module))
    setattr(sys.modules[module], name, Off if name != "ContributionAssessorManager" else id)

from fedml.core.alg_frame.client_trainer import ClientTrainer  # noqa: E402
from fedml.core.alg_frame.server_aggregator import ServerAggregator  # noqa: E402
from fedml.core.dp.fedml_differential_privacy import FedMLDifferentialPrivacy  # noqa: E402
from fedml.core.dp.frames.dp_clip import DP_Clip  # noqa: E402

SETTINGS = {
    "enable_dp": True, "mechanism_type": "gaussian", "epsilon": 0.5, "delta": 1e-5, "sensitivity": 1.0,
    "clipping_norm": 1.0, "noise_multiplier": 1.0, "train_data_num_in_total": 10, "C": 1.0,
    "client_num_per_round": 10, "client_num_in_total": 10, "comm_round": 10, "max_grad_norm": None,
}  # fmt: skip


def model():
    """Return a model of zeros with three layers."""
    return OrderedDict((name, torch.zeros(20_000)) for name in ("a", "b", "c"))


class Trainer(ClientTrainer):
    """A client whose training is over: its model is all zeros."""

    get_model_params = ClientTrainer.get_enc_model_params
    set_model_params = ClientTrainer.set_enc_model_params

    def train(self, train_data, device, args):
        """Do nothing."""


class Aggregator(ServerAggregator):
    """A server with nothing to test."""

    get_model_params = set_model_params = test = None


def what_leaves(kind):
    """Return what a client sends after training, and what the server makes of an aggregate of zeros."""
    FedMLDifferentialPrivacy._dp_instance = None
    args = SimpleNamespace(dp_solution_type=kind, **SETTINGS)
    client, server = Trainer(None, args), Aggregator(None, args)
    client.set_model_params(model())
    client.on_after_local_training(None, None, args)
    return client.get_model_params(), server.on_after_aggregation(model())


def noise():
    """Run the base trainer and the base aggregator on models of zeros, and see whether anything is added."""
    asked = {}
    for kind in ("ldp", "cdp", "nbafl", "dp_clip"):
        added = any(
            bool(layer.any()) for released in what_leaves(kind) for layer in released.values()
        )
        asked[f"noise_is_added_for_{kind}"] = float(added)
    torch.manual_seed(0)
    clip = DP_Clip(SimpleNamespace(dp_solution_type="dp_clip", **SETTINGS))
    released = clip.add_global_noise(model())
    torch.manual_seed(0)
    clip = DP_Clip(SimpleNamespace(dp_solution_type="dp_clip", **SETTINGS))
    layers = clip.add_noise(model(), 10.0)
    stds = [float(layers[name].std()) for name in ("a", "b", "c")]

    class Mended(DP_Clip):
        """One scale for all tensors, and the noised model is returned."""

        def compute_noise(self, size, qw):
            return torch.normal(0.0, self._scale / qw, size)

        def add_global_noise(self, global_model):
            return self.add_noise(OrderedDict((k, v / 10.0) for k, v in global_model.items()), 10.0)

    mended = Mended(SimpleNamespace(dp_solution_type="dp_clip", **SETTINGS)).add_global_noise(
        model()
    )
    mended_stds = [float(mended[name].std()) for name in ("a", "b", "c")]
    return {
        "measured": {
            **asked,
            "add_global_noise_returns_a_model": float(released is not None),
            "noise_of_the_second_tensor_over_the_first": stds[1] / stds[0],
            "noise_of_the_third_tensor_over_the_first": stds[2] / stds[0],
        },
        "control": {
            "add_global_noise_returns_a_model": float(mended is not None),
            "noise_of_the_second_tensor_over_the_first": mended_stds[1] / mended_stds[0],
        },
    }


if __name__ == "__main__":
    shown, sys.stdout = sys.stdout, sys.stderr
    print(json.dumps(globals()[sys.argv[1]]()), file=shown)
