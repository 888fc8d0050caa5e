"""The one Hydra entrypoint: ``fedpriv train`` composes the configuration and runs it.

:func:`main` reads the command line and calls Hydra, which calls :func:`task` for each configuration: once, or
for each job of a sweep, in this process or in a worker of a launcher.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import hydra
import yaml
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import ConfigCompositionException, HydraException
from hydra.experimental.callback import Callback
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common.config import (
    MULTIRUN,
    conf_dir,
    config_dir_of,
    explain,
    refuse_unknown_protocol,
    with_protocol,
)
from fedpriv.common.errors import ConfigError, FedprivError, Interrupted
from fedpriv.common.groups import ADDED, GROUPS
from fedpriv.common.notices import complain
from fedpriv.common.words import counted, quoted
from fedpriv.common.workers import end_earlier_workers, job_of_a_worker
from fedpriv.experiment.consent import (
    refuse_odd_paths,
    refuse_strangers,
    resume_command,
    targets,
    targets_of_yamls,
)
from fedpriv.experiment.requeue import leave_if_requeued
from fedpriv.experiment.settings import read_settings
from fedpriv.experiment.train_arguments import (
    asks_for_figure,
    flags_first,
    note_given_twice,
    refuse_run_dir,
    resumed,
    with_resumed_overrides,
    without_allowed,
)
from fedpriv.store.folder import RunFolder

if TYPE_CHECKING:
    from hydra.core.override_parser.types import ChoiceSweep

    from fedpriv.experiment.run import RunResult


class _State:
    """Facts that :func:`main`, the task and the callback share within one process: Hydra passes none on.

    Attributes:
        process: Number of the process in which :func:`main` runs; workers of a launcher have others.
        task_started: The configuration was composed: an exception is no longer one of composing.
        figure: The sweep makes the runs of a figure.
        sweep_dir: The folder of the sweep, once it has begun.
        allowed: Modules that the reader lets a resumed run name (``--allow``).
        own_targets: Key and ``_target_`` of all that the YAMLs of ``--config-dir`` name.
        failures: Known failures of the jobs that ran in this process.
    """

    process: int | None = None
    task_started = False
    figure = False
    sweep_dir: Path | None = None
    allowed: ClassVar[list[str]] = []
    own_targets: ClassVar[set[tuple[str, object]]] = set()
    failures: ClassVar[list[FedprivError]] = []


def task(config: DictConfig) -> dict[str, Any] | None:
    """Run one composed configuration, alone or as a job of a sweep.

    A known failure is kept for :func:`main`, so that the other jobs of a sweep still run. In a worker of a
    launcher, or for a figure, it is raised instead.

    Returns:
        The summary; None after a failure, or of a dry run.
    """
    _State.task_started = True
    if os.getpid() == _State.process:
        return _run(config, in_worker=False)
    # Between jobs, only the process that launched the worker reacts to Ctrl-C.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with job_of_a_worker():
        return _run(config, in_worker=True)


def _run(config: DictConfig, in_worker: bool) -> dict[str, Any] | None:
    """Run one configuration and return its summary; ``in_worker``: in a process that a launcher made."""
    hydra_config = HydraConfig.get()
    sweeping = hydra_config.mode == RunMode.MULTIRUN
    folder = Path(hydra_config.runtime.output_dir) if sweeping else None
    overrides = cast("list[str]", OmegaConf.to_container(hydra_config.overrides.task))
    label = job_label(overrides, Path(hydra_config.sweep.dir)) if sweeping else None
    try:
        # Before the folder is made: what is refused here leaves nothing behind.
        config = with_protocol(config)
        refuse_disobeyed(hydra_config)
        _refuse_wrong_roots(config)
        if stopped(config):
            raise Interrupted(f"not begun: {config.runtime.stop_file} is there")
        if config.resume is not None:
            refuse_strangers(config, _State.allowed, f"resume: {config.resume}", _State.own_targets)
            refuse_odd_paths(config, f"resume: {config.resume}")
        audits = wanted_audits(config)
        if folder is None and hydra_config.run.dir != "." and config.runtime.run_dir is None:
            config.runtime.run_dir = hydra_config.run.dir  # set in a YAML of the user's
        if folder is not None and config.runtime.run_dir is None and not config.dry_run:
            _set_job_folder(config, folder)
        # Imported late, so that a mistake on the command line is told at once.
        from fedpriv.experiment.run import run

        result = run(config, overrides=overrides, label=label)
        # Some trials of a hyper-parameter search may diverge: their value is infinite.
        searching = hydra_config.runtime.choices.get("hydra/sweeper") == "search"
        if not (result.stop_reason == "diverged" and searching):
            refuse_bad_end(result, config, ends_sweep=sweeping and not in_worker)
        if audits is not None and result.summary is not None and result.folder is not None:
            # summary.json has these results already; the summary that is returned gets them too.
            result.summary.update(audits(result.folder))
    except FedprivError as error:
        # Without this the data of the run would live as long as the error does.
        traceback.clear_frames(error.__traceback__)
        if isinstance(error, Interrupted) and sweeping and not in_worker:
            raise KeyboardInterrupt from error
        if in_worker and isinstance(error, Interrupted) and not stopped(config):
            leave_if_requeued()
        if in_worker or _State.figure:
            raise  # to the launcher of the worker, or to the sweeper of the figure
        _State.failures.append(error)
        if sweeping:
            complain(f"{' '.join(overrides)}: {error}")
        return None
    return result.summary


def _set_job_folder(config: DictConfig, folder: Path) -> None:
    """Let a job of a sweep run in ``folder``, or go on with the run that is there already.

    A repeated sweep goes on with its runs, and so does a job that a launcher starts again, as Slurm does.
    """
    if config.get("publish") is True and RunFolder(folder).config.exists():
        config.resume = str(
            folder
        )  # a published run has a secret key, so no other run stands for it
        return
    config.runtime.run_dir = str(folder)
    config.runtime.reuse = config.get("publish") is not True


def _refuse_wrong_roots(config: DictConfig) -> None:
    """Raise ConfigError for what interpolations and root keys tell before the parts are imported."""
    resolved = config.copy()
    try:
        OmegaConf.resolve(resolved)
    except OmegaConfBaseException as error:
        from fedpriv.experiment.instantiate import first_line

        raise ConfigError(first_line(error)) from None
    read_settings(resolved)


def wanted_audits(config: DictConfig) -> Callable[[Path], dict[str, Any]] | None:
    """Return a function that makes the audits of the key ``audit`` once the run has ended.

    Returns:
        A function from the run folder to the results of the audits; None where none is asked for.

    Raises:
        ConfigError: An audit cannot be made of this run. This is found before the run.
    """
    if config.get("audit") is None:
        return None
    from fedpriv.tools.audit.request import wanted

    resolved = config.copy()
    OmegaConf.resolve(resolved)
    settings = read_settings(resolved)
    requests = wanted(settings)
    own_code = [str(target) for _, target in targets(OmegaConf.to_container(resolved))]

    def make(folder: Path) -> dict[str, Any]:
        from fedpriv.tools.audit.command import audit_finished_run

        return audit_finished_run(requests, folder, settings, own_code)

    return make


def job_label(overrides: Sequence[str], sweep_dir: Path) -> str:
    """Return the overrides of one job of a sweep, without those that all jobs of the sweep share."""
    try:
        saved = yaml.safe_load((sweep_dir / "multirun.yaml").read_text(encoding="utf-8"))
        given = OverridesParser.create().parse_overrides(saved["hydra"]["overrides"]["task"])
    except (OSError, yaml.YAMLError, KeyError, TypeError):  # not every sweeper writes the file
        given = []
    common = {
        (o.input_line or "").partition("=")[0]
        for o in given
        if not o.is_sweep_override()
        or (o.is_choice_sweep() and len(cast("ChoiceSweep", o.value()).list) == 1)
    }
    return " ".join(o for o in overrides if o.partition("=")[0] not in common)


def stopped(config: DictConfig) -> bool:
    """Return whether the stop file exists: the process that launched the job wants it to end."""
    stop_file = config.runtime.stop_file
    return isinstance(stop_file, str) and os.path.exists(stop_file)


def refuse_bad_end(result: RunResult, config: DictConfig, ends_sweep: bool = False) -> None:
    """Raise an error for a run that ended otherwise than planned, so that the exit status tells.

    Args:
        result: The finished run.
        config: Its configuration, for the command that goes on with an interrupted run.
        ends_sweep: An interruption ends the whole sweep, not only this job.

    Raises:
        FedprivError: The run exceeded its budget, diverged, or released nothing in any round.
        Interrupted: The run was interrupted between rounds.
        KeyboardInterrupt: The same, where it ``ends_sweep``.
    """
    summary = result.summary or {}
    if result.privacy is not None and result.privacy.get("budget_exceeded"):
        from fedpriv.store.statement import exceeded_words

        raise FedprivError(f"{exceeded_words(result.privacy)}; see {result.folder}/privacy.txt")
    if result.stop_reason == "interrupted":
        assert result.folder is not None
        error = Interrupted(
            f"interrupted after round {summary['rounds']}; continue with "
            f"{resume_command(result.folder, config)}"
        )
        if ends_sweep:
            raise KeyboardInterrupt from error
        raise error
    if result.stop_reason == "diverged":
        raise FedprivError(
            f"diverged in round {summary['rounds']}: a loss or weight is no longer finite; "
            f"what there is was saved in {result.folder} (try a smaller algorithm.learning_rate)"
        )
    aborted = summary.get("aborted_rounds")
    if aborted and aborted == summary["rounds"]:
        raise FedprivError(
            f"all {counted(aborted, 'round')} of {result.folder} were aborted: too many "
            "clients dropped out, nothing was released and the model is the initial one (a larger "
            "algorithm.tolerated_dropouts or a smaller algorithm.dropout lets rounds through)"
        )


class SweepTable(Callback):
    """A Hydra callback that notes where a sweep (``-m``) puts its runs, for the table at its end."""

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        if not _State.figure:
            _State.sweep_dir = Path(config.hydra.sweep.dir)


def main(arguments: Sequence[str], program: str = "fedpriv train") -> Path | None:
    """Run ``fedpriv train`` with these arguments: overrides and flags of Hydra.

    Args:
        arguments: The words after ``fedpriv train``.
        program: The name of the command in Hydra's help.

    Returns:
        The folder of the sweep; None of a single run.

    Raises:
        FedprivError: Every known failure of composing, of the run, or of jobs of a sweep.
    """
    # 1. What was typed: --allow is fedpriv's own, and a resumed run brings its overrides with it.
    _State.allowed, arguments = without_allowed(arguments)
    config_dir = config_dir_of(arguments)
    if config_dir is not None and not config_dir.is_dir():
        raise ConfigError("--config-dir", str(config_dir), "an existing folder")
    _State.own_targets = set() if config_dir is None else targets_of_yamls(config_dir)
    refuse_run_dir(arguments)
    note_given_twice(arguments)
    arguments = flags_first(with_resumed_overrides(arguments))
    refuse_unknown_protocol(arguments)
    typed = arguments

    # 2. The process. A _target_ may name a module in the folder where the user works. A resumed folder may be
    # somebody else's, and may be the very folder where the user works: its modules need the user's consent.
    previous, sys.argv = sys.argv, [program, *arguments]
    own_code = resumed(arguments) is None or _State.allowed or _State.own_targets
    if own_code and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())
    os.environ["HYDRA_FULL_ERROR"] = "1"  # Hydra then raises instead of printing and exiting
    _State.process, _State.task_started, _State.sweep_dir = os.getpid(), False, None
    _State.figure = asks_for_figure(arguments)
    _State.failures.clear()
    end_earlier_workers()

    # 3. Hydra composes and calls :func:`task`. A key that only some options of a sweep have is tried again.
    try:
        while True:
            try:
                run = hydra.main(
                    version_base="1.3", config_path=str(conf_dir()), config_name="config"
                )
                run(task)()
                break
            except ConfigCompositionException as error:
                arguments = _left_to_the_jobs(error, arguments)
                GlobalHydra.instance().clear()
                sys.argv = [program, *arguments]
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise explain(error, arguments) from None
    except (ValueError, TypeError, AttributeError, AssertionError, OSError) as error:
        if _State.task_started:
            raise
        raise explain(error, arguments) from None
    except KeyboardInterrupt:
        if _State.sweep_dir is None:
            raise
        again = shlex.join(["fedpriv", "train", *_in_folder(typed, _State.sweep_dir)])
        raise Interrupted(f"interrupted; continue the sweep with {again}") from None
    finally:
        GlobalHydra.instance().clear()
        HydraConfig.instance().cfg = None  # Hydra's help leaves one behind
        sys.argv = previous
        if _State.sweep_dir is not None:
            from fedpriv.store.sweep import show_sweep

            show_sweep(_State.sweep_dir)

    # 4. What the task could not raise through Hydra.
    _raise_failures(_State.failures)
    return _State.sweep_dir


def refuse_disobeyed(hydra_config: Any) -> None:
    """Raise ConfigError for settings of Hydra that fedpriv does not follow, naming those that it does.

    Args:
        hydra_config: The settings of Hydra.
    """
    if hydra_config.job.chdir:
        raise ConfigError(
            "hydra.job.chdir",
            hydra_config.job.chdir,
            "false",
            "paths are those of the folder where the command was given; runtime.run_dir is the run folder, "
            "hydra.sweep.dir that of a sweep",
        )
    if hydra_config.job.name != _JOB_NAME and "submitit" not in hydra_config.launcher._target_:
        raise ConfigError(
            "hydra.job.name",
            hydra_config.job.name,
            f"{_JOB_NAME} but with a launcher of Slurm, whose jobs it names",
            "runtime.run_dir names the run folder, hydra.sweep.dir that of a sweep",
        )


_JOB_NAME = "fedpriv"


def _in_folder(arguments: list[str], sweep_dir: Path) -> list[str]:
    """Return the arguments of a sweep with its folder, unless the same command finds the folder by itself."""
    has_folder = any(a.startswith("hydra.sweep.dir=") for a in arguments)
    if (
        has_folder or "hydra/sweeper=search" in arguments
    ):  # the folder of a search follows from its arguments
        return arguments
    return [*arguments, f"hydra.sweep.dir={quoted(sweep_dir)}"]


def _left_to_the_jobs(error: ConfigCompositionException, arguments: list[str]) -> list[str]:
    """Return the arguments with the key that Hydra did not find written as a sweep over its one value.

    Hydra first composes a sweep without the options that are swept, and the key may belong to one of them.
    Written as a sweep, the key is left to the jobs, each of which is composed with its option.

    Raises:
        ConfigCompositionException: The error itself, where no group is swept that may have the key.
    """
    if _State.task_started or _State.sweep_dir is not None or _State.figure:
        raise error
    unknown = getattr(error.__cause__, "full_key", None)
    given = [a for a in arguments if a.partition("=")[0] == unknown]
    options = [a.lstrip("+").partition("=") for a in arguments]
    swept = any(key in (*GROUPS, *ADDED) and "," in value for key, _, value in options)
    searching = "hydra/sweeper=search" in arguments
    if len(given) != 1 or not swept or searching or not MULTIRUN & set(arguments):
        raise error
    key, _, value = given[0].partition("=")
    if value.startswith("choice("):
        raise error
    return [f"{key}=choice({value})" if a == given[0] else a for a in arguments]


def _raise_failures(failures: list[FedprivError]) -> None:
    """Raise the failure of a job, or a summary of several failures; nothing if there are none."""
    if len(failures) == 1:
        raise failures[0]
    if failures:
        failed = f"{counted(len(failures), 'run')} of the sweep failed, see above"
        error = FedprivError(f"{failed}; the first reason: {failures[0]}")
        error.exit_status = max(f.exit_status for f in failures)
        raise error
