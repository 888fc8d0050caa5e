"""The curve beside a membership attack's ROC: what the ledger's guarantee leaves any attack on a record.

All that a membership attack reads (the released weights, and the public initial ones) follows from what the
guarantee's observer sees, so the guarantee bounds it; how many units apart the two worlds are depends on it:

record level   add/remove: the record is there or not;   replace-one: it or another is       one unit
client level   replace-one: the client has one data set or another                           one unit
               add/remove: the client is there in both worlds and only its data differ,
               which is one client less and one more                                         two units

Where the cohorts are secret (central trust), the guarantee is of all clients, those never sampled too, and
the members are of clients that took part: the words say so where these are not all.

What members and non-members differ in besides (the ``blind`` attack sees it) no guarantee bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedpriv.privacy.core.names import RELATION_WORDS, REPLACE_ONE
from fedpriv.privacy.core.trade_off import TradeOff, trade_off_of
from fedpriv.privacy.core.trust import TRUSTS


@dataclass(frozen=True)
class TprBound:
    """The largest TPR of any attack on one record, and which guarantee says so."""

    curve: TradeOff
    units: int
    words: str

    def tpr(self, fpr: np.ndarray | float) -> np.ndarray:
        """At each FPR."""
        return self.curve.tpr(fpr, self.units)

    def as_json(self) -> dict[str, Any]:
        rates = {f"tpr_{name}": tpr for name, tpr in self.curve.largest(self.units).items()}
        return {"words": self.words, "units": self.units, **rates}


def bound_of(facts: Mapping[str, Any], everyone: bool = True) -> TprBound | None:
    """The bound by a run's ``privacy.json``; None where the run is not private, has not stated its privacy
    yet, or did so before statements held a curve. ``everyone``: whether every client took part."""
    curve = trade_off_of(facts.get("privacy_profile"))
    views = facts.get("views")
    sound = views.get("sound") if isinstance(views, dict) else None
    if (
        curve is None
        or not isinstance(sound, dict)
        or sound.get("neighbours") not in RELATION_WORDS
    ):
        return None
    added = sound["neighbours"] != REPLACE_ONE
    if sound.get("unit") == "record":
        worlds = (
            "with and without the record" if added else "with the record or another in its place"
        )
        return TprBound(curve, 1, f"record level, {worlds}")
    trust = TRUSTS.get(sound.get("trust") or "")
    of_all = trust is not None and trust.secret_cohort and not everyone
    note = "; of all clients, not of those alone that took part" if of_all else ""
    worlds = "before and after its client's data change"
    if added:
        return TprBound(curve, 2, f"client level, {worlds} (two units of add/remove){note}")
    return TprBound(curve, 1, f"client level, {worlds}{note}")
