"""Zero-out adjacency: sums differ as under add/remove, and so does every accountant's ε."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event

from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, PrvAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, ZERO_OUT

GAUSSIAN = dp_event.GaussianDpEvent(2.0)
SAMPLED = dp_event.PoissonSampledDpEvent(0.1, GAUSSIAN)


@pytest.mark.parametrize(
    ("accountant", "event"),
    [
        (GdpAccountant(), GAUSSIAN),
        (RdpAccountant(), GAUSSIAN),
        (RdpAccountant(), SAMPLED),
        (PldAccountant(1e-3), GAUSSIAN),
        (PldAccountant(1e-3), SAMPLED),
        (PrvAccountant(eps_error=1.0), SAMPLED),
    ],
    ids=lambda value: getattr(value, "name", type(value).__name__),
)
def test_it_costs_what_adding_or_removing_costs(accountant, event):
    assert accountant.supports(event, ZERO_OUT) is None
    costs = [accountant.epsilon_of({event: 2}, 1e-5, of) for of in (ADD_OR_REMOVE, ZERO_OUT)]
    assert costs[0] == costs[1] > 0
    totals = [accountant.running(2, of) for of in (ADD_OR_REMOVE, ZERO_OUT)]
    for total in totals:
        total.add(event, np.array([1]), 2)
        assert total.worst(1e-5) == pytest.approx(costs[0])
        assert not total.would_exceed(event, 0, 5.0, 1e-5).any()
