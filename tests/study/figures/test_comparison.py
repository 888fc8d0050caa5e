"""comparison.md: what the paper states beside what the runs ended with."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.store.folder import commit_words
from fedpriv.study.figures.comparison import compare, ends_table, mean_words
from fedpriv.study.figures.series import FigureRun, frame_of
from fedpriv.study.figures.write import caption_of


@pytest.fixture
def compared(read, tiny, jobs_of):
    """({(curve, seed): summary}) → comparison.md of ``tiny`` as it is now, on one line each."""

    def run(ends: dict[tuple[str, int], dict], command: str = "fedpriv figure own/tiny") -> str:
        figure = read(tiny)
        runs, missing = [], {}
        for job in jobs_of(figure):
            summary = ends.get((job.curve.name, job.seed))
            if summary is None:
                missing[job.label] = ""
                continue
            job.folder.path.mkdir(parents=True, exist_ok=True)
            facts = {"commit": "abc", "device": "cpu", "threads": 1, "python": "3", "versions": {}}
            facts |= {"stream_version": summary.pop("stream_version", 2)}
            job.folder.environment.write_text(json.dumps(facts))
            reasons = {"reasons": {"epsilon_sound": "nothing guards it"}}
            job.folder.privacy_json.write_text(json.dumps(reasons))
            summary = {"stop_reason": "rounds", "seconds": 1.0, **summary}
            runs.append(FigureRun(job, summary, pd.DataFrame()))
        frame = frame_of(runs)
        return compare(figure, frame, missing, caption_of(figure, frame, missing), command)

    return run


def test_the_ends_come_as_a_table_in_the_units_shown(read, tiny, jobs_of):
    figure = read(tiny)
    found = {("loud", 0): 0.78, ("loud", 1): 0.80, ("quiet", 0): 0.5}
    runs = [
        FigureRun(job, {"test_accuracy": found[job.curve.name, job.seed]}, pd.DataFrame())
        for job in jobs_of(figure)
        if (job.curve.name, job.seed) in found
    ]
    table = ends_table(figure, frame_of(runs)).set_index("curve")
    assert set(table["quantity"]) == {"test_accuracy"}
    assert table.loc["loud", ["mean", "n"]].tolist() == [79.0, 2]
    assert table.loc["loud", "sd"] == pytest.approx(2**0.5)
    assert math.isnan(table.loc["quiet", "sd"])


def accuracies(**curves: list[float]) -> dict:
    """Accuracy of each curve by seed."""
    return {
        (curve, seed): {"test_accuracy": value}
        for curve, ends in curves.items()
        for seed, value in enumerate(ends)
    }


def row(text: str, *words: str) -> str:
    (found,) = [ln for ln in text.splitlines() if all(w in ln for w in words) and ln[:1] == "|"]
    return found


def test_the_stated_number_stands_beside_mean_and_difference(compared):
    text = compared(accuracies(loud=[0.78, 0.80], quiet=[0.5, 0.5]))
    said = row(text, "loud noise", "| 80.00 |")
    assert said.endswith("| 80.00 | 79.00 (78.00 to 80.00) (n = 2) | -1.00 |")


def test_one_seed_has_no_spread(compared):
    text = compared(accuracies(loud=[0.9]))
    assert row(text, "loud noise", "80.00").endswith("| 80.00 | 90.00 (n = 1) | +10.00 |")


def test_a_loss_that_ran_away_is_written_in_powers_of_ten():
    assert mean_words(np.array([1.2e26, 1.4e26]), 3) == "1.3e+26 (1.2e+26 to 1.4e+26) (n = 2)"


@given(st.lists(st.floats(-1e3, 1e3), min_size=3, max_size=6))
def test_mean_and_spread_are_those_of_the_values(values):
    said = mean_words(np.array(values), 6)
    mean, _, spread, *_ = said.split()
    assert float(mean) == pytest.approx(np.mean(values), abs=1e-5)
    half = scipy.stats.sem(values) * scipy.stats.t.ppf(0.975, len(values) - 1)
    assert float(spread) == pytest.approx(half, abs=1e-5)


def test_paired_runs_are_compared_by_their_differences(compared):
    """Chance of ± 10 points is common to both curves: their difference is one point in every seed."""
    ends = {
        (curve, seed): {"test_accuracy": accuracy + shift, "paired": "one", "epsilon_sound": 1.0}
        for curve, shift in (("loud", 0.0), ("quiet", 0.01))
        for seed, accuracy in enumerate((0.7, 0.8))
    }
    text = compared(ends)
    assert "| 2 | +1 | too few pairs for an interval (+1, +1) |" in text
    assert "Together their ε is infinite" in text
    for end in ends.values():
        del end["paired"]
    assert "Paired differences" not in compared(ends)


def test_an_infinite_epsilon_is_said(compared):
    text = compared({("loud", 0): {"test_accuracy": 0.5, "epsilon_sound": math.inf}})
    assert "infinite" in text
    assert "- loud noise: nothing guards it" in text


@pytest.mark.parametrize("value", [[math.inf], [math.inf, 1.0], [1.0, math.nan]])
def test_values_that_are_not_finite_have_no_mean(value):
    assert mean_words(np.array(value), 2) == f"infinite (n = {len(value)})"


def stated(curve: str, value: float) -> dict:
    return {"panel": "digits", "curve": curve, "metric": "accuracy", "value": value}


def test_an_ordering_of_stated_accuracies_that_holds(compared, tiny):
    tiny["stated"] = [stated("quiet", 90), stated("loud", 95)]
    text = compared(accuracies(loud=[0.9], quiet=[0.8]))
    assert "stated from best to worst: loud noise > quiet noise. **Holds.**" in text


def test_an_ordering_of_stated_accuracies_that_does_not_hold(compared, tiny):
    tiny["stated"] = [stated("quiet", 90), stated("loud", 95)]
    text = compared(accuracies(loud=[0.7], quiet=[0.8]))
    assert "**Does not hold**; ours: quiet noise > loud noise." in text


def test_equal_means_are_no_ordering(compared, tiny):
    tiny["stated"] = [stated("quiet", 90), stated("loud", 95)]
    text = compared(accuracies(loud=[1.0], quiet=[1.0]))
    assert "**Does not hold**; ours: loud noise = quiet noise." in text


@pytest.mark.parametrize(("quiet", "verdict"), [(0.5, "**Holds.**"), (2.0, "**Does not hold**")])
def test_a_smaller_loss_is_better(quiet, verdict, compared, tiny):
    tiny["orderings"] = [{"panel": "digits", "metric": "loss", "curves": ["quiet", "loud"]}]
    ends = {("loud", 0): {"test_loss": 1.0}, ("quiet", 0): {"test_loss": quiet}}
    assert verdict in compared(ends)


def test_a_gap_within_the_spread_of_the_seeds_is_said(compared, tiny):
    tiny["stated"] = [stated("quiet", 90), stated("loud", 95)]
    text = compared(accuracies(loud=[0.90, 0.80], quiet=[0.84, 0.84]))
    assert "Closer than the seeds of one of them lie apart: loud noise and quiet noise." in text


def test_an_ordering_without_all_its_runs_is_open(compared, tiny):
    tiny["stated"] = [stated("quiet", 90), stated("loud", 95)]
    text = compared(accuracies(loud=[0.9]))
    assert "Not all of them have a finished run." in text
    assert "Holds" not in text


def test_quick_runs_are_not_compared_with_what_is_stated(compared, tiny):
    tiny |= {"scale": "quick", "stated": [stated("quiet", 90), stated("loud", 95)]}
    text = compared(accuracies(loud=[0.9], quiet=[0.8]))
    assert row(text, "loud noise", "95.00").endswith("| 95.00 | 90.00 (n = 1) |")
    assert "stated from best to worst: loud noise > quiet noise." in text
    assert not any(word in text for word in ("Holds", "hold", "| difference |"))
    assert "quick runs (rounds=2) are another experiment than the one that is stated." in text


def test_missing_runs_are_named(compared):
    text = compared(accuracies(loud=[0.9, 0.9], quiet=[0.8]))
    assert "Not finished: digits/quiet/seed 1." in text
    assert "Missing runs: 1." in text


def test_a_figure_that_mixes_versions_of_the_random_streams_says_so(compared):
    ends = {("loud", s): {"test_accuracy": 0.9, "stream_version": s + 1} for s in (0, 1)}
    text = compared(ends)
    assert "**random streams of several versions**: 1 run of version 1, 1 run of version 2" in text
    assert "Random streams of versions 1 and 2." in text  # under the picture


def test_a_diverged_run_is_named(compared):
    text = compared({("loud", 0): {"test_accuracy": 0.1, "rounds": 3, "stop_reason": "diverged"}})
    assert "Diverged (a loss was no longer finite): digits/loud/seed 0." in text


def test_a_quick_figure_lists_how_its_runs_depart_from_the_figure(compared, tiny):
    tiny |= {"scale": "quick", "deviations": {"lots": "lots are Poisson"}}
    tiny["curves"]["loud"]["quick"] = ["noise_schedule.noise_multiplier=9"]
    text = compared(accuracies(loud=[0.9])).partition("## Deviations in force\n\n")[2]
    assert text.partition("\n\n")[0].splitlines() == [
        "- other runs than the figure defines: rounds=2",
        "- loud noise: noise_schedule.noise_multiplier=9",
        "- seed 0",
        "- of the figure as defined, as far as the overrides above leave them in force:",
        "  - lots are Poisson",
    ]


def test_the_command_and_every_run_are_named(compared):
    text = compared(accuracies(loud=[0.9]), "fedpriv figure own/tiny rounds=3")
    assert "- command: `fedpriv figure own/tiny rounds=3`" in text
    assert "  - digits/loud/seed 0: `dp_fl-digits-seed0-" in text


def test_runs_of_the_code_that_draws_are_not_named_twice(compared, monkeypatch):
    monkeypatch.setattr("fedpriv.store.folder.commit", lambda: "abc")
    text = compared(accuracies(loud=[0.9]))
    assert "by commit abc, which made the runs too" in text
    assert text.count("abc") == 1


def test_an_installed_package_is_named_by_its_version():
    words = commit_words(None, "1.2")
    assert words == "installed package, fedpriv 1.2, commit unknown"


def test_a_quantity_that_applies_to_no_curve_has_no_column(compared):
    text = compared({("loud", 0): {"test_accuracy": 0.5, "noise_multiplier": None}})
    assert "σ (noise multiplier)" not in text.partition("## Ends")[2]


def test_small_means_keep_three_digits_and_rounding_is_no_spread():
    assert mean_words(np.array([0.0067061, 0.0067061]), 2) == "0.00671 (n = 2)"
    assert mean_words(np.array([0.02, 0.04]), 2) == "0.0300 (0.0200 to 0.0400) (n = 2)"
    assert mean_words(np.array([92.1, 92.1 + 1e-13]), 2) == "92.10 (n = 2)"


def test_an_epsilon_is_rounded_up():
    assert mean_words(np.array([0.452119]), 3, upwards=True) == "0.453 (n = 1)"
    assert (
        mean_words(np.array([0.4521, 0.4538]), 3, upwards=True) == "0.453 (0.453 to 0.454) (n = 2)"
    )
    assert mean_words(np.array([0.5] * 3), 3, upwards=True) == "0.500 ± 0.000 (n = 3)"
    assert mean_words(np.array([1.21e9]), 3, upwards=True) == "1.3e+09 (n = 1)"
