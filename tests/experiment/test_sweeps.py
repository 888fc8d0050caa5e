"""Sweeps: checked before the first job, continued by the same command, each run counted once."""

from __future__ import annotations

import pandas as pd
import pytest
import yaml

import fedpriv
from fedpriv.common.groups import GROUPS
from fedpriv.experiment.interrupts import Interrupts
from fedpriv.experiment.sweep_runs import find_runs
from fedpriv.experiment.sweeps import JobComposer, sweep_jobs
from fedpriv.store.sweep import read_runs

NOTE = (
    "note: epsilon=1,2,4 moves only the end of the runs, as the noise multiplier does not depend on it; "
    "noise_schedule=calibrated rounds=T calibrates it to each epsilon"
)
SWEEP = ("train", "-m", "algorithm=dp_fl", "epsilon=1,2,4", "dry_run=true")


@pytest.mark.thorough
@pytest.mark.parametrize("more", [[], ["rounds=100000"], ["seed=0,1"], ["noise_schedule=step"]])
def test_a_sweep_that_only_moves_the_end_says_so_once(more, command):
    said = command(*SWEEP, *more)
    assert (said.status, said.err) == (0, "")
    assert said.out.count("note:") == 1
    assert NOTE in said.out


QUIET = ("runtime.plots=false", "runtime.progress=none")
TRAIN = ("train", "-m", "algorithm=dp_fl", "rounds=2", "hydra.sweep.dir=swept", *QUIET)


def swept(folder) -> pd.DataFrame:
    return pd.read_csv(folder / "swept" / "sweep.csv")


def folders(tmp_path) -> dict[str, int]:
    """Folder of each run of a sweep → when its metrics were written."""
    paths = sorted((tmp_path / "swept").glob("*/metrics.csv"))
    return {path.parent.name: path.stat().st_mtime_ns for path in paths}


def metrics(path) -> pd.DataFrame:
    return pd.read_csv(path / "metrics.csv").drop(columns="seconds")


@pytest.mark.thorough
def test_a_sweep_states_its_joint_epsilon(command, tmp_path):
    said = command(*TRAIN, "algorithm.local_steps=1,2")
    assert "Joint ε of all 2 private runs together on digits" in said.out
    assert "Warning: a best algorithm.local_steps" in said.out


@pytest.mark.thorough
def test_a_sweep_that_is_extended_runs_only_what_is_new(command, tmp_path):
    command(*TRAIN, "seed=1,2")
    before = folders(tmp_path)
    again = command(*TRAIN, "seed=0,1,2", "noise_schedule.noise_multiplier=4,16")
    assert (again.status, again.err) == (0, "")
    table = swept(tmp_path)
    assert len(table) == 8
    assert not table.duplicated(["noise_schedule.noise_multiplier", "seed"]).any()
    assert {name: folders(tmp_path)[name] for name in before} == before


@pytest.mark.thorough
def test_new_jobs_have_numbers_that_no_run_has(command, tmp_path):
    """The names of the folders hold the numbers, and each job is launched by itself."""
    named = ("hydra.sweep.subdir=job${hydra.job.num}", "hydra.sweeper.max_batch_size=1")
    command(*TRAIN, "seed=0,1", *named)
    before = folders(tmp_path)
    again = command(*TRAIN, "seed=1,2,3", *named)
    assert (again.status, again.err) == (0, "")
    after = folders(tmp_path)
    assert sorted(after) == ["job0", "job1", "job2", "job3"]
    assert {name: after[name] for name in before} == before


def test_a_run_that_lacks_an_audit_is_not_done(train, tmp_path):
    train("algorithm=dp_fl", "rounds=1", name="0")
    composer = JobComposer(fedpriv.compose, lambda key: key in GROUPS)
    for lacking in (True, False):
        jobs = sweep_jobs([("algorithm=dp_fl", "rounds=1")], composer, print)
        find_runs(jobs, tmp_path, lambda job, run, lacking=lacking: lacking, print)
        assert [(job.run, job.done) for job in jobs] == [("0", not lacking)]


def test_what_was_interrupted_is_resumed_bit_for_bit(command, tmp_path, monkeypatch):
    looks = iter([False] * 3 + [True])  # each round looks once: the second job ends early
    with monkeypatch.context() as patch:
        patch.setattr(Interrupts, "requested", property(lambda self: next(looks)))
        first = command(*TRAIN, "rounds=3", "seed=0,1,2")
    assert first.status == 130
    again = command(*TRAIN, "rounds=3", "seed=0,1,2")
    assert (again.status, again.err) == (0, "")
    assert "1 of 3 done, 1 to be resumed, 1 new" in again.out
    command(*TRAIN[:-3], "rounds=3", "seed=1,2", "hydra.sweep.dir=whole", *QUIET)
    for name, same in (("1", "0"), ("2", "1")):
        interrupted, whole = tmp_path / "swept" / name, tmp_path / "whole" / same
        pd.testing.assert_frame_equal(metrics(interrupted), metrics(whole), check_exact=True)


