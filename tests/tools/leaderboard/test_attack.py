"""``fedpriv leaderboard attack``, and ``check`` of an entry with a worst case."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fedpriv.tools.leaderboard import trial, under_attack
from fedpriv.tools.leaderboard.attack_sets import ATTACK_SETS
from fedpriv.tools.leaderboard.entry import (
    AttackedRun,
    SeededRun,
    WorstCase,
    read_entry,
    write_entry,
)
from fedpriv.tools.leaderboard.measured import measure

ATTACK, CHECK = ("leaderboard", "attack", "x.json"), ("leaderboard", "check", "x.json")


@pytest.fixture
def in_process(monkeypatch, command):
    """Runs start in this process, which is quicker. The code is that of the checkout."""

    def run(arguments, code, where, quiet=False):
        said = command("train", *arguments)
        return said.status, said.err.strip().removeprefix("fedpriv: ")

    monkeypatch.setattr(trial, "run_code", run)
    monkeypatch.setattr(under_attack, "run_code", run)


@pytest.fixture
def small_set(monkeypatch):
    """(attacks) makes set 1 one of these attacks only."""

    def choose(*attacks: str) -> None:
        chosen = {attack: ATTACK_SETS[1][attack] for attack in attacks}
        monkeypatch.setitem(ATTACK_SETS, 1, chosen)

    return choose


@pytest.fixture
def stored(reaching, finished, tmp_path):
    """(values) → the path of the entry of a small configuration with three seeds."""
    summary = measure(finished("algorithm=dp_fl", "rounds=4", "seed=0"))
    runs = tuple(
        SeededRun(seed, seed, summary.test_accuracy + off, summary.epsilon, 4, 1.0)
        for seed, off in enumerate((-0.1, 0.0, 0.1))
    )

    def write(**values: object) -> Path:
        stated = {"overrides": ("algorithm=dp_fl", "rounds=4"), "runs": runs, "test_records": 360}
        write_entry(tmp_path / "x.json", reaching(**{**stated, "checks": (), **values}))
        return tmp_path / "x.json"

    return write


def attacked(worst: float, **others: float) -> WorstCase:
    """A worst case of three seeds 0.02 apart, with this mean under ipm and those under the others."""
    return WorstCase(
        1,
        tuple(
            AttackedRun(attack, seed, seed, mean + off)
            for attack, mean in {"ipm": worst, **others}.items()
            for seed, off in enumerate((-0.02, 0.0, 0.02))
        ),
        (),
    )


@pytest.mark.thorough
def test_an_entry_gets_the_accuracy_of_every_attack_and_seed(
    stored, command, small_set, in_process, tmp_path
):
    small_set("sign_flip", "ipm_optimal")
    path = stored()
    before = read_entry(path)
    said = command(*ATTACK, "--out", "runs")
    assert said.status == 0
    after = read_entry(path)
    assert replace(after, worst_case=None) == before
    found = after.worst_case
    pairs = [(a, seed, seed) for a in ("sign_flip", "ipm_optimal") for seed in range(3)]
    assert [(run.attack, run.seed, run.noise_seed) for run in found.runs] == pairs
    assert (found.attack_set, found.left_out, found.checks) == (1, (), ())
    folder = f"x-{before.commit[:12]}-ipm_optimal-noise2"
    run = measure(tmp_path / "runs" / folder, attacked=True)
    assert found.accuracies("ipm_optimal")[2] == run.test_accuracy
    assert run.config.attack.attacker_fraction == 0.2
    assert found.attack == "ipm_optimal"  # the mean withstands no attacker
    assert "fewer than 5 seeds do not order the attacks" in said.out
    assert "--replace puts the new one in its place" in command(*ATTACK).sentence


def test_attacks_that_do_not_go_with_the_configuration_are_left_out(
    stored, command, small_set, in_process
):
    small_set("ipm")
    path = stored(
        overrides=("algorithm=dp_fl_server", "algorithm.trust=distributed", "rounds=4"),
        trust="distributed",
    )
    said = command(*ATTACK)
    assert said.status == 0
    assert "left out: ipm: attack must be none" in said.out
    assert "no attack of set 1 goes with the configuration" in said.out
    assert read_entry(path).worst_case == WorstCase(1, (), ("ipm",))


@pytest.mark.thorough
def test_a_run_that_diverges_under_an_attack_has_accuracy_0(
    stored, command, small_set, in_process, monkeypatch
):
    small_set("sign_flip")
    path = stored()
    monkeypatch.setitem(
        ATTACK_SETS[1], "sign_flip", (*ATTACK_SETS[1]["sign_flip"], "attack.scale=1e38")
    )
    assert command(*ATTACK).status == 0
    assert read_entry(path).worst_case.accuracies("sign_flip") == [0.0, 0.0, 0.0]


def test_a_worst_case_that_was_edited_is_found_and_nothing_is_written(
    stored, command, small_set, in_process
):
    small_set("ipm", "ipm_optimal")
    path = stored(worst_case=attacked(0.85, ipm_optimal=0.9))
    planted = path.read_bytes()
    said = command(*CHECK)
    assert said.status == 1
    assert "x.json is not accepted: under ipm" in said.sentence
    assert "below the entry's worst case 85.00 % (ipm)" in said.sentence
    assert path.read_bytes() == planted


@pytest.mark.thorough
def test_an_attack_that_was_left_out_without_reason_is_found(
    stored, command, small_set, in_process
):
    small_set("ipm_optimal", "ipm")
    stored(worst_case=replace(attacked(0.3), left_out=("ipm_optimal",)))
    said = command(*CHECK)
    assert said.status == 1
    assert "it is run under ipm_optimal, which the entry leaves out" in said.sentence


@pytest.mark.thorough
def test_a_measured_worst_case_is_accepted(stored, command, small_set):
    """The runs are those of the exported code, in processes of their own."""
    small_set("label_reversal", "ipm_optimal")
    path = stored()
    assert command(*ATTACK).status == 0
    before = read_entry(path)
    said = command(*CHECK)
    assert (said.status, said.err) == (0, "")
    after = read_entry(path)
    assert [check.attack for check in after.worst_case.checks] == ["label_reversal", "ipm_optimal"]
    noise_seeds = {check.noise_seed for check in (*after.checks, *after.worst_case.checks)}
    assert len(noise_seeds - {0, 1, 2}) == 3
    assert replace(after, checks=(), worst_case=replace(after.worst_case, checks=())) == before


@pytest.mark.parametrize(
    ("attack", "accuracy", "accepted"),
    [
        ("ipm", 0.4, True), ("ipm", 0.69, True), ("ipm", 0.71, False), ("ipm", 0.11, True),
        ("ipm", 0.09, False), ("alie", 1.0, True), ("alie", 0.11, True), ("alie", 0.09, False),
    ],
)  # fmt: skip
def test_no_attack_may_be_worse_and_the_worst_not_better(
    attack, accuracy, accepted, reaching, worst_case
):
    problems = under_attack.judge_attack(reaching(worst_case=worst_case), attack, accuracy)
    assert (problems == []) == accepted
    if not accepted:
        side = "above" if accuracy > 0.4 else "below"
        assert f"{side} the entry's worst case 40.00 % (ipm), more than 30.00" in problems[0]


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        (("--set", "2"), "--set must be a version of the attack set: 1, got 2"),
        (("--seeds", "2"), "--seeds must be 3 to 3, the seeds of x.json, got 2"),
        (("--seeds", "4"), "--seeds must be 3 to 3, the seeds of x.json, got 4"),
        (("--seeds", "none"), "--seeds must be a whole number >= 1"),
    ],
)
def test_flags_that_are_not_allowed_are_refused_before_a_run(
    flags, sentence, stored, command, monkeypatch
):
    stored()
    monkeypatch.setattr(under_attack, "run_code", lambda *_, **__: pytest.fail("it was run"))
    said = command(*ATTACK, *flags)
    assert said.status == 2
    assert sentence in said.sentence


def test_an_entry_of_too_few_seeds_has_no_worst_case(stored, entry, command):
    stored(runs=entry.runs[:2])
    assert "has only 2 seeds: add runs of further seeds" in command(*ATTACK).sentence


def test_a_commit_without_the_attacks_is_refused(stored, command, monkeypatch):
    stored()
    monkeypatch.setitem(ATTACK_SETS, 1, {"no_such": ("attack=no_such",)})
    assert "has no attack=no_such; train the configuration again" in command(*ATTACK).sentence


def test_every_attack_of_a_set_is_an_option_with_its_settings_written_out():
    from fedpriv.common.config import compose

    for attacks in ATTACK_SETS.values():
        for name, overrides in attacks.items():
            config = compose(["algorithm=dp_fl", *overrides]).attack
            assert overrides[0] == f"attack={name}"
            written = {o.partition("=")[0].removeprefix("attack.") for o in overrides[1:]}
            assert set(config) - written == {"_target_", "omniscient", "seed"}
