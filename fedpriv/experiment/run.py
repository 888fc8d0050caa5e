"""From a configuration to a finished run folder."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedpriv import config as configuration
from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_text
from fedpriv.experiment import checkpoint
from fedpriv.experiment.parts import Parts, build_parts
from fedpriv.experiment.plan import Plan, make_plan
from fedpriv.privacy.budget import Budget
from fedpriv.results.folder import RunFolder, environment, new_folder


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

    parts = build_parts(config)
    plan = make_plan(parts)
    if parts.settings.dry_run:
        display.show_plan(plan)
        return RunResult(plan)
    identity = configuration.identity(config)
    folder = _existing_folder(parts, identity) if parts.settings.resume else None
    plan.refuse_if_impossible(parts.settings.epsilon)
    loop, state = _prepare(parts, folder, identity, config, overrides, default_folder)
    reporter = display.Reporter(loop, plan, resumed=state is not None)
    stop_reason = reporter.watch(lambda: loop.run(reporter))
    from fedpriv.results.report import write_report

    summary, privacy = write_report(loop, stop_reason)
    if not parts.settings.runtime.diagnostics and stop_reason != "interrupted":
        _withhold_seeds(loop.folder, config)
    reporter.finish(summary, privacy)
    return RunResult(plan, loop.folder.path, summary, privacy)


def _existing_folder(parts: Parts, identity: dict[str, object]) -> RunFolder:
    folder = RunFolder(parts.settings.resume)
    if not folder.path.is_dir():
        raise ConfigError("resume", parts.settings.resume, "an existing run folder")
    return folder


def _prepare(
    parts: Parts,
    folder: RunFolder | None,
    identity: dict[str, object],
    config: DictConfig,
    overrides: Sequence[str] | None,
    default_folder: Path | None,
):  # type: ignore[no-untyped-def]
    """Data, model, engine, budget and folder; (loop, checkpoint state or None)."""
    import torch

    from fedpriv.algorithms.local_training import Problem
    from fedpriv.data.federated import federate
    from fedpriv.engine import FlatModel, make_engine, tune_allocator
    from fedpriv.experiment.loop import Loop
    from fedpriv.models.checks import refuse_record_mixing

    settings = parts.settings
    tune_allocator()
    if settings.runtime.threads is not None:
        torch.set_num_threads(settings.runtime.threads)
    device = resolve_device(settings.runtime.device)
    state = None if folder is None else _saved_state(folder, identity, device)
    data = federate(
        parts.dataset,
        parts.partition,
        validation=parts.noise_schedule.reads_validation,
        seed=getattr(parts.partition, "seed", settings.seed),
        device=str(device),
    )
    algorithm = parts.algorithm
    algorithm.check_clients(data.client_count)
    module = parts.model.build(data.input_shape, data.classes)
    if parts.private and algorithm.unit == "record":
        refuse_record_mixing(module)
    model = FlatModel(module.to(device))
    problem = Problem(
        data=data,
        model=model,
        engine=make_engine(model, engine=settings.runtime.engine),
        clipper=parts.clipper,
        seed=settings.seed,
        noise_seed=settings.noise_seed,
    )
    budget = None
    if parts.private:
        smallest = int(data.records_per_client.min())
        plan = make_plan(parts, smallest)
        plan.refuse_if_impossible(settings.epsilon)
        budget = Budget(
            clients=data.client_count,
            epsilon=settings.epsilon,
            delta=settings.delta,
            view=settings.budget_view,
            accountant=parts.accountant,
            claim=algorithm.claim,
            first_draw=plan.draw,
            adaptive=parts.adaptive,
        )
    if folder is None:
        folder = _new_folder(parts, default_folder)
        folder.write_json(
            folder.environment, environment(overrides, str(device), torch.get_num_threads())
        )
        write_text(folder.config, configuration.dump(config))
    else:
        folder.remove_leftovers()
    loop = Loop(parts, problem, budget, folder, identity)
    if state is not None:
        loop.load_state_dict(state)
    loop.open_tables(state)
    return loop, state


def _saved_state(
    folder: RunFolder, identity: dict[str, object], device: object
) -> dict[str, Any] | None:
    """The checkpoint to continue from; None for a run that was killed before its first one."""
    if not folder.checkpoint.exists() and folder.config.exists():
        saved = configuration.identity(OmegaConf.load(folder.config))
        checkpoint.refuse_other_identity(folder, saved, identity)
        return None
    return checkpoint.load(folder, identity, device)


def _new_folder(parts: Parts, default_folder: Path | None) -> RunFolder:
    settings = parts.settings
    if settings.runtime.run_dir is not None:
        return RunFolder(settings.runtime.run_dir).create()
    if default_folder is not None:
        return RunFolder(default_folder).create()
    stamp = datetime.now().strftime("%Y-%m-%d_%H-%M-%S")
    name = f"{parts.algorithm.name}_{parts.dataset.name}"
    if settings.runtime.diagnostics:
        name += f"_seed{settings.seed}"
    return new_folder(settings.runtime.output_dir, f"{name}_{stamp}")


def resolve_device(name: str):  # type: ignore[no-untyped-def]
    """``auto`` → cuda if there is one, else cpu. Raises ConfigError for a device that is absent."""
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise ConfigError("runtime.device", name, "auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise ConfigError("runtime.device", name, "auto, cpu, cuda or cuda:N")
    if device.type == "cuda":
        found = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= found:
            raise ConfigError(
                "runtime.device", name, f"one that is present: {found} CUDA device(s) found"
            )
    return device


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