@pytest.mark.thorough
def test_a_key_that_is_added_later_has_its_value_in_every_row(command, tmp_path):
    command(*TRAIN, "seed=0")
    command(*TRAIN, "seed=0", "epsilon=1,2", "delta=1e-5,1e-4", "clipper=constant")
    table = swept(tmp_path)
    assert table["asked epsilon"].notna().all()
    assert table["clipper"].notna().all()
    assert sorted(zip(table["asked epsilon"], table["delta"], strict=True)) == [
        (1, 1e-5), (1, 1e-4), (2, 1e-5), (2, 1e-4)
    ]  # fmt: skip


@pytest.mark.thorough
def test_a_folder_that_holds_a_run_twice_counts_it_once(train, tmp_path):
    for name in ("1", "2", "10"):
        train("algorithm=dp_fl", "rounds=1", f"seed={int(name) // 2}", name=name)
    for name, seed in (("3", 0), ("9", 5)):
        train("algorithm=dp_fl", "rounds=1", f"seed={seed}", name=name)
    assert read_runs(tmp_path)["run"].tolist() == ["1", "2", "9"]


@pytest.mark.thorough
def test_keys_that_change_no_result_are_swept_over_all_the_same(command, tmp_path):
    command(*TRAIN, "runtime.engine=fast,opacus")
    assert len(folders(tmp_path)) == 2
    assert swept(tmp_path)["runtime.engine"].tolist() == ["fast", "opacus"]


@pytest.mark.thorough
def test_runs_that_withhold_their_seeds_are_not_guessed(command, tmp_path):
    private = (*TRAIN, "seed=0,1", "runtime.diagnostics=false")
    assert command(*private).status == 0
    again = command(*private)
    assert again.status == 2
    assert "hydra.sweep.dir must be a new folder for runs that withhold their seeds" in again.err
    assert len(folders(tmp_path)) == 2


@pytest.mark.thorough
@pytest.mark.parametrize("key", ["runtime.diagnostics=false", "publish=true"])
def test_no_file_beside_runs_that_withhold_their_seeds_has_them(key, command, tmp_path):
    assert command(*TRAIN, "seed=4711,4712", "epsilon=1", key).status == 0
    files = [path for path in (tmp_path / "swept").iterdir() if path.is_file()]
    assert not [path.name for path in files if "471" in path.read_text()]
    saved = yaml.safe_load((tmp_path / "swept" / "multirun.yaml").read_text())
    assert "epsilon=1" in saved["hydra"]["overrides"]["task"]


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (["epsilon=1,two"], "epsilon must be a number"),
        (["algorithm.optimizer=sgd,adamw"], "algorithm.optimizer must be"),
        (["seed=0,two"], "seed must be"),
        (["noise_schedule=constant,none"], "epsilon must be null"),
        (["epsilon=2,0.01"], "epsilon must be >="),
        (["audit=null,nothing"], "audit must be"),
    ],
)
def test_all_jobs_are_checked_before_the_first(given, wanted, command, tmp_path):
    said = command(*TRAIN, *given)
    assert said.status == 2
    assert f": {wanted}" in said.sentence
    assert not list(tmp_path.rglob("config.yaml"))


@pytest.mark.thorough
@pytest.mark.parametrize("file", ["summary.json", "config.yaml"])
def test_a_run_that_cannot_be_read_is_run_anew_and_does_not_count(file, command, tmp_path):
    given = (*TRAIN, "paired=one", "seed=0,1")
    command(*given)
    before = swept(tmp_path)
    (tmp_path / "swept" / "0" / file).write_text("{")
    again = command(*given)
    assert again.status == 0
    assert f"warning: swept/0/{file} cannot be read" in again.err
    assert "warning: The joint ε of the runs on" in again.err
    assert f"is not known: swept/0/{file} cannot be read" in again.err
    assert "note: run 0 counts as not run: " in again.out
    assert "not in the table, damaged: 0" in again.out
    third = command(*given)
    assert third.err == again.err
    text = (tmp_path / "swept" / "sweep.csv").read_text()
    assert ".0," not in text
    header = next(line for line in third.out.splitlines() if "seeds" in line and "rounds" in line)
    assert "paired" not in header
    after = swept(tmp_path)
    assert len(after) == 3
    assert set(after.loc[after["run"] == 0, "stop_reason"]) == {"damaged"}
    counted = after[after["stop_reason"] == "rounds"].sort_values("seed")
    assert counted["seed"].tolist() == [0, 1]
    assert counted["test_accuracy"].tolist() == before.sort_values("seed")["test_accuracy"].tolist()


