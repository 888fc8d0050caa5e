"""Makes a figure: runs what is missing with the configured launcher, then draws and compares.

A job that fails does not stop the others; Ctrl-C leaves checkpoints, and the same command goes on.
"""

from __future__ import annotations

import os
import shlex
import sys
import traceback
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import HydraException
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException
from rich.table import Table

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.words import counted
from fedpriv.config import explain, with_protocol
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.figures.computed import make_computed
from fedpriv.figures.definition import Figure
from fedpriv.figures.jobs import DONE, PARTLY, Compose, Job, JobMaker, distinct, in_short
from fedpriv.figures.monitor import Monitor
from fedpriv.figures.overrides import as_flag
from fedpriv.figures.reading import read_figure
from fedpriv.figures.series import read_runs
from fedpriv.figures.stop import StopFile
from fedpriv.figures.write import write_figure
from fedpriv.results.display import console, duration


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
    if config.figure.get("compute") is not None:
        make_computed(config, name, arguments, _command(name, config, arguments))
        return []
    if not config.runtime.diagnostics:
        raise ConfigError(
            "runtime.diagnostics", False, "true for a figure", "it tells its runs apart by seeds"
        )
    figure, jobs = plan_figure(config, name, compose, arguments)
    parts = _build(jobs)
    unfinished = [job for job in distinct(jobs) if job.state != DONE]
    folder = Path(config.runtime.output_dir) / "figures" / figure.folder
    console().print(_announcement(figure, jobs, unfinished))
    if config.dry_run:
        console().print(_job_table(figure, jobs))
        return []
    returned: list[JobReturn] = []
    failures: dict[str, str] = {}
    if unfinished and not figure.draw_only:
        _prepare(parts[id(job.config)] for job in unfinished)
        with Monitor(unfinished, shown=config.runtime.progress != "none"):
            returned, failures = _launch(launcher, unfinished, folder)
    _finish(figure, jobs, failures, folder, _command(figure.name, config, arguments))
    return returned


def _command(name: str, config: DictConfig, arguments: Sequence[str]) -> str:
    """What makes the figure again, as one would type it."""
    sources = config.hydra.runtime.config_sources
    given = [source.path for source in sources if source.provider == "command-line"]
    place = [word for path in given for word in ("--config-dir", os.path.relpath(path))]
    own = [as_flag(a) for a in arguments if not a.startswith(("+figure=", "runtime."))]
    return " ".join([shlex.join(["fedpriv", "figure", name, *place]), *own])


def plan_figure(
    config: DictConfig, name: str, compose: Compose, arguments: Sequence[str] = ()
) -> tuple[Figure, list[Job]]:
    """The figure that ``config`` defines, and its jobs. Raises ConfigError for what cannot run."""
    figure = read_figure(config.figure, name)
    common = [a for a in arguments if not _is_figures(a)]
    stores = [Path(config.runtime.output_dir) / "runs", *map(Path, figure.reuse)]
    for store in stores[1:]:
        if not store.is_dir():
            raise ConfigError("--reuse (figure.reuse)", str(store), "an existing folder of runs")
    common = [c for c in common if not c.startswith("dry_run=")]
    same = [c for c in common if c.lstrip("+").startswith(("runtime.", "dataset.path="))]
    figure = replace(figure, changed=tuple(c for c in common if c not in same))
    return figure, JobMaker(compose, stores, same).jobs(figure)


def _is_figures(override: str) -> bool:
    """Whether an override is one of the figure itself rather than of its runs."""
    return override.lstrip("+~").partition("=")[0].partition(".")[0] == "figure"


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
        data = (type(parts.dataset), getattr(parts.dataset, "path", None))
        if data not in prepared and hasattr(parts.dataset, "prepare"):
            parts.dataset.prepare()
        prepared.add(data)


_FEW_SEEDS = 5


