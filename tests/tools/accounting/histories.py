"""Histories of releases, as other libraries save them."""

from __future__ import annotations

import attrs
from dp_accounting import dp_event

from fedpriv.privacy.core.sampling import PoissonSampling

DELTA = ("--delta", "1e-5")


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
