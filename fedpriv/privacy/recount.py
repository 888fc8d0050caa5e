"""Comparison of a run's running totals with its ledger, which is accounted for again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpriv.privacy.accountants import RunningTotal
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.claims import Claim


def recount(
    name: str,
    total: RunningTotal,
    new: Callable[[], RunningTotal],
    ledger: Ledger,
    delta: float,
    claim: Claim | None = None,
) -> str:
    """Compare a running total with the ledger's total, and replace it if the ledger's is larger.

    A larger running total stays, because its ε is the safe one. For a theorem this is no difference: it says
    nothing about releases before the run.

    Args:
        name: Name of the ε that the total gives, for the message.
        total: Total that was charged during the run.
        new: Function that makes an empty total of the same kind.
        ledger: The releases of the run.
        delta: δ.
        claim: Theorem whose events are charged; None means the events of the releases.

    Returns:
        The difference in words; empty if there is none.
    """
    recounted = new()
    for joint, entry, clients, count in ledger.draws():
        if claim is None:
            recounted.add(joint.event(), clients, count)
        elif entry.claimed is None and claim.covers(joint):
            recounted.add(claim.event(joint), clients, count)
    for joint, entry in ledger:
        if claim is not None and entry.claimed:
            recounted.add(claim.event(joint), np.arange(ledger.clients), entry.claimed)
    if total.agrees_with(recounted, delta):
        return ""
    stated, epsilon = total.worst(delta), recounted.worst(delta)
    if epsilon >= stated:
        total.load_state_dict(recounted.state_dict())
    elif claim is not None:
        return ""
    return f"{name} epsilon {epsilon:.4f} by the ledger, {stated:.4f} by the running total"
