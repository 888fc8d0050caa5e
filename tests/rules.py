"""Algorithms that an aggregation rule goes with, and the overrides of their small runs."""

from __future__ import annotations

RUN = ("partition.clients=8", "runtime.progress=none", "runtime.plots=false")
PRIVATE = {
    "dp_fl": ("algorithm=dp_fl", "algorithm.optimizer=sgd"),
    "dp_scaffold": ("algorithm=dp_scaffold", "algorithm.local_steps=2"),
    "naseri_ldp": ("algorithm=naseri_ldp",),
    "ldp_fedsgd": ("algorithm=ldp_fedsgd", "noise_schedule=constant",
                   "noise_schedule.noise_multiplier=2"),
    "ldp_fedsgd of five": ("algorithm=ldp_fedsgd", "noise_schedule=constant",
                           "noise_schedule.noise_multiplier=2", "algorithm.clients_per_round=5",
                           "clipper=quantile"),
    "wei_cdp": ("algorithm=wei_cdp", "algorithm.sensitivity=update", "algorithm.records=100",
                "partition=iid", "noise_schedule=constant", "noise_schedule.noise_multiplier=2"),
    "wei_cdp of weights": ("algorithm=wei_cdp", "algorithm.sensitivity=weights", "algorithm.records=100",
                           "partition=iid", "noise_schedule=constant",
                           "noise_schedule.noise_multiplier=2"),
    "dp_fl_server": ("algorithm=dp_fl_server", "algorithm.trust=local"),
}  # fmt: skip
NOT_PRIVATE = {"fedavg": ("algorithm=fedavg",), "fedsgd": ("algorithm=fedsgd",)}
EVERY = {**PRIVATE, **NOT_PRIVATE}
