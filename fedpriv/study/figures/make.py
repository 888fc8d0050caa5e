"""Makes a figure: runs what is missing with the configured launcher, then draws and compares.

A job that fails does not stop the others; Ctrl-C leaves checkpoints, and the same command goes on. As long as
a run is missing, every call says which and why.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.config import explain, with_protocol
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.notices import complain
from fedpriv.common.words import counted, in_short
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.stop import StopFile
from fedpriv.store.display import console
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.jobs import DONE, Job, distinct
from fedpriv.study.figures.monitor import Monitor
from fedpriv.study.figures.overrides import as_flag
from fedpriv.study.figures.planning import announcement, job_table, plan_figure
from fedpriv.study.figures.reading import is_computed
from fedpriv.study.figures.record import read_failures, write_record


class FigureIncomplete(FedprivError):
    """Some runs of a figure are not finished; what there is was drawn."""


class FigureInterrupted(FedprivError):
    """Ctrl-C while the runs went; their checkpoints are there."""

    exit_status = 130


def make_figure(
    config: DictConfig, context: HydraContext, launcher: Launcher, arguments: Sequence[str]
) -> list[JobReturn]:
    """Run the missing jobs of ``config.figure``, write its files, and report.

    ``arguments``: the overrides of the command line; those of ``figure`` apply to the figure, the
    others to every job. Raises ConfigError before the first round, FigureIncomplete after the last
    if jobs failed.
    """

    def compose(overrides: Sequence[str]) -> DictConfig:
        return _job_config(context, config, overrides)

    name = str(config.hydra.runtime.choices.get("figure", "figure"))
    if is_computed(config):
        from fedpriv.study.figures.computed import make_computed

        make_computed(config, name, arguments, _command(name, config, arguments))
        return []
    if not config.runtime.diagnostics:
        raise ConfigError(
            "runtime.diagnostics", False, "true for a figure", "it tells its runs apart by seeds"
        )
    figure, jobs = plan_figure(config, name, compose, arguments)
    unfinished = [job for job in distinct(jobs) if job.state != DONE]
    folder = Path(config.runtime.output_dir) / "figures" / figure.folder
    console().print(announcement(figure, jobs, unfinished))
    parts = _build(jobs)
    if config.dry_run:
        console().print(job_table(figure, jobs))
        return []
    returned: list[JobReturn] = []
    failures = read_failures(folder, jobs)
    if unfinished and not figure.draw_only:
        _prepare(parts[id(job.config)] for job in unfinished)
        write_record(folder, jobs, failures)
        with Monitor(unfinished, shown=config.runtime.progress != "none"):
            stop = StopFile(folder, watched=_is_local(config.hydra.launcher))
            returned, failures = _launch(launcher, unfinished, stop)
    _finish(figure, jobs, failures, folder, _command(figure.name, config, arguments))
    return returned


def _command(name: str, config: DictConfig, arguments: Sequence[str]) -> str:
    """What makes the figure again, as one would type it."""
    sources = config.hydra.runtime.config_sources
    given = [source.path for source in sources if source.provider == "command-line"]
    place = [word for path in given for word in ("--config-dir", os.path.relpath(path))]
    own = [as_flag(a) for a in arguments if not a.startswith(("+figure=", "runtime."))]
    return " ".join([shlex.join(["fedpriv", "figure", name, *place]), *own])


def _job_config(context: HydraContext, config: DictConfig, overrides: Sequence[str]) -> DictConfig:
    """The configuration of a job."""
    try:
        job = with_protocol(context.config_loader.load_sweep_config(config, list(overrides)))
    except (HydraException, OmegaConfBaseException) as error:
        raise explain(error, overrides) from None
    with open_dict(job):
        del job["hydra"]
    return job


def _build(jobs: Sequence[Job]) -> dict[int, Parts]:
    """id of each configuration → its parts. Raises ConfigError for one that could not run."""
    configs = {id(job.config): job.config for job in jobs}
    return {key: build_parts(config) for key, config in configs.items()}


def _prepare(needed: Iterable[Parts]) -> None:
    """Refuse budgets that allow no round, find or fetch each data set once, before any job begins.

    Raises ConfigError, DataError.
    """
    prepared = set()
    for parts in {id(p): p for p in needed}.values():
        if not parts.algorithm.cost_depends_on_records:
            make_plan(parts).refuse_if_impossible(parts.settings.epsilon)
        data = (type(parts.dataset), parts.dataset.path)
        if data not in prepared:
            parts.dataset.prepare()
        prepared.add(data)


_LOCAL = ("JoblibLauncher", "LocalLauncher")  # the latter is submitit's


def _is_local(launcher: DictConfig) -> bool:
    """Whether the jobs run in processes on this machine that nobody else looks after.

    A cluster's are its own: they go on when the process that submitted them is gone, and the same command
    finds their runs.
    """
    return str(launcher.get("_target_")).rpartition(".")[2] in _LOCAL


def _launch(
    launcher: Launcher, jobs: Sequence[Job], stop: StopFile
) -> tuple[list[JobReturn], dict[str, str]]:
    """Run the jobs; (what they returned, label → what went wrong)."""
    failures: dict[str, str] = {}
    batch = [_launch_overrides(job, stop) for job in jobs]
    try:
        with stop:
            returned = list(launcher.launch(batch, initial_job_idx=0))
    except KeyboardInterrupt:
        raise _interrupted(jobs) from None
    except Exception as error:  # a launcher may die with its workers; what is done is done
        if stop.requested:
            raise _interrupted(jobs) from None
        words = f"the launcher ended early: {type(error).__name__}: {_one_line(error)}"
        return [], {job.label: words for job in jobs if job.state != DONE}
    if stop.requested:
        raise _interrupted(jobs)
    for job, answer in zip(jobs, returned, strict=True):
        if answer.status == JobStatus.FAILED:
            failures[job.label] = _explain(job, answer._return_value)
    return returned, failures


def _interrupted(jobs: Sequence[Job]) -> FigureInterrupted:
    done = sum(job.state == DONE for job in jobs)
    return FigureInterrupted(
        f"interrupted with {done} of {counted(len(jobs), 'run')} done; the same command finishes the "
        "others from their checkpoints"
    )


def _launch_overrides(job: Job, stop: StopFile) -> list[str]:
    """What the launcher composes the job from."""
    place = (
        f"runtime.run_dir={_quoted(job.folder.path)}",
        "runtime.reuse=true",  # another figure may have made it, or be making it, by the time it begins
        f"runtime.stop_file={_quoted(stop.path)}",
    )
    quiet = ("runtime.progress=none", "runtime.plots=false")
    hydra = (f"hydra.sweep.dir={_quoted(stop.folder)}", "hydra.sweep.subdir=.")
    own = [o.partition("=")[0] for o in job.overrides]
    return [*job.overrides, *(q for q in quiet if q.partition("=")[0] not in own), *place, *hydra]


def _quoted(path: Path) -> str:
    """A path as a value of Hydra's grammar."""
    text = str(path).replace("\\", "\\\\").replace("'", "\\'")
    return f"'{text}'"


