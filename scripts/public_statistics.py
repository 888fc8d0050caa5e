"""Write fedpriv/features/public_statistics.json: channel statistics of features on public training images.

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
    loaded = {
        kind.name: kind(folder, download=False).load().train for kind in (FashionMnist, Mnist)
    }
    stored = {
        used.key(): {name: channel_statistics(records, used) for name, records in loaded.items()}
        for used in (features.Hog(normalization=NONE), features.Scattering(normalization=NONE))
    }
    path = Path(features.__file__).with_name("public_statistics.json")
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
