"""Making of a figure: run the missing jobs with the configured launcher, then draw and compare.

A job that fails does not stop the other jobs. Ctrl-C leaves checkpoints, and the same command goes on from
these. As long as a run is missing, every call tells which run, and why it failed.
"""

from __future__ import annotations

import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.config import explain, with_protocol
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.files import write_text
from fedpriv.common.notices import complain
from fedpriv.common.words import counted, in_short
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.stop import StopFile
from fedpriv.store.display import console
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.forecast import JobForecast
from fedpriv.study.figures.jobs import (
    DONE,
    PARTLY,
    Job,
    announcement,
    distinct,
    job_table,
    plan_figure,
    read_failures,
    write_record,
)
from fedpriv.study.figures.monitor import Monitor
from fedpriv.study.figures.reading import is_computed

# Launchers whose jobs run in processes on this machine that nobody else looks after (LocalLauncher is
# submitit's). Jobs of a cluster go on when the submitting process is gone; the same command finds their runs.
_LOCAL = ("JoblibLauncher", "LocalLauncher")
DEFINITION = "figure.yaml"  # copy of the user's file in the folder of its figure


class FigureIncomplete(FedprivError):
    """A figure some of whose runs are not finished. The finished runs were drawn."""


class FigureInterrupted(FedprivError):
    """A figure that was interrupted by Ctrl-C. The runs have left checkpoints."""

    exit_status = 130


def make_figure(
    config: DictConfig, context: HydraContext, launcher: Launcher, arguments: Sequence[str]
) -> list[JobReturn]:
    """Run the missing jobs of ``config.figure``, and write the files of the figure.

    Args:
        config: The composed configuration.
        context: Hydra's context, which composes the configurations of the jobs.
        launcher: Runs the jobs.
        arguments: Overrides of the command line. Overrides of ``figure`` apply to the figure, all others to
            every job.

    Returns:
        The answers of the launcher; empty for a dry run, or where no run was missing.

    Raises:
        ConfigError: A job could not run. The error comes before the first round.
        FigureIncomplete: A run is missing or diverged. The error comes after everything else was drawn.
        FigureInterrupted: The user interrupted the runs.
    """
    own_yamls = config_dir_flags(config)

    def compose(overrides: Sequence[str]) -> DictConfig:
        try:
            job = with_protocol(context.config_loader.load_sweep_config(config, list(overrides)))
        except (HydraException, OmegaConfBaseException) as error:
            raise explain(error, [*own_yamls, *overrides]) from None
        with open_dict(job):
            del job["hydra"]
        return job

    name = str(config.hydra.runtime.choices.get("figure", config.figure.get("file", "figure")))
    kept = [a for a in arguments if not a.startswith(("+figure=", "+figure.file=", "runtime."))]
    command = shlex.join(["fedpriv", "figure", name, *own_yamls])
    command = " ".join([command, *map(as_flag, kept)])
    if is_computed(config):
        from fedpriv.study.figures.computed import make_computed

        make_computed(config, name, arguments, command)
        return []
    if not config.runtime.diagnostics:
        hint = "it tells its runs apart by seeds"
        raise ConfigError("runtime.diagnostics", False, "true for a figure", hint)
    figure, jobs = plan_figure(config, name, compose, arguments)
    unfinished = [job for job in distinct(jobs) if job.state != DONE]
    folder = Path(config.runtime.output_dir) / "figures" / figure.folder
    console().print(announcement(figure, jobs))
    parts: dict[int, Parts] = {}
    if config.dry_run or not figure.draw_only:
        # Build the parts of finished jobs too: a figure with a configuration that cannot run is refused.
        # A figure that is only drawn needs no data, as in an archive that leaves the data out.
        _for_each(jobs, lambda job: parts.update({id(job.config): build_parts(job.config)}))
    if config.dry_run:
        _show_plan(figure, jobs, parts, config.hydra.launcher.get("n_jobs"))
        return []
    returned: list[JobReturn] = []
    failures = read_failures(folder, jobs)
    if unfinished and not figure.draw_only:
        _refuse_impossible(unfinished, parts)
        datasets = [parts[id(job.config)].dataset for job in unfinished]
        for dataset in {(type(one), one.path): one for one in datasets}.values():
            dataset.prepare()  # found or fetched once, before any job begins
        # Before the launch, so that a killed command leaves a record of what it began.
        write_record(folder, jobs, failures)
        with Monitor(unfinished, shown=config.runtime.progress != "none"):
            name_of_launcher = str(config.hydra.launcher.get("_target_")).rpartition(".")[2]
            stop = StopFile(folder, watched=name_of_launcher in _LOCAL)
            returned, failures = _launch(launcher, unfinished, stop)
    _finish(figure, jobs, failures, folder, command)
    return returned


