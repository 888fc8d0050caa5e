"""Small runs of DP-FTRL."""

from __future__ import annotations

import numpy as np
import pandas as pd

import fedpriv
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.plan import make_plan
from fedpriv.store.tables import parse_ranges

CLIENTS, ROUNDS, REST = 20, 12, 4


STRATEGIES = ("identity", "tree", "banded_toeplitz", "banded", "blt")


def ftrl(*overrides: str, z: float | None = 2.0) -> tuple[str, ...]:
    noise = ("noise_schedule=constant", f"noise_schedule.noise_multiplier={z}", "epsilon=null")
    return (
        "algorithm=dp_ftrl", f"partition.clients={CLIENTS}", f"rounds={ROUNDS}",
        f"algorithm.min_separation={REST}", "evaluation_interval=100",
        *(noise if z else ()), *overrides,
    )  # fmt: skip


def plan_of(*overrides: str):
    return make_plan(build_parts(fedpriv.compose(overrides)))


def took_part(folder) -> np.ndarray:
    """[T, K]: who was in which round, by participation.csv."""
    found = np.zeros((ROUNDS, CLIENTS), dtype=bool)
    for row in pd.read_csv(folder / "participation.csv", dtype=str, keep_default_na=False).to_dict(
        "records"
    ):
        first, last = int(row["first_round"]), int(row["last_round"])
        found[first - 1 : last, parse_ranges(row["clients"])] = True
    return found
