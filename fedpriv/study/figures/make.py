"""Making of a figure: run the missing jobs with the configured launcher, then draw and compare.

A job that fails does not stop the other jobs. Ctrl-C leaves checkpoints, and the same command goes on from
these. As long as a run is missing, every call tells which run, and why it failed.
"""

from __future__ import annotations

import math
import os
import shlex
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.text import Text

from fedpriv.common.config import as_tree, explain, flatten, with_protocol
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.files import write_text
from fedpriv.common.notices import complain
from fedpriv.common.words import counted, in_short, quoted, round_up, span
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.sound_forecast import forecast_sound
from fedpriv.experiment.stop import StopFile
from fedpriv.store.display import console, duration
from fedpriv.store.joint_privacy import RunCost, compose_runs, population, rdp_of_events
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column
from fedpriv.study.figures.definition import Figure
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
from fedpriv.study.figures.reading import is_computed

# Launchers whose jobs run in processes on this machine that nobody else looks after (LocalLauncher is
# submitit's). Jobs of a cluster go on when the submitting process is gone; the same command finds their runs.
_LOCAL = ("JoblibLauncher", "LocalLauncher")
FILES = ("figure.png", "figure.pdf", "figure.csv", "ends.csv", "runs.csv", "comparison.md")
DEFINITION = "figure.yaml"  # copy of the user's file in the folder of its figure
_NO_SIZES = "The joint ε is known once the data have been read: it depends on the clients' sizes."
_SECONDS_BETWEEN_LOOKS = 1.0
_WHY = {"budget": ", budget spent", "diverged": ", diverged"}


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
    sources = config.hydra.runtime.config_sources
    folders = [source.path for source in sources if source.provider == "command-line"]
    own_yamls = [w for path in folders for w in ("--config-dir", os.path.relpath(path))]

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
    # A figure that is only drawn needs no data, as in an archive that leaves the data out.
    parts = {} if figure.draw_only and not config.dry_run else _build(jobs)
    if config.dry_run:
        _show_plan(figure, jobs, parts)
        console().print(f"goes to {folder}: {', '.join(FILES)}")
        return []
    returned: list[JobReturn] = []
    failures = read_failures(folder, jobs)
    if unfinished and not figure.draw_only:
        datasets = [parts[id(job.config)].dataset for job in unfinished]
        for dataset in {(type(one), one.path): one for one in datasets}.values():
            dataset.prepare()  # found or fetched once, before any job begins
        # Before the launch, so that a killed command leaves a record of what it began.
        write_record(folder, jobs, failures)
        name_of_launcher = str(config.hydra.launcher.get("_target_")).rpartition(".")[2]
        stop = StopFile(folder, watched=name_of_launcher in _LOCAL)
        with Monitor(unfinished, shown=config.runtime.progress != "none"):
            returned, failures = _launch(launcher, unfinished, stop)
    _finish(figure, jobs, failures, folder, command)
    return returned


def _build(jobs: Sequence[Job]) -> dict[int, Parts]:
    """Return the parts of each configuration, by the identity of its object.

    Raises:
        ConfigError: A job, be it finished, cannot run, or the budget of another one allows no round.
    """
    parts = {}
    for job in jobs:
        try:
            if id(job.config) not in parts:
                one = parts[id(job.config)] = build_parts(job.config)
                if job.state != DONE and not one.algorithm.cost_depends_on_records:
                    make_plan(one).refuse_if_impossible(one.settings.epsilon)
        except FedprivError as error:
            raise ConfigError(f"{job.label}: {error}") from None
    return parts


def _show_plan(figure: Figure, jobs: Sequence[Job], parts: Mapping[int, Parts]) -> None:
    """Print the jobs, and of a user's figure the forecast of these."""
    if figure.file is None:
        console().print(job_table(figure, jobs))
        return
    forecast = JobForecast(parts)
    console().print(job_table(figure, jobs, forecast.columns, forecast.cells))
    for sentence in forecast.joint_sentences(jobs):
        console().print(sentence, soft_wrap=True)


