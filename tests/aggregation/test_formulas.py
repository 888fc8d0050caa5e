"""Rules against other code: stored results of ByzFL, and naive loops over the papers' formulas."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from rule_runs import combine, result_of, started, uploads

from fedpriv.common.random_streams import numpy_stream

BYZFL = json.loads((Path(__file__).parent / "byzfl_rules.json").read_text())
"""Written by scripts/byzfl_rules.py with ByzFL 0.0.11."""
VECTORS, TOLERATED = np.array(BYZFL["vectors"]), BYZFL["tolerated"]


@pytest.mark.parametrize(
    ("name", "option", "settings"),
    [
        ("median", "median", {}),
        ("trimmed_mean", "trimmed_mean", {}),
        ("geometric_median", "geometric_median", {}),
        ("nnm, median", "median", {"before": ["nnm"]}),
        ("arc, trimmed_mean", "trimmed_mean", {"before": ["arc"]}),
        ("nnm, arc, geometric_median", "geometric_median", {"before": ["nnm", "arc"]}),
    ],
)
def test_rules_return_what_byzfl_returns(name, option, settings):
    found = result_of(option, VECTORS, tolerated=TOLERATED, **settings)
    np.testing.assert_allclose(found, BYZFL["results"][name], rtol=1e-6, atol=1e-8)


def test_the_median_of_an_even_number_is_the_mean_of_the_middle_two():
    found = result_of("median", VECTORS[:10])
    np.testing.assert_allclose(found, BYZFL["results"]["median of 10"], rtol=1e-12)


def test_centered_clipping_goes_on_from_round_to_round_as_byzfl_does():
    rule = started("centered_clipping", radius=2.0, iterations=3)
    first, second = combine(rule, VECTORS), combine(rule, BYZFL["later"], t=1)
    np.testing.assert_allclose(first, BYZFL["results"]["centered_clipping"], rtol=1e-9)
    np.testing.assert_allclose(second, BYZFL["results"]["centered_clipping again"], rtol=1e-9)


# ---- naive loops


def krum_scores(rows: np.ndarray, f: int) -> list[float]:
    scores = []
    for i, row in enumerate(rows):
        distances = sorted(((row - other) ** 2).sum() for j, other in enumerate(rows) if j != i)
        scores.append(sum(distances[: len(rows) - f - 2]))
    return scores


@pytest.mark.parametrize(("count", "f"), [(7, 2), (11, 3), (11, 4), (5, 0)])
@pytest.mark.parametrize("seed", range(3))
def test_krum_and_multi_krum_score_by_the_nearest_others(count, f, seed):
    rows = uploads(count, seed=seed, outliers=f)
    scores = krum_scores(rows, f)
    best = np.argsort(scores)
    np.testing.assert_allclose(result_of("krum", rows, tolerated=f), rows[best[0]])
    averaged = rows[best[: count - f]].mean(axis=0)
    np.testing.assert_allclose(result_of("multi_krum", rows, tolerated=f), averaged)


@pytest.mark.parametrize("seed", range(5))
def test_caf_takes_weight_along_the_top_eigenvector(seed):
    rows, f = uploads(9, seed=seed, outliers=3), 3
    weights, found = np.ones(9), []
    while weights.sum() > 9 - 2 * f:
        mean = weights @ rows / weights.sum()
        centered = rows - mean
        covariance = sum(c * np.outer(row, row) for c, row in zip(weights, centered, strict=True))
        values, eigenvectors = np.linalg.eigh(covariance / weights.sum())
        found.append((values[-1], mean))
        parts = (centered @ eigenvectors[:, -1]) ** 2
        weights = weights * np.maximum(0.0, 1.0 - parts / parts[weights > 0].max())
    best = min(found, key=lambda pair: pair[0])[1]
    np.testing.assert_allclose(result_of("caf", rows, tolerated=f), best, rtol=1e-8)


@pytest.mark.parametrize("seed", range(3))
def test_dnc_keeps_what_no_projection_drops(seed):
    rows, f = uploads(9, 20, seed=seed, outliers=2), 2
    kept = set(range(9))
    for iteration in range(5):
        stream = numpy_stream(7, "aggregation_dnc", 0, iteration)
        sample = rows[:, stream.choice(20, 8, replace=False)]
        centered = sample - sample.mean(axis=0)
        top = np.linalg.svd(centered)[2][0]
        kept &= set(np.argsort((centered @ top) ** 2)[: 9 - f].tolist())
    found = result_of("dnc", rows, tolerated=f, seed=7, coordinates=0.4)
    assert kept
    np.testing.assert_allclose(found, rows[sorted(kept)].mean(axis=0))


def test_rlr_turns_coordinates_on_which_too_few_agree():
    rows, weights = uploads(9, 40), np.arange(1, 10) / 45
    for threshold, given in ((5, 5), (3, None)):
        agreed = np.abs(np.sign(rows).sum(axis=0)) >= threshold
        assert 0 < agreed.sum() < 40
        wanted = np.where(agreed, 1.0, -1.0) * (weights @ rows)
        found = result_of("rlr", rows, weights=weights, tolerated=2, threshold=given)
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_fltrust_weighs_uploads_of_the_root_s_length_by_their_cosines():
    rows, root = uploads(9), uploads(1, seed=5)[0]
    total, trust_sum = np.zeros(12), 0.0
    for row in rows:
        trust = max(0.0, row @ root / np.linalg.norm(row) / np.linalg.norm(root))
        total += trust * np.linalg.norm(root) / np.linalg.norm(row) * row
        trust_sum += trust
    np.testing.assert_allclose(result_of("fltrust", rows, root=root), total / trust_sum)


def test_fltrust_moves_nothing_if_no_upload_points_along_the_root():
    root = uploads(1)[0]
    assert not result_of("fltrust", -np.outer([1.0, 2.0], root), root=root).any()
    assert not result_of("fltrust", uploads(4), root=0 * root).any()
    assert not result_of("fltrust", np.zeros((3, 12)), root=root).any()


def foolsgold_weights(histories: np.ndarray) -> np.ndarray:
    count = len(histories)
    lengths = np.linalg.norm(histories, axis=1)
    similar = histories @ histories.T / np.outer(lengths, lengths) - np.eye(count)
    most = similar.max(axis=1)
    for i, j in itertools.permutations(range(count), 2):
        if most[i] < most[j]:
            similar[i, j] *= most[i] / most[j]
    alpha = np.clip(1 - similar.max(axis=1), 0, 1)
    alpha /= alpha.max()
    with np.errstate(divide="ignore"):
        return np.clip(np.log(alpha / (1 - alpha)) + 0.5, 0, 1)


def test_foolsgold_weighs_clients_by_all_that_they_sent():
    rounds = [uploads(7, 30, seed=seed) for seed in range(3)]
    for rows in rounds:
        rows[5:] = rows[5] + 0.05 * rows[6]  # two sybils
        rows[4] = 0.3 * rows[5] + rows[4]  # and one who leans their way
    rule, history = started("foolsgold"), np.zeros((7, 30))
    for t, rows in enumerate(rounds):
        present = [0, 1, 3, 4, 5, 6] if t == 1 else list(range(7))
        history[present] += rows[present]
        weights = foolsgold_weights(history[present])
        wanted = weights @ rows[present] / len(present)
        found = combine(rule, rows[present], t, clients=present)
        np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=1e-9)
    assert weights[-2:].max() < 0.1 < weights[:4].min()


def test_flame_averages_the_cluster_of_the_majority_clipped_to_the_median_norm():
    generator = np.random.default_rng(0)
    direction = generator.normal(size=60)
    rows = direction + 0.2 * generator.normal(size=(9, 60))
    rows *= generator.uniform(0.5, 2.0, (9, 1))
    rows[6:] = -rows[6:]
    norms = np.linalg.norm(rows, axis=1)
    clipped = rows[:6] * np.minimum(1, np.median(norms) / norms[:6])[:, None]
    found = result_of("flame", rows, noise=0)
    np.testing.assert_allclose(found, clipped.mean(axis=0))
    noised = np.stack([result_of("flame", rows, noise=0.1, seed=seed) for seed in range(50)])
    std = (noised - found).std()
    assert std == pytest.approx(0.1 * np.median(norms), rel=0.1)


def test_buckets_are_means_of_a_permutation_that_changes_with_the_round():
    rows = uploads(7, 3)
    rule = started("trimmed_mean", tolerated=0, before=["bucketing"], bucket_size=3, seed=4)
    results = []
    for t in range(3):
        order = numpy_stream(4, "aggregation_buckets", t).permutation(7)
        buckets = [rows[order[first : first + 3]].mean(axis=0) for first in (0, 3, 6)]
        results.append(combine(rule, rows, t))
        np.testing.assert_allclose(results[-1], np.mean(buckets, axis=0))
    assert not np.allclose(results[0], results[1])


@pytest.mark.parametrize("f", range(5))
def test_arc_clips_the_longest_to_the_next_norm(f):
    rows = uploads(10) * np.arange(1, 11)[:, None]
    norms = np.linalg.norm(rows, axis=1)
    clipped = 2 * f * (10 - f) // 10
    threshold = np.sort(norms)[10 - clipped - 1]
    wanted = rows * np.minimum(1, threshold / norms)[:, None]
    found = result_of("trimmed_mean", rows, tolerated=f, before=["arc"])
    trimmed = np.sort(wanted, axis=0)[f : 10 - f].mean(axis=0)
    np.testing.assert_allclose(found, trimmed)
