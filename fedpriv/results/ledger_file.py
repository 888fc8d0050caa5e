"""``ledger.csv``: every kind of draw, its price in both views, who made it and how often."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
from dp_accounting import dp_event

from fedpriv.common.files import write_atomically
from fedpriv.privacy.claims import Claim
from fedpriv.privacy.ledger import Entry, Ledger
from fedpriv.results.tables import ranges

COLUMNS = (
    "event_sound",
    "event_published",
    "neighbours",
    "queries",
    "noise_std",
    "sensitivity",
    "draws_per_client",
    "clients",
)


def write_ledger(path: Path, ledger: Ledger, claim: Claim) -> None:
    """A row per (distinct draw, number of times); ranges are low..high over clients and rounds."""

    def write(file) -> None:  # type: ignore[no-untyped-def]
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for draw, entry in ledger:
            counts = entry.counts(ledger.clients)
            for count in np.unique(counts[counts > 0]):
                writer.writerow(
                    (
                        describe_event(draw.event()),
                        describe_event(claim.event(draw)),
                        draw.sampling.neighbours,
                        _by_query({q.name: f"{q.noise_multiplier:.6g}" for q in draw.queries}),
                        _extents(entry, "noise_std"),
                        _extents(entry, "sensitivity"),
                        int(count),
                        ranges(np.flatnonzero(counts == count)),
                    )
                )

    write_atomically(path, write)


def describe_event(event: dp_event.DpEvent) -> str:
    """An event as one would write it: ``Poisson(q=0.013, Gaussian(z=3))``."""
    if isinstance(event, dp_event.NonPrivateDpEvent):
        return "NonPrivate"
    if isinstance(event, dp_event.GaussianDpEvent):
        return f"Gaussian(z={event.noise_multiplier:.6g})"
    if isinstance(event, dp_event.PoissonSampledDpEvent):
        return f"Poisson(q={event.sampling_probability:g}, {describe_event(event.event)})"
    if isinstance(event, dp_event.SampledWithoutReplacementDpEvent):
        return (
            f"WithoutReplacement(n={event.source_dataset_size}, L={event.sample_size}, "
            f"{describe_event(event.event)})"
        )
    return str(event)


def _extents(entry: Entry, field: str) -> str:
    return _by_query({n: f"{e.low:.6g}..{e.high:.6g}" for n, e in getattr(entry, field).items()})


def _by_query(values: dict[str, str]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())
