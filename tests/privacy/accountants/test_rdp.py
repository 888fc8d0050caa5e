from __future__ import annotations

import math

import numpy as np
import pytest
from accountants.suite import AccountantSuite
from dp_accounting.rdp import RdpAccountant as Library
from dp_accounting.rdp.rdp_privacy_accountant import DEFAULT_RDP_ORDERS
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.rdp import WIDE_ORDERS, rdp_of_event
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling
from fedpriv.privacy.mechanisms import joint_noise_multiplier

DELTA = 1e-5
OPACUS_ORDERS = [1 + x / 10.0 for x in range(1, 100)] + list(range(12, 64))


class TestWideImproved(AccountantSuite):
    accountant = RdpAccountant()


class TestIntegersClassical(AccountantSuite):
    accountant = RdpAccountant("2..64", "classical")


class TestIntegersImproved(AccountantSuite):
    accountant = RdpAccountant("2..64", "improved")


class TestWithoutReplacement(AccountantSuite):
    accountant = RdpAccountant([2, 3, 5, 8, 16, 32], "improved")
    neighbours = REPLACE_ONE

    def sampling(self, rate):
        return FixedSizeSampling(1000, max(1, round(1000 * rate)))


# ---- reference values


@pytest.mark.parametrize("orders", [OPACUS_ORDERS, "wide"])
def test_opacus_reference_value(orders):
    """Opacus, ``tests/accountants_test.py``, ``test_rdp_accountant``: 7.32911117143, orders 1.1 …
    10.9 and 12 … 63, improved conversion, best order 3.9."""
    accountant = RdpAccountant(orders, "improved")
    epsilon = accountant.epsilon_of({PoissonSampling(0.04).event(1.5): 2250}, DELTA, ADD_OR_REMOVE)
    assert epsilon == pytest.approx(7.32911117143, rel=1e-9)


def test_heterogeneous_reference_value():
    """(q, σ, T) = (.01, 1, 100), (.01, 2, 100), (.02, 1.5, 50): Opacus and dp_accounting agree."""
    composition = {
        PoissonSampling(0.01).event(1.0): 100,
        PoissonSampling(0.01).event(2.0): 100,
        PoissonSampling(0.02).event(1.5): 50,
    }
    epsilon = RdpAccountant().epsilon_of(composition, DELTA, ADD_OR_REMOVE)
    assert epsilon == pytest.approx(1.28112, abs=5e-6)


@pytest.mark.thorough
def test_lots_of_fixed_size_cost_several_times_what_poisson_lots_do():
    """n=6000, L=78, σ=3, T=7921, replace-one, sensitivity 2C: 9.24 (dp_accounting), not 2."""
    composition = {FixedSizeSampling(6000, 78).event(3.0): 7921}
    epsilon = RdpAccountant().epsilon_of(composition, DELTA, REPLACE_ONE)
    assert epsilon == pytest.approx(9.24, abs=5e-3)


@pytest.mark.parametrize(
    ("conversion", "sigma", "rounds"),
    [
        ("classical", 1.1, 451),
        ("classical", 2.0, 3186),
        ("classical", 3.0, 7921),
        ("classical", 4.0, 14550),
        ("classical", 6.0, 33495),
        ("improved", 1.1, 767),
        ("improved", 2.0, 4363),
        ("improved", 3.0, 10758),
        ("improved", 4.0, 19719),
        ("improved", 6.0, 45326),
    ],
)
def test_rounds_of_adap_dpfl(conversion, sigma, rounds):
    """Fu, Chen, Han 2022: q=.013, δ=1e-5, ε=2; derived with dp_accounting, orders 2 … 64."""
    accountant = RdpAccountant("2..64", conversion)
    event = PoissonSampling(0.013).event(sigma)
    assert accountant.steps_allowed(event, 2.0, DELTA, ADD_OR_REMOVE) == rounds


@pytest.mark.parametrize(("sigma", "rounds"), [(1.1, 0), (3.0, 3660), (4.0, 6974), (6.0, 16445)])
def test_rounds_of_adap_dpfl_with_the_norm_query_charged(sigma, rounds):
    """Eq. (6) read as a second Gaussian on the same lot: σ/√2 inside the sampling."""
    event = PoissonSampling(0.013).event(joint_noise_multiplier([sigma, sigma]))
    accountant = RdpAccountant("2..64", "classical")
    assert accountant.steps_allowed(event, 2.0, DELTA, ADD_OR_REMOVE) == rounds


@pytest.mark.parametrize(
    ("sigma", "order"), [(1.1, 9.0), (2.0, 13.0), (3.0, 13.0), (4.0, 13.0), (6.0, 13.0)]
)
def test_best_order_of_adap_dpfl(sigma, order):
    accountant = RdpAccountant("2..64", "classical")
    event = PoissonSampling(0.013).event(sigma)
    assert accountant.best_order(event, 2.0, DELTA, ADD_OR_REMOVE) == order


