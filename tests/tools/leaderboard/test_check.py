"""``fedpriv leaderboard check``: what is accepted, and by which code it is run."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.tools.leaderboard import code, trial
from fedpriv.tools.leaderboard.entry import Reproduction, SeededRun, read_entry, write_entry
from fedpriv.tools.leaderboard.measured import measure

CHECK = ("leaderboard", "check")


def verdict(entry, run, accuracy=None, epsilon=None, **summary):
    """The verdict on a run with these results, otherwise as the entry says."""
    found = Reproduction(
        "2026-11-23", 0, 77,
        entry.mean if accuracy is None else accuracy,
        entry.epsilon if epsilon is None else epsilon,
    )  # fmt: skip
    measured = measure(run().path)
    summary = {**measured.summary, "test_records": 10_000, "rounds": 122, **summary}
    return trial.judge(entry, replace(measured, summary=summary), found)


@pytest.mark.parametrize(
    ("off", "accepted"),
    [(0.0, True), (0.029, True), (-0.029, True), (0.031, False), (-0.031, False)],
)
def test_an_accuracy_within_three_sd_of_the_mean_is_accepted(off, accepted, entry, run):
    problems = verdict(entry, run, accuracy=0.87 + off).problems
    assert (problems == ()) == accepted
    if not accepted:
        assert "points above" in problems[0] if off > 0 else "points below" in problems[0]


def test_a_small_sd_is_replaced_by_the_binomial_error_and_that_is_said(entry, reaching, run):
    few = reaching(test_records=100)
    room, words = trial.margin(few)
    assert room == pytest.approx(3 * (0.87 * 0.13 / 100) ** 0.5)
    assert words == "3 x the binomial error of 100 test records; sd of its seeds 1.00 %"
    assert trial.margin(entry) == (pytest.approx(0.03), "3 sd of its 3 seeds")
    assert "one seed has no sd" in trial.margin(reaching(runs=entry.runs[:1]))[1]
    assert verdict(few, run, accuracy=0.95, test_records=100).problems == ()


@pytest.mark.parametrize(
    ("ratio", "accepted"), [(0.5, True), (1.0, True), (1.009, True), (1.011, False), (2.0, False)]
)
def test_an_epsilon_above_the_stated_one_is_not_accepted(ratio, accepted, entry, run):
    problems = verdict(entry, run, epsilon=ratio * entry.epsilon).problems
    assert (problems == ()) == accepted
    if not accepted:
        assert "is above the entry's 1.800" in problems[0]


@pytest.mark.parametrize(
    "stated",
    [{"trust": "central"}, {"unit": "client"}, {"neighbours": "replace_one"}, {"delta": 1e-6},
     {"dataset": "mnist"}, {"test_records": 100}],
    ids=str,
)  # fmt: skip
def test_whatever_else_an_entry_states_must_be_what_the_run_says(stated, reaching, run):
    problems = verdict(reaching(**stated), run).problems
    ((name, value),) = stated.items()
    assert problems[0].startswith(f"{name} is ")
    assert problems[0].endswith(f"not {value}")


def test_rounds_that_the_configuration_fixes_must_be_those_of_the_run(entry, run):
    assert verdict(entry, run, rounds=121).problems == ("rounds is 121, not 122",)
    ended_by_budget = {"rounds": 121, "stop_reason": "budget"}
    assert verdict(entry, lambda: run("other"), **ended_by_budget).problems == ()


def test_each_seed_is_held_against_its_own_epsilon(entry, run):
    """The largest epsilon of the entry does not excuse a smaller one that another of its runs states."""
    low = replace(entry, runs=(replace(entry.runs[0], epsilon=0.9), *entry.runs[1:]))
    assert "is above the entry's 0.900" in verdict(low, run, epsilon=1.8).problems[0]


@pytest.fixture
def stored(entry, reaching, finished, tmp_path):
    """(values) → the path of the entry of a recipe that only the code of its commit has."""
    summary = measure(finished("algorithm=dp_fl", "rounds=4", "seed=0"))
    runs = tuple(
        SeededRun(seed, seed, summary.test_accuracy, summary.epsilon, 4, 1.0) for seed in (0, 1)
    )

    def write(**values: object) -> Path:
        stated = {
            "overrides": ("+recipe=a_few_rounds",),
            "runs": runs,
            "test_records": 360,
            "checks": (),
        }
        write_entry(tmp_path / "x.json", reaching(**{**stated, **values}))
        return tmp_path / "x.json"

    return write


@pytest.mark.thorough
def test_an_entry_is_run_by_the_code_of_its_commit_and_accepted(
    stored, finished, command, tmp_path
):
    accuracy = measure(finished("algorithm=dp_fl", "rounds=4", "seed=0")).test_accuracy
    path = stored()
    honest = read_entry(path)
    apart = tuple(
        replace(one, test_accuracy=accuracy + off)
        for one, off in zip(honest.runs, (-0.1, 0.1), strict=True)
    )
    write_entry(path, replace(honest, runs=apart))
    before = read_entry(path)
    said = command(*CHECK, "x.json", "--out", "it's run, again")
    assert (said.status, said.err) == (0, "")
    after = read_entry(path)
    (check,) = after.checks
    assert replace(after, checks=()) == before
    (folder,) = (tmp_path / "it's run, again").iterdir()
    run = measure(folder)
    assert (check.test_accuracy, check.epsilon) == (run.test_accuracy, run.epsilon)
    assert (check.seed, check.noise_seed) == (run.config.seed, run.config.noise_seed)
    assert check.noise_seed not in (0, 1)
    assert run.summary["rounds"] == 4
    for words in ("accuracy", "3 sd of its 2 seeds", "CPU minutes", "accepted: x.json"):
        assert words in " ".join(said.out.split())


@pytest.mark.thorough
def test_a_planted_accuracy_is_found_and_nothing_is_written(stored, command):
    path = stored()
    honest = read_entry(path)
    write_entry(
        path, replace(honest, runs=tuple(replace(one, test_accuracy=0.97) for one in honest.runs))
    )
    planted = path.read_bytes()
    said = command(*CHECK, "x.json")
    assert said.status == 1
    assert "x.json is not accepted: accuracy" in said.sentence
    assert path.read_bytes() == planted


def test_what_fails_at_its_commit_is_told_in_a_sentence(stored, command):
    stored(overrides=("+recipe=no_such",))
    said = command(*CHECK, "x.json")
    assert said.status == 1
    assert "x.json: its configuration does not run at commit" in said.sentence


@pytest.fixture
def no_run(monkeypatch):
    monkeypatch.setattr(trial, "_train", lambda *_: pytest.fail("it was run"))


def test_an_unsafe_entry_is_not_run(stored, command, no_run):
    path = stored()
    path.write_text(path.read_text().replace("+recipe=a_few_rounds", "runtime.output_dir=/tmp"))
    said = command(*CHECK, "x.json")
    assert said.status == 2
    assert "cannot be in an entry" in said.sentence


def test_code_that_is_not_in_the_history_of_the_checkout_is_not_run(
    stored, command, no_run, checkout, commit
):
    """Such as that of a pull request, which was fetched and not merged."""
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
    line = ["git", "-C", str(checkout), *who, "commit-tree", f"{commit}^{{tree}}", "-m", "foreign"]
    foreign = subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()
    stored(commit=foreign)
    said = command(*CHECK, "x.json")
    assert said.status == 2
    assert f"commit {foreign[:12]} is not in the history of {checkout}" in said.sentence
    stored(commit="0" * 40)
    assert "is not in the history" in command(*CHECK, "x.json").sentence


def test_the_code_is_that_of_the_commit_whatever_is_checked_out(checkout, commit, tmp_path):
    code.export(commit, tmp_path)
    assert (tmp_path / "conf" / "recipe" / "a_few_rounds.yaml").exists()
    assert not (checkout / "conf" / "recipe" / "a_few_rounds.yaml").exists()
    with pytest.raises(ConfigError, match="cannot be read"):
        code.export("0" * 40, tmp_path)


def test_fresh_noise_is_not_noise_that_was_seen(monkeypatch):
    drawn = iter([b"\0\0\0\1", b"\0\0\0\2", b"\0\0\0\3"])
    monkeypatch.setattr("os.urandom", lambda size: next(drawn))
    assert trial.fresh_noise_seed({1, 2}) == 3
