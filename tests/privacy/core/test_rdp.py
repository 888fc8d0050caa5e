from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, UnsupportedEventError, dp_event
from dp_accounting.rdp import RdpAccountant as Library
from dp_accounting.rdp import compute_epsilon
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from opacus.accountants.analysis.rdp import compute_rdp as opacus_rdp
from scipy import integrate

from fedpriv.privacy.core import sampled_gaussian
from fedpriv.privacy.core.grid import FEW, STEP, gridded
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.rdp import (
    MANY,
    conversion_offset,
    epsilon_from_rdp,
    rdp_of_composition,
    rdp_of_event,
    sampled_gaussian_rdp,
    supports,
)
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling

POISSON = PoissonSampling(0.01).event(2.5)
FIXED = FixedSizeSampling(1000, 10).event(2.5)

laws = settings(max_examples=examples(60))
rates = st.floats(0.002, 0.9)
multipliers = st.floats(0.6, 10.0)
integer_orders = st.integers(2, 200).map(float)


def by_integration(rate: float, multiplier: float, order: float) -> float:
    """Rényi divergence of the sampled Gaussian from N(0, σ²), straight from the definition."""

    def integrand(x: float) -> float:
        log_ratio = np.logaddexp(
            math.log1p(-rate), math.log(rate) + (2 * x - 1) / (2 * multiplier**2)
        )
        log_density = -(x**2) / (2 * multiplier**2) - math.log(multiplier * math.sqrt(2 * math.pi))
        return math.exp(order * log_ratio + log_density)

    area, _ = integrate.quad(
        integrand, -12 * multiplier, order + 12 * multiplier, points=[0, order], limit=500,
        epsabs=0, epsrel=1e-11,
    )  # fmt: skip
    return math.log(area) / (order - 1)


# ---- divergences


def test_dp_accounting_reference_values():
    """dp_accounting, ``rdp_privacy_accountant_test.py``, ``test_compute_rdp_poisson_sampled_gaussian``:
    σ=2.5, q=.01, 50 steps, α = 2.5, 5, 50, relative tolerance 1e-4."""
    rdp = 50 * rdp_of_event(POISSON, (2.5, 5.0, 50.0))
    expected = [1.08548710e-3, 2.18075656e-3, 2.38460375e-2]
    assert rdp == pytest.approx(expected, rel=1e-4)


def test_the_reference_value_at_a_low_order_is_an_upper_bound():
    """The same test has 6.70579741e-4 at α = 1.5. Its series there drops signs, which bounds A_α from
    above; the integral, and Opacus, have 3 % less."""
    rdp = 50 * rdp_of_event(POISSON, (1.5,))[0]
    assert rdp == pytest.approx(50 * by_integration(0.01, 2.5, 1.5), rel=1e-6)
    opacus = opacus_rdp(q=0.01, noise_multiplier=2.5, steps=50, orders=1.5)
    assert rdp == pytest.approx(opacus, rel=1e-6)
    assert 0.96 < rdp / 6.70579741e-4 < 0.98


@laws
@given(rate=rates, multiplier=multipliers, order=st.integers(2, 12).map(float))
def test_integer_orders_are_the_divergence_itself(rate, multiplier, order):
    ours = sampled_gaussian_rdp(rate, multiplier, (order,))[0]
    assert ours == pytest.approx(by_integration(rate, multiplier, order), rel=1e-6, abs=1e-10)


@laws
@given(rate=rates, multiplier=multipliers, order=st.floats(1.1, 12.0))
def test_other_orders_are_the_divergence_itself(rate, multiplier, order):
    ours = sampled_gaussian_rdp(rate, multiplier, (order,))[0]
    assert ours == pytest.approx(by_integration(rate, multiplier, order), rel=1e-6, abs=1e-10)


def library_rdp(rate: float, multiplier: float, order: float) -> float:
    library = Library([order])
    library.compose(PoissonSampling(rate).event(multiplier))
    return library._rdp[0]


