"""PLD: the common laws, and published values."""

from __future__ import annotations

import numpy as np
import pytest
from accountants.suite import AccountantSuite
from dp_accounting import UnsupportedEventError, dp_event
from dp_accounting.pld import PLDAccountant
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants import PldAccountant, PrvAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import PoissonSampling, TruncatedPoissonSampling

PLD = PldAccountant()


def event(rate: float, multiplier: float):  # type: ignore[no-untyped-def]
    return PoissonSampling(rate).event(multiplier)


def price(composition, delta: float) -> float:  # type: ignore[no-untyped-def]
    return PLD.epsilon_of(composition, delta, ADD_OR_REMOVE)


class TestPld(AccountantSuite, examples=4, least_noise=0.8, most_steps=1000):
    accountant = PldAccountant(discretization=1e-3)
    tolerance = 5e-3
    share_tolerance = 0.3

    def test_an_event_of_the_other_relation_is_refused_with_a_reason(self):
        capped = TruncatedPoissonSampling(0.1, 100, 20).event(1.0)
        assert "under replace-one adjacency" in self.accountant.supports(capped, REPLACE_ONE)

    def test_an_event_of_the_other_relation_is_not_priced(self):
        capped = TruncatedPoissonSampling(0.1, 100, 20).event(1.0)
        with pytest.raises(UnsupportedEventError, match="replace-one"):
            self.accountant.epsilon_of({capped: 1}, 1e-5, REPLACE_ONE)


def test_jax_privacys_value():
    """jax_privacy, accounting.py: sigma=3, q=.1, T=512, delta=1e-6 costs 3.77."""
    assert price({event(0.1, 3.0): 512}, 1e-6) == pytest.approx(3.77, abs=0.005)


def test_jax_privacys_steps():
    """The same file: 155 steps for epsilon 2."""
    assert PLD.steps_allowed(event(0.1, 3.0), 2.0, 1e-6, ADD_OR_REMOVE) == 155


def test_the_order_of_events_and_an_earlier_price_change_nothing():
    """What was convolved once is remembered, for each composition, delta and width of the cells."""
    one, other = event(0.02, 1.5), event(0.01, 1.0)
    wide = PldAccountant(discretization=1e-2)
    prices = []
    for _ in range(2):
        prices.append(price({one: 50, other: 100}, 1e-5))
        assert wide.epsilon_of({one: 50, other: 100}, 1e-5, ADD_OR_REMOVE) > prices[0]
        assert price({one: 50, other: 100}, 1e-6) > prices[0]
        assert price({one: 51, other: 100}, 1e-5) > prices[0]
        prices.append(price({other: 100, one: 50}, 1e-5))
    assert len(set(prices)) == 1


def test_a_heterogeneous_composition():
    """(q, sigma, T) = (.01, 1, 100), (.01, 2, 100), (.02, 1.5, 50): dp_accounting and Opacus agree."""
    counts = {event(0.01, 1.0): 100, event(0.01, 2.0): 100, event(0.02, 1.5): 50}
    assert price(counts, 1e-5) == pytest.approx(0.82368, abs=2e-5)


def test_the_baseline_of_adap_dpfl_costs_less_than_the_paper_charges():
    """sigma=3, q=.013: the 7,921 rounds that RDP, orders 2..64, prices at 2 cost 1.55."""
    assert price({event(0.013, 3.0): 7921}, 1e-5) == pytest.approx(1.55, abs=0.005)


@settings(max_examples=examples(10))
@given(st.floats(0.005, 0.3), st.floats(0.8, 6.0), st.integers(1, 800))
def test_pld_is_not_above_rdp(rate, multiplier, steps):
    counts = {event(rate, multiplier): steps}
    rdp = RdpAccountant().epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
    assert TestPld.accountant.epsilon_of(counts, 1e-5, ADD_OR_REMOVE) <= rdp


@pytest.mark.thorough
def test_many_multipliers_are_composed_as_they_are_and_not_below_the_other_library():
    """Opacus' PRV is at most its error above ε; dp_accounting's PLD rounds losses up."""
    counts = {event(0.02, 3.0 + 0.02 * i): 20 for i in range(40)}
    prv = PrvAccountant(eps_error=1e-3).epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
    assert prv - 2e-3 <= price(counts, 1e-5) <= prv + 1e-3


def test_gridding_many_multipliers_never_understates_and_costs_little():
    counts = {event(0.02, 3.0 + 0.004 * i): 4 for i in range(201)}
    gridded_cost = price(counts, 1e-5)
    lowest = price({event(0.02, 3.0): 804}, 1e-5)
    mean = price({event(0.02, 3.4): 804}, 1e-5)
    assert mean * 0.999 <= gridded_cost <= lowest
    words = TestPld.accountant.note(counts, 1e-5, ADD_OR_REMOVE)
    assert "a grid of 1 %" in words