def _job_table(figure: Figure, jobs: Sequence[Job]) -> Table:
    """A row for each curve of each group, at each point."""
    table = Table(title="Runs", title_justify="left", title_style="bold")
    point = () if figure.points is None else (figure.points.key,)
    for column in ("group", "curve", *point, "seeds: state", "fedpriv train ..."):
        table.add_column(column, overflow="fold")
    rows: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        at = () if figure.points is None else ("–" if job.point is None else f"{job.point:g}",)
        rows.setdefault((job.group.name, job.curve.name, *at), []).append(job)
    for key, own in rows.items():
        shown = [o for o in own[0].overrides if not o.startswith(("runtime.", "seed="))]
        table.add_row(*key, _states(own), " ".join(shown))
    return table


def _states(jobs: Sequence[Job]) -> str:
    """``0: done, 1: not run``; of many seeds ``17 of 20 done, 1 partly``."""
    states = [(job.seed, job.state) for job in jobs]
    if len(jobs) <= _FEW_SEEDS:
        return ", ".join(f"{seed}: {state}" for seed, state in states)
    counts = Counter(state for _, state in states)
    partly = f", {counts[PARTLY]} partly" if counts[PARTLY] else ""
    return f"{counts[DONE]} of {len(jobs)} done{partly}"


def _launch(
    launcher: Launcher, jobs: Sequence[Job], folder: Path
) -> tuple[list[JobReturn], dict[str, str]]:
    """Run the jobs; (what they returned, label → what went wrong)."""
    failures: dict[str, str] = {}
    stop = StopFile(folder)
    batch = [_launch_overrides(job, folder, stop.path) for job in jobs]
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


def _launch_overrides(job: Job, folder: Path, stop_file: Path) -> list[str]:
    """What the launcher composes the job from."""
    place = (
        f"runtime.run_dir={_quoted(job.folder.path)}",
        "runtime.reuse=true",  # another figure may have made it, or be making it, by the time it begins
        f"runtime.stop_file={_quoted(stop_file)}",
    )
    quiet = ("runtime.progress=none", "runtime.plots=false")
    hydra = (f"hydra.sweep.dir={_quoted(folder)}", "hydra.sweep.subdir=.")
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


def _announcement(figure: Figure, jobs: Sequence[Job], unfinished: Sequence[Job]) -> str:
    total = len(list(distinct(jobs)))
    partly = sum(job.state == PARTLY for job in unfinished)
    scale = f"{figure.scale} scale{', changed' if figure.changed else ''}"
    words = f"{figure.name} ({scale}): {counted(total, 'run')}, {total - len(unfinished)} done"
    if partly:
        words += f", {partly} to be resumed"
    minutes = [job.minutes for job in unfinished]
    if unfinished and figure.as_defined and None not in minutes:
        words += f"; the rest takes about {duration(60 * sum(minutes))} on one core"
    return words


def _finish(
    figure: Figure,
    jobs: Sequence[Job],
    failures: dict[str, str],
    folder: Path,
    command: str,
) -> None:
    runs = read_runs(jobs)
    read = {id(run.job) for run in runs}
    missing = [job.label for job in jobs if id(job) not in read]
    if runs:
        write_figure(figure, runs, missing, folder, command)
        console().print(f"figure: {folder / 'figure.png'}\ncompare: {folder / 'comparison.md'}")
    words: dict[str, list[str]] = {}
    for label, why in failures.items():
        words.setdefault(why, []).append(label)
    for why, labels in words.items():
        print(f"fedpriv: {in_short(labels)}: {why}", file=sys.stderr, flush=True)
    if figure.draw_only and missing:
        hint = "without --draw they are run"
        if len(missing) == len(jobs):
            raise FigureIncomplete(f"no run of {figure.name} is finished; {hint}")
        console().print(f"missing ({len(missing)} of {len(jobs)}): {in_short(missing)}; {hint}")
    elif failures or missing:
        again = f"; the same command tries {len(missing)} again" if missing else ""
        raise FigureIncomplete(
            f"{len(failures) or len(missing)} of {counted(len(jobs), 'run')} of {figure.name} failed, see "
            f"above{again}"
        )
