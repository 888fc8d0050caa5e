"""Jobs of a figure: the runs that the figure needs, the state of each, and the tables about them.

A job is known by the identity of its run, the resolved configuration without ``runtime``. So figures share
runs, finished runs are never repeated, and a run with a changed configuration is a different job.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.common.files import csv_text, write_text
from fedpriv.common.words import counted
from fedpriv.store.display import duration
from fedpriv.store.folder import RunFolder
from fedpriv.store.packed import unpack_runs
from fedpriv.store.run_folders import runs_below
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Table
from fedpriv.study.figures.catalogue import read_record
from fedpriv.study.figures.definition import Curve, CurveGroup, Figure
from fedpriv.study.figures.reading import Compose, plain_section, read_figure, read_own
from fedpriv.tools.audit.request import missing

if TYPE_CHECKING:
    from fedpriv.study.figures.forecast import JobForecast

DONE, PARTLY, MISSING = "done", "partly", "not run"


@dataclass(frozen=True)
class Job:
    """One run of a figure.

    Attributes:
        group: Group of the curve.
        curve: Curve that the run belongs to.
        seed: Seed of the run.
        overrides: Overrides that ``fedpriv train`` would be given.
        identity: Identity of the run, see :func:`fedpriv.common.config.identity`.
        folder: Folder of the run, which need not exist yet.
        config: Configuration without the seed, shared by the jobs that differ only in their seeds.
        point: Point of the figure at which the run is made, or None.
        at: The point in words; empty without a point.
    """

    group: CurveGroup
    curve: Curve
    seed: int
    overrides: tuple[str, ...]
    identity: dict[str, object]
    folder: RunFolder
    config: DictConfig = field(repr=False, compare=False)
    point: float | None = None
    at: str = ""

    @property
    def label(self) -> str:
        """Name of the job in messages: group, curve, point and seed."""
        point = f"/at {self.at}" if self.at else ""
        return f"{self.group.name}/{self.curve.name}{point}/seed {self.seed}"

    @property
    def state(self) -> str:
        """State of the run now: ``done``, ``partly`` (can be resumed) or ``not run``."""
        run, audit = StoredRun(self.folder), self.config.get("audit")
        # A process killed between the end of training and the audits leaves a run without these.
        if run.finished and (audit is None or not missing(audit, run.summary)):
            return DONE
        return PARTLY if self.folder.config.exists() else MISSING


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
    figure = read_own(section, compose) if "file" in section else read_figure(section, name)
    outputs = Path(config.runtime.output_dir)
    stores = [outputs / "runs"]
    for given in map(Path, figure.reuse):
        if not given.is_file() and not given.is_dir():
            allowed = "an existing folder of runs, or a file runs.zip"
            raise ConfigError("--reuse (figure.reuse)", str(given), allowed)
        stores.append(unpack_runs(given, outputs / "reused") if given.is_file() else given)
    for_runs = [
        argument
        for argument in arguments
        if re.split(r"[=.]", argument.lstrip("+~"))[0] != "figure"
        and not argument.startswith("dry_run=")
    ]
    same_result = [a for a in for_runs if a.lstrip("+").startswith(("runtime.", "dataset.path="))]
    figure = replace(figure, changed=tuple(a for a in for_runs if a not in same_result))
    return figure, JobMaker(compose, stores, same_result).jobs(figure)


class JobMaker:
    """Composer of a figure's jobs. A configuration that jobs share is composed once.

    Args:
        compose: Returns the configuration for a list of overrides.
        stores: Folders that hold run folders; new runs go to the first folder.
        common: Overrides of every job that change no result, such as ``runtime.threads=1``.
    """

    def __init__(self, compose: Compose, stores: Sequence[Path], common: Sequence[str] = ()):
        self._compose, self._stores, self._common = compose, list(stores), tuple(common)
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._seedless: dict[tuple[str, ...], _Seedless] = {}
        self._by_fingerprint: dict[str, Path] | None = None

    def jobs(self, figure: Figure) -> list[Job]:
        """Return the figure's jobs, the first seed of every curve first, so that all curves appear early.

        Raises:
            ConfigError: A job cannot be composed, or two curves or points of a group are the same run.
        """
        given = [o for g in figure.groups for c in g.curves for o in (*g.overrides, *c.overrides)]
        if any(_key(override) == "seed" for override in (*given, *figure.altered, *self._common)):
            raise ConfigError(
                "seed is not set for the runs of a figure; use --seeds 0,1 (figure.seeds=[0,1])"
            )
        if figure.points is not None and figure.points.key in map(_key, figure.changed):
            key = figure.points.key
            raise ConfigError(f"{key} is set by the figure's x; use 'figure.x={{{key}:[…]}}'")
        jobs = []
        for position in range(max(len(group.seeds) for group in figure.groups)):
            for group in figure.groups:
                seen: dict[Path, Job] = {}
                for curve in group.curves:
                    for seed in group.seeds_of(curve)[position : position + 1]:
                        for point in figure.points_of(curve):
                            job = self._job(figure, group, curve, point, seed)
                            jobs.append(job)
                            if (other := seen.setdefault(job.folder.path, job)) is not job:
                                first, second = (
                                    (other.at, f"{job.at} of {curve.name}")
                                    if other.curve is curve
                                    else (other.curve.name, curve.name)
                                )
                                raise ConfigError(
                                    f"figure: {first} and {second} are the same runs in panel "
                                    f"{group.name}{f' at {job.at}' if job.at else ''}"
                                )
        return jobs

    def _job(
        self, figure: Figure, group: CurveGroup, curve: Curve, point: float | None, seed: int
    ) -> Job:
        """Compose one job. Later overrides win: group, curve, quick scale, the user's, and the point."""
        quick = curve.quick if figure.scale == "quick" else ()
        given = (*group.overrides, *curve.overrides, *quick, *figure.altered, *self._common)
        overrides = given = at(given, point)
        points, words = figure.points, ""
        if point is not None and points is not None:
            words = points.words(point)
            if points.choices:
                overrides = given = (*given, *points.overrides(point))
            else:
                given = tuple(o for o in given if _key(o) != points.key)
                overrides = (*given, *points.overrides(point))
        if overrides not in self._seedless:
            if given not in self._composed:
                self._composed[given] = self._compose(given)
            config = self._composed[given]
            if point is not None and points is not None and not points.choices:
                # A curve is composed once, and then the one key is set as Hydra sets it.
                config = config.copy()
                if OmegaConf.is_config(OmegaConf.select(config, points.key)):
                    raise ConfigError("figure.x", points.key, "a key with a number, not a group")
                try:
                    OmegaConf.update(config, points.key, point)
                except OmegaConfBaseException:
                    config = self._compose(overrides)  # raises an error about the key
            if config.get("publish"):
                hint = "its runs are found by their configuration, a published run is never found"
                raise ConfigError("publish", config.publish, "false in a figure", hint)
            self._seedless[overrides] = _Seedless(config)
        shared = self._seedless[overrides]
        identity = shared.identity(seed)
        folder = self._folder(configuration.run_name(shared.config, identity), identity)
        whole = (*overrides, f"seed={seed}")
        return Job(group, curve, seed, whole, identity, folder, shared.config, point, words)

    def _folder(self, name: str, identity: dict[str, object]) -> RunFolder:
        """Return the folder of a finished run in any store, else a folder in the first store.

        Further stores may hold the run under another name, as the folder of a sweep does.

        Raises:
            ConfigError: The folder holds another run.
        """
        wanted = configuration.fingerprint(identity)
        runs = [StoredRun(store / name) for store in self._stores]
        found = next((run for run in runs if run.finished), None)
        if found is None:
            if self._by_fingerprint is None:
                self._by_fingerprint = {}
                for _, path in (below for store in self._stores[1:] for below in runs_below(store)):
                    run = StoredRun(path)
                    with suppress(
                        ConfigError
                    ):  # one that cannot be read may be none of the figure's
                        if run.finished and run.values.get("seed") is not None:
                            key = configuration.fingerprint(run.identity)
                            self._by_fingerprint.setdefault(key, path)
            other = self._by_fingerprint.get(wanted)
            found = runs[0] if other is None else StoredRun(other)
        if found.files.config.exists() and configuration.fingerprint(found.identity) != wanted:
            raise ConfigError(
                f"{found.path} holds another run than its name says (its config.yaml was changed, or "
                "its seeds withheld); move it away"
            )
        return found.files