@laws
@given(rate=rates, multiplier=multipliers, order=integer_orders)
def test_integer_orders_are_dp_accountings(rate, multiplier, order):
    ours = sampled_gaussian_rdp(rate, multiplier, (order,))[0]
    assert ours == pytest.approx(library_rdp(rate, multiplier, order), rel=1e-6, abs=1e-12)


@laws
@given(rate=rates, multiplier=multipliers, order=st.floats(1.05, 60.0))
def test_other_orders_are_not_above_dp_accountings_bound(rate, multiplier, order):
    ours = sampled_gaussian_rdp(rate, multiplier, (order,))[0]
    assert ours <= library_rdp(rate, multiplier, order) * (1 + 1e-6) + 1e-12


@laws
@given(rate=st.floats(1e-6, 0.999), multiplier=st.floats(0.1, 50.0), order=st.floats(1.05, 128.0))
def test_rdp_at_other_orders_lies_between_those_of_the_neighbouring_integers(
    rate, multiplier, order
):
    """ε_α does not fall with α."""
    low, high = max(2.0, math.floor(order)), max(2.0, math.ceil(order))
    below, here, above = sampled_gaussian_rdp(rate, multiplier, (low, order, high))
    assert here <= above * (1 + 1e-6) + 1e-13
    assert order < 2 or below <= here * (1 + 1e-6) + 1e-13


@settings(max_examples=examples(8))
@given(
    rate=rates,
    low=st.floats(0.5, 3.0),
    factor=st.floats(1.0, 4.0),
    order=st.integers(2, 64).map(float),
)
def test_many_multipliers_at_once_are_never_understated(rate, low, factor, order):
    many = np.linspace(low, low * factor, 220)
    at_once = sampled_gaussian_rdp(rate, many, (order,))[:, 0]
    one_by_one = np.array([sampled_gaussian_rdp(rate, z, (order,))[0] for z in many])
    assert (at_once >= one_by_one * (1 - 1e-9) - 1e-15).all()


@pytest.mark.thorough
@settings(max_examples=examples(8))
@given(rate=st.floats(0.002, 0.1), low=st.floats(0.8, 4.0), factor=st.floats(1.2, 3.0))
def test_the_epsilon_of_many_multipliers_is_overstated_by_less_than_a_thousandth(rate, low, factor):
    some = tuple(map(float, range(2, 65)))
    many = np.linspace(low, low * factor, 300)
    at_once = sampled_gaussian_rdp(rate, many, some).sum(axis=0)
    one_by_one = sum(sampled_gaussian_rdp(rate, z, some) for z in many)
    prices = [
        epsilon_from_rdp(5 * rdp, np.array(some), 1e-5, "improved")[0]
        for rdp in (at_once, one_by_one)
    ]
    assert prices[1] * (1 - 1e-9) <= prices[0] <= prices[1] * 1.001


def test_a_composition_is_the_sum_of_its_events():
    counts = {PoissonSampling(0.02).event(1.0 + i / 7): i + 1 for i in range(20)}
    counts[PoissonSampling(0.5).event(3.0)] = 4
    counts[dp_event.GaussianDpEvent(9.0)] = 2
    some = (1.5, 2.0, 32.0)
    together = rdp_of_composition(counts, some, ADD_OR_REMOVE)
    apart = sum(n * rdp_of_event(event, some) for event, n in counts.items())
    assert together == pytest.approx(apart, rel=1e-12)


@laws
@given(rate=rates, multiplier=multipliers, order=integer_orders)
def test_sampling_never_adds_to_the_price(rate, multiplier, order):
    sampled = sampled_gaussian_rdp(rate, multiplier, (order,))[0]
    assert 0 <= sampled <= order / (2 * multiplier**2) * (1 + 1e-9)


@laws
@given(rate=rates, first=multipliers, second=multipliers, order=integer_orders)
def test_two_queries_on_one_sample_cost_at_least_two_on_separate_samples(
    rate, first, second, order
):
    """E[f(B) g(B)] ≥ E[f(B)] E[g(B)] for the number B of sampled copies in A_α."""
    joint = 1 / math.hypot(1 / first, 1 / second)
    one, two, both = (
        sampled_gaussian_rdp(rate, z, (order,))[0] for z in (first, second, joint)
    )  # fmt: skip
    assert one + two <= both * (1 + 1e-9) + 1e-12


