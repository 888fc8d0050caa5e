"""Who comes in a round of central DP-FedAvg: a Poisson sample of the clients."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedpriv.algorithms import CdpFedAvg
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.core.sampling import PoissonSampling


def cdp(client_rate: float = 0.5) -> CdpFedAvg:
    return CdpFedAvg("cdp_fedavg", client_rate=client_rate)


def cohorts(algorithm: CdpFedAvg, clients: int, rounds: int, seed: int = 0) -> list[np.ndarray]:
    everyone = np.ones(clients, dtype=bool)
    return [algorithm.cohort(SecretStreams.simulated(seed, 0), t, everyone) for t in range(rounds)]


def test_the_size_of_a_cohort_has_the_mean_and_variance_of_poisson_sampling():
    sizes = np.array([len(c) for c in cohorts(cdp(client_rate=0.1), 200, 3000)])
    assert sizes.mean() == pytest.approx(20, abs=5 * math.sqrt(18 / 3000))
    assert sizes.var() == pytest.approx(18, rel=5 * math.sqrt(2 / 3000))


def test_every_client_comes_as_often_as_any_other():
    came = np.bincount(np.concatenate(cohorts(cdp(client_rate=0.25), 40, 2000)), minlength=40)
    standard = math.sqrt(2000 * 0.25 * 0.75)
    assert np.abs(came - 500).max() < 5 * standard


def test_clients_come_independently_of_each_other():
    came = np.zeros((4000, 12))
    for t, cohort in enumerate(cohorts(cdp(client_rate=0.3), 12, 4000)):
        came[t, cohort] = 1
    likeness = np.corrcoef(came.T) - np.eye(12)
    assert np.abs(likeness).max() < 5 / math.sqrt(4000)


def test_a_cohort_is_ascending_and_has_nobody_twice():
    for cohort in cohorts(cdp(), 50, 20):
        assert (np.diff(cohort) > 0).all()


def test_the_cohort_follows_from_the_seed_and_the_round():
    for a, b in zip(cohorts(cdp(), 30, 10), cohorts(cdp(), 30, 10), strict=True):
        assert np.array_equal(a, b)
    other = cohorts(cdp(), 30, 10, seed=1)
    assert any(not np.array_equal(a, b) for a, b in zip(cohorts(cdp(), 30, 10), other, strict=True))


def test_a_client_that_is_not_eligible_does_not_come_and_displaces_nobody():
    eligible = np.ones(30, dtype=bool)
    full = cdp().cohort(SecretStreams.simulated(0, 0), 0, eligible)
    eligible[full[0]] = False
    assert np.array_equal(cdp().cohort(SecretStreams.simulated(0, 0), 0, eligible), full[1:])


def test_everyone_pays_whoever_came():
    assert cdp().trust.charged(np.array([3]), 5).tolist() == [0, 1, 2, 3, 4]


def test_the_sampling_of_the_ledger_is_the_one_that_samples():
    sampling = cdp(client_rate=0.125).sampling_of(77)
    assert cdp(client_rate=0.125).client_sampling(30) == sampling
    assert sampling == PoissonSampling(0.125)
    assert sampling.neighbours == ADD_OR_REMOVE
