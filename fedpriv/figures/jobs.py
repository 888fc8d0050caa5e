"""From a figure to the runs it needs, and what is there of each.

A job is known by the identity of its run (the resolved configuration without ``runtime``), so runs
are shared between figures, finished ones are never repeated, and a changed one is a different job.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from fedpriv import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.figures.definition import Curve, Figure, Group
from fedpriv.results.folder import RunFolder

DONE, PARTLY, MISSING = "done", "partly", "not run"

Compose = Callable[[Sequence[str]], DictConfig]


@dataclass(frozen=True)
class Job:
    """One run of a figure.

    Attributes:
        overrides: What ``fedpriv train`` would be given.
        identity: See :func:`fedpriv.config.identity`.
        folder: Where the run is or will be.
    """

    group: Group
    curve: Curve
    seed: int
    overrides: tuple[str, ...]
    identity: dict[str, object]
    folder: RunFolder

    @property
    def label(self) -> str:
        return f"{self.group.name}/{self.curve.name}/seed {self.seed}"

    @property
    def state(self) -> str:
        """``done``, ``partly`` (can be resumed) or ``not run``."""
        if self.folder.finished:
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

    def jobs(self, figure: Figure) -> list[Job]:
        """The figure's jobs, first those of the first seed of every curve, so that the whole
        picture is there early."""
        seeds = max(len(group.seeds) for group in figure.groups)
        found = []
        for position in range(seeds):
            for group in figure.groups:
                if position < len(group.seeds):
                    own = [
                        self._job(figure, group, curve, group.seeds[position])
                        for curve in group.curves
                    ]
                    _refuse_twins(own)
                    found += own
        return found

    def _job(self, figure: Figure, group: Group, curve: Curve, seed: int) -> Job:
        overrides = (*group.overrides, *curve.overrides, *figure.altered, *self._common)
        for override in overrides:
            if override.partition("=")[0] == "seed":
                raise ConfigError(
                    "seed is not set for the runs of a figure; use --seeds 0,1 (figure.seeds=[0,1])"
                )
        if overrides not in self._composed:
            self._composed[overrides] = self._compose(overrides)
        config = self._composed[overrides].copy()
        config.seed = seed
        identity = configuration.identity(config)
        folder = self._folder(run_name(config, identity), identity)
        return Job(group, curve, seed, (*overrides, f"seed={seed}"), identity, folder)

    def _folder(self, name: str, identity: dict[str, object]) -> RunFolder:
        """A finished run of that name in any store, else the place for it in the first one."""
        folders = [RunFolder(store / name) for store in self._stores]
        folder = next((f for f in folders if f.finished), folders[0])
        if folder.config.exists():
            _refuse_stranger(folder, identity)
        return folder


def _refuse_twins(jobs: Sequence[Job]) -> None:
    """Two curves that are the same run would hide one another."""
    seen: dict[Path, Job] = {}
    for job in jobs:
        other = seen.setdefault(job.folder.path, job)
        if other is not job:
            raise ConfigError(
                f"figure.curves: {other.curve.name} and {job.curve.name} are the same runs in group "
                f"{job.group.name}"
            )


def run_name(config: DictConfig, identity: dict[str, object]) -> str:
    """The name of a run's folder in a store: algorithm, data set, seed, fingerprint."""
    dataset = str(config.dataset._target_).rpartition(".")[2].lower()
    mark = configuration.fingerprint(identity)
    return f"{config.algorithm.name}-{dataset}-seed{config.seed}-{mark}"


def _refuse_stranger(folder: RunFolder, identity: dict[str, object]) -> None:
    """A folder of that name must hold that run."""
    there = configuration.identity(OmegaConf.load(folder.config))
    if configuration.fingerprint(there) != configuration.fingerprint(identity):
        raise ConfigError(
            f"{folder.path} holds another run than its name says (its config.yaml was changed, or "
            "its seeds withheld); move it away"
        )


def distinct(jobs: Iterable[Job]) -> Iterator[Job]:
    """The jobs without those that are the same run as an earlier one."""
    seen: set[Path] = set()
    for job in jobs:
        if job.folder.path not in seen:
            seen.add(job.folder.path)
            yield job
