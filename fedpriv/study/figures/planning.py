"""From a configuration to a figure's jobs, and what is said of them before any runs."""

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
from fedpriv.study.figures.jobs import DONE, PARTLY, Compose, Job, JobMaker, distinct
from fedpriv.study.figures.reading import read_figure


def plan_figure(
    config: DictConfig, name: str, compose: Compose, arguments: Sequence[str] = ()
) -> tuple[Figure, list[Job]]:
    """The figure that ``config`` defines, and its jobs. Raises ConfigError for what cannot run."""
    figure = read_figure(config.figure, name)
    common = [a for a in arguments if not _is_figures(a)]
    outputs = Path(config.runtime.output_dir)
    stores = [outputs / "runs", *(_store(Path(given), outputs) for given in figure.reuse)]
    common = [c for c in common if not c.startswith("dry_run=")]
    same = [c for c in common if c.lstrip("+").startswith(("runtime.", "dataset.path="))]
    figure = replace(figure, changed=tuple(c for c in common if c not in same))
    return figure, JobMaker(compose, stores, same).jobs(figure)


def _store(given: Path, outputs: Path) -> Path:
    """The folder of finished runs that ``--reuse`` names, or that is in the file it names."""
    if given.is_file():
        return unpack_runs(given, outputs / "reused")
    if not given.is_dir():
        allowed = "an existing folder of runs, or a file runs.zip"
        raise ConfigError("--reuse (figure.reuse)", str(given), allowed)
    return given


def _is_figures(override: str) -> bool:
    """Whether an override is one of the figure itself rather than of its runs."""
    return override.lstrip("+~").partition("=")[0].partition(".")[0] == "figure"


def announcement(figure: Figure, jobs: Sequence[Job], unfinished: Sequence[Job]) -> str:
    total = len(list(distinct(jobs)))
    partly = sum(job.state == PARTLY for job in unfinished)
    scale = f"{figure.scale} scale{', changed' if figure.changed else ''}"
    words = f"{figure.name} ({scale}): {counted(total, 'run')}, {total - len(unfinished)} done"
    if partly:
        words += f", {partly} to be resumed"
    minutes = [job.minutes for job in unfinished if job.minutes is not None]
    if unfinished and figure.as_defined and len(minutes) == len(unfinished):
        words += f"; the rest takes about {duration(60 * sum(minutes))} on one core"
    return words


_FEW_SEEDS = 5


def job_table(figure: Figure, jobs: Sequence[Job]) -> Table:
    """A row for each curve of each group, at each point."""
    point = () if figure.points is None else (figure.points.key,)
    table = Table("Runs", ("group", "curve", *point, "seeds: state", "fedpriv train ..."))
    rows: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        at = () if figure.points is None else ("–" if job.point is None else f"{job.point:g}",)
        rows.setdefault((job.group.name, job.curve.name, *at), []).append(job)
    for key, own in rows.items():
        shown = [o for o in own[0].overrides if not o.startswith(("runtime.", "seed="))]
        table.add(*key, _states(own), " ".join(shown))
    return table


def _states(jobs: Sequence[Job]) -> str:
    """``0: done, 1: not run``; of many seeds ``17 of 20 done, 1 partly``."""
    states = [(job.seed, job.state) for job in jobs]
    if len(jobs) <= _FEW_SEEDS:
        return ", ".join(f"{seed}: {state}" for seed, state in states)
    counts = Counter(state for _, state in states)
    partly = f", {counts[PARTLY]} partly" if counts[PARTLY] else ""
    return f"{counts[DONE]} of {len(jobs)} done{partly}"
