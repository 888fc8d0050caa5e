from __future__ import annotations

import pytest

from fedpriv.privacy.claims import adap_dpfl
from fedpriv.privacy.mechanism import CLIP_STATISTIC, GRADIENT, Draw, Query
from fedpriv.privacy.sampling import FixedSizeSampling, PoissonSampling

ADAP_DPFL = adap_dpfl()


def draw(sampling, sigma: float = 3.0, statistic: float | None = None) -> Draw:  # type: ignore[no-untyped-def]
    queries = [Query(GRADIENT, sigma)]
    if statistic is not None:
        queries.append(Query(CLIP_STATISTIC, statistic))
    return Draw(sampling, tuple(queries))


def test_the_claim_charges_the_gradient():
    assert ADAP_DPFL.event(draw(PoissonSampling(0.013))) == PoissonSampling(0.013).event(3.0)


@pytest.mark.parametrize("statistic", [3.0, 0.0])
def test_the_claim_does_not_charge_the_clipping_statistic(statistic):
    event = ADAP_DPFL.event(draw(PoissonSampling(0.013), statistic=statistic))
    assert event == PoissonSampling(0.013).event(3.0)


def test_the_claim_takes_lots_of_fixed_size_for_poisson_lots():
    event = ADAP_DPFL.event(draw(FixedSizeSampling(6000, 78)))
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
    event = ADAP_DPFL.event(draw(sampling))
    allowed = ADAP_DPFL.accountant().steps_allowed(event, 2.0, 1e-5, ADAP_DPFL.neighbours)
    assert allowed == 7921


def test_the_statement_says_what_is_not_charged():
    assert "clipping statistic" in ADAP_DPFL.statement
    assert "not charged" in ADAP_DPFL.statement