def config_dir_flags(config: DictConfig) -> list[str]:
    """Return ``--config-dir FOLDER`` if the command of a composed configuration was given it."""
    sources = config.hydra.runtime.config_sources
    folders = [source.path for source in sources if source.provider == "command-line"]
    return [word for path in folders for word in ("--config-dir", os.path.relpath(path))]


def _show_plan(
    figure: Figure, jobs: Sequence[Job], parts: Mapping[int, Parts], at_a_time: object
) -> None:
    """Print the jobs, and of a user's figure the forecast of these."""
    if figure.file is None:
        console().print(job_table(figure, jobs))
        return
    _refuse_impossible(jobs, parts)
    forecast = JobForecast(figure, jobs, parts, console().print)
    console().print(job_table(figure, jobs, forecast.columns, forecast.cells))
    for sentence in (*forecast.joint_sentences(jobs), forecast.total(jobs, at_a_time)):
        console().print(sentence, soft_wrap=True)


def _refuse_impossible(jobs: Sequence[Job], parts: Mapping[int, Parts]) -> None:
    """Raise ConfigError where a budget allows no round."""

    def check(job: Job) -> None:
        one = parts[id(job.config)]
        if not one.algorithm.cost_depends_on_records:
            make_plan(one).refuse_if_impossible(one.settings.epsilon)

    _for_each(jobs, check)


def _for_each(jobs: Sequence[Job], check: Callable[[Job], None]) -> None:
    """Check each configuration once. Raise ConfigError for the first job that cannot run."""
    for job in {id(job.config): job for job in jobs}.values():
        try:
            check(job)
        except FedprivError as error:
            raise ConfigError(f"{job.label}: {error}") from None


def _launch(
    launcher: Launcher, jobs: Sequence[Job], stop: StopFile
) -> tuple[list[JobReturn], dict[str, str]]:
    """Run the jobs, and return the launcher's answers and, for each failed job, label → reason."""

    def quoted(path: Path) -> str:  # as a value of Hydra's grammar
        text = str(path).replace("\\", "\\\\").replace("'", "\\'")
        return f"'{text}'"

    batch = []
    for job in jobs:
        quiet = {"runtime.progress": "none", "runtime.plots": "false"}
        given = {override.partition("=")[0] for override in job.overrides}
        batch.append([
            *job.overrides,
            *(f"{key}={value}" for key, value in quiet.items() if key not in given),
            f"runtime.run_dir={quoted(job.folder.path)}",
            "runtime.reuse=true",  # another figure may have made the run by the time the job begins
            f"runtime.stop_file={quoted(stop.path)}",
            f"hydra.sweep.dir={quoted(stop.folder)}",
            "hydra.sweep.subdir=.",
        ])  # fmt: skip
    returned, broken = [], None
    try:
        with stop:
            returned = list(launcher.launch(batch, initial_job_idx=0))
    except (Exception, KeyboardInterrupt) as error:  # a launcher may die with its workers
        broken = error
    if stop.requested or isinstance(broken, KeyboardInterrupt):
        done = sum(job.state == DONE for job in jobs)
        raise FigureInterrupted(
            f"interrupted with {done} of {counted(len(jobs), 'run')} done; the same command finishes the "
            "others from their checkpoints"
        )
    if broken is not None:  # finished runs are still drawn
        reason = f"the launcher ended early: {_one_line(broken)}"
        return [], {job.label: reason for job in jobs if job.state != DONE}
    failures: dict[str, str] = {}
    for job, answer in zip(jobs, returned, strict=True):
        if answer.status != JobStatus.FAILED:
            continue
        reason = answer._return_value
        failures[job.label] = "ended without a result"
        if isinstance(reason, FedprivError):
            failures[job.label] = str(reason)
        elif isinstance(reason, BaseException):  # a defect, whose traceback tells where
            print(f"{job.label}:", file=sys.stderr)
            traceback.print_exception(reason, file=sys.stderr)
            failures[job.label] = _one_line(reason)
    return returned, failures


