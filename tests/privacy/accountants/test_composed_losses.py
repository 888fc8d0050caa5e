"""Compositions of one loss: as the library makes them, with its moments computed once."""

from __future__ import annotations

import numpy as np
import pytest
from dp_accounting import dp_event
from scipy import special

from fedpriv.privacy.accountants.composed_losses import pmfs, self_compose
from fedpriv.privacy.accountants.pld import _once
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE

LOT = dp_event.PoissonSampledDpEvent(0.3, dp_event.GaussianDpEvent(2.0))


@pytest.mark.parametrize("neighbours", [ADD_OR_REMOVE, REPLACE_ONE])
@pytest.mark.parametrize(
    "cell", [0.003, 0.5]
)  # dense, and so few values that a few draws stay sparse
@pytest.mark.parametrize("count", [1, 2, 40])
def test_draws_of_one_loss_compose_as_in_the_library_bit_for_bit(count, cell, neighbours):
    once = _once(LOT, neighbours, cell)
    for one, other in zip(
        pmfs(self_compose(once, count)), pmfs(once.self_compose(count)), strict=True
    ):
        assert type(one) is type(other)
        one, other = one.to_dense_pmf(), other.to_dense_pmf()
        assert one._infinity_mass == other._infinity_mass
        assert one._lower_loss == other._lower_loss
        np.testing.assert_array_equal(one._probs, other._probs)


def test_more_draws_of_a_loss_need_no_further_moments(monkeypatch):
    once = _once(LOT, ADD_OR_REMOVE, 0.003)
    self_compose(once, 3)
    monkeypatch.setattr(special, "logsumexp", lambda *_, **__: pytest.fail("computed again"))
    assert pmfs(self_compose(once, 4))[0].size > 0
