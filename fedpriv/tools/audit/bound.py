"""The upper bound on a membership attack's ROC curve that follows from the run's guarantee.

A membership attack reads the released weights and the public initial weights. Both follow from what the
guarantee's observer sees, so the guarantee bounds the attack. The bound depends on how many units the two
worlds differ by:

record level   add/remove: the record is there or not;   replace-one: it or another is there   one unit
client level   replace-one: the client has one data set or another                             one unit
               add/remove: the client is there in both worlds and only its data differ,
               which is one client less and one more                                           two units

Where cohorts are secret (central trust), the guarantee concerns all clients, including those never sampled.
The members come from clients that took part. The bound says so if these are not all.

No guarantee bounds differences between members and non-members other than membership. The ``blind`` attack
sees such differences.
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
    """The largest TPR of any attack on one record, by the run's guarantee.

    Attributes:
        curve: The trade-off curve of one unit.
        units: Number of units that the two worlds differ by.
        words: The guarantee in words.
    """

    curve: TradeOff
    units: int
    words: str

    def tpr(self, fpr: np.ndarray | float) -> np.ndarray:
        """Return the largest TPR at each FPR."""
        return self.curve.tpr(fpr, self.units)

    def as_json(self) -> dict[str, Any]:
        """Return the bound at the reported false positive rates, as plain values."""
        rates = {f"tpr_{name}": tpr for name, tpr in self.curve.largest(self.units).items()}
        return {"words": self.words, "units": self.units, **rates}


def bound_of(facts: Mapping[str, Any], everyone: bool = True) -> TprBound | None:
    """Return the bound that follows from a run's ``privacy.json``.

    Args:
        facts: The content of ``privacy.json``.
        everyone: Whether every client took part in the run.

    Returns:
        The bound, or None if the run is not private, or has not stated its privacy yet.
    """
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
