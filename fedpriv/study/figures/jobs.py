"""From a figure to the runs it needs, and what is there of each.

A job is known by the identity of its run (the resolved configuration without ``runtime``), so runs
are shared between figures, finished ones are never repeated, and a changed one is a different job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.store.folder import RunFolder
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.definition import Curve, CurveGroup, Figure
from fedpriv.tools.audit.request import missing

POINT_IN_OVERRIDE = "{point}"
"""Stands for the value of the figure's points in overrides of a curve."""
DONE, PARTLY, MISSING = "done", "partly", "not run"

Compose = Callable[[Sequence[str]], DictConfig]


@dataclass(frozen=True)
class Job:
    """One run of a figure.

    Attributes:
        overrides: What ``fedpriv train`` would be given.
        identity: See :func:`fedpriv.common.config.identity`.
        folder: Where the run is or will be.
        config: The configuration but for the seed; jobs that differ only in that share it.
        point: The value of the figure's points at which it is run, if at one.
    """

    group: CurveGroup
    curve: Curve
    seed: int
    overrides: tuple[str, ...]
    identity: dict[str, object]
    folder: RunFolder
    config: DictConfig = field(repr=False, compare=False)
    point: float | None = None

    @property
    def label(self) -> str:
        point = "" if self.point is None else f"/at {self.point:g}"
        return f"{self.group.name}/{self.curve.name}{point}/seed {self.seed}"

    @property
    def state(self) -> str:
        """``done``, ``partly`` (can be resumed) or ``not run``."""
        run, audit = StoredRun(self.folder), self.config.get("audit")
        # killed after it ended, a run may lack the audits it asks for
        if run.finished and (audit is None or not missing(audit, run.summary)):
            return DONE
        return PARTLY if self.folder.config.exists() else MISSING

    @property
    def minutes(self) -> float | None:
        """About how long the whole run takes on one core, if that was measured."""
        return self.curve.minutes.get(self.group.name)


class JobMaker:
    """Composes the jobs of figures; what they share is composed once.

    Args:
        compose: Overrides → configuration.
        stores: Folders that hold run folders; new runs go to the first.
        common: Overrides of every job that change no result, such as ``runtime.threads=1``.
    """

    def __init__(self, compose: Compose, stores: Sequence[Path], common: Sequence[str] = ()):
        self._compose, self._stores, self._common = compose, list(stores), tuple(common)
        self._composed: dict[tuple[str, ...], DictConfig] = {}
        self._seedless: dict[tuple[str, ...], _Seedless] = {}

    def jobs(self, figure: Figure) -> list[Job]:
        """The figure's jobs, first those of the first seed of every curve, so that the whole
        picture is there early."""
        _refuse_fixed(figure, self._common)
        seeds = max(len(group.seeds) for group in figure.groups)
        found = []
        for position in range(seeds):
            for group in figure.groups:
                own = [
                    self._job(figure, group, curve, point, group.seeds[position])
                    for curve in group.curves
                    if position < len(group.seeds_of(curve))
                    for point in figure.points_of(curve)
                ]
                _refuse_twins(own)
                found += own
        return found

    def _job(
        self, figure: Figure, group: CurveGroup, curve: Curve, point: float | None, seed: int
    ) -> Job:
        quick = curve.quick if figure.scale == "quick" else ()
        given = (*group.overrides, *curve.overrides, *quick, *figure.altered, *self._common)
        overrides = given = at(given, point)
        if point is not None and figure.points is not None:
            key = figure.points.key  # the quick scale has points of its own
            given = tuple(o for o in given if _key(o) != key)
            overrides = (*given, f"{key}={point}")
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
            group, curve, seed, (*overrides, f"seed={seed}"), identity, folder, shared.config, point
        )

    def _configured(
        self, overrides: tuple[str, ...], figure: Figure, point: float | None
    ) -> DictConfig:
        """The configuration at a point: composed once a curve, then the one key set, as Hydra does."""
        if overrides not in self._composed:
            self._composed[overrides] = self._compose(overrides)
        config = self._composed[overrides]
        if point is None or figure.points is None:
            return config
        key, config = figure.points.key, config.copy()
        if OmegaConf.is_config(OmegaConf.select(config, key)):
            raise ConfigError("figure.points.key", key, "a key with a number, not a group")
        try:
            OmegaConf.update(config, key, point)
        except OmegaConfBaseException:
            return self._compose((*overrides, f"{key}={point}"))  # says what is wrong with the key
        return config

    def _folder(self, name: str, identity: dict[str, object]) -> RunFolder:
        """A finished run of that name in any store, else the place for it in the first one."""
        runs = [StoredRun(store / name) for store in self._stores]
        run = next((run for run in runs if run.finished), runs[0])
        if run.files.config.exists():
            _refuse_stranger(run, identity)
        return run.files


