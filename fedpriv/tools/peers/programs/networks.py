"""The networks of ``fedpriv bench`` in plain torch, and random records."""

from __future__ import annotations

import torch
from torch import Tensor, nn

SHAPE, CLASSES, CLIP_NORM = (1, 28, 28), 10, 0.5


def network(model: str) -> nn.Module:
    """Return the CNN of Adap DP-FL (26,010 parameters) or the MLP (25,450)."""
    torch.manual_seed(0)
    if model == "cnn":
        return nn.Sequential(
            nn.Conv2d(1, 16, 8, stride=2, padding=2), nn.ReLU(), nn.MaxPool2d(2, stride=1),
            nn.Conv2d(16, 32, 4, stride=2), nn.ReLU(), nn.MaxPool2d(2, stride=1),
            nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, CLASSES),
        )  # fmt: skip
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 32), nn.ReLU(), nn.Linear(32, CLASSES))


def lots(clients: int, records: int) -> list[tuple[Tensor, Tensor]]:
    """Return random records of each client: inputs and labels."""
    torch.manual_seed(1)
    return [
        (torch.randn(records, *SHAPE), torch.randint(0, CLASSES, (records,)))
        for _ in range(clients)
    ]
