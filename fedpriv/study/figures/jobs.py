"""Jobs of a figure: the runs that the figure needs, the state of each, and the tables about them.

A job is known by the identity of its run, the resolved configuration without ``runtime``. So figures share
runs, finished runs are never repeated, and a run with a changed configuration is a different job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from itertools import compress
from operator import itemgetter
from pathlib import Path

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
from fedpriv.store.saved import saved_records
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column, Table
from fedpriv.study.figures.definition import Curve, CurveGroup, Figure, key_of
from fedpriv.study.figures.reading import Compose, plain_section, read_figure, read_own
from fedpriv.tools.audit.request import missing

DONE, PARTLY, MISSING = "done", "partly", "not run"
_Identity = Callable[[int], dict[str, object]]
_PROBES = (2**61 + 1, 2**61 + 3)  # seeds that are not the value of any other key


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
        if not given.exists():
            allowed = "an existing folder of runs, or a file runs.zip"
            raise ConfigError("--reuse (figure.reuse)", str(given), allowed)
        stores.append(unpack_runs(given, outputs / "reused") if given.is_file() else given)
    of_figure = re.compile(r"[+~]*figure([=.]|$)|dry_run=")
    for_runs = [argument for argument in arguments if not of_figure.match(argument)]
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
        self._compose, self._stores, self._common = cache(compose), list(stores), tuple(common)
        self._seedless: dict[tuple[str, ...], tuple[DictConfig, _Identity]] = {}

    def jobs(self, figure: Figure) -> list[Job]:
        """Return the figure's jobs, the first seed of every curve first, so that all curves appear early.

        Raises:
            ConfigError: A job cannot be composed, or two curves or points of a group are the same run.
        """
        if figure.points is not None and figure.points.key in map(key_of, figure.changed):
            key = figure.points.key
            raise ConfigError(f"{key} is set by the figure's x; use 'figure.x={{{key}:[…]}}'")
        cells = [
            (position, group, curve, point, seed)
            for group in figure.groups
            for curve in group.curves
            for position, seed in enumerate(group.seeds_of(curve))
            for point in figure.points_of(curve)
        ]
        jobs: dict[tuple[str, Path], Job] = {}
        for _, group, curve, point, seed in sorted(cells, key=itemgetter(0)):
            job = self._job(figure, group, curve, point, seed)
            other = jobs.setdefault((group.name, job.folder.path), job)
            if other is not job:
                raise ConfigError(f"figure: {other.label} and {job.label} are the same run")
        return [*jobs.values()]

    def _job(
        self, figure: Figure, group: CurveGroup, curve: Curve, point: float | None, seed: int
    ) -> Job:
        """Compose one job. Later overrides win: group, curve, quick scale, the user's, and the point."""
        quick = curve.quick if figure.scale == "quick" else ()
        given = (*group.overrides, *curve.overrides, *quick, *figure.altered, *self._common)
        if "seed" in map(key_of, given):
            hint = "use --seeds 0,1 (figure.seeds=[0,1])"
            raise ConfigError(f"seed is not set for the runs of a figure; {hint}")
        given, points, key, words = at(given, point), figure.points, "", ""
        overrides = given
        if point is not None and points is not None:
            words, key = points.words(point), points.key
            if key:
                given = tuple(override for override in given if key_of(override) != key)
            overrides = (*given, *points.overrides(point))
        if overrides not in self._seedless:
            config = self._compose(given if key else overrides)
            if key:  # a curve is composed once, and then the one key is set as Hydra sets it
                config = config.copy()
                if OmegaConf.is_config(OmegaConf.select(config, key)):
                    raise ConfigError("figure.x", key, "a key with a number, not a group")
                try:
                    OmegaConf.update(config, key, point)
                except OmegaConfBaseException:
                    config = self._compose(overrides)  # raises an error about the key
            if config.get("publish"):
                hint = "its runs are found by their configuration, a published run is never found"
                raise ConfigError("publish", config.publish, "false in a figure", hint)
            self._seedless[overrides] = config, _identity_of(config)
        config, identity_of = self._seedless[overrides]
        identity = identity_of(seed)
        folder = self._folder(configuration.run_name(config, identity), identity)
        whole = (*overrides, f"seed={seed}")
        return Job(group, curve, seed, whole, identity, folder, config, point, words)

    def _folder(self, name: str, identity: dict[str, object]) -> RunFolder:
        """Return the folder of a finished run in any store, else a folder in the first store.

        Raises:
            ConfigError: The folder holds another run.
        """
        wanted, run = configuration.fingerprint(identity), StoredRun(self._stores[0] / name)
        if not run.finished:
            run = self._further.get(wanted, run)
        if run.files.config.exists() and configuration.fingerprint(run.identity) != wanted:
            raise ConfigError(
                f"{run.path} holds another run than its name says (its config.yaml was changed, or "
                "its seeds withheld); move it away"
            )
        return run.files

    @cached_property
    def _further(self) -> dict[str, StoredRun]:
        """Fingerprint → finished run in a further store, which may have any name there, as in a sweep."""
        found: dict[str, StoredRun] = {}
        for _, path in (below for store in self._stores[1:] for below in runs_below(store)):
            run = StoredRun(path)
            with suppress(ConfigError):  # one that cannot be read may be none of the figure's
                if run.finished and run.values.get("seed") is not None:
                    found.setdefault(configuration.fingerprint(run.identity), run)
        return found