class _Seedless:
    """A configuration without a seed, and the identities of its runs.

    A figure may have thousands of jobs, and resolving a configuration is slow. So the configuration is
    resolved with two probe seeds only. Keys that have the value of the probe follow the seed; if any other
    key differs between the probes, each seed is resolved after all.
    """

    _PROBES = (2**61 + 1, 2**61 + 3)  # seeds that are not the value of any other key

    def __init__(self, config: DictConfig):
        self.config = config
        self._known, other = (self._resolved(probe) for probe in self._PROBES)
        differing = {key for key, value in self._known.items() if value != other.get(key)}
        self._following = [key for key in differing if self._known[key] == self._PROBES[0]]
        self._plain = len(self._following) == len(differing)

    def _resolved(self, seed: int) -> dict[str, object]:
        config = self.config.copy()
        config.seed = seed
        return configuration.identity(config)

    def identity(self, seed: int) -> dict[str, object]:
        """Return the identity of the run with this seed."""
        if not self._plain:  # some key is computed from the seed
            return self._resolved(seed)
        return self._known | dict.fromkeys(self._following, seed)


def at(overrides: Sequence[str], point: float | None) -> tuple[str, ...]:
    """Return the overrides with the point in place of ``{point}``."""
    if point is None:
        return tuple(overrides)
    return tuple(override.replace("{point}", f"{point:g}") for override in overrides)


