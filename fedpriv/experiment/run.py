"""One run, from a configuration to a finished run folder.

:func:`run` tells the whole story: build, plan, assemble, all rounds, report.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from fedpriv.common import config as configuration
from fedpriv.common import startup
from fedpriv.common.endings import as_sentence, nothing_lost
from fedpriv.common.errors import FedprivError, Interrupted, WorkerError, WriteError
from fedpriv.common.files import locked, write_csv, write_json, write_text
from fedpriv.data.federated import ClientSizes, size_words
from fedpriv.experiment import checkpoint
from fedpriv.experiment.assemble import assemble
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.consent import resume_command
from fedpriv.experiment.machine import threads_restored
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import Plan, make_plan, plan_of_smallest
from fedpriv.experiment.preflight import (
    Known,
    hold,
    refuse_unstartable,
    refuse_unusable_data,
    rehearse,
    resumed_folder,
)
from fedpriv.experiment.search import find_rounds, with_rounds
from fedpriv.experiment.sound_forecast import with_sound_epsilon
from fedpriv.experiment.stamps import refuse_without_stamp
from fedpriv.store.display import show_plan, teller
from fedpriv.store.folder import RunFolder
from fedpriv.store.stored_run import StoredRun

if TYPE_CHECKING:
    import pandas as pd

    from fedpriv.experiment.reporter import Reporter
    from fedpriv.experiment.running import Run

_SECONDS_BETWEEN_LOOKS = 1.0  # at a folder that another process has


@dataclass(frozen=True)
class RunResult:
    """A finished, interrupted or only planned run.

    Attributes:
        plan: The forecast of rounds and ε.
        folder: The run folder; None of a dry run.
        summary: The row of ``summary.json``: accuracy, ε, rounds, stop reason; None of a dry run.
        privacy: The facts of ``privacy.json``; None of a dry run.

    Example:
        >>> import fedpriv
        >>> config = fedpriv.compose(["algorithm=fedavg", "rounds=2", "runtime.progress=none"])
        >>> result = fedpriv.run(config)
        >>> list(result.metrics["round"]), result.stop_reason, result.ledger is None
        ([1, 2], 'rounds', True)
    """

    plan: Plan
    folder: Path | None = None
    summary: dict[str, Any] | None = None
    privacy: dict[str, Any] | None = None

    @property
    def stop_reason(self) -> str | None:
        """Reason why the run ended, such as ``budget`` or ``rounds``; None of a dry run."""
        return None if self.summary is None else self.summary["stop_reason"]

    @property
    def metrics(self) -> pd.DataFrame | None:
        """Table of the rounds (``metrics.csv``), one row each; None of a dry run."""
        return None if self.folder is None else _frame(RunFolder(self.folder).metrics)

    @property
    def ledger(self) -> pd.DataFrame | None:
        """Table of the releases (``ledger.csv``), from which ε follows.

        A row stands for all draws that are alike. None of a dry run and of a run without privacy.
        """
        return None if self.folder is None else _frame(RunFolder(self.folder).ledger)


def _frame(path: Path) -> pd.DataFrame | None:
    """Return a table of the run folder; None where the run has not written it."""
    import pandas as pd  # imported late: most runs never need it

    return pd.read_csv(path) if path.exists() else None


def check(config: DictConfig, known: Known) -> None:
    """Raise FedprivError for a job of a sweep that could not begin, before any job is run.

    Choices that do not go together, a budget that allows no round, an unusable tracker or device, and
    unusable data are found. Data are read, and downloaded unless ``dry_run``.

    Args:
        config: The configuration of the job.
        known: Sizes of clients by a fingerprint of the data's keys. Jobs with the same data share an entry,
            and this job adds its own.
    """
    parts = build_parts(config)
    if parts.settings.publish:
        refuse_without_stamp(config)
    plan = make_plan(parts)
    refuse_unstartable(parts, plan)
    refuse_unusable_data(parts, config, known, download=not parts.settings.dry_run)


def run(
    config: DictConfig,
    *,
    overrides: Sequence[str] | None = None,
    label: str | None = None,
    on_round: Callable[[dict[str, object]], object] | None = None,
) -> RunResult:
    """Run an experiment to its end and write its folder.

    With ``dry_run`` the plan is shown, and whatever would keep the run from its first round is raised. With
    ``runtime.reuse`` a run that is finished in its folder is not run again: its result is returned.

    Args:
        config: A composed configuration.
        overrides: The overrides of the command. They are noted in the folder, so that ``resume=<folder>``
            needs nothing else.
        label: Words that set one job of a sweep apart. Such a job gets a line at its end instead of tables.
        on_round: Called after every round with a copy of the round's row of ``metrics.csv``.

    Returns:
        The plan, the folder, the summary and the privacy facts.

    Raises:
        ConfigError: A key is wrong, or two choices do not go together. Nothing was run.
        DataError: The data cannot be read. Nothing was run.
        Interrupted: The run had to wait for its folder, or searched T, and was told to stop.
        FedprivError: Any other known failure.
    """
    # Parts and plan need neither torch nor data: a dry run is quick.
    parts = build_parts(config)
    if parts.settings.publish:
        refuse_without_stamp(config, overrides)
    plan = make_plan(parts)
    if parts.settings.dry_run:
        show_plan(with_sound_epsilon(parts, plan))
        _tell_sizes(parts, rehearse(parts, plan, config))
        return RunResult(plan)
    refuse_unstartable(parts, plan)

    with ExitStack() as held:  # keeps other processes from the run folder
        folder = _existing_folder(parts, held)
        if folder is not None and (finished := _finished(parts, config, plan, folder)) is not None:
            return finished

        best = None
        if parts.algorithm.search is not None:  # of the number of rounds T: then the best T is run
            best = find_rounds(
                config, parts.algorithm.search, run, teller(parts.settings.runtime.progress)
            )
            parts = build_parts(with_rounds(config, best.rounds))
            plan = make_plan(parts)

        # From here on torch is needed, the data are read, and the folder exists.
        from fedpriv.experiment.reporter import Reporter

        held.enter_context(threads_restored())
        shares = None
        if parts.settings.runtime.workers > 1 or parts.settings.runtime.cluster:
            from fedpriv.experiment.map_chunks import SharedChunks

            # A cluster that cannot be taken is refused before anything is written.
            shares = SharedChunks(parts.settings.runtime)
            held.callback(shares.close)
        running = assemble(parts, config, folder, overrides)
        if shares is not None:
            shares.join(running)
        if best is not None:
            write_csv(running.folder.search, best.table)
            # A resumed run has the search in the ledger of its checkpoint.
            if not running.resumed:
                running.charge_search(best.samples)
        if folder is None and parts.settings.runtime.reused_dir is None:
            # A folder that existed before was locked above. That of a new run is locked once it is made.
            hold(held, running.folder)
        if parts.algorithm.cost_depends_on_records:  # now the sizes of the clients are known
            plan = plan_of_smallest(parts, running.loop.context.data.records_per_client)
        if not running.resumed:
            _note_guarantee(running, plan)
        reporter = Reporter(running, plan, label)
        summary, privacy = _to_the_end(running, reporter, config, on_round)
    return RunResult(plan, running.folder.path, summary, privacy)


def _tell_sizes(parts: Parts, sizes: ClientSizes | None) -> None:
    """Print how many records there are. Numbers that a published run found in its records stay here."""
    dataset, publish = parts.dataset, parts.settings.publish
    if sizes is None or (publish and dataset.declared_records is None):
        return
    test = f"; {dataset.test_records} test" if dataset.test_records and not publish else ""
    teller("lines")(f"data: {size_words(sizes.records_per_client)}{test}")


def _note_guarantee(running: Run, plan: Plan) -> None:
    """Note in ``environment.json`` what the ledger alone does not tell of a run that is killed."""
    loop, facts = running.loop, None
    if loop.budget is not None:
        settings, data = loop.settings, loop.context.data
        seeds_known = settings.runtime.diagnostics and not settings.publish
        facts = {
            "unit": loop.parts.algorithm.unit,
            "neighbours": loop.budget.neighbours,
            "delta": settings.delta,
            "noise_adapts": loop.budget.adaptive,
            "epsilon_planned": plan.epsilon if settings.sound else None,
            "declared_by": loop.budget.declared_by,
            "streams": running.origin.digest if seeds_known else None,
            "public_records": len(data.test) + (len(data.validation) if data.validation else 0),
        }
    environment = StoredRun(running.folder).environment
    write_json(running.folder.environment, {**environment, "guarantee": facts})


def _to_the_end(
    running: Run,
    reporter: Reporter,
    config: DictConfig,
    on_round: Callable[[dict[str, Any]], object] | None,
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Run all rounds, show and track them, and write the report.

    Returns:
        Summary and privacy facts.

    Raises:
        FedprivError: Something kept the run from its end. The sentence says how to continue.
    """
    from fedpriv.experiment.observers import RoundCallback  # imported late, as torch is needed
    from fedpriv.experiment.report import write_report
    from fedpriv.experiment.tracking import Tracking

    parts = running.loop.parts
    resume = f"continue with {resume_command(running.folder.path, config)}"
    with ExitStack() as open_ones:
        open_ones.callback(reporter.close)
        tracking = Tracking(parts.trackers, running, config, reporter.line)
        open_ones.callback(tracking.close)
        tracking.open()
        callbacks = [] if on_round is None else [RoundCallback(running.metrics, on_round)]
        startup.over()
        try:
            stop_reason = reporter.watch(lambda: running.go(reporter, tracking, *callbacks))
        except WriteError as error:
            raise FedprivError(f"{error}; when there is room again, {resume}") from None
        except WorkerError as error:
            raise WorkerError(f"{error}; {resume}") from None
        except Exception as error:
            known = as_sentence(error)
            if known is None or isinstance(error, FedprivError):
                raise
            raise FedprivError(f"{known}; {resume}") from None

        with nothing_lost("the report was written", resume):
            summary, privacy = write_report(running, stop_reason)
            kept = parts.settings.runtime.diagnostics or parts.settings.publish
            if stop_reason != "interrupted" and not kept:
                _withhold_seeds(running.folder, config)
            reporter.finish(summary, privacy)
        tracking.finish(summary, stop_reason)
    return summary, privacy


