"""PLD: the common laws, and published values."""

from __future__ import annotations

import pytest
from accountants.suite import AccountantSuite
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.rdp import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.sampling import FixedSizeSampling, PoissonSampling

PLD = PldAccountant()


def event(rate: float, multiplier: float):  # type: ignore[no-untyped-def]
    return PoissonSampling(rate).event(multiplier)


def price(composition, delta: float) -> float:  # type: ignore[no-untyped-def]
    return PLD.epsilon_of(composition, delta, ADD_OR_REMOVE)


class TestPld(AccountantSuite):
    accountant = PLD
    tolerance = 2e-3


def test_jax_privacys_value():
    """jax_privacy, accounting.py: sigma=3, q=.1, T=512, delta=1e-6 costs 3.77."""
    assert price({event(0.1, 3.0): 512}, 1e-6) == pytest.approx(3.77, abs=0.005)


def test_jax_privacys_steps():
    """The same file: 155 steps for epsilon 2."""
    assert PLD.steps_allowed(event(0.1, 3.0), 2.0, 1e-6, ADD_OR_REMOVE) == 155


def test_a_heterogeneous_composition():
    """(q, sigma, T) = (.01, 1, 100), (.01, 2, 100), (.02, 1.5, 50): dp_accounting and Opacus agree."""
    counts = {event(0.01, 1.0): 100, event(0.01, 2.0): 100, event(0.02, 1.5): 50}
    assert price(counts, 1e-5) == pytest.approx(0.82368, abs=2e-5)


def test_the_baseline_of_adap_dpfl_costs_less_than_the_paper_charges():
    """sigma=3, q=.013: the 7,921 rounds that RDP, orders 2..64, prices at 2 cost 1.55."""
    assert price({event(0.013, 3.0): 7921}, 1e-5) == pytest.approx(1.55, abs=0.005)


@given(st.floats(0.005, 0.3), st.floats(0.8, 6.0), st.integers(1, 800))
def test_pld_is_not_above_rdp(rate, multiplier, steps):
    counts = {event(rate, multiplier): steps}
    rdp = RdpAccountant().epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
    assert price(counts, 1e-5) <= rdp * 1.002 + 2e-3


def test_binning_many_multipliers_never_understates_and_costs_little():
    multipliers = [3.0 + 0.02 * i for i in range(40)]
    binned = price({event(0.02, z): 20 for z in multipliers}, 1e-5)
    pairs = [{event(0.02, z): 20 for z in multipliers[i : i + 20]} for i in (0, 20)]
    assert all(len(p) == 20 for p in pairs)
    lowest = price({event(0.02, min(multipliers)): 800}, 1e-5)
    mean = price({event(0.02, sum(multipliers) / 40): 800}, 1e-5)
    assert mean * 0.999 <= binned <= lowest


def test_lots_without_replacement_are_refused_by_name():
    fixed = FixedSizeSampling(1000, 10).event(2.0)
    assert "SampledWithoutReplacement" in PLD.supports(fixed, REPLACE_ONE)


def test_cells_must_be_small():
    with pytest.raises(ArgumentError, match="discretization must be"):
        PldAccountant(discretization=1.0)
