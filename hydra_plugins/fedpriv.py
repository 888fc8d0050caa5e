"""The Hydra sweepers and the source of the options that are rows of tables (recipes, protocols).

``hydra/sweeper=curves``: the runs of a figure, else a run for each combination of the values given, for any
launcher; ``hydra/sweeper=search``: trials within one privacy budget.

Hydra finds plugins in modules below ``hydra_plugins``, a namespace package (no ``__init__.py``) that several
distributions share. It imports this module whenever it starts, so nothing heavy is imported here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.config_search_path import ConfigSearchPath, SearchPathQuery
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.utils import JobReturn
from hydra.plugins.config_source import ConfigLoadError, ConfigResult, ConfigSource
from hydra.plugins.search_path_plugin import SearchPathPlugin
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf, open_dict

if TYPE_CHECKING:
    from fedpriv.common.groups import TableOption
    from fedpriv.experiment.sweeps import SweepJob
    from fedpriv.store.stored_run import StoredRun


class _Sweeper(BasicSweeper):
    """A sweeper that refuses keys of Hydra that it would not obey."""

    def setup(
        self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig
    ) -> None:
        from fedpriv.train import refuse_disobeyed

        refuse_disobeyed(config.hydra)
        if (folder := self._folder(config)) is not None:
            with open_dict(config):
                config.hydra.sweep.dir = str(folder)
        super().setup(hydra_context=hydra_context, task_function=task_function, config=config)

    def _folder(self, config: DictConfig) -> Path | None:
        """Return the folder of the sweep; None: the one that Hydra has from the configuration."""
        return None

    def _compose(self, overrides: Sequence[str]) -> DictConfig:
        loader = self.hydra_context.config_loader
        config = loader.load_sweep_config(self.config, list(overrides))
        return OmegaConf.masked_copy(config, [key for key in config if key != "hydra"])


class CurvesSweeper(_Sweeper):
    """The sweeper of fedpriv: the curves × seeds of a figure, or Hydra's own sweep with checks before it."""

    def _folder(self, config: DictConfig) -> Path | None:
        # Of a figure, where launchers keep their own files.
        return Path(config.runtime.output_dir) / "figures" if _has_figure(config) else None

    def sweep(self, arguments: list[str]) -> Any:
        if _has_figure(self.config):
            from fedpriv.study.figures.make import make_figure

            return make_figure(self.config, self.hydra_context, self.launcher, arguments)
        from fedpriv.experiment import sweep_runs

        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        overrides = parser.parse_overrides([*self._parse_config(), *arguments])
        (batch,) = self.split_arguments(overrides, None)
        folder = Path(self.config.hydra.sweep.dir)
        sweep_runs.refuse_sweep_folder(folder)
        jobs = self._checked_jobs(batch, folder)
        sweep_runs.make_sweep_folder(folder)
        written = [job.config for job in jobs if job.config is not None]
        withheld = any(one.publish or not one.runtime.diagnostics for one in written)
        kept = self.config
        if withheld:  # no file beside the folders of the runs tells their seeds
            given = OmegaConf.to_container(kept.hydra.overrides.task)
            task = [one for one in given if not one.partition("=")[0].endswith("seed")]
            kept = OmegaConf.create({"hydra": {"overrides": {"task": task}}})
        OmegaConf.save(kept, folder / "multirun.yaml")
        try:
            return self._launch(jobs, folder)
        finally:
            if len(jobs) > 1:
                from fedpriv.tools.report.plot import draw_sweep

                draw_sweep(folder)

    def _checked_jobs(self, batch: Sequence[Sequence[str]], folder: Path) -> list[SweepJob]:
        """Return the jobs of the sweep, all of which can run. Raises FedprivError if one cannot."""
        from fedpriv.experiment import sweep_runs, sweeps
        from fedpriv.experiment.machine import cores

        loader = self.hydra_context.config_loader
        if len(batch) > 1:
            _say(f"{len(batch)} jobs; composing their configurations")
        composer = sweeps.JobComposer(
            self._compose, lambda key: bool(loader.get_group_options(key))
        )
        jobs = sweeps.sweep_jobs(batch, composer, _say)
        if not any(job.values.get("dry_run") for job in jobs):
            sweep_runs.find_runs(jobs, folder, _lacks_audit, _say)
        if (at_once := _jobs_at_once(self.config.hydra.launcher)) is not None:
            sweeps.refuse_crowd(jobs, at_once, cores())
        known: dict[str, Any] = {}  # of data that several jobs share
        sweeps.check_jobs(jobs, lambda config: _check(config, known))
        if (note := sweeps.only_moves_the_end(jobs)) is not None:
            _say(f"note: {note}")
        return jobs

    def _launch(self, jobs: Sequence[SweepJob], folder: Path) -> list[JobReturn]:
        """Run the jobs that are not done, each in the folder of its run. Raises what went wrong with them."""
        from fedpriv.common.errors import FedprivError
        from fedpriv.common.words import quoted
        from fedpriv.experiment import sweep_runs, sweeps

        begun = [job for job in jobs if job.run is not None and not job.done]
        new = [job for job in jobs if job.run is None]
        if len(new) < len(jobs):
            done = len(jobs) - len(new) - len(begun)
            _say(f"{done} of {len(jobs)} done, {len(begun)} to be resumed, {len(new)} new")
        names = dict(zip(map(id, new), sweep_runs.new_names(folder, new), strict=True))
        # not resolved: a folder's name may hold the number that its job will have
        given = OmegaConf.to_container(self.config.hydra.overrides.hydra, resolve=False)
        own_names = any(one.startswith("hydra.sweep.subdir=") for one in given)
        returned, failures = [], []
        # new jobs come last, so that their numbers are none of a run that is there already
        launched, first = [*begun, *new], sweep_runs.count_runs(folder) - len(begun)
        for chunk in (
            self.split_overrides_to_chunks(launched, self.max_batch_size) if launched else ()
        ):
            overrides = []
            for job in chunk:
                name = None if own_names and job.run is None else job.run or names[id(job)]
                place = [] if name is None else [f"hydra.sweep.subdir={quoted(name)}"]
                overrides.append([*job.overrides, *place])
            answers = self.launcher.launch(overrides, initial_job_idx=first)
            first += len(chunk)
            for job, answer in zip(chunk, answers, strict=True):
                if isinstance(answer._return_value, FedprivError):  # of a launcher's worker
                    failures.append((job, answer._return_value))
                else:
                    _ = answer.return_value  # raises a defect
            returned.append(answers)
        sweeps.raise_failures(jobs, failures)
        return returned


