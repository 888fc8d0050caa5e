from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from printed_formulas import (
    ldp_epsilon,
    naseri_printed_multipliers,
    wei_noise_std,
    wei_recalculated_noise_std,
    wei_true_epsilon,
)
from releases import announced, group_of, released

from fedpriv.privacy.budget import Budget, Target
from fedpriv.privacy.clippers import QuantileClipper
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling, WholeData
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT, GaussianQuery, JointQuery
from fedpriv.privacy.mechanisms.claims import adap_dpfl, dp_fedavg, ldp_fedsgd, naseri_cdp, wei

ADAP_DPFL = adap_dpfl()


def joint(sampling, sigma: float = 3.0, statistic: float | None = None) -> JointQuery:  # type: ignore[no-untyped-def]
    queries = [GaussianQuery(GRADIENT, sigma)]
    if statistic is not None:
        queries.append(GaussianQuery(CLIP_STATISTIC, statistic))
    return JointQuery(sampling, tuple(queries))


def test_the_claim_charges_the_gradient():
    assert ADAP_DPFL.event(joint(PoissonSampling(0.013))) == PoissonSampling(0.013).event(3.0)


@pytest.mark.parametrize("statistic", [3.0, 0.0])
def test_the_claim_does_not_charge_the_clipping_statistic(statistic):
    event = ADAP_DPFL.event(joint(PoissonSampling(0.013), statistic=statistic))
    assert event == PoissonSampling(0.013).event(3.0)


def test_the_claim_takes_lots_of_fixed_size_for_poisson_lots():
    event = ADAP_DPFL.event(joint(FixedSizeSampling(6000, 78)))
    assert event == PoissonSampling(78 / 6000).event(3.0)


def test_the_claim_prescribes_the_theorems_orders_and_conversion():
    accountant = ADAP_DPFL.accountant()
    assert accountant.orders == tuple(range(2, 65))
    assert accountant.conversion == "classical"


@pytest.mark.parametrize(
    "sampling", [PoissonSampling(0.013), FixedSizeSampling(6000, 78)], ids=["poisson", "fixed"]
)
def test_the_claimed_two_allows_the_published_rounds(sampling):
    """q=.013, σ=3, δ=1e-5, ε=2 → 7921 rounds, whatever really drew the lots."""
    event = ADAP_DPFL.event(joint(sampling))
    allowed = ADAP_DPFL.accountant().steps_allowed(event, 2.0, 1e-5, ADAP_DPFL.neighbours)
    assert allowed == 7921


def test_the_statement_says_what_is_not_charged():
    assert "clipping statistic" in ADAP_DPFL.statement
    assert "not charged" in ADAP_DPFL.statement


# ---- readings of theorem 1


def test_as_printed_a_round_without_any_loss_already_costs():
    """ε_α = A_α/(α-1) with A_α ≥ 1: even at σ → ∞ each round costs at least 1/63."""
    printed = adap_dpfl("as_printed")
    event, accountant = printed.event(joint(PoissonSampling(0.013), 1e6)), printed.accountant()
    costs = [accountant.epsilon_of({event: n}, 1e-5, printed.neighbours) for n in (1, 64)]
    assert costs[1] - costs[0] >= 1.0


def test_as_printed_the_budget_of_two_lasts_for_about_a_hundred_rounds():
    printed = adap_dpfl("as_printed")
    event = printed.event(joint(PoissonSampling(0.013)))
    assert printed.accountant().steps_allowed(event, 2.0, 1e-5, printed.neighbours) == 109


def test_the_running_total_of_a_reading_is_its_composition():
    printed = adap_dpfl("as_printed")
    event, accountant = printed.event(joint(PoissonSampling(0.013))), printed.accountant()
    total = accountant.running(1, printed.neighbours)
    total.add(event, np.array([0]), 50)
    composed = accountant.epsilon_of({event: 50}, 1e-5, printed.neighbours)
    assert total.epsilon(1e-5)[0] == pytest.approx(composed)


# ---- the other works


def budget_on(claim, first: JointQuery, epsilon: float) -> Budget:  # type: ignore[no-untyped-def]
    return Budget(
        clients=1, target=Target(epsilon, 0.01, "published", claim.accountant()), claim=claim,
        first=group_of(first, np.arange(1)),
    )  # fmt: skip


def rounds_within(budget: Budget, one: JointQuery) -> int:
    rounds, who = 0, np.array([0])
    announcement = announced(one, who)
    while budget.eligible(announcement)[0]:
        budget.charge([released(one, who)], announcement)
        rounds += 1
    return rounds


def test_weis_budget_lasts_exactly_the_rounds_its_noise_was_made_for():
    """Eq. (15) at ε=10, δ=.01, C=1, n=128, q=1, T=200: s = .0670614, and 200 rounds fit."""
    noise = wei_noise_std(10.0, 0.01, 2 / 128, 1.0, 200)
    assert noise == pytest.approx(0.0670614, abs=1e-7)
    one = joint(WholeData(REPLACE_ONE), noise * (1 + 1e-12))
    budget = budget_on(wei(2 / 128), one, 10.0)
    assert rounds_within(budget, one) == 200
    assert budget.epsilon_published()[0] == pytest.approx(10.0)
    # what really happened: sensitivity 2C
    assert budget.epsilon_sound()[0] == pytest.approx(wei_true_epsilon(10.0, 0.01, 128), rel=1e-3)


