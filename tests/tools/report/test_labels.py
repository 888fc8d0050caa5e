"""What sets runs apart, in words."""

from __future__ import annotations

from fedpriv.tools.report.gather import ReportedRun
from fedpriv.tools.report.labels import common, differences, labels


def run(*overrides: str, **settings: object) -> ReportedRun:
    run = ReportedRun("x")
    run.identity, run.overrides = settings, list(overrides) or None
    return run


def test_a_label_is_what_differs_without_seeds():
    runs = [
        run("rounds=2", "clipper.alpha=1", "seed=0"),
        run("rounds=2", "clipper.alpha=2", "seed=1"),
    ]
    assert labels(runs) == ["alpha=1", "alpha=2"]


def test_runs_that_differ_only_in_their_seeds_have_one_label():
    assert labels([run("rounds=2", "seed=0"), run("rounds=2", "seed=1")]) == [
        "all runs",
        "all runs",
    ]


def test_where_overrides_are_unknown_the_settings_tell():
    assert labels([run(a=1, b=2), run(a=1, b=3)]) == ["b=2", "b=3"]


def test_long_labels_are_cut_and_stay_apart():
    long = "x" * 100
    found = labels([run(f"a={long}{end}") for end in "1231"])
    assert all(len(label) < 80 for label in found)
    assert len(set(found)) == 3
    assert found[0] == found[3]


def test_keys_that_two_groups_share_are_written_out():
    runs = [run("clipper.alpha=1", "model.alpha=1"), run("clipper.alpha=2", "model.alpha=2")]
    assert labels(runs)[0] == "clipper.alpha=1, model.alpha=1"


def test_null_is_the_same_as_absent():
    runs = [run(audit=None, rounds=3, old=[1]), run(rounds=4, old=[1])]
    assert differences(runs) == {"rounds": ["3", "4"]}
    assert common(runs) == {"old": "[1]"}