class JobForecast:
    """Plan and sound ε of each job.

    Args:
        parts: Parts of each configuration, by the identity of its object.
    """

    columns = tuple(Column(name, right=True) for name in ("rounds", "σ", "ε", "sound ε"))

    def __init__(self, parts: Mapping[int, Parts]):
        self._parts = parts
        self._plans = {key: make_plan(one) for key, one in parts.items()}
        self._sound = {key: forecast_sound(one, self._plans[key]) for key, one in parts.items()}

    def joint_sentences(self, jobs: Sequence[Job]) -> list[str]:
        """Return sentences on the joint ε of all jobs, done or not, on the same data."""
        costs = []
        for job in distinct(jobs):
            parts, sound = self._parts[id(job.config)], self._sound[id(job.config)]
            dataset = population(flatten({"dataset": as_tree(job.config)["dataset"]}))
            if sound is None:
                costs.append(RunCost(dataset, None))
                continue
            if sound.epsilon is None:
                return [_NO_SIZES]
            view, settings = (parts.algorithm.unit, sound.neighbours), parts.settings
            cost = RunCost(
                dataset, view, epsilon=sound.epsilon, delta=settings.delta,
                paired=settings.paired is not None, bound=sound.bound,
            )  # fmt: skip
            if sound.events is not None:
                rdp = partial(rdp_of_events, sound.events, neighbours=sound.neighbours)
                cost = replace(cost, rdp=rdp)
            costs.append(cost)
        return [sentence for one in compose_runs(costs) for sentence in one.sentences()]

    def cells(self, same: Sequence[Job]) -> tuple[str, ...]:
        """Return rounds, σ, ε and sound ε of one run of jobs that differ in their seeds."""
        key = id(same[0].config)
        plan, sound, schedule = self._plans[key], self._sound[key], self._parts[key].noise_schedule
        noise = "–"
        if plan.first is not None:
            ends = (0, max((plan.rounds or 1) - 1, 0))
            first, last = (f"{schedule.noise_multiplier(end):.4g}" for end in ends)
            noise = f"{first}, adapts" if schedule.adaptive else span(first, last)
        return (
            "–" if plan.rounds is None else f"{plan.rounds}",
            noise,
            _epsilon(plan.epsilon, plan.bound, "none"),
            "none" if sound is None else _epsilon(sound.epsilon, sound.bound, "?"),
        )


def _epsilon(epsilon: float | None, bound: bool, unknown: str) -> str:
    if epsilon is None:
        return unknown
    return f"{'≤ ' if bound and math.isfinite(epsilon) else ''}{round_up(epsilon)}"


class Monitor:
    """Context manager that prints a line for each job that ends while a launcher runs the jobs.

    Args:
        jobs: Jobs to watch.
        shown: False to print nothing.
    """

    def __init__(self, jobs: Sequence[Job], shown: bool = True):
        self._left, self._count, self._shown = list(jobs), len(jobs), shown
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Monitor:
        if self._shown:
            self._thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        if self._shown:
            self._thread.join(timeout=5)
            self._look()

    def _watch(self) -> None:
        while not self._stop.wait(_SECONDS_BETWEEN_LOOKS):
            self._look()

    def _look(self) -> None:
        for job in [job for job in self._left if job.folder.summary.exists()]:
            if job.state != DONE:
                continue
            self._left.remove(job)
            summary = StoredRun(job.folder).summary
            line = f"[{self._count - len(self._left)}/{self._count}] {job.label}: "
            line += counted(summary["rounds"], "round") + _WHY.get(summary["stop_reason"], "")
            if (accuracy := summary.get("test_accuracy")) is not None:
                line += f", {100 * accuracy:.2f} %"
            console().print(Text(f"{line}, {duration(summary['seconds'] or 0)}"))


def _launch(
    launcher: Launcher, jobs: Sequence[Job], stop: StopFile
) -> tuple[list[JobReturn], dict[str, str]]:
    """Run the jobs, and return the launcher's answers and, for each failed job, label → reason."""
    batch = [
        [
            "runtime.progress=none",
            "runtime.plots=false",
            *job.overrides,
            f"runtime.run_dir={quoted(job.folder.path)}",
            "runtime.reuse=true",  # another figure may have made the run by the time the job begins
            f"runtime.stop_file={quoted(stop.path)}",
            f"hydra.sweep.dir={quoted(stop.folder)}",
            "hydra.sweep.subdir=.",
        ]
        for job in jobs
    ]
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
        if answer.status == JobStatus.FAILED:
            reason = answer._return_value
            failures[job.label] = str(reason)
            if not isinstance(reason, FedprivError):  # a defect, whose traceback tells where
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
    if not runs and not failed:
        raise FigureIncomplete(f"no run of {figure.name} is finished")
    sentences = []
    if failed:
        sentences.append(
            f"{len(failed)} of {counted(len(jobs), 'run')} of {figure.name} failed, see above"
        )
    if unexplained := [label for label in missing if label not in failed]:
        of_all = f"{len(unexplained)} of {counted(len(jobs), 'run')} of {figure.name}"
        sentences.append(f"{of_all} not finished: {in_short(unexplained)}")
    if missing and not figure.draw_only:
        sentences.append(f"the same command tries {len(missing)} again")
    raise FigureIncomplete("; ".join(sentences))


def as_flag(override: str) -> str:
    """Return the flag that stands for an override of the command ``figure``, else the override, quoted."""
    override = override.removeprefix("++") if override.startswith("++figure.") else override
    if override.startswith("figure.reuse=["):
        folders: Any = OverridesParser.create().parse_override(override).value()
        return " ".join(f"--reuse {shlex.quote(str(folder))}" for folder in folders)
    if override.startswith("figure.seeds=["):
        return "--seeds " + override.partition("[")[2].rstrip("]").replace(" ", "")
    flags = {"figure.scale=quick": "--quick", "figure.draw_only=true": "--draw"}
    return flags.get(override, shlex.quote(override))
