"""Write tests/attacks/byzfl_attacks.json: what ByzFL's attacks send for given honest vectors.

    python -m venv ENV --system-site-packages && ENV/bin/pip install --no-deps byzfl==0.0.11
    ENV/bin/python scripts/byzfl_attacks.py

An environment of its own, since ByzFL pins old numpy and torch; --no-deps takes those that are there.
fedpriv is not needed. The optimal attacks run against the mean and the median without pre-aggregator: ByzFL's
Clipping may write into its input.
"""

from __future__ import annotations

import json
import sys
from importlib.metadata import version
from pathlib import Path
from types import ModuleType

import torch

# ByzFL's benchmark, which its package imports, needs torchvision; the attacks do not.
sys.modules["byzfl.benchmark"] = ModuleType("byzfl.benchmark")

from byzfl import attacks  # noqa: E402
from byzfl.aggregators import Average, Median  # noqa: E402

OUT = Path(__file__).resolve().parents[1] / "tests" / "attacks" / "byzfl_attacks.json"
HONEST, ATTACKERS, SIZE = 7, 3, 12


def main() -> None:
    """Write the file."""
    generator = torch.Generator().manual_seed(0)
    honest = torch.randn(HONEST, SIZE, generator=generator, dtype=torch.float64)
    honest += torch.linspace(-1.0, 2.0, SIZE, dtype=torch.float64)
    sent = {
        "mean_flipped": attacks.SignFlipping()(honest),
        "ipm": attacks.InnerProductManipulation()(honest),
        "alie": attacks.ALittleIsEnough()(honest),
        "mimic of 2": attacks.Mimic(epsilon=2)(honest),
    }
    for name, rule in (("mean", Average()), ("median", Median())):
        options = {"agg": rule, "pre_agg_list": [], "f": ATTACKERS}
        sent[f"ipm_optimal {name}"] = attacks.Optimal_InnerProductManipulation(**options)(honest)
        sent[f"alie_optimal {name}"] = attacks.Optimal_ALittleIsEnough(**options)(honest)
    content = {
        "byzfl": version("byzfl"),
        "command": "python scripts/byzfl_attacks.py",
        "attackers": ATTACKERS,
        "honest": honest.tolist(),
        "sent": {name: vector.tolist() for name, vector in sent.items()},
    }
    OUT.write_text(json.dumps(content, indent=1) + "\n")


if __name__ == "__main__":
    main()