def _one_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _finish(
    figure: Figure,
    jobs: Sequence[Job],
    failures: Mapping[str, str],
    folder: Path,
    command: str,
) -> None:
    """Draw the finished runs, and report the others.

    Args:
        figure: The figure.
        jobs: All jobs of the figure.
        failures: Label → reason of each failed job that was launched.
        folder: Folder of the figure.
        command: Command that makes the figure.

    Raises:
        FigureIncomplete: A curve lacks a run, or has a run that diverged.
    """
    # Imported late, as pandas and matplotlib are not needed before the runs are done.
    from fedpriv.study.figures.comparison import paragraph
    from fedpriv.study.figures.series import read_runs
    from fedpriv.study.figures.write import write_figure, written_words
    from fedpriv.tools.report.privacy_paragraph import PARAGRAPH
    from fedpriv.tools.report.write import write_figure_report

    runs = read_runs(jobs)
    finished = {id(run.job) for run in runs}
    # Two jobs that are the same run have the same reason, though only one of the two was launched.
    reasons = {job.folder.path: failures[job.label] for job in jobs if job.label in failures}
    missing = {j.label: reasons.get(j.folder.path, "") for j in jobs if id(j) not in finished}
    begun = [StoredRun(job.folder) for job in distinct(jobs) if job.state == PARTLY]
    why = missing | {run.job.label: run.diverged for run in runs if run.diverged}
    if runs:
        write_record(folder, jobs, why)
        write_figure(figure, runs, missing, folder, command, begun)
        if figure.file is not None:
            write_text(folder / DEFINITION, figure.file.read_text(encoding="utf-8"))
            write_text(folder / PARAGRAPH, paragraph(figure, runs, begun))
        write_figure_report(folder)
        console().print(written_words(folder))
    failed = [label for label, reason in why.items() if reason]
    for reason in dict.fromkeys(filter(None, why.values())):
        complain(f"{in_short([label for label in failed if why[label] == reason])}: {reason}")
    if not why:
        return
    unexplained = [label for label in missing if label not in failed]
    of_all = f" of {counted(len(jobs), 'run')} of {figure.name}"
    parts = [f"{len(failed)}{of_all} failed, see above"] if failed else []
    if len(unexplained) == len(jobs):
        parts = [f"no run of {figure.name} is finished"]
    elif unexplained:
        verb = "is" if len(unexplained) == 1 else "are"
        count = f"{len(unexplained)}{'' if failed else of_all}"
        parts.append(f"{count} {verb} not finished: {in_short(unexplained)}")
    if missing:
        again = f"the same command tries {len(missing)} again"
        parts.append("run it without --draw" if figure.draw_only else again)
    raise FigureIncomplete("; ".join(parts))


def as_flag(override: str) -> str:
    """Return the flag that stands for an override of :func:`overrides_of`, else the override, quoted."""
    flags = {"figure.scale=quick": "--quick", "figure.draw_only=true": "--draw"}
    if override.startswith("++figure."):
        override = override.removeprefix("++")
    if override.startswith("figure.reuse=['"):
        folders = re.findall(r"'((?:[^'\\]|\\.)*)'", override)
        unquoted = (folder.replace("\\'", "'") for folder in folders)
        return " ".join(f"--reuse {shlex.quote(folder)}" for folder in unquoted)
    if override.startswith("figure.seeds=["):
        return "--seeds " + override.partition("[")[2].rstrip("]").replace(" ", "")
    return flags.get(override, shlex.quote(override))
