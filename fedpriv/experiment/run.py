"""From a configuration to a finished run folder."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedpriv import config as configuration
from fedpriv.common.errors import FedprivError
from fedpriv.common.files import locked, write_text
from fedpriv.experiment.assemble import assemble
from fedpriv.experiment.parts import Parts, build_parts
from fedpriv.experiment.plan import Plan, make_plan
from fedpriv.results.folder import RunFolder, not_resumable


@dataclass(frozen=True)
class RunResult:
    """A finished (or planned) run."""

    plan: Plan
    folder: Path | None = None
    summary: dict[str, Any] | None = None
    privacy: dict[str, Any] | None = None

    @property
    def stop_reason(self) -> str | None:
        return None if self.summary is None else self.summary["stop_reason"]


def run(
    config: DictConfig,
    *,
    overrides: Sequence[str] | None = None,
    default_folder: Path | None = None,
) -> RunResult:
    """Run an experiment to its end and write its folder.

    ``overrides`` are noted in the folder so that ``resume=<folder>`` needs nothing else;
    ``default_folder`` is used when ``runtime.run_dir`` is null (sweeps). Raises ConfigError or
    DataError before the first round. With ``dry_run`` only the plan is made.
    """
    from fedpriv.results import display
    from fedpriv.results.report import write_report

    parts = build_parts(config)
    plan = make_plan(parts)
    if parts.settings.dry_run:
        display.show_plan(plan)
        return RunResult(plan)
    folder = _existing_folder(parts) if parts.settings.resume else None
    if not parts.algorithm.price_depends_on_records:
        plan.refuse_if_impossible(parts.settings.epsilon)
    with ExitStack() as held:
        if folder is not None:
            _hold(held, folder)
        loop, resumed = assemble(parts, config, folder, overrides, default_folder)
        if folder is None:
            _hold(held, loop.folder)
        reporter = display.Reporter(loop, plan, resumed, brief=default_folder is not None)
        stop_reason = reporter.watch(lambda: loop.run(reporter))
        summary, privacy = write_report(loop, stop_reason)
        if not parts.settings.runtime.diagnostics and stop_reason != "interrupted":
            _withhold_seeds(loop.folder, config)
        reporter.finish(summary, privacy)
    return RunResult(plan, loop.folder.path, summary, privacy)


def _hold(held: ExitStack, folder: RunFolder) -> None:
    """Keep other processes from the folder until ``held`` closes. Raises FedprivError if one is there."""
    if not held.enter_context(locked(folder.path)):
        raise FedprivError(f"{folder.path} is being run by another process")


def _existing_folder(parts: Parts) -> RunFolder:
    folder = RunFolder(parts.settings.resume)
    if not folder.path.is_dir():
        raise not_resumable(parts.settings.resume)
    return folder


def _withhold_seeds(folder: RunFolder, config: DictConfig) -> None:
    """Take the seeds, which give away the noise, out of a finished folder."""
    kept = config.copy()
    for key in ("seed", "noise_seed", "partition.seed", "model.seed"):
        group, _, name = key.rpartition(".")
        node = kept[group] if group else kept
        if name in node:
            node[name] = None
    write_text(folder.config, configuration.dump(kept))
    facts = folder.read_json(folder.environment)
    facts["overrides"] = facts["command"] = None
    folder.write_json(folder.environment, facts)
    folder.checkpoint.unlink(missing_ok=True)
