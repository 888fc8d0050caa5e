"""GDP and zCDP: published values, composition as a sum, and the filter."""

from __future__ import annotations

import numpy as np
import pytest
from accountants.suite import AccountantSuite
from dp_accounting import dp_event
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, ZcdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.core.sampling import PoissonSampling, WholeData
from fedpriv.privacy.mechanisms import GaussianQuery, JointQuery

GDP, ZCDP = GdpAccountant(), ZcdpAccountant()


class OfPlainGaussians(AccountantSuite):
    """Draws without sampling; the rate of the laws does nothing."""

    def sampling(self, rate: float) -> WholeData:
        return WholeData()

    def test_an_event_of_the_other_relation_is_refused_with_a_reason(self):
        pytest.skip("Gaussians without sampling are priced under both relations")

    test_an_event_of_the_other_relation_is_not_priced = (
        test_an_event_of_the_other_relation_is_refused_with_a_reason
    )

    def test_pricing_a_second_query_on_a_sample_of_its_own_would_understate_it(self):
        both = JointQuery(WholeData(), (GaussianQuery("a", 1.1), GaussianQuery("b", 1.1)))
        joint, apart = self.price({both.event(): 97}), self.price({WholeData().event(1.1): 2 * 97})
        assert joint == pytest.approx(apart)  # without sampling there is nothing to understate


class TestGdp(OfPlainGaussians):
    accountant = GDP


class TestZcdp(OfPlainGaussians):
    accountant = ZCDP


def gaussian(multiplier: float) -> dp_event.DpEvent:
    return dp_event.GaussianDpEvent(multiplier)


@pytest.mark.parametrize(
    ("mu", "delta", "epsilon"), [(1, 1e-5, 4.3771780957), (2, 1e-6, 10.9971512)]
)
def test_gdp_values_of_dong_roth_su(mu, delta, epsilon):
    assert GDP.epsilon_of_sum(mu**2, delta) == pytest.approx(epsilon, abs=1e-6)


@pytest.mark.parametrize(
    ("multiplier", "epsilon", "delta"), [(3.7306316348, 1.0, 1e-5), (36.3046904, 0.1, 1e-6)]
)
def test_the_analytic_gaussian_of_balle_and_wang(multiplier, epsilon, delta):
    counts = {gaussian(multiplier): 1}
    assert GDP.epsilon_of(counts, delta, ADD_OR_REMOVE) == pytest.approx(epsilon, abs=1e-7)


@pytest.mark.thorough
@settings(max_examples=examples(10))
@given(st.floats(1.0, 20.0), st.integers(1, 200))
def test_gdp_is_not_above_pld_nor_zcdp(multiplier, steps):
    counts = {gaussian(multiplier): steps}
    exact = GDP.epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
    assert exact <= PldAccountant().epsilon_of(counts, 1e-5, ADD_OR_REMOVE) + 1e-3
    assert exact <= ZCDP.epsilon_of(counts, 1e-5, ADD_OR_REMOVE) + 1e-9


@pytest.mark.parametrize("accountant", [GDP, ZCDP])
def test_the_step_after_the_last_allowed_one_exceeds(accountant):
    event, clients = gaussian(9.0), np.arange(2)
    allowed = accountant.steps_allowed(event, 1.5, 1e-5, ADD_OR_REMOVE)
    total = accountant.filter(2, ADD_OR_REMOVE, event, 1.5, 1e-5)
    for _ in range(allowed):
        assert not total.would_exceed(event, 1, 1.5, 1e-5).any()
        total.add(event, clients)
    assert total.would_exceed(event, 1, 1.5, 1e-5).all()
    assert total.epsilon(1e-5).max() <= 1.5 + 1e-9


def test_a_client_that_took_no_part_spent_nothing():
    total = GDP.running(2, ADD_OR_REMOVE)
    total.add(gaussian(2.0), np.array([1]))
    assert total.epsilon(1e-5)[0] == 0.0 < total.epsilon(1e-5)[1]


@pytest.mark.parametrize("accountant", [GDP, ZCDP])
def test_sampled_gaussians_are_refused_by_name(accountant):
    assert "not valid for Poisson lots" in accountant.supports(
        PoissonSampling(0.1).event(1.0), ADD_OR_REMOVE
    )


def test_steps_of_infinite_noise_cost_nothing_and_never_end():
    silent = WholeData().event(float("inf"))
    for accountant in (GDP, ZCDP):
        assert accountant.further_steps({}, silent, 1.0, 1e-5, ADD_OR_REMOVE, at_most=7) == 7


@given(st.integers(-30, 30))
@settings(max_examples=examples(30))
def test_at_the_limit_epsilon_itself_decides(ulps):
    limit = GDP.largest_sum(1.0, 1e-5)
    spent = GDP.running(1, ADD_OR_REMOVE)
    event = WholeData().event(float((limit * (1 + ulps * 1e-13)) ** -0.5))
    total = event.noise_multiplier**-2
    exceeds = spent.would_exceed(event, 1, 1.0, 1e-5)
    assert bool(exceeds[0]) == (GDP.epsilon_of_sum(total, 1e-5) > 1.0)