class _Seedless:
    """A configuration whose jobs differ only in their seeds, and their identities.

    What follows the seed is found by resolving the configuration with two seeds, rather than with
    each: a figure may have thousands of jobs.
    """

    _PROBES = (2**61 + 1, 2**61 + 3)  # seeds that no other key happens to have

    def __init__(self, config: DictConfig):
        self.config = config
        one, other = (self._resolved(probe) for probe in self._PROBES)
        differing = {key for key in one if one[key] != other.get(key)}
        self._known = one
        self._following = [key for key in differing if one[key] == self._PROBES[0]]
        self._plain = len(self._following) == len(differing)

    def _resolved(self, seed: int) -> dict[str, object]:
        config = self.config.copy()
        config.seed = seed
        return configuration.identity(config)

    def identity(self, seed: int) -> dict[str, object]:
        """That of the run with this seed."""
        if not self._plain:  # a key is computed from the seed
            return self._resolved(seed)
        return self._known | dict.fromkeys(self._following, seed)


def at(overrides: Sequence[str], point: float | None) -> tuple[str, ...]:
    """The overrides at a point, which ``{point}`` in one stands for: a ready-made configuration for each."""
    if point is None:
        return tuple(overrides)
    return tuple(override.replace(POINT_IN_OVERRIDE, f"{point:g}") for override in overrides)


def _key(override: str) -> str:
    return override.partition("=")[0]


def _refuse_fixed(figure: Figure, common: Sequence[str]) -> None:
    """The seed and the points' key are set by the figure, not by overrides."""
    everywhere = [o for g in figure.groups for o in g.overrides]
    everywhere += [o for g in figure.groups for c in g.curves for o in c.overrides]
    for override in (*everywhere, *figure.altered, *common):
        if _key(override) == "seed":
            raise ConfigError(
                "seed is not set for the runs of a figure; use --seeds 0,1 (figure.seeds=[0,1])"
            )
    if figure.points is not None and figure.points.key in map(_key, figure.changed):
        key = figure.points.key
        raise ConfigError(
            f"{key} is what the figure's points are values of; use figure.points.values=[…]"
        )


def _refuse_twins(jobs: Sequence[Job]) -> None:
    """Two curves, or two points of one, that are the same run would hide one another."""
    seen: dict[Path, Job] = {}
    for job in jobs:
        other = seen.setdefault(job.folder.path, job)
        if other is job:
            continue
        if other.curve is job.curve:
            raise ConfigError(
                f"figure.points: {other.point:g} and {job.point:g} are the same runs of "
                f"{job.curve.name} in group {job.group.name}"
            )
        point = "" if job.point is None else f" at {job.point:g}"
        raise ConfigError(
            f"figure.curves: {other.curve.name} and {job.curve.name} are the same runs in group "
            f"{job.group.name}{point}"
        )


def _refuse_stranger(run: StoredRun, identity: dict[str, object]) -> None:
    """Raise ConfigError where a folder of that name holds another run."""
    if configuration.fingerprint(run.identity) != configuration.fingerprint(identity):
        raise ConfigError(
            f"{run.path} holds another run than its name says (its config.yaml was changed, or "
            "its seeds withheld); move it away"
        )


def distinct(jobs: Iterable[Job]) -> Iterator[Job]:
    """The jobs without those that are the same run as an earlier one."""
    seen: set[Path] = set()
    for job in jobs:
        if job.folder.path not in seen:
            seen.add(job.folder.path)
            yield job
