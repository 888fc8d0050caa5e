"""Certificates against malicious clients: what they promise, on votes whose truth is known."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.privacy.core.trade_off import TradeOff
from fedpriv.privacy.groups import group_trade_off
from fedpriv.study.figures.certified import certified_backdoors
from fedpriv.tools.audit.certified import certified, lower, upper

MODELS = 500


@cache
def curve_of(clients: int) -> TradeOff:
    return group_trade_off(6.0, 0.3, 10, clients)


def votes(*shares: float) -> np.ndarray:
    rest = 1 - sum(shares)
    return np.array([[round(MODELS * share) for share in (*shares, rest)]])


def test_a_clear_majority_stands_and_a_narrow_one_falls():
    curve = curve_of(1)
    assert certified(votes(0.99, 0.01), curve.tpr, 0.05).all()
    assert not certified(votes(0.52, 0.4), curve.tpr, 0.05).any()


def test_without_malicious_clients_a_majority_stands_if_the_votes_tell():
    nobody = curve_of(0)
    assert certified(votes(0.7, 0.2), nobody.tpr, 0.05).all()
    assert not certified(votes(0.5, 0.48), nobody.tpr, 0.05).any()


def test_where_anything_may_happen_nothing_stands():
    assert not certified(votes(1.0, 0.0), lambda fpr: np.ones_like(fpr), 0.05).any()


@pytest.mark.thorough
def test_more_malicious_clients_leave_less():
    many = np.vstack([votes(share, 1 - share) for share in np.linspace(0.5, 1, 40)])
    left = [certified(many, curve_of(k).tpr, 0.05).sum() for k in (0, 1, 4)]
    assert left == sorted(left, reverse=True)
    assert left[0] > left[1] > left[2]


def test_a_certificate_is_right_about_the_expected_vote():
    """Votes drawn with shares that the curve lets k clients turn into a tie are seldom certified."""
    curve = curve_of(1)
    share = np.linspace(0.5, 1, 5001)
    narrow = share[np.argmin(np.abs(curve.tpr(1 - share) - 0.5))]  # F(1 - p) = 1/2
    stream = np.random.default_rng(0)
    first = stream.binomial(MODELS, narrow - 0.002, size=400)
    wrong = [certified(np.array([[n, MODELS - n]]), curve.tpr, 0.05)[0] for n in first]
    assert np.mean(wrong) < 0.05


def test_the_bounds_of_a_share_are_clopper_and_pearsons():
    assert lower(np.array([100]), np.array([100]), 0.05)[0] == pytest.approx(0.05 ** (1 / 100))
    assert upper(np.array([0]), np.array([100]), 0.05)[0] == pytest.approx(1 - 0.05 ** (1 / 100))
    assert lower(np.array([0]), np.array([100]), 0.05)[0] == 0.0
    assert upper(np.array([100]), np.array([100]), 0.05)[0] == 1.0


TINY = [
    "dataset=digits", "model=logistic", "algorithm=cdp_fedavg", "partition=iid", "partition.clients=300",
    "rounds=3", "noise_schedule=calibrated", "algorithm.client_rate=0.3",
]  # fmt: skip


def test_certificates_need_a_server_that_clips():
    own = [*TINY[:2], "partition=iid", "rounds=3"]
    with pytest.raises(ConfigError, match="whose server clips"):
        certified_backdoors([*own, "algorithm=dp_fl"], [1.0], [1], [], [], 2, 1, 0.95)