def test_weis_noise_at_a_sampling_rate():
    assert wei_noise_std(10.0, 0.01, 2 / 128, 0.6, 200) == pytest.approx(0.0519456, abs=1e-7)


def test_weis_recalculated_noise_is_constant_while_the_rounds_are():
    noise = wei_noise_std(10.0, 0.01, 2 / 128, 1.0, 200)
    for done in (0, 1, 77, 199):
        again = wei_recalculated_noise_std(10.0, 0.01, 2 / 128, 1.0, 200, [noise] * done)
        assert again == pytest.approx(noise, rel=1e-9)


def test_a_discount_after_ten_rounds_multiplies_weis_noise_by_beta():
    noise = wei_noise_std(10.0, 0.01, 2 / 128, 1.0, 200)
    rounds = 0.9**2 * (200 - 10) + 10
    assert rounds == pytest.approx(163.9)
    again = wei_recalculated_noise_std(10.0, 0.01, 2 / 128, 1.0, rounds, [noise] * 10)
    assert again == pytest.approx(0.9 * noise, rel=1e-9)


def test_weis_noise_is_infinite_once_nothing_is_left():
    noise = wei_noise_std(10.0, 0.01, 2 / 128, 1.0, 200)
    assert wei_recalculated_noise_std(10.0, 0.01, 2 / 128, 1.0, 300, [noise] * 201) == math.inf


@pytest.mark.parametrize(
    ("claimed", "true", "digits"),
    [(1, 0.53, 0.01), (4, 3.37, 0.01), (6.25, 6.25, 0.01), (10, 12.3, 0.05), (50, 173, 0.5)],
)
def test_the_true_epsilon_behind_weis_claim(claimed, true, digits):
    assert wei_true_epsilon(claimed, 0.01) == pytest.approx(true, abs=digits)


@pytest.mark.parametrize(("claimed", "true"), [(1, 990), (10, 90_000)])
def test_with_the_sensitivity_of_the_printed_mechanism(claimed, true):
    assert wei_true_epsilon(claimed, 0.01, 128) == pytest.approx(true, rel=0.01)


def test_local_dp_compares_any_two_inputs():
    one = joint(WholeData(REPLACE_ONE), 4.0)
    budget = budget_on(ldp_fedsgd(), one, 5.0)
    budget.charge([released(one, np.array([0]))], announced(one, np.array([0])))
    assert budget.epsilon_published()[0] == ldp_epsilon(4.0, 1, 0.01, 1.0)
    assert budget.epsilon_sound()[0] == pytest.approx(ldp_epsilon(4.0, 1, 0.01, 2.0))


def test_the_printed_noise_of_naseri_is_claimed_for_z_though_it_is_z_over_q():
    rate, z = 30 / 3383, 0.744
    printed = naseri_printed_multipliers(z, rate, 3383)
    assert printed["ratio"] == pytest.approx(3383)
    charged = naseri_cdp("as_printed").event(joint(PoissonSampling(rate), printed["noise_on_mean"]))
    assert charged.event.noise_multiplier == pytest.approx(z)
    fixed = naseri_cdp().event(joint(PoissonSampling(rate), z))
    assert fixed.event.noise_multiplier == z


def test_a_query_without_noise_has_no_finite_claim():
    for claim in (adap_dpfl(), wei(2 / 128), ldp_fedsgd(), dp_fedavg(), naseri_cdp()):
        assert claim.event(joint(PoissonSampling(0.1), 0.0)) == dp_event.NonPrivateDpEvent()


# ---- central DP-FedAvg: updates and bits are charged jointly


def clipped_by_quantile(z: float, bit_noise: float) -> JointQuery:
    clipper = QuantileClipper(0.1, bit_noise=bit_noise)
    gradient = GaussianQuery(GRADIENT, clipper.gradient_multiplier(z))
    return JointQuery(PoissonSampling(0.01), (gradient, clipper.query(0, z)))


def fedavg_epsilon(one: JointQuery, count: int = 1000) -> float:
    claim = dp_fedavg()
    return claim.accountant().epsilon_of({claim.event(one): count}, 1e-5, claim.neighbours)


@pytest.mark.parametrize(("z", "bit_noise"), [(1.0, 5.0), (1.0, 0.51), (0.6, 20.0)])
def test_updates_and_quantile_bits_are_claimed_for_what_a_single_query_of_z_costs(z, bit_noise):
    alone = fedavg_epsilon(joint(PoissonSampling(0.01), z))
    assert fedavg_epsilon(clipped_by_quantile(z, bit_noise)) == pytest.approx(alone, rel=1e-9)


def test_the_claim_of_dp_fedavg_is_the_event_of_the_joint_query():
    one = clipped_by_quantile(1.0, 5.0)
    assert dp_fedavg().event(one) == one.event()


def test_dp_fedavg_charges_a_statistic_that_is_not_split_on_top():
    alone, beside = (joint(PoissonSampling(0.01), 1.0, statistic) for statistic in (None, 10.0))
    assert fedavg_epsilon(beside) > fedavg_epsilon(alone)


def test_dp_fedavg_charges_a_statistic_without_noise():
    one = joint(PoissonSampling(0.01), 1.0, statistic=0.0)
    assert dp_fedavg().event(one) == dp_event.NonPrivateDpEvent()


def test_dp_fedavg_protects_clients_that_join_or_leave_from_who_sees_the_model():
    claim = dp_fedavg()
    assert (claim.unit, claim.trust, claim.neighbours) == ("client", "central", ADD_OR_REMOVE)