@settings(max_examples=examples(15))
@given(rate=st.floats(0.005, 1.0), sigma=st.floats(0.7, 8.0), count=st.integers(10, 3000))
def test_epsilon_is_dp_accountings_at_whole_orders(rate, sigma, count):
    event = PoissonSampling(rate).event(sigma)
    whole = [a for a in WIDE_ORDERS if a == int(a)]
    library = Library(whole)
    library.compose(event, count)
    ours = RdpAccountant(whole).epsilon_of({event: count}, DELTA, ADD_OR_REMOVE)
    assert ours == pytest.approx(library.get_epsilon(DELTA), rel=1e-6, abs=1e-9)


# ---- the filter


def test_a_filter_starts_at_the_conversions_offset():
    first = PoissonSampling(0.013).event(3.0)
    total = RdpAccountant("2..64", "classical").filter(2, ADD_OR_REMOVE, first, 2.0, DELTA)
    assert total.epsilon(DELTA) == pytest.approx([math.log(1 / DELTA) / 12] * 2)


def test_the_filters_order_is_the_best_at_the_first_noise():
    first = PoissonSampling(0.013).event(1.1)
    total = RdpAccountant("2..64", "classical").filter(2, ADD_OR_REMOVE, first, 2.0, DELTA)
    assert total.orders == (9.0,)


def test_the_filters_order_can_be_chosen():
    accountant = RdpAccountant("2..64", "classical", filter_order=20)
    total = accountant.filter(1, ADD_OR_REMOVE, PoissonSampling(0.013).event(1.1), 2.0, DELTA)
    assert total.orders == (20.0,)


def test_a_filter_allows_as_many_constant_steps_as_the_composition():
    accountant = RdpAccountant("2..64", "classical")
    event = PoissonSampling(0.013).event(3.0)
    total = accountant.filter(1, ADD_OR_REMOVE, event, 2.0, DELTA)
    assert not total.would_exceed(event, 7921, 2.0, DELTA)[0]
    assert total.would_exceed(event, 7922, 2.0, DELTA)[0]


def test_a_filter_charges_what_was_chosen_at_its_one_order():
    accountant = RdpAccountant("2..64", "classical", filter_order=13)
    total = accountant.filter(1, ADD_OR_REMOVE, PoissonSampling(0.013).event(6.0), 2.0, DELTA)
    path = [6.0, 5.9, 4.0]
    for sigma in path:
        total.add(PoissonSampling(0.013).event(sigma), np.array([0]))
    spent = sum(rdp_of_event(PoissonSampling(0.013).event(s), (13.0,))[0] for s in path)
    assert total.epsilon(DELTA)[0] == pytest.approx(spent + math.log(1 / DELTA) / 12)


def test_a_running_total_knows_the_order_of_its_worst_client():
    accountant = RdpAccountant("2..64", "classical")
    total = accountant.running(2, ADD_OR_REMOVE)
    total.add(PoissonSampling(0.013).event(3.0), np.array([1]), 7921)
    assert total.best_order(DELTA) == 13.0


# ---- settings


def test_wide_orders_are_dp_accountings_and_every_integer_to_128():
    assert RdpAccountant().orders == WIDE_ORDERS
    assert {*map(float, DEFAULT_RDP_ORDERS), *map(float, range(2, 129))} == {*WIDE_ORDERS}


def test_a_range_names_all_integers_between():
    assert RdpAccountant("2..5").orders == (2.0, 3.0, 4.0, 5.0)


def test_a_list_of_orders_is_sorted_and_freed_of_repeats():
    assert RdpAccountant([8, 1.5, 8, 2]).orders == (1.5, 2.0, 8.0)


@pytest.mark.parametrize("orders", ["narrow", "2-64", "1..64", "64..2", "2..", "2..20000", [], 7])
def test_orders_that_are_none_are_refused(orders):
    with pytest.raises(ArgumentError, match=r"^orders must be wide, a range such as 2\.\.64, or a"):
        RdpAccountant(orders)


@pytest.mark.parametrize("order", [1, 0.5, -3, True, "2", float("nan")])
def test_an_order_that_is_not_above_one_is_refused(order):
    with pytest.raises(ArgumentError, match=r"^orders must be .*> 1"):
        RdpAccountant([2, order])


def test_an_unknown_conversion_is_refused():
    with pytest.raises(ArgumentError) as caught:
        RdpAccountant(conversion="best")
    assert str(caught.value) == "conversion must be one of classical, improved, got best"


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("best", "filter_order must be auto or a number > 1, got best"),
        (1, "filter_order must be > 1, got 1"),
        (None, "filter_order must be a number > 1, got null"),
    ],
)
def test_a_filter_order_that_is_none_is_refused(value, message):
    with pytest.raises(ArgumentError) as caught:
        RdpAccountant(filter_order=value)
    assert str(caught.value) == message


def test_the_description_names_orders_and_conversion():
    words = RdpAccountant("2..64", "classical").describe()
    assert words == "RDP, 63 orders from 2 to 64, classical conversion"
