"""How the end of the jobs of a figure is told, from what their runs have written."""

from __future__ import annotations

from fedpriv.study.figures.make import Monitor


def test_every_job_that_ended_has_a_line(made, figure, jobs_of, capsys):
    jobs = jobs_of(figure, stores=(made / "runs",))
    with Monitor(jobs):
        pass
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        f"[{n}/4] {job.label}" for n, job in enumerate(jobs, 1)
    ]


def test_a_job_that_waits_for_its_audit_has_no_line(figure, jobs_of, capsys):
    job = jobs_of(figure)[0]
    job.folder.path.mkdir(parents=True)
    job.folder.summary.write_text('{"stop_reason": "rounds"}')
    job.config.audit = "membership"
    with Monitor([job]):
        pass
    assert capsys.readouterr().out == ""
