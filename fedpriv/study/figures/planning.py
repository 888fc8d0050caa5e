"""Plan of a figure: its jobs, and the lines that announce these before any job runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from omegaconf import DictConfig

from fedpriv.common.errors import ConfigError
from fedpriv.common.words import counted
from fedpriv.store.display import duration
from fedpriv.store.packed import unpack_runs
from fedpriv.store.table import Table
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.forecast import JobForecast, forecast_cells, forecast_columns
from fedpriv.study.figures.from_file import figure_of_file, is_file
from fedpriv.study.figures.jobs import DONE, PARTLY, Compose, Job, JobMaker, distinct
from fedpriv.study.figures.reading import plain_section, read_figure


def plan_figure(
    config: DictConfig, name: str, compose: Compose, arguments: Sequence[str] = ()
) -> tuple[Figure, list[Job]]:
    """Read the figure that a configuration defines, and compose its jobs.

    Args:
        config: The composed configuration.
        name: Name of the figure, ``<work>/<figure>``.
        compose: Returns the configuration of a job for a list of overrides.
        arguments: Overrides of the command line, for the figure and for its runs.

    Returns:
        The figure, with the overrides that change its runs, and the jobs.

    Raises:
        ConfigError: The figure is not well defined, or a job cannot be composed.
    """
    section = plain_section(config.figure)
    figure = figure_of_file(section, compose) if is_file(section) else read_figure(section, name)
    outputs = Path(config.runtime.output_dir)
    stores = [outputs / "runs", *(_store(Path(given), outputs) for given in figure.reuse)]
    for_runs = [
        argument
        for argument in arguments
        if argument.lstrip("+~").partition("=")[0].partition(".")[0] != "figure"
        and not argument.startswith("dry_run=")
    ]
    same_result = [a for a in for_runs if a.lstrip("+").startswith(("runtime.", "dataset.path="))]
    figure = replace(figure, changed=tuple(a for a in for_runs if a not in same_result))
    return figure, JobMaker(compose, stores, same_result).jobs(figure)


def _store(given: Path, outputs: Path) -> Path:
    """Return the folder of finished runs that ``--reuse`` names, unpacked if it names an archive."""
    if given.is_file():
        return unpack_runs(given, outputs / "reused")
    if not given.is_dir():
        allowed = "an existing folder of runs, or a file runs.zip"
        raise ConfigError("--reuse (figure.reuse)", str(given), allowed)
    return given


def announcement(figure: Figure, jobs: Sequence[Job], unfinished: Sequence[Job]) -> str:
    """Return a line about the number of runs, finished runs and the time that the others take."""
    total = len(list(distinct(jobs)))
    partly = sum(job.state == PARTLY for job in unfinished)
    quick = "quick scale" if figure.scale == "quick" else ""
    kind = ", ".join(filter(None, (quick, "changed" if figure.changed else "")))
    line = f"{figure.name}{f' ({kind})' if kind else ''}: {counted(total, 'run')}, "
    line += f"{total - len(unfinished)} done"
    if partly:
        line += f", {partly} to be resumed"
    minutes = [job.minutes for job in unfinished if job.minutes is not None]
    if unfinished and figure.as_defined and len(minutes) == len(unfinished):
        line += f"; the rest takes about {duration(60 * sum(minutes))} on one core"
    return line


_FEW_SEEDS = 5  # the states of more seeds are counted


def job_table(figure: Figure, jobs: Sequence[Job], forecast: JobForecast | None = None) -> Table:
    """Return a table with a row for each curve of each group, at each point.

    Args:
        figure: The figure.
        jobs: Its jobs.
        forecast: Rounds, ε and time of the jobs, for columns of their own.
    """
    point = () if figure.points is None else (figure.points.key or figure.points.label,)
    forecasts = () if forecast is None else forecast_columns()
    title, shared = "Runs", set[str]()
    if forecast is not None and len(jobs) > 1:
        shared = set.intersection(*(set(job.overrides) for job in jobs))
        words = [o for o in jobs[0].overrides if o in shared and not o.startswith("runtime.")]
        title = f"Runs of fedpriv train {' '.join(words)} ..."
    grouped = figure.file is None or any(group.title for group in figure.groups)
    names = ("group", "curve") if grouped else ("curve",)
    columns = (*names, *point, "seeds: state", *forecasts, "fedpriv train ...")
    table = Table(title, columns)
    rows: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        at = () if figure.points is None else (job.at or "–",)
        rows.setdefault((job.group.name, job.curve.name, *at), []).append(job)
    for key, same_curve in rows.items():
        left_out = ("runtime.", "seed=")
        given = same_curve[0].overrides
        shown = [o for o in given if not o.startswith(left_out) and o not in shared]
        if len(same_curve) <= _FEW_SEEDS:
            states = ", ".join(f"{job.seed}: {job.state}" for job in same_curve)
        else:
            counts = Counter(job.state for job in same_curve)
            partly = f", {counts[PARTLY]} partly" if counts[PARTLY] else ""
            states = f"{counts[DONE]} of {len(same_curve)} done{partly}"
        cells = () if forecast is None else forecast_cells(forecast, same_curve)
        table.add(*(key if grouped else key[1:]), states, *cells, " ".join(shown))
    return table