def _identity_of(config: DictConfig) -> _Identity:
    """Return the function from the seed of a run with this configuration to the identity of the run.

    A figure may have thousands of jobs, and resolving a configuration is slow. So it is resolved with two
    probe seeds only, unless a key is computed from the seed. A key with the value of the probe is the seed.
    """

    def resolved(seed: int) -> dict[str, object]:
        seeded = config.copy()
        seeded.seed = seed
        return configuration.identity(seeded)

    known, other = map(resolved, _PROBES)
    following = [key for key, value in known.items() if value != other.get(key)]
    if any(known[key] != _PROBES[0] for key in following):
        return resolved
    return lambda seed: known | dict.fromkeys(following, seed)


def at(overrides: Sequence[str], point: float | None) -> tuple[str, ...]:
    """Return the overrides with the point in place of ``{point}``."""
    if point is None:
        return tuple(overrides)
    return tuple(override.replace("{point}", f"{point:g}") for override in overrides)


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
    line = f"{figure.folder}: {counted(len(runs), 'run')}, {len(runs) - len(left)} done"
    if partly := sum(job.state == PARTLY for job in left):
        line += f", {partly} to be resumed"
    minutes = [job.curve.minutes.get(job.group.name, 0.0) for job in left]
    if left and figure.as_defined and all(minutes):
        line += f"; the rest takes about {duration(60 * sum(minutes))} on one core"
    return line


def job_table(
    figure: Figure,
    jobs: Sequence[Job],
    columns: Sequence[Column | str] = ("fedpriv train ...",),
    cells_of: Callable[[Sequence[Job]], Iterable[str]] | None = None,
) -> Table:
    """Return a table with a row for each curve of each group, at each point.

    Args:
        figure: The figure.
        jobs: Its jobs.
        columns: Columns after the state of the runs.
        cells_of: Returns their cells, for jobs that differ in their seeds; None: the overrides of the jobs.
    """
    points = figure.points
    point = "" if points is None else points.key or points.label
    shown = (any(group.title for group in figure.groups), True, points is not None)
    names = (*compress(("group", "curve", point), shown), "seeds: state")
    table = Table("Runs", (*names, *columns))
    rows: dict[tuple[str, str, str], list[Job]] = {}
    for job in jobs:
        rows.setdefault((job.group.name, job.curve.name, job.at or "–"), []).append(job)
    for key, same in rows.items():
        states = ", ".join(f"{job.seed}: {job.state}" for job in same)
        if len(same) > 5:
            states = f"{sum(job.state == DONE for job in same)} of {len(same)} done"
        words = (o for o in same[0].overrides if not o.startswith(("runtime.", "seed=")))
        cells = cells_of(same) if cells_of else [" ".join(words)]
        table.add(*compress(key, shown), states, *cells)
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


def read_record(folder: Path) -> list[dict[str, str]]:
    """Return the rows of a figure's runs.csv; none where there is no such file."""
    with suppress(ConfigError):
        return saved_records(folder / "runs.csv")
    return []