def _key(override: str) -> str:
    return override.partition("=")[0]


def distinct(jobs: Iterable[Job]) -> list[Job]:
    """Return the jobs, without jobs that are the same run as an earlier job."""
    runs: dict[Path, Job] = {}
    for job in jobs:
        runs.setdefault(job.folder.path, job)
    return [*runs.values()]


def announcement(figure: Figure, jobs: Sequence[Job]) -> str:
    """Return a line about the number of runs, finished runs and the time that the others take."""
    runs = distinct(jobs)
    left = [job for job in runs if job.state != DONE]
    quick = "quick scale" if figure.scale == "quick" else ""
    kind = ", ".join(filter(None, (quick, "changed" if figure.changed else "")))
    line = f"{figure.name}{f' ({kind})' if kind else ''}: {counted(len(runs), 'run')}, "
    line += f"{len(runs) - len(left)} done"
    if partly := sum(job.state == PARTLY for job in left):
        line += f", {partly} to be resumed"
    minutes = [job.curve.minutes.get(job.group.name, 0.0) for job in left]
    if left and figure.as_defined and all(minutes):
        line += f"; the rest takes about {duration(60 * sum(minutes))} on one core"
    return line


def job_table(figure: Figure, jobs: Sequence[Job], forecast: JobForecast | None = None) -> Table:
    """Return a table with a row for each curve of each group, at each point.

    Args:
        figure: The figure.
        jobs: Its jobs.
        forecast: Rounds, ε and time of the jobs, for columns of their own.
    """
    point = () if figure.points is None else (figure.points.key or figure.points.label,)
    title, shared = "Runs", set[str]()
    if forecast is not None and len(jobs) > 1:
        shared = set.intersection(*(set(job.overrides) for job in jobs))
        words = [o for o in jobs[0].overrides if o in shared and not o.startswith("runtime.")]
        title = f"Runs of fedpriv train {' '.join(words)} ..."
    names = ("group", "curve") if any(group.title for group in figure.groups) else ("curve",)
    forecasts = () if forecast is None else forecast.columns
    table = Table(title, (*names, *point, "seeds: state", *forecasts, "fedpriv train ..."))
    rows: dict[tuple[str, ...], list[Job]] = {}
    for job in jobs:
        where = () if figure.points is None else (job.at or "–",)
        rows.setdefault((job.group.name, job.curve.name, *where)[2 - len(names) :], []).append(job)
    for key, same_curve in rows.items():
        left_out = ("runtime.", "seed=")
        given = same_curve[0].overrides
        shown = [o for o in given if not o.startswith(left_out) and o not in shared]
        counts = Counter(job.state for job in same_curve)
        states = ", ".join(f"{job.seed}: {job.state}" for job in same_curve)
        if len(same_curve) > 5:
            partly = f", {counts[PARTLY]} partly" if counts[PARTLY] else ""
            states = f"{counts[DONE]} of {len(same_curve)} done{partly}"
        cells = () if forecast is None else forecast.cells(same_curve)
        table.add(*key, states, *cells, " ".join(shown))
    return table


def write_record(folder: Path, jobs: Sequence[Job], why: Mapping[str, str]) -> None:
    """Write runs.csv: the state of each job, read from the run folders now, and label → why it failed."""
    rows: list[tuple[object, ...]] = [("group", "curve", "point", "seed", "state", "why", "run")]
    for job in jobs:
        names = (job.group.name, job.curve.name, job.at, job.seed)
        rows.append((*names, job.state, why.get(job.label, ""), job.folder.path))
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "runs.csv", csv_text(rows))


def read_failures(folder: Path, jobs: Sequence[Job]) -> dict[str, str]:
    """Return label → reason of the last failure, for the jobs that are not done, from runs.csv."""
    why = {Path(row.get("run", "")).name: row.get("why", "") for row in read_record(folder)}
    reasons = {job.label: why.get(job.folder.path.name) for job in jobs if job.state != DONE}
    return {label: reason for label, reason in reasons.items() if reason}
