"""Demonstration of the row on dp_accounting.

python dp_accounting_library.py accountants
"""

from __future__ import annotations

import json
import sys

from dp_accounting import dp_event, pld, rdp


def accountants():
    """Ask for the epsilon of three compositions, by PLD and by RDP."""
    cases = {
        "gaussian": dp_event.SelfComposedDpEvent(dp_event.GaussianDpEvent(10.0), 20),
        "poisson": dp_event.SelfComposedDpEvent(
            dp_event.PoissonSampledDpEvent(0.01, dp_event.GaussianDpEvent(1.0)), 500
        ),
        "poisson_little_noise": dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(0.5)),
    }
    found = {}
    for name, event in cases.items():
        for kind, make in (("pld", pld.PLDAccountant), ("rdp", rdp.RdpAccountant)):
            accountant = make()
            accountant.compose(event)
            found[f"epsilon_{name}_{kind}"] = float(accountant.get_epsilon(1e-6))
    return {"measured": found, "control": {}}


if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]]()))
