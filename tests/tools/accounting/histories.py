"""Histories of releases, as other libraries save them."""

from __future__ import annotations

import attrs
from dp_accounting import dp_event

from fedpriv.privacy.core.sampling import PoissonSampling

DELTA = ("--delta", "1e-5")
POISSON_FLAGS = ("--sampling", "poisson", "--neighbours", "add_or_remove")


POISSON = PoissonSampling(0.04).event(1.5)


def epsilon(found: dict, name: str) -> float:
    return found["accountants"][name]["epsilon"]["1e-05"]


def opacus(mechanism: str = "rdp", entries: object = None) -> dict:
    return {"history": [(1.5, 0.04, 2250)] if entries is None else entries, "mechanism": mechanism}


# ---- events of dp_accounting


def plain(event: dp_event.DpEvent) -> dict:
    """As the documentation writes it."""

    def value(own: object) -> object:
        if isinstance(own, dp_event.DpEvent):
            return plain(own)
        return [value(part) for part in own] if isinstance(own, (list, tuple)) else own

    fields = {f.name: value(getattr(event, f.name)) for f in attrs.fields(type(event))}
    return {"class_name": type(event).__name__, **fields}


GAUSSIAN = dp_event.GaussianDpEvent(2.0)


def described(name: str, **fields: object) -> dict:
    """An event of a version of dp_accounting that need not be installed."""
    return {"class_name": f"{name}DpEvent", **fields}


def poisson(rate: float, event: dict) -> dict:
    return described("PoissonSampled", sampling_probability=rate, event=event)


def fixed_lots(records: int, lot: int, event: dict) -> dict:
    return described(
        "SampledWithoutReplacement", source_dataset_size=records, sample_size=lot, event=event
    )


EXPONENTIAL = described("ExponentialMechanism", epsilon=0.5)


# ---- pfl


def pfl(**changes: object) -> dict:
    """dataclasses.asdict of PLDPrivacyAccountant(500, 0.001, "gaussian", epsilon=2, delta=1e-6,
    noise_scale=.05) of pfl 0.6."""
    return {
        "num_compositions": 500, "sampling_probability": 0.001, "mechanism": "gaussian", "epsilon": 2.0,
        "delta": 1e-06, "noise_parameter": 0.5918741226196289, "noise_scale": 0.05,
        "min_bound_noise_parameter": 0, "max_bound_noise_parameter": 100,
        "value_discretization_interval": 0.0001, "use_connect_dots": True, "pessimistic_estimate": True,
        "log_mass_truncation_bound": -50, **changes,
    }  # fmt: skip


SIZES = {"cohort_size": 50, "noise_cohort_size": 1000, "population": 10**6}
TOLD = {"sampling": "poisson", "neighbours": "add_or_remove"}


# ---- Flower


def flower(
    sampling: str = "no-amplification", relation: str = "add-or-remove-one", count: int = 5
) -> dict:
    return {
        "schema_version": 1, "backend": "rdp",
        "config": {"target_delta": 1e-5, "population_size": 100, "neighboring_relation": relation,
                   "sampling_method": sampling, "max_epsilon": None},
        "orders": [2.0],
        "compositions": [{"event": {"noise_multiplier": 4.0, "sample_size": 10, "population_size": 100},
                          "count": count}],
    }  # fmt: skip
