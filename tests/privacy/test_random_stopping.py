"""The law of the number of trials, and its bound against Rényi divergences that are summed up."""

from __future__ import annotations

import math

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant
from scipy.special import logsumexp

from fedpriv.privacy.random_stopping import NegativeBinomialTrials, PoissonTrials

ORDERS = np.array([1.25, 1.5, 2, 3, 4, 6, 8, 16, 32, 64, 128], dtype=float)
MANY = 4000
LAWS = [NegativeBinomialTrials(eta, gamma) for eta in (-0.5, 0, 1, 2) for gamma in (0.5, 0.05)]
LAWS += [PoissonTrials(mean) for mean in (1.0, 1.5, 10.0)]


def numbers(law) -> np.ndarray:
    """What :meth:`probabilities` speaks of."""
    return np.arange(MANY + 1) if isinstance(law, PoissonTrials) else np.arange(1, MANY + 1)


def renyi(p: np.ndarray, q: np.ndarray, order: float) -> float:
    return float(logsumexp(order * np.log(p) + (1 - order) * np.log(q))) / (order - 1)


def mechanism(law, q: np.ndarray) -> np.ndarray:
    """P[best = y] = Σ_k P[K=k] (F(y)^k - F(y-1)^k), outcomes ordered from worst to best; for K = 0 an outcome
    of its own."""
    k, p = numbers(law), law.probabilities(MANY)
    upto = np.concatenate([[0.0], np.cumsum(q)])
    upto[-1] = 1.0
    generating = np.array([np.sum(p[k > 0] * f ** k[k > 0]) for f in upto])
    nothing = [float(p[0])] if k[0] == 0 else []
    return np.concatenate([np.diff(generating), nothing])


@pytest.mark.parametrize("law", LAWS)
def test_probabilities_add_up_to_one_and_have_the_mean_that_is_charged(law):
    p = law.probabilities(MANY)
    assert p.min() >= 0
    assert p.sum() == pytest.approx(1, abs=1e-9)
    assert np.sum(p * numbers(law)) == pytest.approx(law.mean, rel=1e-9)


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("loss", [0.05, 1.0])
def test_bound_holds_for_mechanisms_whose_divergence_is_summed_up(law, loss):
    e = math.exp(loss)
    mechanisms = [
        (np.array([e, 1]) / (1 + e), np.array([1, e]) / (1 + e)),  # randomized response
        (np.array([1, 2, e]) / (3 + e), np.array([e, 2, 1]) / (3 + e)),
        (np.array([0.98, 0.02]), np.array([1 - 0.02 * e, 0.02 * e])),
    ]
    for one, other in mechanisms:
        for p, q in ((one, other), (other, one)):
            single = np.array([max(renyi(p, q, a), renyi(q, p, a)) for a in ORDERS])
            bound = law.rdp(single, ORDERS)
            best = mechanism(law, p), mechanism(law, q)
            true = [renyi(*best, a) for a in ORDERS]
            assert np.all(true <= bound + 1e-9)


def test_geometric_bound_is_the_one_printed():
    law = NegativeBinomialTrials(1, 0.1)  # E[K] = 10
    assert law.mean == pytest.approx(10)
    rdp = 0.1 * ORDERS  # a Gaussian: ρ = 0.1
    extra = min(2 * (1 - 1 / a) * 0.1 * a + 2 * math.log(10) / a for a in ORDERS)
    printed = rdp + extra + math.log(10) / (ORDERS - 1)
    high = ORDERS >= 6  # below, the bound at a higher order is smaller, and holds there too
    assert law.rdp(rdp, ORDERS)[high] == pytest.approx(printed[high])
    assert np.all(law.rdp(rdp, ORDERS) <= printed + 1e-12)


@pytest.mark.parametrize("law", [law for law in LAWS if getattr(law, "eta", 0) >= 0])
@pytest.mark.parametrize("noise_multiplier", [0.8, 5.0, 40.0])
def test_bound_is_that_of_dp_accounting(law, noise_multiplier):
    shape = math.inf if isinstance(law, PoissonTrials) else law.eta
    gaussian = dp_event.GaussianDpEvent(noise_multiplier)
    library = rdp_privacy_accountant.RdpAccountant(ORDERS)
    library.compose(dp_event.RepeatAndSelectDpEvent(gaussian, law.mean, shape))
    ours = law.rdp(ORDERS / (2 * noise_multiplier**2), ORDERS)
    monotone = np.minimum.accumulate(np.asarray(library._rdp)[::-1])[::-1]
    assert ours == pytest.approx(monotone, rel=1e-6)
