"""Demonstrations of the rows on fedpriv itself.

python fedpriv_own.py prv | rounding | accountants
"""

from __future__ import annotations

import json
import math
import sys

from dp_accounting import dp_event

from fedpriv.common.words import digits_up, round_up
from fedpriv.privacy.accountants import (
    CannotAccount,
    GdpAccountant,
    PldAccountant,
    PrvAccountant,
    RdpAccountant,
)
from fedpriv.privacy.core.names import ADD_OR_REMOVE


def prv():
    """Ask for the ε that was too small, and for one at a larger δ."""
    event = dp_event.PoissonSampledDpEvent(0.9999999, dp_event.GaussianDpEvent(30.0))
    try:
        PrvAccountant().epsilon_of({event: 1000}, 1e-13, ADD_OR_REMOVE)
        refused = 0.0
    except CannotAccount:
        refused = 1.0
    answer = PrvAccountant().epsilon_of({event: 1000}, 1e-5, ADD_OR_REMOVE)
    truth = GdpAccountant().epsilon_of_sum(1000 / 30.0**2, 1e-5)
    return {
        "measured": {"refused_at_1e-13": refused},
        "control": {"epsilon_over_truth_at_1e-5": answer / truth},
    }


def rounding():
    """Print many ε and compare what is printed with what was computed."""
    values = [math.exp(i / 97) / 100 for i in range(1000)]
    excess = [float(text(value)) - value for value in values for text in (round_up, digits_up)]
    return {"measured": {"smallest_excess": min(excess)}, "control": {}}


def accountants():
    """Ask two accountants for the epsilon of 500 steps."""
    event = dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0))
    return {
        "measured": {
            f"epsilon_{name}": kind().epsilon_of({event: 500}, 1e-6, ADD_OR_REMOVE)
            for name, kind in (("pld", PldAccountant), ("rdp", RdpAccountant))
        },
        "control": {},
    }


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
