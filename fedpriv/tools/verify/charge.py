"""Tests that the ledger has everything that left: each query, how often, for whom, and by which event."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import cast

import numpy as np
from dp_accounting import dp_event

from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import joint_noise_multiplier
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, family_of, noise_multiplier
from fedpriv.tools.verify.probes import Recording
from fedpriv.tools.verify.table import Check

_ROUNDING = 1e-9
_SAMPLED = (
    dp_event.PoissonSampledDpEvent,
    dp_event.SampledWithoutReplacementDpEvent,
    dp_event.TruncatedSubsampledGaussianDpEvent,
)


def checks(reference: Recording, secret_cohort: bool) -> Iterator[Check]:
    """Compare the releases that were seen with the ledger's entries for each client.

    Args:
        reference: The run, with its ledger.
        secret_cohort: Whether nobody sees who takes part, so that every client has to be charged for each
            release.

    Yields:
        A check of the number of entries of each query, one of the queries that share a sample, and one of the
        noise multipliers of the charged events.
    """
    ledger = cast("Ledger", reference.ledger)
    all_clients = np.arange(ledger.clients)
    for name in reference.names:
        released = np.zeros(ledger.clients, dtype=int)
        for position in reference.positions(name):
            released[all_clients if secret_cohort else reference.cohorts[position.round_index]] += 1
        entered = ledger.samples_of(name)
        # More entries than releases are no fault: a client may be charged for rounds that it was not in.
        short = int((entered < released).sum())
        yield Check(
            "charge",
            f"{name} in the ledger",
            f"{int(entered.sum()):,} entered",
            f"{int(released.sum()):,} left",
            passed=short == 0,
            note=f"{name} left more often than the ledger has it, for {short} of {ledger.clients} clients",
        )
    # All queries of a step are about one sample, so they have to be charged as one event.
    apart = 0
    for t, charged in enumerate(reference.charged):
        for step in {position.step for position in reference.seen if position.round_index == t}:
            names = {p.name for p in reference.seen if (p.round_index, p.step) == (t, step)}
            apart += not any(names <= set(release.joint.names) for release in charged)
    yield Check(
        "charge",
        "queries on one sample are one event",
        f"{apart} steps apart",
        "0",
        passed=apart == 0,
        note="answers on one sample are charged as if each had a sample of its own",
    )
    worst, where = _worst_event(ledger)
    yield Check(
        "charge",
        "event ÷ its queries",
        f"noise multiplier {worst:.6f} times",
        "<= 1",
        passed=worst <= 1.0 + _ROUNDING,
        note=f"the event that is charged has {worst:.4g} times the noise multiplier of its queries: {where}",
    )


def _worst_event(ledger: Ledger) -> tuple[float, str]:
    """Return the largest ratio of an event's noise multiplier to that of its queries, and the queries."""
    worst, where = 0.0, ""
    for joint, _ in ledger:
        charged = _charged(joint.event())
        gaussian = [query for query in joint.queries if family_of(query) == GAUSSIAN]
        if charged is None or not gaussian:
            continue
        due = 0.0
        if all(query.protects for query in joint.queries):
            # A query without noise leaves 0 due, so that any finite charge beside it fails.
            # (Σ_j z_j^-2)^(-1/2), where z_j is the noise std of query j ÷ the distance a neighbour moves.
            replaces = joint.sampling.neighbours == REPLACE_ONE
            due = joint_noise_multiplier(
                noise_multiplier(query) / (query.replaced if replaces else 1.0)
                for query in gaussian
            )
        ratio = charged / due if due else (math.inf if charged else 0.0)
        if ratio > worst:
            worst, where = ratio, " and ".join(query.describe() for query in joint.queries)
    return worst, where


def _charged(event: dp_event.DpEvent) -> float | None:
    """Return the noise multiplier inside an event; None where the event has no Gaussian noise."""
    truncated = dp_event.TruncatedSubsampledGaussianDpEvent
    if isinstance(event, (dp_event.GaussianDpEvent, truncated)):
        return float(event.noise_multiplier)
    if isinstance(event, _SAMPLED):
        return _charged(event.event)
    if isinstance(event, dp_event.ComposedDpEvent):
        if len(event.events) > 1 and any(isinstance(part, _SAMPLED) for part in event.events):
            return math.inf  # each part has a sample of its own
        inside = [m for m in map(_charged, event.events) if m is not None]
        return joint_noise_multiplier(inside) if inside else None
    return 0.0 if isinstance(event, dp_event.NonPrivateDpEvent) else None
