"""Demonstrations of the rows on Opacus.

python opacus_library.py denominator | accountants | shuffled

``add_or_remove`` and ``zero_out`` make adapters of one step, for fedpriv verify --adapter.
"""

from __future__ import annotations

import json
import math
import sys
import warnings

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

warnings.simplefilter("ignore")
WEIGHTS = 1_000_000


def private(records, batch_size=50, width=1, **settings):
    """Return the engine, the private model, its optimiser and the loader for so many records."""
    model = torch.nn.Linear(1000, width, bias=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    loader = DataLoader(
        TensorDataset(torch.zeros(records, 1000), torch.zeros(records)), batch_size=batch_size
    )
    engine = PrivacyEngine()
    model, optimizer, loader = engine.make_private(
        module=model, optimizer=optimizer, data_loader=loader, noise_multiplier=1.0,
        max_grad_norm=1.0, **settings,
    )  # fmt: skip
    return engine, model, optimizer, loader


def denominator():
    """Compare the denominators of neighbouring data sets, and the noise of one step on a million weights."""
    width = WEIGHTS // 1000

    def noise(records, batch_size=None):
        torch.manual_seed(records)
        _, model, optimizer, _ = private(records, width=width)
        if batch_size is not None:
            optimizer.expected_batch_size = batch_size
        model(torch.zeros(1, 1000)).sum().backward()
        optimizer.pre_step()  # clips, adds noise and divides: what SGD would apply
        return float(model._module.weight.grad.std()), optimizer.expected_batch_size

    def apart(first, second):
        return abs(math.log(first / second)) * math.sqrt(WEIGHTS)

    (of_1000, size), (of_999, other_size) = noise(1000), noise(999)
    return {
        "measured": {
            "denominator_of_1000_records": float(size),
            "denominator_of_999_records": float(other_size),
            "standard_deviations_between_the_noise_levels": apart(of_1000, of_999),
        },
        "control": {
            "standard_deviations_between_the_noise_levels": apart(
                noise(1000, 50)[0], noise(999, 50)[0]
            )
        },
    }


class Steps:
    """One step a round on Poisson lots. The gradient of a record is the record itself."""

    def __init__(self, neighbours):
        self.holds_still = ["seed"]
        self.claim = {
            "unit": "record",
            "neighbours": neighbours,
            "sampling": "poisson",
            "sample_rate": 0.25,
            "clip_norm": 1.0,
            "noise_multiplier": 1.0,
            "denominator": -5,  # SGD with learning rate 1 subtracts the mean
            "rounds": 4,
            "records": 20,
            "finite": True,
        }

    def round(self, state, data, seed):
        """Return the change of the weights in one step."""
        number = state or 0
        torch.manual_seed(seed * 1000 + number)
        records = torch.from_numpy(data[0]).float()
        model = torch.nn.Linear(records.shape[1], 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        model, optimizer, loader = PrivacyEngine().make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=1.0),
            data_loader=DataLoader(TensorDataset(records), batch_size=5),
            noise_multiplier=1.0,
            max_grad_norm=1.0,
        )
        (lot,) = next(iter(loader))
        model(lot).mean().backward()
        optimizer.step()
        return next(model.parameters()).detach().numpy()[0], number + 1


def add_or_remove():
    """Return the adapter with the claim that a record may be added or removed."""
    return Steps("add_or_remove")


def zero_out():
    """Return the adapter with the claim that a record may be zeroed."""
    return Steps("zero_out")


def accountants():
    """Ask Opacus' accountants for the epsilon of 2,250 steps."""
    from opacus.accountants import GaussianAccountant, PRVAccountant, RDPAccountant

    found = {}
    for name, kind in (("rdp", RDPAccountant), ("prv", PRVAccountant), ("gdp", GaussianAccountant)):
        accountant = kind()
        accountant.history = [(1.5, 0.04, 2250)]
        found[f"epsilon_{name}"] = float(accountant.get_epsilon(delta=1e-5))
    return {"measured": found, "control": {"epsilon_prv": found["epsilon_prv"]}}


def shuffled():
    """Take one step on shuffled batches and one on Poisson lots, and ask for the ε of an epoch of each."""
    found = {}
    for name, poisson in (("shuffled", False), ("poisson", True)):
        engine, model, optimizer, loader = private(1000, 10, poisson_sampling=poisson)
        model(torch.zeros(1, 1000)).sum().backward()
        optimizer.step()
        [(_, rate, steps)] = engine.accountant.history
        found[f"sample_rate_{name}"] = float(rate) if steps == 1 else math.nan
        engine.accountant.history = [(0.5, rate, len(loader))]
        found[f"epsilon_{name}"] = float(engine.get_epsilon(1e-5))
    control = {"epsilon_poisson": found["epsilon_poisson"]}
    return {"measured": found, "control": control}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
