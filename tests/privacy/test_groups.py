"""The trade-off of k clients at once: against closed forms, one client's curve, and group privacy."""

from __future__ import annotations

import functools
from itertools import pairwise

import numpy as np
import pytest
from dp_accounting import dp_event
from scipy import stats

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.core.trade_off import EPSILONS, trade_off
from fedpriv.privacy.groups import group_of
from fedpriv.privacy.groups import group_trade_off as computed

group_trade_off = functools.cache(computed)
FPR = np.array([1e-4, 1e-3, 1e-2, 0.1, 0.5])


def test_without_sampling_k_clients_are_a_gaussian_k_times_as_far():
    found = group_trade_off(4.0, 1.0, 9, 2).tpr(FPR)
    mu = 2 * np.sqrt(9) / 4.0
    assert found == pytest.approx(stats.norm.cdf(stats.norm.ppf(FPR) + mu), rel=2e-3)


@pytest.mark.thorough
def test_one_client_is_what_the_ledger_charges():
    event = dp_event.PoissonSampledDpEvent(0.3, dp_event.GaussianDpEvent(2.0))
    deltas = PldAccountant().deltas_of({event: 10}, EPSILONS, ADD_OR_REMOVE)
    assert group_trade_off(2.0, 0.3, 10, 1).tpr(FPR) == pytest.approx(
        trade_off(deltas).tpr(FPR), rel=5e-3
    )


@pytest.mark.thorough
def test_more_clients_are_told_more_easily_and_nobody_not_at_all():
    curves = [group_trade_off(3.0, 0.3, 5, k).tpr(FPR) for k in (0, 1, 3)]
    assert curves[0] == pytest.approx(FPR)
    for one, other in pairwise(curves):
        assert (other > one).all()


@pytest.mark.thorough
@pytest.mark.parametrize("units", [1, 3])
def test_the_mechanism_itself_is_tighter_than_group_privacy(units):
    event = dp_event.PoissonSampledDpEvent(0.3, dp_event.GaussianDpEvent(2.0))
    epsilon = PldAccountant().epsilon_of({event: 10}, 1e-5, ADD_OR_REMOVE)
    by_group = group_of(epsilon, 1e-5, units).tpr(FPR)
    assert (group_trade_off(2.0, 0.3, 10, units).tpr(FPR) <= by_group + 1e-9).all()


@pytest.mark.parametrize(("argument", "value"), [("noise_multiplier", 0), ("units", -1)])
def test_what_makes_no_sense_is_refused(argument, value):
    given = {"noise_multiplier": 1.0, "sample_rate": 0.5, "rounds": 2, "units": 1, argument: value}
    with pytest.raises(ArgumentError) as refused:
        group_trade_off(**given)
    assert refused.value.argument == argument


def test_group_privacy_is_the_pair_of_its_formula():
    curve = group_of(0.5, 1e-6, 3)
    assert curve.epsilons.tolist() == [1.5]
    assert curve.deltas == pytest.approx([1e-6 * np.expm1(1.5) / np.expm1(0.5)])
