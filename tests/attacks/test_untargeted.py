"""What attackers without a trigger forge: against ByzFL, against loops over the formula, and by laws."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fedpriv import aggregation, attacks
from fedpriv.aggregation import Aggregation
from fedpriv.aggregation.run_rule import RunRule
from fedpriv.algorithms.run_context import RoundWeights
from fedpriv.attacks.forgers import View, farthest, line_search
from fedpriv.attacks.untargeted import hidden_deviation
from fedpriv.common.errors import ArgumentError
from fedpriv.engine import FlatModel

BYZFL = json.loads((Path(__file__).parent / "byzfl_attacks.json").read_text())
"""Written by scripts/byzfl_attacks.py with ByzFL 0.0.11."""

RULES = [
    kind
    for kind in map(vars(aggregation).get, aggregation.__all__)
    if issubclass(kind, aggregation.RobustAggregation) and kind is not aggregation.RobustAggregation
]


class MedianRule:
    """The coordinate-wise median, with a count as its state."""

    calls = 0

    def combine(self, t, clients, uploads, weights):
        self.calls += 1
        # Of an even number the mean of the middle two, as in ByzFL.
        return torch.quantile(uploads, 0.5, dim=0)

    def state_dict(self):
        return {"calls": self.calls}

    def load_state_dict(self, state):
        self.calls = state["calls"]


class Median(Aggregation):
    def start(self, model):
        return MedianRule()


def rule() -> RunRule:
    return RunRule(Median(), FlatModel(torch.nn.Linear(1, 1)))


def view_of(honest: torch.Tensor, attackers: int = 3, median: bool = False) -> View:
    """The first clients are honest, the last ones attack; these would send the first honest uploads."""
    clients = len(honest) + attackers
    aggregation = RoundWeights(4, np.arange(clients), None)
    own = honest[torch.arange(attackers) % len(honest)]
    malicious = np.arange(len(honest), clients)
    return View(aggregation, malicious, own, honest, rule() if median else None, seed=0)


def honest_uploads(seed: int = 0, clients: int = 7, size: int = 12) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(clients, size, generator=generator, dtype=torch.float64) + 0.3


@pytest.mark.parametrize(
    ("attack", "name"),
    [
        (attacks.Ipm(tau=1.0), "mean_flipped"),
        (attacks.Ipm(), "ipm"),
        (attacks.Alie(), "alie"),
        (attacks.Mimic(victim=2), "mimic of 2"),
        (attacks.IpmOptimal(), "ipm_optimal mean"),
        (attacks.AlieOptimal(), "alie_optimal mean"),
        (attacks.IpmOptimal(), "ipm_optimal median"),
        (attacks.AlieOptimal(), "alie_optimal median"),
    ],
)
def test_attacks_send_what_byzfl_sends(attack, name):
    honest = torch.tensor(BYZFL["honest"], dtype=torch.float64)
    view = view_of(honest, BYZFL["attackers"], median="median" in name)
    expected = torch.tensor(BYZFL["sent"][name], dtype=torch.float64)
    torch.testing.assert_close(
        attack.forged(view), expected, rtol=1e-6, atol=1e-6
    )  # single precision there


def test_sign_flip_and_label_reversal_send_of_the_own_upload_and_gaussian_of_none():
    view = view_of(honest_uploads())
    assert torch.equal(attacks.SignFlip(scale=2).forged(view), -2 * view.own)
    assert torch.equal(attacks.LabelReversal().forged(view), view.own)
    normals = attacks.Gaussian(std=3).forged(view)
    assert torch.equal(normals, attacks.Gaussian(std=3).forged(view))
    assert len(torch.unique(normals[:, 0])) == 3
    later = replace(view, aggregation=replace(view.aggregation, round_index=5))
    assert not torch.equal(normals, attacks.Gaussian(std=3).forged(later))
    many = view_of(honest_uploads(clients=2, size=20_000))
    assert float(attacks.Gaussian(std=3).forged(many).std()) == pytest.approx(3, rel=0.02)


@pytest.mark.parametrize("direction", ["std", "mean", "sign"])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", [attacks.MinMax, attacks.MinSum])
def test_gamma_is_the_largest_that_keeps_the_distances_of_honest_uploads(kind, seed, direction):
    """A loop over all pairs, by the definition of the paper."""
    honest = honest_uploads(seed)
    view = view_of(honest)
    sent = kind(perturbation=direction).forged(view)
    squares = [[float((a - b).square().sum()) for b in honest] for a in honest]
    bound = max(max(row) if kind is attacks.MinMax else sum(row) for row in squares)

    def size(vector: torch.Tensor) -> float:
        distances = [float((vector - a).square().sum()) for a in honest]
        return max(distances) if kind is attacks.MinMax else sum(distances)

    mean, std = honest.mean(0), honest.std(0)
    directions = {"std": -std, "mean": -mean / mean.norm(), "sign": -mean.sign()}
    gamma = float((sent - mean).norm() / directions[direction].norm())
    torch.testing.assert_close(sent, mean + gamma * directions[direction])
    assert size(sent) <= bound * (1 + 1e-9)
    assert size(mean + (gamma + 1e-3) * directions[direction]) > bound


def test_gamma_of_blocks_of_coordinates_is_that_of_all(monkeypatch):
    honest = honest_uploads(size=50)
    whole = farthest(honest, -honest.std(0), sums=False)
    monkeypatch.setattr("fedpriv.attacks.forgers._COLUMNS", 7)
    assert farthest(honest, -honest.std(0), sums=False) == pytest.approx(whole, rel=1e-12)


def test_equal_uploads_and_no_direction_leave_no_room():
    same = torch.ones(4, 3)
    assert farthest(same, torch.zeros(3), sums=False) == 0
    assert farthest(same, torch.ones(3), sums=True) == 0


@pytest.mark.parametrize("median", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_searched_strength_moves_the_rule_at_least_as_far_as_the_fixed_one(seed, median):
    view = view_of(honest_uploads(seed), median=median)
    for searched, fixed in (
        (attacks.AlieOptimal(), attacks.Alie()),
        (attacks.IpmOptimal(), attacks.Ipm()),
    ):
        reached, default = (
            float((view.combined(attack.forged(view)) - view.mean).norm())
            for attack in (searched, fixed)
        )
        # The median cannot be moved beyond the honest uploads, so both may end at the same place.
        assert reached >= default * (1 - 1e-9)


def test_the_search_makes_so_many_trials_and_no_more():
    tried: list[float] = []

    def distance(tau: float) -> float:
        tried.append(tau)
        return -abs(tau - 35.0)

    found = line_search(distance, 20, 10.0, 0.8)
    assert len(tried) == 20
    assert tried[:3] == [0, 10, 30]
    assert 30 < found < 40


@pytest.mark.parametrize("broken", [float("nan"), float("inf")])
def test_strengths_without_a_finite_distance_are_never_taken(broken):
    assert line_search(lambda tau: broken if tau else 1.0, 20, 10.0, 0.8) == 0.0
    found = line_search(lambda tau: broken if tau > 12 else tau, 20, 10.0, 0.8)
    assert 10 <= found <= 12


def test_trials_leave_the_rule_as_it_was():
    view = view_of(honest_uploads(), median=True)
    view.rule.begin(3)
    before = view.rule.state_dict()
    attacks.AlieOptimal().forged(view)
    assert view.rule.state_dict() == before
    assert not view.rule.used


@pytest.mark.few(4)
@pytest.mark.parametrize("kind", RULES)
def test_trials_change_no_later_result_of_any_rule(kind):
    model = FlatModel(torch.nn.Linear(3, 3))
    uploads = honest_uploads(clients=10).float()
    clients, shares = np.arange(10), torch.full((10,), 0.1, dtype=torch.float64)
    tried, other = (RunRule(kind(tolerated=2), model) for _ in range(2))
    for t in range(2):
        for one in (tried, other):
            one.rule.trust(lambda records, steps, learning_rate: uploads[0])
            one.begin(t)
        for factor in (0.0, 50.0):
            tried.preview(clients, factor * uploads, shares)
        results = [one.combine(clients, uploads + t, shares) for one in (tried, other)]
        assert torch.equal(*results)


def test_a_single_upload_has_no_spread():
    view = view_of(honest_uploads(clients=1))
    assert torch.equal(attacks.Alie().forged(view), view.mean)


@pytest.mark.parametrize(("clients", "attackers", "z"), [(50, 12, 0.336), (51, 24, 1.447)])
def test_the_paper_s_deviation_of_alie(clients, attackers, z):
    """Baruch et al. 2019, algorithm 3: z = Φ⁻¹((n - m - s)/(n - m)), s = ⌊n/2 + 1⌋ - m."""
    assert hidden_deviation(clients, attackers) == pytest.approx(z, abs=2e-3)


@pytest.mark.parametrize(
    ("kind", "settings", "key"),
    [
        (attacks.Alie, {"tau": -1}, "tau"),
        (attacks.Gaussian, {"std": 0}, "std"),
        (attacks.MinMax, {"perturbation": "up"}, "perturbation"),
        (attacks.IpmOptimal, {"ratio": 0.5}, "ratio"),
        (attacks.IpmOptimal, {"evaluations": 0}, "evaluations"),
        (attacks.Mimic, {"victim": -1}, "victim"),
        (attacks.SignFlip, {"knows": ["everything"]}, "knows"),
        (attacks.SignFlip, {"knows": "rule"}, "knows"),
    ],
)
def test_an_error_names_the_key(kind, settings, key):
    with pytest.raises(ArgumentError, match=key):
        kind(**settings)
