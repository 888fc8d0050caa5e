"""Comparison of a run's running totals with its ledger, which is accounted for again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpriv.privacy.accountants import RunningTotal
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.claims import Claim


@dataclass(frozen=True)
class Counted:
    """A running total, and how it follows from a ledger.

    Attributes:
        name: Name of the ε that the total gives.
        total: Total that was charged during the run.
        new: Function that makes an empty total of the same kind.
        claim: Theorem whose events are charged; None means the events of the releases.
    """

    name: str
    total: RunningTotal
    new: Callable[[], RunningTotal]
    claim: Claim | None = None

    def recount(self, ledger: Ledger, delta: float) -> str:
        """Compare the total with the ledger's, and replace it if the ledger's is larger.

        A larger running total stays, because its ε is the safe one. For a theorem this is no difference: it
        says nothing about releases before the run.

        Returns:
            The difference in words; empty if there is none.
        """
        recounted = self.new()
        self._charge(recounted, ledger)
        if self.total.agrees_with(recounted, delta):
            return ""
        stated, epsilon = self.total.worst(delta), recounted.worst(delta)
        if epsilon >= stated:
            self.total.load_state_dict(recounted.state_dict())
        elif self.claim is not None:
            return ""
        return f"{self.name} epsilon {epsilon:.4f} by the ledger, {stated:.4f} by the running total"

    def _charge(self, total: RunningTotal, ledger: Ledger) -> None:
        claim = self.claim
        for joint, entry, clients, count in ledger.draws():
            if claim is None:
                total.add(joint.event(), clients, count)
            elif entry.claimed is None and claim.covers(joint):
                total.add(claim.event(joint), clients, count)
        for joint, entry in ledger:
            if claim is not None and entry.claimed:
                total.add(claim.event(joint), np.arange(ledger.clients), entry.claimed)