def test_a_rate_of_one_is_the_plain_gaussian():
    rdp = sampled_gaussian_rdp(1.0, 2.0, (1.5, 2.0, 64.0))
    assert rdp == pytest.approx([1.5 / 8, 2 / 8, 64 / 8])
    assert rdp.tolist() == rdp_of_event(dp_event.GaussianDpEvent(2.0), (1.5, 2.0, 64.0)).tolist()


def test_a_rate_of_zero_costs_nothing():
    assert sampled_gaussian_rdp(0.0, 2.0, (1.5, 2.0)).tolist() == [0.0, 0.0]


def test_mixed_orders_come_back_in_their_places():
    mixed = sampled_gaussian_rdp(0.1, 1.0, (1.5, 3.0, 2.5, 2.0))
    single = [sampled_gaussian_rdp(0.1, 1.0, (a,))[0] for a in (1.5, 3.0, 2.5, 2.0)]
    assert mixed.tolist() == pytest.approx(single)


def test_lots_of_fixed_size_are_dp_accountings():
    library = Library([2.0, 8.0], neighboring_relation=NeighboringRelation.REPLACE_ONE)
    library.compose(FIXED)
    assert rdp_of_event(FIXED, (2.0, 8.0), REPLACE_ONE).tolist() == library._rdp.tolist()


@pytest.mark.parametrize(
    "event",
    [
        dp_event.NonPrivateDpEvent(),
        PoissonSampling(0.01).event(0.0),
        PoissonSampling(0.01).event(1e-200),
        dp_event.GaussianDpEvent(0.0),
        dp_event.PoissonSampledDpEvent(0.01, dp_event.NonPrivateDpEvent()),
    ],
    ids=str,
)
def test_an_event_without_noise_has_infinite_divergence(event):
    assert rdp_of_event(event, (1.5, 2.0)).tolist() == [np.inf, np.inf]


def test_lots_of_fixed_size_without_noise_have_infinite_divergence():
    event = FixedSizeSampling(100, 5).event(1e-200)
    assert rdp_of_event(event, (2.0,), REPLACE_ONE).tolist() == [np.inf]


def test_an_event_that_releases_nothing_costs_nothing():
    assert rdp_of_event(dp_event.NoOpDpEvent(), (1.5, 2.0)).tolist() == [0.0, 0.0]


def test_nobody_can_change_a_remembered_price():
    with pytest.raises(ValueError, match="read-only"):
        rdp_of_event(POISSON, (2.0, 3.0))[0] = 0.0


@pytest.mark.parametrize(("event", "wrong"), [(POISSON, REPLACE_ONE), (FIXED, ADD_OR_REMOVE)])
def test_an_event_is_not_priced_under_the_other_relation(event, wrong):
    with pytest.raises(UnsupportedEventError):
        rdp_of_event(event, (2.0,), wrong)


@pytest.mark.parametrize(
    ("event", "relation", "supported"),
    [
        (POISSON, ADD_OR_REMOVE, True),
        (POISSON, REPLACE_ONE, False),
        (FIXED, REPLACE_ONE, True),
        (FIXED, ADD_OR_REMOVE, False),
        (dp_event.UnsupportedDpEvent(), ADD_OR_REMOVE, False),
    ],
)
def test_what_is_supported_depends_on_the_relation(event, relation, supported):
    assert supports(event, relation) is supported


# ---- conversions

curves = st.lists(st.floats(1e-3, 50.0), min_size=3, max_size=3)
SOME_ORDERS = np.array([1.5, 8.0, 32.0])


def test_the_classical_conversion_is_mironovs():
    """Mironov 2017, proposition 3: ε + log(1/δ)/(α-1)."""
    offset = conversion_offset(np.array([2.0, 11.0]), 1e-5, "classical")
    assert offset == pytest.approx([math.log(1e5), math.log(1e5) / 10])