def _existing_folder(parts: Parts, held: ExitStack) -> RunFolder | None:
    """Return the folder of a run that exists already, locked against other processes; None for a new run.

    With ``runtime.reuse`` the folder is made and locked even if it holds no run yet, so that of two processes
    with the same run one waits for the other.
    """
    runtime = parts.settings.runtime
    if parts.settings.resume:
        folder = resumed_folder(parts.settings.resume)
        hold(held, folder)
        return folder
    if runtime.reused_dir is None:
        return None
    folder = RunFolder(runtime.reused_dir)
    folder.path.mkdir(parents=True, exist_ok=True)
    held.callback(
        _remove_if_empty, folder.path
    )  # so that a run that is refused leaves nothing behind
    _wait_for(held, folder, runtime.stop_file)
    return folder if folder.config.exists() else None


def _finished(parts: Parts, config: DictConfig, plan: Plan, folder: RunFolder) -> RunResult | None:
    """Return the result of a run that is finished in its folder; None where it is to be run.

    Raises:
        ConfigError: The folder holds another run.
    """
    stored = StoredRun(folder)
    if not (parts.settings.runtime.reuse and stored.finished):
        return None
    checkpoint.refuse_other_identity(folder, stored.identity, configuration.identity(config))
    return RunResult(plan, folder.path, stored.summary, stored.statement)


