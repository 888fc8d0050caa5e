"""Robust rules in awkward rounds: few uploads, bad numbers, ties, threads, memory."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rule_runs import RULES, combine, result_of, started, uploads

import fedpriv.aggregation as aggregation
from fedpriv.aggregation.vectors import Vectors, ascending
from fedpriv.common.errors import ArgumentError

ROOT = uploads(1, seed=9)[0]
BEFORE = ([], ["nnm"], ["bucketing"], ["arc"])
SELECTING = (
    "median",
    "trimmed_mean",
    "krum",
    "multi_krum",
    "geometric_median",
    "caf",
    "dnc",
    "flame",
)


def settings_of(option: str, **settings: object) -> object:
    return getattr(aggregation, RULES[option])(**settings)


def allowed_before(option: str, before: list[str]) -> bool:
    return not (option == "foolsgold" and "bucketing" in before)


# ---- f


@pytest.mark.parametrize(
    ("tolerated", "clients", "f"),
    [(0, 9, 0), (2, 9, 2), (0.2, 8, 2), (0.2, 10, 2), (0.1, 30, 3), (0.1, 31, 4), (0.2, 1, 1)],
)
def test_f_is_a_number_or_a_share_rounded_up(tolerated, clients, f):
    assert settings_of("median", tolerated=tolerated).tolerated_of(clients) == f


@pytest.mark.parametrize("value", [-1, 1.5, float("nan"), "many", True, None])
def test_an_f_that_is_neither_is_refused(value):
    with pytest.raises(ArgumentError, match="tolerated must be"):
        settings_of("krum", tolerated=value)


@pytest.mark.parametrize("value", [["nmm"], "mean", ["nnm", "nnm"], 3, [["nnm"]]])
def test_an_unknown_step_is_refused(value):
    with pytest.raises(ArgumentError, match="before must be a list of nnm, bucketing, arc"):
        settings_of("krum", before=value)


@pytest.mark.parametrize(
    ("option", "settings", "clients", "most", "condition"),
    [
        ("median", {"tolerated": 5}, 10, 4, "n > 2f,"),
        ("krum", {"tolerated": 4}, 10, 3, "n > 2f + 2,"),
        ("trimmed_mean", {"tolerated": 0.5}, 10, 4, "n > 2f,"),
        ("krum", {"before": ["bucketing"]}, 10, 1, "n = 5 buckets"),
        ("krum", {"tolerated": 1}, 1, 0, "n = 1 uploads"),
    ],
)
def test_too_large_an_f_is_refused_with_the_condition(option, settings, clients, most, condition):
    with pytest.raises(ArgumentError, match=f"tolerated must be at most {most}:") as caught:
        settings_of(option, **settings).check_cohort(clients)
    assert condition in str(caught.value)
    settings_of(option, **{**settings, "tolerated": most}).check_cohort(clients)


@pytest.mark.parametrize("option", RULES)
def test_rules_without_a_condition_take_any_f_and_the_others_half(option):
    check = settings_of(option, tolerated=7).check_cohort
    if option in ("fltrust", "foolsgold"):
        check(12)
    else:
        with pytest.raises(ArgumentError):
            check(12)


@pytest.mark.parametrize("option", RULES)
def test_f_is_lowered_where_a_round_has_too_few(option):
    """A round is never given up: what was sent is charged."""
    for count in range(1, 6):
        rows = uploads(count, seed=count)
        for before in BEFORE:
            if not allowed_before(option, before):
                continue
            found = result_of(option, rows, root=ROOT, tolerated=9, before=before)
            most = settings_of(option).most_tolerated(
                -(-count // 2) if "bucketing" in before else count
            )
            lowered = result_of(option, rows, root=ROOT, tolerated=most, before=before)
            assert np.isfinite(found).all()
            if not before:
                np.testing.assert_array_equal(found, lowered)


@pytest.mark.parametrize(
    "option", [o for o in RULES if o not in ("fltrust", "rlr", "centered_clipping")]
)
def test_one_upload_is_returned(option):
    settings = {"noise": 0} if option == "flame" else {}
    rows = uploads(1)
    np.testing.assert_allclose(result_of(option, rows, **settings), rows[0], rtol=1e-12)


@pytest.mark.parametrize("option", ["trimmed_mean", "multi_krum", "caf", "dnc"])
def test_with_f_0_nothing_is_left_out(option):
    rows = uploads(7)
    np.testing.assert_allclose(result_of(option, rows, tolerated=0), rows.mean(axis=0), rtol=1e-12)


# ---- bad uploads


@pytest.mark.parametrize("before", BEFORE, ids=str)
@pytest.mark.parametrize("option", RULES)
def test_uploads_that_are_not_finite_are_left_out(option, before):
    if not allowed_before(option, before):
        pytest.skip("refused")
    rows = uploads(11).astype(np.float32)
    bad = np.concatenate([rows[:4], np.full((1, 12), np.nan), rows[4:], np.full((1, 12), np.inf)])
    bad = bad.astype(np.float32)
    clients = [*range(4), 20, *range(4, 11), 21]
    found = combine(
        started(option, torch.from_numpy(ROOT), tolerated=2, before=before), bad, clients=clients
    )
    wanted = result_of(option, rows, root=ROOT, tolerated=2, before=before)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("option", RULES)
def test_a_round_of_nothing_but_nan_gives_zero(option):
    assert not result_of(option, np.full((3, 12), np.nan), root=ROOT).any()


@pytest.mark.parametrize("before", BEFORE, ids=str)
@pytest.mark.parametrize("option", RULES)
def test_huge_uploads_leave_the_result_finite_and_the_robust_rules_where_they_were(option, before):
    if not allowed_before(option, before):
        pytest.skip("refused")
    rows = uploads(13, size=50).astype(np.float32)
    rows[3], rows[8] = 3e38, -3e38
    root = uploads(1, 50, seed=9)[0]
    found = result_of(option, rows, root=root, tolerated=2, before=before)
    assert np.isfinite(found).all()
    if option in SELECTING:
        assert np.abs(found).max() < 5


def test_a_huge_upload_takes_no_digits_from_the_others():
    rows = uploads(7, size=300).astype(np.float32)
    huge = np.concatenate([rows, np.full((1, 300), 1e38, np.float32)])
    alone, beside = (Vectors(torch.from_numpy(x)).squared_distances for x in (rows, huge))
    np.testing.assert_allclose(beside[:7, :7], alone, rtol=1e-12)


def test_a_large_common_part_takes_few_digits_from_distances():
    rows = uploads(7, size=300)
    moved = Vectors(torch.from_numpy(rows + 1e6)).squared_distances
    np.testing.assert_allclose(moved, Vectors(torch.from_numpy(rows)).squared_distances, rtol=1e-8)


# ---- ties and threads


def test_equal_scores_go_to_the_lowest_client():
    rows = np.repeat(uploads(4, size=301), 3, axis=0)
    vectors = Vectors(torch.from_numpy(rows))
    for first in range(0, 12, 3):
        group = vectors.squared_distances[first : first + 3]
        assert (group == group[0]).all()
    assert not vectors.squared_distances[:3, :3].any()
    # Two groups of six: each upload has five neighbours at 0 and one at the distance of the groups.
    two = np.repeat(uploads(2, size=301), 6, axis=0)
    generator = np.random.default_rng(0)
    for _ in range(5):
        mixed = two[generator.permutation(12)]
        np.testing.assert_array_equal(result_of("krum", mixed, tolerated=4), mixed[0])


def test_scores_that_differ_in_the_last_bits_alone_are_equal():
    scores = np.array([2.0, 1.0 + 1e-15, 1.0, 0.0, np.inf])
    assert ascending(scores).tolist() == [3, 1, 2, 0, 4]


@pytest.mark.parametrize(
    "before",
    [pytest.param(steps, marks=[pytest.mark.thorough] * bool(steps)) for steps in BEFORE],
    ids=str,
)
@pytest.mark.parametrize("option", RULES)
def test_the_result_is_that_of_one_thread(option, before):
    if not allowed_before(option, before):
        pytest.skip("refused")
    rows = uploads(12, size=30_001, outliers=3).astype(np.float32)
    rows[7] = rows[2]
    root, threads = uploads(1, 30_001, seed=9)[0], torch.get_num_threads()
    results = []
    try:
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            results.append(result_of(option, rows, root=root, tolerated=3, before=before))
    finally:
        torch.set_num_threads(threads)
    for found in results[1:]:
        np.testing.assert_allclose(found, results[0], rtol=1e-6, atol=1e-9)
    if option in ("krum", "multi_krum", "median", "trimmed_mean", "dnc"):
        np.testing.assert_array_equal(results[1], results[0])


# ---- memory and state


@pytest.mark.parametrize("option", RULES)
def test_a_rule_goes_on_from_its_saved_state(option):
    root = torch.from_numpy(ROOT)
    rounds = [uploads(7, seed=seed) for seed in range(4)]
    whole, first, second = (started(option, root) for _ in range(3))
    results = [combine(whole, rows, t) for t, rows in enumerate(rounds)]
    for t in (0, 1):
        combine(first, rounds[t], t)
    saved = first.state_dict()
    combine(first, rounds[3], 2)  # a trial round changes nothing that was saved
    second.load_state_dict(saved)
    for t in (2, 3):
        np.testing.assert_array_equal(combine(second, rounds[t], t), results[t])


@pytest.mark.parametrize("option", RULES)
def test_a_rule_keeps_no_upload_alive(option):
    import gc
    import weakref

    gc.disable()
    try:
        rows = torch.from_numpy(uploads(7))
        alive = weakref.ref(rows)
        rule = started(option, torch.from_numpy(ROOT), before=["nnm"])
        rule.combine(0, np.arange(7), rows, torch.full((7,), 1 / 7))
        del rows
        assert alive() is None
    finally:
        gc.enable()