def _say(line: str) -> None:
    print(line, flush=True)


def _check(config: DictConfig, known: dict[str, Any]) -> None:
    """Raise FedprivError for a job that cannot run."""
    from fedpriv.experiment.run import check
    from fedpriv.train import wanted_audits

    wanted_audits(config)
    check(config, known)


def _lacks_audit(job: SweepJob, run: StoredRun) -> bool:
    """Return whether a finished run was killed before the audits that its job asks for."""
    audit = job.config.get("audit")
    if audit is None:
        return False
    from fedpriv.tools.audit.request import missing

    return bool(missing(audit, run.summary))


def _has_figure(config: DictConfig) -> bool:
    """Whether a figure was asked for, be its YAML as empty as it may."""
    return "figure" in config or "figure" in config.hydra.runtime.choices


def _jobs_at_once(launcher: Any) -> int | None:
    """Return the number of jobs that a launcher runs at a time on this machine; None: on others."""
    if launcher._target_.rpartition(".")[2] == "JoblibLauncher":
        return int(launcher.n_jobs)
    return 1 if launcher._target_.rpartition(".")[2] == "BasicLauncher" else None


class SearchSweeper(_Sweeper):
    """``hydra/sweeper=search``: trials that Optuna proposes, one after another, within one privacy budget."""

    def __init__(self, **settings: Any):
        super().__init__(max_batch_size=None)
        self._settings = settings

    def _folder(self, config: DictConfig) -> Path | None:
        given = config.hydra.overrides.hydra
        if any(override.startswith("hydra.sweep.dir=") for override in given):
            return None
        # The same command finds its trials again.
        overrides = [*config.hydra.overrides.task, *given]
        name = hashlib.sha256("\n".join(sorted(overrides)).encode()).hexdigest()[:12]
        return Path(config.runtime.output_dir) / "searches" / name

    def sweep(self, arguments: list[str]) -> Any:
        from fedpriv.common.errors import ConfigError, FedprivError
        from fedpriv.experiment.sweep_runs import refuse_sweep_folder
        from fedpriv.study.search_planned import refuse_paired
        from fedpriv.study.search_run import Search
        from fedpriv.study.search_secret_trials import SecretTrials
        from fedpriv.study.search_settings import SearchSettings

        if _has_figure(self.config):
            raise ConfigError("a figure has curves of its own and takes no hydra/sweeper=search")
        refuse_paired(self.config.get("paired"))  # needs no optuna
        folder, settings = Path(self.config.hydra.sweep.dir), SearchSettings.of(**self._settings)
        refuse_sweep_folder(folder)
        launcher = self.config.hydra.launcher._target_.rpartition(".")[2]
        if settings.law is not None and launcher != "BasicLauncher":
            allowed = "basic with hydra.sweeper.stopping"
            hint = "a launcher shows its jobs, and their number is secret"
            raise ConfigError("hydra/launcher", launcher, allowed, hint)
        search = (
            Search(settings, arguments, folder, self._compose, _say)
            if settings.law is None
            else SecretTrials(settings, arguments, folder, self._compose)
        )
        if search.dry or settings.law is not None:
            for line in search.plan():
                _say(line)
        if search.dry:
            return None
        best = search.go(self._launch) if isinstance(search, Search) else search.go()
        _say(f"search: statement in {folder / 'privacy.txt'}")
        name = settings.objective.name
        if best is None:
            raise FedprivError(f"search: no trial has a finite {name}")
        chosen = " ".join(f"{key}={value}" for key, value in best["values"].items())
        which = f"trial {best['number']}: " if "number" in best else ""
        _say(f"search: best is {which}{chosen}, {name} {best['score']:.4f}")
        return best

    def _launch(self, number: int, overrides: Sequence[str]) -> object:
        """Run a trial as the job of a sweep."""
        from fedpriv.common.words import quoted

        folder = Path(self.config.hydra.sweep.dir)
        where = [
            f"hydra.sweep.dir={quoted(folder)}",
            f"runtime.run_dir={quoted(folder / str(number))}",
        ]
        job = ["runtime.progress=none", *overrides, *where, "runtime.reuse=true"]
        return self.launcher.launch([job], initial_job_idx=number)


