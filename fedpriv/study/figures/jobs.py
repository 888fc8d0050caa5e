"""Jobs of a figure: the runs that the figure needs, and the state of each.

A job is known by the identity of its run, the resolved configuration without ``runtime``. So figures share
runs, finished runs are never repeated, and a run with a changed configuration is a different job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.store.folder import RunFolder
from fedpriv.store.run_folders import runs_below
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.definition import Curve, CurveGroup, Figure
from fedpriv.tools.audit.request import missing

POINT_IN_OVERRIDE = "{point}"  # stands for the point in overrides of a curve
DONE, PARTLY, MISSING = "done", "partly", "not run"

Compose = Callable[[Sequence[str]], DictConfig]


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

    @property
    def minutes(self) -> float | None:
        """Measured minutes of the whole run on one core, or None."""
        return self.curve.minutes.get(self.group.name)


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
        _refuse_fixed(figure, self._common)
        seeds = max(len(group.seeds) for group in figure.groups)
        jobs = []
        for position in range(seeds):
            for group in figure.groups:
                group_jobs = [
                    self._job(figure, group, curve, point, group.seeds[position])
                    for curve in group.curves
                    if position < len(group.seeds_of(curve))
                    for point in figure.points_of(curve)
                ]
                _refuse_twins(group_jobs)
                jobs += group_jobs
        return jobs

    def _job(
        self, figure: Figure, group: CurveGroup, curve: Curve, point: float | None, seed: int
    ) -> Job:
        """Compose one job. Later overrides win: group, curve, quick scale, the user's, and the point."""
        quick = curve.quick if figure.scale == "quick" else ()
        given = (*group.overrides, *curve.overrides, *quick, *figure.altered, *self._common)
        overrides = given = at(given, point)
        point_words = ""
        if point is not None and figure.points is not None:
            point_words = figure.points.words(point)
            if figure.points.choices:
                overrides = given = (*given, *figure.points.overrides(point))
            else:
                given = tuple(o for o in given if _key(o) != figure.points.key)
                overrides = (*given, *figure.points.overrides(point))
        if overrides not in self._seedless:
            config = self._configured(given, figure, point)
            if config.get("publish"):
                raise ConfigError(
                    "publish",
                    config.publish,
                    "false in a figure",
                    "its runs are found by their configuration, and a published run is never found again",
                )
            self._seedless[overrides] = _Seedless(config)
        shared = self._seedless[overrides]
        identity = shared.identity(seed)
        folder = self._folder(configuration.run_name(shared.config, identity), identity)
        return Job(
            group,
            curve,
            seed,
            (*overrides, f"seed={seed}"),
            identity,
            folder,
            shared.config,
            point,
            point_words,
        )

    def _configured(
        self, overrides: tuple[str, ...], figure: Figure, point: float | None
    ) -> DictConfig:
        """Return the configuration at a point: composed once a curve, then the one key set, as Hydra does."""
        if overrides not in self._composed:
            self._composed[overrides] = self._compose(overrides)
        config = self._composed[overrides]
        if point is None or figure.points is None or figure.points.choices:
            return config
        key, config = figure.points.key, config.copy()
        if OmegaConf.is_config(OmegaConf.select(config, key)):
            raise ConfigError("figure.points.key", key, "a key with a number, not a group")
        try:
            OmegaConf.update(config, key, point)
        except OmegaConfBaseException:
            return self._compose((*overrides, f"{key}={point}"))  # raises an error about the key
        return config

    def _folder(self, name: str, identity: dict[str, object]) -> RunFolder:
        """Return the folder of a finished run of that name in any store, else a folder in the first store.

        Raises:
            ConfigError: The folder holds another run.
        """
        runs = [StoredRun(store / name) for store in self._stores]
        run = next((run for run in runs if run.finished), None) or self._under_another_name(
            identity
        )
        run = run or runs[0]
        if run.files.config.exists() and (
            configuration.fingerprint(run.identity) != configuration.fingerprint(identity)
        ):
            raise ConfigError(
                f"{run.path} holds another run than its name says (its config.yaml was changed, or "
                "its seeds withheld); move it away"
            )
        return run.files

    def _under_another_name(self, identity: dict[str, object]) -> StoredRun | None:
        """Return a finished run of another name, as in the folder of a sweep, from the further stores."""
        if self._by_fingerprint is None:
            self._by_fingerprint = {}
            for store in self._stores[1:]:
                for _, path in runs_below(store):
                    run = StoredRun(path)
                    # One that cannot be read may be none of the figure's.
                    with suppress(ConfigError):
                        if run.finished and run.values.get("seed") is not None:
                            key = configuration.fingerprint(run.identity)
                            self._by_fingerprint.setdefault(key, path)
        found = self._by_fingerprint.get(configuration.fingerprint(identity))
        return None if found is None else StoredRun(found)


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
    return tuple(override.replace(POINT_IN_OVERRIDE, f"{point:g}") for override in overrides)


def _key(override: str) -> str:
    return override.partition("=")[0]


def _refuse_fixed(figure: Figure, common: Sequence[str]) -> None:
    """Raise ConfigError for overrides of the seed and of the points' key, which the figure itself sets."""
    defined = [o for g in figure.groups for o in g.overrides]
    defined += [o for g in figure.groups for c in g.curves for o in c.overrides]
    for override in (*defined, *figure.altered, *common):
        if _key(override) == "seed":
            raise ConfigError(
                "seed is not set for the runs of a figure; use --seeds 0,1 (figure.seeds=[0,1])"
            )
    if figure.points is not None and figure.points.key in map(_key, figure.changed):
        key = figure.points.key
        raise ConfigError(f"{key} is set by the figure's points; use figure.points.values=[…]")


def _refuse_twins(jobs: Sequence[Job]) -> None:
    """Raise ConfigError where two curves, or two points of a curve, are the same run and hide one another."""
    seen: dict[Path, Job] = {}
    for job in jobs:
        other = seen.setdefault(job.folder.path, job)
        if other is job:
            continue
        if other.curve is job.curve:
            raise ConfigError(
                f"figure.points: {other.at} and {job.at} are the same runs of "
                f"{job.curve.name} in group {job.group.name}"
            )
        point = f" at {job.at}" if job.at else ""
        raise ConfigError(
            f"figure.curves: {other.curve.name} and {job.curve.name} are the same runs in group "
            f"{job.group.name}{point}"
        )


def distinct(jobs: Iterable[Job]) -> Iterator[Job]:
    """Yield the jobs, without jobs that are the same run as an earlier job."""
    seen: set[Path] = set()
    for job in jobs:
        if job.folder.path not in seen:
            seen.add(job.folder.path)
            yield job
