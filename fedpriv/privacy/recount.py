"""The running totals of a run held against its ledger, which is priced again for that."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from fedpriv.privacy.accountants import RunningTotal
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.claims import Claim


@dataclass(frozen=True)
class Counted:
    """A running total and how it follows from a ledger.

    Attributes:
        name: Of the epsilon that the total is of.
        total: What was charged as the run went.
        new: Makes an empty total of the same kind.
        claim: The theorem whose events are charged; None: what was released.
    """

    name: str
    total: RunningTotal
    new: Callable[[], RunningTotal]
    claim: Claim | None = None

    def recount(self, ledger: Ledger, delta: float) -> str:
        """Let the ledger's total take the place of one that has less; return what differed, in words.

        A total that has more stays: its epsilon is the safe one. Of a theorem that is no difference, for it
        is silent on what was released before the run.
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
