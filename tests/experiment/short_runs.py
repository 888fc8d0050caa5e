"""The shortest run with everything that a checkpoint must hold."""

from __future__ import annotations

from pathlib import Path

HARD = (
    "algorithm=adap_dpfl", "algorithm.optimizer=adam", "algorithm.learning_rate=0.01",
    "algorithm.participation=sampled", "algorithm.clients_per_round=4", "algorithm.local_steps=2",
    "noise_schedule.beta=0.99", "epsilon=3000", "evaluation_interval=5",
)  # fmt: skip


SHORT = (*HARD, "rounds=4", "runtime.checkpoint_interval=2", "evaluation_interval=3")


def as_before_the_first_round(folder: Path) -> None:
    for name in ("checkpoint.pt", "metrics.csv", "ledger.csv", "privacy.json", "summary.json"):
        (folder / name).unlink()