def _explain(job: Job, error: object) -> str:
    if isinstance(error, FedprivError):
        return str(error)
    if isinstance(error, BaseException):  # a defect: show where
        print(f"{job.label}:", file=sys.stderr)
        traceback.print_exception(error, file=sys.stderr)
        return f"{type(error).__name__}: {_one_line(error)}"
    return "ended without a result"


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]


def _finish(
    figure: Figure,
    jobs: Sequence[Job],
    failures: Mapping[str, str],
    folder: Path,
    command: str,
) -> None:
    """Draw what there is; ``failures``: label → what went wrong. Raises FigureIncomplete as long as a curve
    lacks a run or has one that diverged."""
    from fedpriv.study.figures.series import read_runs  # what draws comes last
    from fedpriv.study.figures.write import write_figure, written_words
    from fedpriv.tools.report.write import write_figure_report

    runs = read_runs(jobs)
    read = {id(run.job): run for run in runs}
    same = {job.folder.path: failures[job.label] for job in jobs if job.label in failures}
    why = {job.label: same[job.folder.path] for job in jobs if job.folder.path in same}
    missing = {job.label: why.get(job.label, "") for job in jobs if id(job) not in read}
    diverged = {run.job.label: run.diverged for run in runs if run.diverged}
    if runs:
        write_record(folder, jobs, missing | diverged)
        write_figure(figure, runs, missing, folder, command)
        write_figure_report(folder, dict.fromkeys(job.folder.path.parent for job in jobs))
        console().print(written_words(folder))
    failed = {label: words for label, words in (why | diverged).items() if words}
    _report(failed)
    if not failed and not missing:
        return
    words = _lack(figure, jobs, failed, missing)
    if missing:
        again = f"the same command tries {len(missing)} again"
        words += f"; {'without --draw it is run' if figure.draw_only else again}"
    raise FigureIncomplete(words)


def _report(failed: Mapping[str, str]) -> None:
    """A line on standard error for each thing that went wrong."""
    labels: dict[str, list[str]] = {}
    for label, why in failed.items():
        labels.setdefault(why, []).append(label)
    for why, own in labels.items():
        complain(f"{in_short(own)}: {why}")


def _lack(
    figure: Figure, jobs: Sequence[Job], failed: Mapping[str, str], missing: Mapping[str, str]
) -> str:
    """What a figure lacks, in words."""
    if len(missing) == len(jobs) and not failed:
        return f"no run of {figure.name} is finished"
    untold = [label for label in missing if label not in failed]
    runs = counted(len(jobs), "run")
    words = [f"{len(failed)} of {runs} of {figure.name} failed, see above"] if failed else []
    if untold:
        of = "" if failed else f" of {runs} of {figure.name}"
        verb = "is" if len(untold) == 1 else "are"
        words.append(f"{len(untold)}{of} {verb} not finished: {in_short(untold)}")
    return "; ".join(words)
