"""(f, κ)-robustness: published bounds, searched for a configuration that breaks them.

    ‖F(x) - mean_S‖² ≤ κ V_S   for every set S of n - f uploads

V_S is the trace of the covariance of S. Sources of the bounds:

- trimmed mean, Krum, geometric median, median, NNM before them, and the lower bound κ ≥ f/(n - 2f): Allouah
  et al., "Fixing by mixing", AISTATS 2023 (arXiv 2302.01772).
- ARC before a rule: Allouah et al., "Adaptive gradient clipping for robust federated learning", ICLR 2025.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from rule_runs import result_of

Bound = Callable[[int, int], float]
BOUNDS: dict[str, Bound] = {
    "trimmed_mean": lambda n, f: 6 * f / (n - 2 * f) * (1 + f / (n - 2 * f)),
    "krum": lambda n, f: 6 * (1 + f / (n - 2 * f)),
    "geometric_median": lambda n, f: 4 * (1 + f / (n - 2 * f)) ** 2,
    "median": lambda n, f: 4 * (1 + f / (n - 2 * f)) ** 2,
}
AFTER: dict[str, Callable[[float, int, int], float]] = {
    "": lambda kappa, n, f: kappa,
    "nnm": lambda kappa, n, f: 8 * f / (n - f) * (kappa + 1),
    "arc": lambda kappa, n, f: kappa + 2 * f / (n - 2 * f),
}


def bound(rule: str, before: str, n: int, f: int) -> float:
    return AFTER[before](BOUNDS[rule](n, f), n, f)


def worst_ratio(rule: str, before: str, rows: np.ndarray, f: int) -> float:
    """Return the largest ‖F - mean_S‖² / V_S over all sets S of n - f uploads."""
    found = result_of(rule, rows, tolerated=f, before=[before] if before else [])
    ratios = []
    for subset in itertools.combinations(range(len(rows)), len(rows) - f):
        honest = rows[list(subset)]
        centered = honest - honest.mean(axis=0)
        spread = (centered**2).sum() / len(honest)
        error = ((found - honest.mean(axis=0)) ** 2).sum()
        if error > 1e-12:
            ratios.append(error / max(spread, 1e-300))
    return max(ratios, default=0.0)


def lower_bound_case(n: int, f: int) -> np.ndarray:
    """Return the uploads of the lower bound's proof: n - f are equal, so a rule must return their value."""
    rows = np.zeros((n, 1))
    rows[:f] = 1.0
    return rows


def configurations(n: int, f: int, size: int, seed: int) -> Iterator[np.ndarray]:
    """Yield honest uploads of several shapes, with malicious ones at several places."""
    generator = np.random.default_rng(seed)
    for shape in ("normal", "heavy", "two groups", "one far"):
        honest = generator.normal(size=(n - f, size))
        if shape == "heavy":
            honest = honest / generator.uniform(0.01, 1, (n - f, 1))
        elif shape == "two groups":
            honest = honest * 0.01 + (np.arange(n - f) % 2)[:, None]
        elif shape == "one far":
            honest[0] += 10
        mean, std = honest.mean(axis=0), honest.std(axis=0)
        places = [mean + tau * std for tau in (-3, -1, 1, 1.5, 3, 10)]
        places += [honest[0], honest.max(axis=0), -2 * mean, mean + 1e4]
        for place in places:
            yield np.concatenate([honest, np.tile(place, (f, 1))])
        yield np.concatenate([honest, mean + std * generator.normal(0, 2, (f, size))])
    yield lower_bound_case(n, f)


def climbed(rule: str, before: str, rows: np.ndarray, f: int, seed: int) -> float:
    """Return the worst ratio that a random ascent from a configuration finds."""
    generator = np.random.default_rng(seed)
    worst = worst_ratio(rule, before, rows, f)
    for step in 0.5 * 0.9 ** np.arange(25):
        moved = rows + step * rows.std() * generator.normal(size=rows.shape)
        ratio = worst_ratio(rule, before, moved, f)
        if ratio > worst:
            worst, rows = ratio, moved
    return worst


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("rule", "before"), [(rule, before) for before in AFTER for rule in BOUNDS]
)
def test_no_configuration_breaks_the_bound(rule, before):
    n, f = 9, 3
    kappa, worst = bound(rule, before, n, f), []
    for size in (1, 3):
        for seed in range(2):
            cases = list(configurations(n, f, size, seed))
            ratios = [worst_ratio(rule, before, rows, f) for rows in cases]
            worst.append(max(ratios))
            worst.append(climbed(rule, before, cases[int(np.argmax(ratios))], f, seed))
    assert max(worst) <= kappa * (1 + 1e-6)
    assert max(worst) >= f / (n - 2 * f) * (
        1 - 1e-6
    )  # the search is no weaker than the lower bound


@pytest.mark.parametrize(("n", "f"), [(7, 2), (9, 2), (11, 4)])
@pytest.mark.parametrize("rule", BOUNDS)
def test_every_rule_is_at_the_lower_bound_where_its_proof_puts_it(rule, n, f):
    ratio = worst_ratio(rule, "", lower_bound_case(n, f), f)
    assert ratio == pytest.approx(f / (n - 2 * f), rel=1e-3)


def test_the_search_finds_a_rule_that_is_not_robust(monkeypatch):
    """Planted: the trimmed mean trims nothing."""
    from fedpriv.aggregation import TrimmedMean

    monkeypatch.setattr(TrimmedMean, "most_tolerated", lambda rule, vectors: 0)
    cases = configurations(9, 3, 2, 0)
    worst = max(worst_ratio("trimmed_mean", "", rows, 3) for rows in cases)
    assert worst > 100 * bound("trimmed_mean", "", 9, 3)


BREAKDOWN = {
    "trimmed_mean": lambda n, f: f + 1,
    "multi_krum": lambda n, f: f + 1,
    "dnc": lambda n, f: f + 1,
    "median": lambda n, f: -(-n // 2),
    "geometric_median": lambda n, f: -(-n // 2) + (n + 1) % 2,
    "krum": lambda n, f: n - f - 1,
}
"""Number of equal malicious uploads that carry a rule away."""


@pytest.mark.parametrize(("n", "f"), [(9, 2), (11, 3), (12, 4)])
@pytest.mark.parametrize("rule", BREAKDOWN)
def test_f_far_uploads_do_not_carry_a_rule_away_and_its_breakdown_number_does(rule, n, f):
    honest = np.random.default_rng(0).normal(size=(n, 5))
    for attackers, carried in ((f, False), (BREAKDOWN[rule](n, f), True)):
        rows = honest.copy()
        rows[n - attackers :] = 1e6
        found = result_of(rule, rows, tolerated=f)
        assert (np.abs(found).max() > 1e4) == carried, attackers
