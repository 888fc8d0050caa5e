"""LiRA and RMIA on scores of known distributions."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from scipy.stats import norm

from fedpriv.tools.audit import shadow_attacks
from fedpriv.tools.audit.shadow_attacks import (
    Signals,
    lira,
    lira_offline,
    rmia,
    rmia_offline,
    scores_of,
)
from fedpriv.tools.audit.statistics import auc

EASY, N = 2.0, 4000
"""How much records differ in difficulty."""


def signals(shift: float, models: int = 16, sd: float = 1.0, seed: int = 0) -> Signals:
    """φ of a record is N(difficulty, sd²), ``shift`` more of a model that trained on it; the target trained
    on the first half."""
    stream = np.random.default_rng(seed)
    difficulty = EASY * stream.standard_normal(N)
    inside = np.zeros((models, N), dtype=bool)
    for half in range(0, models, 2):
        inside[half] = stream.permutation(N) < N // 2
        inside[half + 1] = ~inside[half]
    noise = sd * stream.standard_normal((models + 1, N))
    target = difficulty + noise[0] + shift * (np.arange(N) < N // 2)
    z = EASY * stream.standard_normal(N) + sd * stream.standard_normal((models + 1, N))
    return Signals(target, difficulty + noise[1:] + shift * inside, inside, z[0], z[1:])


def area(scores: np.ndarray) -> float:
    return auc(scores[: N // 2], scores[N // 2 :]).value


def test_lira_comes_near_the_best_attack_of_known_gaussians():
    """Who knows both Gaussians has an AUC of Φ(shift/(√2 sd))."""
    best = norm.cdf(1 / np.sqrt(2))
    few, many = signals(1.0), signals(1.0, models=64)
    assert area(few.target) < best - 0.1
    assert best - 0.03 < area(lira(few, own_variance=False)) < best + 0.02
    assert best - 0.015 < area(lira(many, own_variance=True)) < best + 0.02
    assert area(lira_offline(many, own_variance=False)) > best - 0.02


def test_a_variance_of_its_own_is_worse_of_few_shadow_models():
    few = signals(1.0, models=8)
    assert area(lira(few, own_variance=True)) < area(lira(few, own_variance=False)) - 0.02


def test_a_variance_of_its_own_is_taken_from_64_shadow_models_on(monkeypatch):
    taken = []
    monkeypatch.setattr(shadow_attacks, "lira", lambda s, own: taken.append(own))
    for models in (62, 64):
        scores_of(signals(0.0, models=models))
    assert taken == [False, True]


def test_lira_is_the_logarithm_of_the_ratio_of_likelihoods():
    found = signals(1.0, models=32)
    x = 7
    of = [found.shadows[found.inside[:, x], x], found.shadows[~found.inside[:, x], x]]
    expected = np.subtract(*(norm.logpdf(found.target[x], v.mean(), v.std(ddof=1)) for v in of))
    assert lira(found, own_variance=True)[x] == pytest.approx(expected)


@pytest.mark.parametrize("attack", ["lira", "lira_offline", "rmia", "rmia_offline"])
def test_without_a_trace_of_membership_every_attack_is_at_chance(attack):
    scores = scores_of(signals(0.0))[attack]
    found = auc(scores[: N // 2], scores[N // 2 :])
    assert found.low - 0.01 <= 0.5 <= found.high + 0.01


def test_rmia_tells_what_the_loss_does_not():
    found = signals(1.0)
    for scores in (rmia(found), rmia_offline(found)):
        assert area(scores) > area(found.target) + 0.05


def test_rmia_is_the_share_of_the_population_that_is_exceeded_gamma_times():
    found = signals(1.0, models=8)
    p, out = expit(found.shadows), ~found.inside
    x, a = 11, shadow_attacks.OFFLINE_A
    usual = ((1 + a) * p[out[:, x], x].mean() + 1 - a) / 2
    usual_z = ((1 + a) * expit(found.shadows_z).mean(0) + 1 - a) / 2
    ratio = expit(found.target[x]) / usual / (expit(found.target_z) / usual_z)
    assert rmia_offline(found)[x] == pytest.approx((ratio >= shadow_attacks.GAMMA).mean())
    both = (p[out[:, x], x].mean() + p[~out[:, x], x].mean()) / 2
    ratio = expit(found.target[x]) / both / (expit(found.target_z) / expit(found.shadows_z).mean(0))
    assert rmia(found)[x] == pytest.approx((ratio >= shadow_attacks.GAMMA).mean())


def test_a_record_that_no_shadow_client_used_has_a_score():
    found = signals(1.0)
    found.inside[:, 3] = False
    for scores in scores_of(found).values():
        assert np.isfinite(scores).all()
