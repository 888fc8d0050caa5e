"""PRV: published values, and agreement with PLD."""

from __future__ import annotations

import pytest
from accountants.suite import AccountantSuite
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.accountants import CannotAccount, PldAccountant, PrvAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling

PRV = PrvAccountant()


class TestPrv(AccountantSuite, examples=3, least_noise=1.5, most_steps=300):
    accountant = PrvAccountant(eps_error=0.1)
    tolerance = 0.05
    share_tolerance = 0.5


def price(rate: float, multiplier: float, steps: int, delta: float) -> float:
    counts = {PoissonSampling(rate).event(multiplier): steps}
    return PRV.epsilon_of(counts, delta, ADD_OR_REMOVE)


@pytest.mark.thorough
@settings(max_examples=examples(8))
@given(st.floats(0.01, 0.2), st.floats(0.8, 6.0), st.integers(1, 500))
def test_it_is_not_above_its_quick_bound(rate, multiplier, steps):
    counts = {PoissonSampling(rate).event(multiplier): steps}
    assert PRV.epsilon_of(counts, 1e-5, ADD_OR_REMOVE) <= PRV.bound(counts, 1e-5, ADD_OR_REMOVE)


def assert_is_opacus(epsilon: float, expected: float) -> None:
    """Opacus' ε, which rounding taken off δ raises a little."""
    assert expected - 1e-6 <= epsilon <= expected * (1 + 1e-5)


def test_opacus_value():
    """Opacus, tests/accountants_test.py: sigma=1.5, q=.04, T=2249, delta=1e-5."""
    assert_is_opacus(price(0.04, 1.5, 2249, 1e-5), 6.777395712150674)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "epsilon"),
    [
        (0.8, 0.001, 100, 0.2704033641),
        (1.5, 0.05, 100, 1.9538531357),
        (3.0, 0.2, 100, 3.3812205102),
        (0.8, 0.05, 1000, 19.5258428054),
    ],
)
def test_opacus_values_of_its_accountant(multiplier, rate, steps, epsilon):
    """Opacus, tests/prv_accountant.py, delta=1e-6."""
    assert_is_opacus(price(rate, multiplier, steps, 1e-6), epsilon)


def test_prv_lies_above_pld_by_at_most_its_error_and_a_little():
    counts = {PoissonSampling(0.04).event(1.5): 500}
    pld = PldAccountant().epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
    assert pld <= PRV.epsilon_of(counts, 1e-5, ADD_OR_REMOVE) <= pld + 0.02


def test_nothing_costs_nothing_and_no_noise_costs_everything():
    assert PRV.epsilon_of({}, 1e-5, ADD_OR_REMOVE) == 0.0
    assert PRV.epsilon_of({dp_event.NonPrivateDpEvent(): 1}, 1e-5, ADD_OR_REMOVE) == float("inf")


def test_other_events_and_neighbours_are_refused_by_name():
    fixed = FixedSizeSampling(1000, 10).event(2.0)
    assert "lots of fixed size without replacement" in PRV.supports(fixed, ADD_OR_REMOVE)
    assert "replace-one adjacency" in PRV.supports(dp_event.GaussianDpEvent(1.0), REPLACE_ONE)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("multiplier", "rate", "steps", "delta"),
    [
        (1e-3, 0.013, 100, 1e-5),
        (0.1, 0.01, 1000, 1e-5),
        (3.0, 0.013, 10**9, 1e-5),
        (3.0, 0.013, 100, 0.999),
        (3.0, 0.013, 100, 1e-30),
        (0.01, 1.0, 1, 1e-5),
    ],
)
def test_what_is_beyond_its_numerics_is_said_at_once(multiplier, rate, steps, delta):
    with pytest.raises(CannotAccount, match="prv"):
        price(rate, multiplier, steps, delta)