class OptionTables(ConfigSource):
    """The options of the groups ``recipe`` and ``protocol``, from the tables in the folder ``path``.

    To Hydra they look like the YAMLs ``recipe/NAME.yaml`` and ``protocol/NAME.yaml`` in that folder.
    """

    @staticmethod
    def scheme() -> str:
        return "fedpriv"

    def load_config(self, config_path: str) -> ConfigResult:
        option = self._option(config_path)
        if option is None:
            raise ConfigLoadError(f"{config_path} is in none of the tables of {self.path}")
        return ConfigResult(
            provider=self.provider, path=self.full_path(), config=OmegaConf.create(option.content),
            header={"package": option.package},
        )  # fmt: skip

    def available(self) -> bool:
        return True

    def is_group(self, config_path: str) -> bool:
        return config_path == "" or bool(self._options(config_path))

    def is_config(self, config_path: str) -> bool:
        return self._option(config_path) is not None

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        from fedpriv.common.groups import IN_TABLES

        kind = ObjectType.CONFIG if config_path else ObjectType.GROUP
        names = self._options(config_path) if config_path else IN_TABLES
        return sorted(names) if results_filter in (None, kind) else []

    def _option(self, config_path: str) -> TableOption | None:
        group, _, name = config_path.rpartition("/")
        return self._options(group).get(name.removesuffix(".yaml"))

    def _options(self, group: str) -> dict[str, TableOption]:
        from fedpriv.common.groups import table_options

        return table_options(Path(self.path), group)


class OptionTablesPath(SearchPathPlugin):
    """The tables of ``conf/``, searched right after its YAMLs and before those of ``--config-dir``.

    Only where Hydra composes fedpriv's own configuration: other programs with Hydra share this plugin.
    """

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        from fedpriv.common.groups import conf_dir

        own = SearchPathQuery("main", str(conf_dir()))
        if search_path.find_last_match(own) >= 0:
            search_path.append("fedpriv", f"{OptionTables.scheme()}://{conf_dir()}", anchor=own)
