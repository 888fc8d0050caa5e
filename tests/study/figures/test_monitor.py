"""How far the jobs of a figure are, read from what their runs have written."""

from __future__ import annotations

import os

import pytest

from fedpriv.study.figures.monitor import Monitor, progress


@pytest.fixture
def job(figure, jobs_of):
    return jobs_of(figure)[0]


def grow(job, text: str, at: float = 1000.0) -> None:
    job.folder.path.mkdir(parents=True, exist_ok=True)
    job.folder.metrics.write_text(text)
    os.utime(job.folder.metrics, (at, at))


@pytest.mark.parametrize(("since", "state"), [(999, "running"), (1001, "waiting")])
def test_a_job_runs_if_its_metrics_grew_since(since, state, job):
    grow(job, "round,epsilon,test_accuracy\n1,,\n")
    assert progress(job, since)[0] == state


def test_the_fraction_is_that_of_the_rounds(job):
    grow(job, "round,epsilon,test_accuracy\n1,0.1,\n3,0.2,0.5\n")
    assert progress(job, since=0) == ("running", 0.75)


def test_the_fraction_is_that_of_the_budget_if_it_is_larger(figure, jobs_of):
    job = jobs_of(figure, "epsilon=2")[0]
    grow(job, "round,epsilon,test_accuracy\n1,1.5,\n")
    assert progress(job, since=0)[1] == 0.75**2  # ε grows as the square root of the rounds


@pytest.mark.parametrize("tail", ["3", "3,0.", "3,0.2,0.", ""])
def test_a_row_that_is_half_written_does_not_count(tail, job):
    grow(job, f"round,epsilon,test_accuracy\n2,0.1,0.25\n{tail}")
    assert progress(job, since=0)[1] == 0.5


def test_a_job_whose_rounds_are_done_and_that_waits_for_its_audit_says_so(job):
    grow(job, "round,epsilon,test_accuracy\n4,0.1,0.5\n")
    assert progress(job, since=0) == ("running", 1)
    job.folder.summary.write_text('{"stop_reason": "rounds"}')
    job.config.audit = "membership"
    assert progress(job, since=0)[0] == "auditing"


def test_a_finished_job_is_done(made, figure, jobs_of):
    job = jobs_of(figure, stores=(made / "runs",))[0]
    assert progress(job, since=0) == ("done", 1)


def test_every_job_that_ended_has_a_line(made, figure, jobs_of, capsys):
    jobs = jobs_of(figure, stores=(made / "runs",))
    with Monitor(jobs):
        pass
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        f"[{n}/4] {job.label}" for n, job in enumerate(jobs, 1)
    ]