@laws
@given(rdp=curves, delta=st.floats(1e-9, 1e-2))
def test_the_classical_conversion_is_the_lowest_candidate(rdp, delta):
    epsilon, _ = epsilon_from_rdp(np.array(rdp), SOME_ORDERS, delta, "classical")
    candidates = [r + math.log(1 / delta) / (a - 1) for r, a in zip(rdp, SOME_ORDERS, strict=True)]
    assert epsilon == pytest.approx(min(candidates))


@laws
@given(rdp=curves, delta=st.floats(1e-9, 1e-2))
def test_the_improved_conversion_is_dp_accountings(rdp, delta):
    ours = epsilon_from_rdp(np.array(rdp), SOME_ORDERS, delta, "improved")
    epsilon, order = compute_epsilon(SOME_ORDERS, rdp, delta)
    assert ours[0] == pytest.approx(epsilon, rel=1e-12)
    assert epsilon == 0 or ours[1] == order


@laws
@given(rdp=curves, delta=st.floats(1e-9, 1e-2))
def test_the_improved_conversion_is_never_above_the_classical(rdp, delta):
    improved, classical = (
        epsilon_from_rdp(np.array(rdp), SOME_ORDERS, delta, c)[0] for c in ("improved", "classical")
    )
    assert improved <= classical


@pytest.mark.parametrize("conversion", ["classical", "improved"])
def test_epsilon_is_zero_where_the_bound_is_negative(conversion):
    epsilon, _ = epsilon_from_rdp(np.full(3, 1e-9), SOME_ORDERS, 0.9, conversion)
    assert epsilon >= 0.0
    assert conversion == "classical" or epsilon == 0.0


def test_every_row_is_converted_by_itself():
    rdp = np.array([[0.1, 0.2, 0.4], [5.0, 9.0, 30.0]])
    epsilon, order = epsilon_from_rdp(rdp, SOME_ORDERS, 1e-5, "improved")
    rows = [epsilon_from_rdp(row, SOME_ORDERS, 1e-5, "improved") for row in rdp]
    assert epsilon.tolist() == [float(e) for e, _ in rows]
    assert order.tolist() == [float(a) for _, a in rows]


def test_an_infinite_divergence_at_some_orders_leaves_the_others():
    epsilon, order = epsilon_from_rdp(
        np.array([np.inf, 1.0, np.inf]), SOME_ORDERS, 1e-5, "classical"
    )
    assert epsilon == pytest.approx(1.0 + math.log(1e5) / 7)
    assert order == 8.0


def test_many_rates_and_multipliers_cost_the_sum_of_their_parts():
    composition = {
        PoissonSampling(rate).event(multiplier): count
        for count, (rate, multiplier) in enumerate(
            product((0.01, 0.02), np.linspace(1.0, 3.0, MANY)), start=1
        )
    }
    orders = (2.0, 8.0)
    parts = sum(n * rdp_of_event(e, orders, ADD_OR_REMOVE) for e, n in composition.items())
    assert rdp_of_composition(composition, orders, ADD_OR_REMOVE) == pytest.approx(parts, rel=1e-3)


def test_small_chunks_of_noise_multipliers_change_nothing(monkeypatch):
    multipliers, orders = np.linspace(0.5, 3.0, 7), np.array([1.5, 2.5])
    at_once = sampled_gaussian.log_a_by_quadrature(0.1, multipliers, orders)
    monkeypatch.setattr(sampled_gaussian, "_CHUNK", 1)
    one_by_one = sampled_gaussian.log_a_by_quadrature(0.1, multipliers, orders)
    assert one_by_one == pytest.approx(at_once, rel=1e-9)


def test_many_rates_are_rounded_up_to_a_common_grid():
    rates = np.linspace(0.0100, 0.0101, 2 * FEW)
    composition = {PoissonSampling(rate).event(2.0): 1 for rate in rates}
    merged = gridded(composition)
    assert sum(merged.values()) == len(rates)
    assert len(merged) < len(rates) / 4
    assert all(event.sampling_probability >= rates[0] for event in merged)
    assert max(event.sampling_probability for event in merged) >= rates[-1]
    assert max(event.sampling_probability for event in merged) <= rates[-1] * (1 + STEP)
