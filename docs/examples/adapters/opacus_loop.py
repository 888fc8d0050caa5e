"""One step of Opacus for each round: Poisson lots of records, clipped gradients, noise on their sum.

The model is linear without a bias and its loss is the sum of its outputs, so that the gradient of a record is
the record itself: what fedpriv sends is what gets clipped.

fedpriv verify --adapter docs/examples/adapters/opacus_loop.py
"""

import logging
import warnings

import torch
from opacus import PrivacyEngine
from torch.utils.data import DataLoader, TensorDataset

RECORDS, LOT, CLIP_NORM, NOISE_MULTIPLIER = 20, 5, 1.0, 1.1
warnings.filterwarnings("ignore")
logging.getLogger("opacus").setLevel(logging.ERROR)  # it tells of each empty lot

claim = {
    "unit": "record",
    "neighbours": "zero_out",  # Opacus divides by the expected size of a lot, which counts the records
    "sampling": "poisson",
    "sample_rate": LOT / RECORDS,
    "clip_norm": CLIP_NORM,
    "noise_multiplier": NOISE_MULTIPLIER,
    "denominator": -LOT,  # SGD with learning rate 1 subtracts the mean
    "rounds": 10,
    "observer": "sees the weights after each step",
    "records": RECORDS,
    "finite": True,
}
holds_still = ["seed"]


def round(state, data, seed):
    """Return the change of the weights in one step."""
    number = state or 0
    torch.manual_seed(seed * 1000 + number)
    records = torch.from_numpy(data[0]).float()
    model = torch.nn.Linear(records.shape[1], 1, bias=False)
    torch.nn.init.zeros_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    model, optimizer, loader = PrivacyEngine().make_private(
        module=model,
        optimizer=optimizer,
        data_loader=DataLoader(TensorDataset(records), batch_size=LOT),
        noise_multiplier=NOISE_MULTIPLIER,
        max_grad_norm=CLIP_NORM,
    )
    (lot,) = next(iter(loader))
    model(lot).mean().backward()
    optimizer.step()
    return next(model.parameters()).detach().numpy()[0], number + 1