def test_what_it_cannot_price_is_refused_by_name():
    capped = TruncatedPoissonSampling(0.1, 100, 20).event(1.0)
    assert PLD.supports(capped, REPLACE_ONE) == (
        "pld cannot account for Poisson lots cut to a size under replace-one adjacency"
    )


def test_cells_must_be_small():
    with pytest.raises(ArgumentError, match="discretization must be"):
        PldAccountant(discretization=1.0)


@pytest.mark.thorough
def test_a_delta_of_dp_accounting():
    """dp_accounting, pld_privacy_accountant_test.py: q=.2, sigma=.5, T=3: delta(1) = .15594."""
    counts = {event(0.2, 0.5): 3}
    assert price(counts, 0.15594 + 1e-3) <= 1.0 <= price(counts, 0.15594 - 1e-3)


def test_a_gaussian_costs_the_same_under_both_relations():
    """Its multiplier is noise over the sensitivity of the relation; dp_accounting's PLD doubles it."""
    counts = {dp_event.GaussianDpEvent(1.0): 1}
    prices = [PLD.epsilon_of(counts, 1e-5, r) for r in (ADD_OR_REMOVE, REPLACE_ONE)]
    assert prices == pytest.approx([4.3771780957] * 2, abs=1e-4)


def test_replacing_a_record_of_poisson_lots_costs_more_than_adding_one():
    """Noise over clip norm 3 either way: replacing moves the sum by 2C, multiplier 1.5."""
    added = price({event(0.05, 3.0): 500}, 1e-5)
    replaced = PLD.epsilon_of({event(0.05, 1.5): 500}, 1e-5, REPLACE_ONE)
    assert added < replaced < 2.5 * added


@pytest.mark.parametrize(("cap", "least", "most"), [(90, 2.4, 2.5)])
def test_a_cap_on_poisson_lots_is_not_free(cap, least, most):
    """n=6000, L=78: a cap that often cuts costs half as much again."""
    capped = TruncatedPoissonSampling(0.013, 6000, cap).event(3.0)
    assert least < PLD.epsilon_of({capped: 7921}, 1e-5, ADD_OR_REMOVE) < most


@pytest.mark.thorough
def test_large_epsilons_take_wider_cells_and_stay_above_the_fine_ones():
    counts = {event(0.2, 0.7): 400}
    coarse, fine = price(counts, 1e-5), PldAccountant(1e-5).epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
    assert fine - 1e-3 <= coarse <= fine * 1.01


def test_an_epsilon_beyond_a_hundred_thousand_is_rdps_or_infinite():
    counts = {event(0.5, 1e-3): 10**6}
    assert price(counts, 1e-5) == RdpAccountant().epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
    capped = TruncatedPoissonSampling(0.5, 100, 60).event(1e-3)
    assert price({capped: 10**6}, 1e-5) == float("inf")


@pytest.mark.thorough
def test_the_price_of_falling_noise_does_not_depend_on_the_way_it_was_composed():
    counts = {event(0.05, 3.0 - 0.05 * i): 3 for i in range(12)}
    running = PLD.running(1, ADD_OR_REMOVE)
    for one, count in counts.items():
        running.add(one, np.arange(1), count)
    shuffled = dict(sorted(counts.items(), key=lambda item: hash(repr(item))))
    assert running.epsilon(1e-5)[0] == price(counts, 1e-5) == price(shuffled, 1e-5)


@pytest.mark.thorough
def test_capped_lots_are_priced_for_the_larger_of_both_neighbours():
    """dp_accounting's dataset_size is the larger data set: n beside n - 1 records, n + 1 beside n + 1."""
    counts = {TruncatedPoissonSampling(0.1, 60, 8).event(2.0): 100}
    alone = []
    for records in (60, 61):
        library = PLDAccountant(value_discretization_interval=1e-3)
        library.compose(dp_event.TruncatedSubsampledGaussianDpEvent(records, 0.1, 8, 2.0), 100)
        alone.append(library.get_epsilon(1e-5))
    ours = PldAccountant(discretization=1e-3).epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
    assert ours == pytest.approx(max(alone), rel=1e-7)  # asked at a δ that is less by rounding
    assert alone[0] < alone[1]


@pytest.mark.thorough
def test_many_sample_rates_are_rounded_up_and_cost_little_more():
    counts = {event(0.001 + 3e-6 * i, 5.0): 3 for i in range(400)}
    mean = price({event(0.0016, 5.0): 1200}, 1e-5)
    assert mean < price(counts, 1e-5) < 1.1 * mean