def test_one_refusal_of_a_sweep_is_said(command):
    said = command(*TRAIN, "epsilon=1,two,three", "clipper.clip_norm=1,-1", "seed=0,1")
    assert said.sentence.startswith(
        "fedpriv: epsilon=1 clipper.clip_norm=-1 seed=0: clipper.clip_norm"
    )


def test_what_all_jobs_lack_is_one_sentence(command):
    assert "epsilon must be > 0" in command(*TRAIN, "epsilon=-1", "seed=0,1").sentence


@pytest.mark.thorough
def test_baselines_and_private_algorithms_are_swept_together(command, tmp_path):
    said = command(*TRAIN, "algorithm=dp_fl,fedavg", "epsilon=1,2", "seed=0,1")
    assert (said.status, said.err) == (0, "")
    assert "note: algorithm=fedavg has no privacy and takes no epsilon" in said.out
    table = swept(tmp_path)
    counts = table.groupby(["algorithm", "seed"]).size().to_dict()
    assert counts == {("dp_fl", 0): 2, ("dp_fl", 1): 2, ("fedavg", 0): 1, ("fedavg", 1): 1}
    again = command(*TRAIN, "algorithm=dp_fl,fedavg", "epsilon=1,2", "seed=0,1")
    assert "6 of 6 done" in again.out


def test_a_sweep_of_baselines_alone_takes_no_epsilon(command):
    said = command(*TRAIN, "algorithm=fedavg,fedsgd", "epsilon=1,2")
    assert said.status == 2
    assert "epsilon must be null with algorithm=fedavg" in said.err


def test_no_job_runs_outside_the_folder_whose_joint_epsilon_is_stated(command, tmp_path):
    said = command(*TRAIN, "seed=0,1", "runtime.run_dir=one${seed}")
    assert said.status == 2
    assert "runtime.run_dir must be null in a sweep, got one0" in said.err
    assert "hydra.sweep.dir" in said.err
    assert not (tmp_path / "one0").exists()


@pytest.mark.thorough
def test_one_composition_serves_jobs_that_differ_in_values():
    composed = []

    def compose(overrides):
        composed.append(overrides)
        return fedpriv.compose(overrides)

    composer = JobComposer(compose, lambda key: key in GROUPS)
    given = [
        [f"algorithm={a}", f"epsilon={e}", f"seed={s}", "budget_view='sound'"]
        for a in ("dp_fl", "adap_dpfl") for e in ("1", "null", "0.5") for s in (0, 1)
    ]  # fmt: skip
    given = [["model=mlp", *one] for one in given]
    jobs = [composer.job(overrides) for overrides in given]
    assert len(composed) == 2
    for job in jobs:
        assert job.config == fedpriv.compose(job.overrides)


@pytest.mark.thorough
def test_a_key_of_a_swept_algorithms_clipper_may_have_one_value(command, tmp_path):
    swept_algorithms = ("train", "-m", "algorithm=norm_bounding,naseri_cdp", "dry_run=true")
    assert command(*swept_algorithms, "clipper.clip_norm=0.3").status == 0
    said = command(*swept_algorithms, "clipper.clpi_norm=0.3")
    assert said.status == 2
    assert "unknown key clipper.clpi_norm; did you mean clipper.clip_norm?" in said.err


@pytest.mark.thorough
def test_an_interrupted_sweep_says_how_to_go_on(command, tmp_path, monkeypatch):
    def interrupt(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("fedpriv.experiment.run.assemble", interrupt)
        said = command("train", "-m", "algorithm=dp_fl", "rounds=2", "seed=0,1", *QUIET)
    assert said.status == 130
    again = said.sentence.partition("continue the sweep with fedpriv ")[2]
    assert " seed=0,1 " in again
    assert "hydra.sweep.dir=outputs/multirun/" in again
    folder = again.rpartition("hydra.sweep.dir=")[2]
    assert (tmp_path / folder / "multirun.yaml").is_file(), again
    refused = command("train", f"resume={folder}")
    assert refused.status == 2
    assert "hydra.sweep.dir=" in refused.sentence
    assert command(*again.split()).status == 0


def test_a_command_ends_the_workers_of_earlier_ones_first(command, monkeypatch):
    ended = []
    monkeypatch.setattr("fedpriv.train.end_earlier_workers", lambda: ended.append(True))
    command(*TRAIN, "seed=0,1", "dry_run=true")
    assert ended == [True]