def _remove_if_empty(path: Path) -> None:
    with suppress(OSError):
        path.rmdir()


def _wait_for(held: ExitStack, folder: RunFolder, stop_file: str | None) -> None:
    """Wait until no other process has the folder, and lock it until ``held`` closes.

    Raises:
        Interrupted: The stop file appeared meanwhile.
    """
    while True:
        with ExitStack() as attempt:
            if attempt.enter_context(locked(folder.path)):
                held.enter_context(attempt.pop_all())
                return
        if stop_file is not None and os.path.exists(stop_file):
            raise Interrupted(f"not begun: {stop_file} is there")
        time.sleep(_SECONDS_BETWEEN_LOOKS)


def _withhold_seeds(folder: RunFolder, config: DictConfig) -> None:
    """Take the seeds out of a finished folder: whoever knows them can draw the noise again.

    The checkpoint goes too, as it holds the seeds.
    """
    without_seeds = config.copy()
    for key in ("seed", "noise_seed", "partition.seed", "model.seed"):
        group, _, name = key.rpartition(".")
        node = without_seeds[group] if group else without_seeds
        if name in node:
            node[name] = None
    write_text(folder.config, configuration.dump(without_seeds))
    facts = StoredRun(folder).environment
    facts["overrides"] = facts["command"] = None
    write_json(folder.environment, facts)
    folder.checkpoint.unlink(missing_ok=True)
