"""The Hydra sweepers: ``hydra/sweeper=curves``, the runs of a figure, else a run for each combination of the
values given, for any launcher; ``hydra/sweeper=search``, trials within one privacy budget.

Hydra finds plugins in modules below ``hydra_plugins``, a namespace package (no ``__init__.py``) that several
distributions share. It imports this module whenever it starts, so nothing heavy is imported here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import OverrideType
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

if TYPE_CHECKING:
    from fedpriv.search.run import Search
    from fedpriv.search.secret_trials import SecretTrials
    from fedpriv.search.settings import Settings

Go = Callable[[], dict[str, Any] | None]


class CurvesSweeper(BasicSweeper):
    """Turns the curves × seeds of a figure into an explicit list of jobs; without a figure it is Hydra's own
    sweeper, which says what it does."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        if _has_figure(config):
            with open_dict(config):  # where launchers keep their own files
                config.hydra.sweep.dir = str(Path(config.runtime.output_dir) / "figures")
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def sweep(self, arguments: list[str]) -> Any:
        if not _has_figure(self.config):
            return super().sweep(arguments)
        from fedpriv.figures.make import make_figure

        return make_figure(self.config, self.hydra_context, self.launcher, arguments)

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Compose jobs before the first one runs, to refuse what cannot be composed.

        Whether it can depends on the options a job chooses and the keys it sets, not on a key's number or
        word: one job of each kind tells it for all. Every job is composed when it runs.
        """
        if len(batch) > 1:
            print(f"{len(batch)} jobs; composing their configurations", flush=True)
        written = {override for overrides in batch for override in overrides}
        kind = {override: self._kind(override) for override in written}
        kinds = {tuple(kind[o] for o in overrides): overrides for overrides in reversed(batch)}
        super().validate_batch_is_legal(list(kinds.values())[::-1])
        self._say_what_epsilon_moves(batch)

    def _say_what_epsilon_moves(self, batch: Sequence[Sequence[str]]) -> None:
        """A line where a sweep over epsilon changes when the runs end and nothing else."""
        if len({o for job in batch for o in job if o.startswith("epsilon=")}) < 2:
            return
        from fedpriv.experiment.sweeps import only_moves_the_end

        def compose(job: Sequence[str]) -> DictConfig:
            loader = self.hydra_context.config_loader
            config = loader.load_sweep_config(self.config, list(job))
            return OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])

        note = only_moves_the_end(batch, compose)
        if note is not None:
            print(f"note: {note}", flush=True)

    def _kind(self, override: str) -> str:
        """An override, without its value where that is a plain one of a key that is no group."""
        (parsed,) = OverridesParser.create().parse_overrides([override])
        changed = parsed.type == OverrideType.CHANGE and parsed.package is None
        if not changed or not isinstance(parsed.value(), str | int | float | None):
            return override
        is_group = self.hydra_context.config_loader.get_group_options(parsed.key_or_group)
        return override if is_group else f"{parsed.key_or_group}="


def _has_figure(config: DictConfig) -> bool:
    """Whether a figure was asked for, be its YAML as empty as it may."""
    return "figure" in config or "figure" in config.hydra.runtime.choices


class SearchSweeper(BasicSweeper):
    """``hydra/sweeper=search``: trials that Optuna proposes, one after another, within one privacy budget."""

    def __init__(self, **settings: Any):
        super().__init__(max_batch_size=None)
        self._settings = settings

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        given = config.hydra.overrides.hydra
        if not any(override.startswith("hydra.sweep.dir=") for override in given):
            with open_dict(config):  # so that the same command finds its trials again
                config.hydra.sweep.dir = str(self._folder(config))
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)

    @staticmethod
    def _folder(config: DictConfig) -> Path:
        overrides = [*config.hydra.overrides.task, *config.hydra.overrides.hydra]
        name = hashlib.sha256("\n".join(sorted(overrides)).encode()).hexdigest()[:12]
        return Path(config.runtime.output_dir) / "searches" / name

    def sweep(self, arguments: list[str]) -> Any:
        from fedpriv.common.errors import ConfigError, FedprivError
        from fedpriv.search.settings import Settings

        if _has_figure(self.config):
            raise ConfigError("a figure has curves of its own and takes no hydra/sweeper=search")
        folder, settings = Path(self.config.hydra.sweep.dir), Settings.of(**self._settings)
        kind = self._composing if settings.law is None else self._stopping
        search, go = kind(settings, arguments, folder)
        if search.dry or settings.law is not None:
            for line in search.plan():
                self._say(line)
        if search.dry:
            return None
        best = go()
        self._say(f"search: statement in {folder / 'privacy.txt'}")
        name = settings.objective.name
        if best is None:
            raise FedprivError(f"search: no trial has a finite {name}")
        chosen = " ".join(f"{key}={value}" for key, value in best["values"].items())
        which = f"trial {best['number']}: " if "number" in best else ""
        self._say(f"search: best is {which}{chosen}, {name} {best['score']:.4f}")
        return best

    def _composing(
        self, settings: Settings, arguments: list[str], folder: Path
    ) -> tuple[Search, Go]:
        """Trials that all compose, launched as the jobs of a sweep are."""
        from fedpriv.search.run import Search

        def launch(number: int, overrides: Sequence[str]) -> object:
            where = [f"hydra.sweep.dir='{folder}'", f"runtime.run_dir='{folder / str(number)}'"]
            job = ["runtime.progress=none", *overrides, *where, "runtime.reuse=true"]
            return self.launcher.launch([job], initial_job_idx=number)

        search = Search(settings, arguments, folder, self._compose, self._say)
        return search, lambda: search.go(launch)

    def _stopping(
        self, settings: Settings, arguments: list[str], folder: Path
    ) -> tuple[SecretTrials, Go]:
        """Trials that nobody sees: no launcher has them, whose files and lines would tell how many."""
        from fedpriv.common.errors import ConfigError
        from fedpriv.search.secret_trials import SecretTrials

        if not self.config.hydra.launcher._target_.endswith(".BasicLauncher"):
            raise ConfigError(
                "hydra/launcher",
                self.config.hydra.launcher._target_.rpartition(".")[2],
                "basic with hydra.sweeper.stopping",
                "a launcher shows its jobs, and their number is secret",
            )
        search = SecretTrials(settings, arguments, folder, self._compose)
        return search, search.go

    def _compose(self, overrides: Sequence[str]) -> DictConfig:
        loader = self.hydra_context.config_loader
        config = loader.load_sweep_config(self.config, list(overrides))
        return OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])

    @staticmethod
    def _say(line: str) -> None:
        print(line, flush=True)
