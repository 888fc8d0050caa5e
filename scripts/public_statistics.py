"""Write fedpriv/features/public_statistics.json: channel statistics of scattering on public training images.

    python scripts/public_statistics.py DATA_FOLDER

They are those of grey images, so that a colour image takes them once for each colour.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch

from fedpriv import features
from fedpriv.data.mnist import FashionMnist, Mnist
from fedpriv.data.records import Records
from fedpriv.features.base import NONE

_DIGITS = 6
_BLOCK = 250


def channel_statistics(records: Records, found: features.Features) -> dict[str, list[float]]:
    """Mean and variance of each channel over all images and places."""
    total, squares, count = 0.0, 0.0, 0
    for images in records.inputs.split(_BLOCK):
        values = found.coefficients(images).double().transpose(0, 1).flatten(1)
        total, squares = total + values.sum(1), squares + values.square().sum(1)
        count += values.shape[1]
    mean = total / count
    variance = squares / count - mean.square()
    return {
        "mean": [round(float(m), _DIGITS) for m in mean],
        "variance": [float(f"{float(v):.{_DIGITS}g}") for v in variance],
    }


def main(folder: str) -> None:
    torch.set_grad_enabled(False)
    used = features.Scattering(normalization=NONE)
    stored = {
        used.key(): {
            dataset.name: channel_statistics(dataset(folder, download=False).load().train, used)
            for dataset in (FashionMnist, Mnist)
        }
    }
    path = Path(features.__file__).with_name("public_statistics.json")
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
