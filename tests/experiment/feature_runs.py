"""Runs on features whose statistics are released, and on others."""

from __future__ import annotations

import pandas as pd

FEATURES = (
    "dataset=digits", "features=scattering", "features.scales=1", "features.angles=4", "model=logistic",
    "evaluation_interval=2",
)  # fmt: skip


SERVER = ("algorithm=dp_fl_server", "algorithm.sample_rate=0.2")


NORMALIZED = (
    "features.normalization=released", "features.statistics_noise_multiplier=4",
    "features.statistics_clip_norm=0.5",
)  # fmt: skip


PLAIN = (*FEATURES, *SERVER, "features.normalization=none")


RELEASED = (*FEATURES, *SERVER, *NORMALIZED)


FREE = ("epsilon=null", "rounds=4", "noise_schedule.noise_multiplier=3")


STATISTICS, LOT = "Gaussian(z=4.0)", "Poisson(q=0.2, Gaussian(z=3.0))"


RUNS = {
    "distributed": (*RELEASED, *FREE, "algorithm.optimizer=adam"),
    "local": (*RELEASED, *FREE, "algorithm.trust=local", "averaging=ema"),
    "dp_fl": (*FEATURES, *NORMALIZED, *FREE, "algorithm=dp_fl", "algorithm.sample_rate=0.2"),
    "quantile": (*RELEASED, *FREE, "clipper=quantile", "accountant=pld"),
}


def ledger_of(folder) -> pd.DataFrame:
    return pd.read_csv(folder / "ledger.csv")
