"""The run that is audited: its data and model rebuilt from its own configuration, and its weights."""

from __future__ import annotations

import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig, open_dict
from torch import Tensor

from fedpriv.algorithms.run_context import RunContext
from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.experiment import checkpoint, snapshots
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts, without_rule
from fedpriv.experiment.consent import refuse_odd_paths, refuse_strangers
from fedpriv.experiment.instantiate import first_line
from fedpriv.experiment.machine import choose_threads, resolve_device
from fedpriv.experiment.parts import Parts
from fedpriv.store.stored_run import StoredRun

_RECORDS_AT_ONCE = 256  # about what a pass of an audit reads


@dataclass
class AuditedRun:
    """``initial``, ``final`` [d]: the weights before the first and after the last of ``rounds`` rounds."""

    run: StoredRun
    parts: Parts
    context: RunContext
    initial: Tensor
    final: Tensor
    rounds: int
    config: DictConfig

    @property
    def name(self) -> str:
        return self.run.path.name

    def facts(self) -> dict[str, Any]:
        """What stands beside its results."""
        return {
            "run": str(self.run.path),
            "algorithm": self.parts.algorithm.name,
            "dataset": self.parts.dataset.name,
            "seed": self.parts.settings.seed,
            "rounds": self.rounds,
            "finished": self.run.finished,
            "epsilon_sound": self.run.summary.get("epsilon_sound"),
            "test_accuracy": self.run.summary.get("test_accuracy"),
        }

    def privacy(self) -> dict[str, Any]:
        """What the run states about its privacy; empty before it does."""
        return self.run.statement

    def snapshot_rounds(self, most: int) -> list[int]:
        """At most ``most`` of the rounds with snapshots, spread evenly."""
        there = [r for r in snapshots.rounds_of(self.run.files) if r <= self.rounds]
        chosen = np.unique(
            np.linspace(0, len(there) - 1, min(most, len(there))).round().astype(int)
        )
        return [there[i] for i in chosen]

    def trajectory(self, most: int) -> list[tuple[int, Tensor]]:
        """(rounds, weights [d]), from the initial ones over ``most`` snapshots to the last."""
        between = [r for r in self.snapshot_rounds(most) if 0 < r < self.rounds]
        device = self.final.device
        passed = [(r, snapshots.load(self.run.files, r).weights.to(device)) for r in between]
        return [(0, self.initial), *passed, (self.rounds, self.final)]

    def took_part(self) -> np.ndarray | None:
        """Which clients did in any round, ascending; None where the run did not write it down."""
        clients = self.run.participants(self.context.data.client_count)
        return None if clients is None else np.array(clients, dtype=np.int64)

    def noise_multipliers(self) -> dict[int, float]:
        """That of every round so far, from 1; empty for a run without noise."""
        metrics = self.run.metrics
        if "noise_multiplier" not in metrics:
            return {}
        noised = metrics.known("noise_multiplier")
        pairs = zip(noised["round"], noised["noise_multiplier"], strict=True)
        return {int(number): float(sigma) for number, sigma in pairs}


def open_run(
    path: str | Path,
    device: str = "auto",
    threads: int | None = None,
    allowed: Collection[str] = (),
) -> AuditedRun:
    """Read a run folder. ``allowed``: modules outside fedpriv that its configuration may name.

    Raises FedprivError (in one sentence) where it cannot be audited.
    """
    run = StoredRun(path)
    config = stored_configuration(run, allowed)
    run.files.refuse_links()
    config.runtime.device = device
    parts = build_parts(without_rule(config))
    place = resolve_device(device)
    stored, rounds = _weights(run, place)
    context = make_context(parts, place)
    choose_threads(threads, context.model.size * _RECORDS_AT_ONCE)
    context.model.module.eval()
    initial = context.model.flat.clone()
    final = _fitted(run, context, stored)
    return AuditedRun(run, parts, context, initial, final, rounds, config)


def weights_of(run: StoredRun, context: RunContext) -> Tensor:
    """The last weights of another run of the same model [d]. Raises FedprivError."""
    stored, _ = _weights(run, context.model.device)
    return _fitted(run, context, stored)


@dataclass(frozen=True)
class Unfinished:
    """What a checkpoint holds of a model: ``weights`` [d], and ``statistics``, by name, that its first layer
    normalizes with where they were released."""

    weights: Tensor
    statistics: dict[str, Tensor]


def _fitted(run: StoredRun, context: RunContext, stored: Any) -> Tensor:
    """What the model's weights are once they are those ``stored`` [d]; released statistics become its own."""
    try:
        if isinstance(stored, Unfinished):
            context.model.set(stored.weights)
            context.model.module.load_state_dict(stored.statistics, strict=False)
        else:
            context.model.module.load_state_dict(stored)
    except Exception as error:  # what stands in the file can be anything
        raise FedprivError(
            f"the weights in {run.path} do not fit the model of its config.yaml: {first_line(error)}"
        ) from None
    if not context.model.flat.isfinite().all():
        raise FedprivError(
            f"the weights in {run.path} are not all finite numbers: the run diverged or its files are "
            "damaged, and there is nothing to find out from them"
        )
    return context.model.flat.clone()


def stored_configuration(run: StoredRun, allowed: Collection[str]) -> DictConfig:
    """That of the run; keys it was written without have their defaults, and where it ran is left out."""
    path = run.files.config
    if not path.exists():
        inside = sorted(p.parent.name for p in run.path.glob("*/config.yaml"))
        hint = f"there is one in {run.path / inside[-1]}" if inside else ""
        raise ConfigError(f"{run.path} is no run folder (one with config.yaml)", hint=hint)
    config = run.configuration.copy()
    refuse_strangers(config, allowed, path)
    refuse_odd_paths(config, path)
    known = configuration.compose()
    with open_dict(config):
        for key in known:
            if key not in config:
                config[key] = known[key]
        config.runtime, config.resume = known.runtime, None
        if (
            "download" in config.dataset
        ):  # what is fetched, and to where, is not for the folder to say
            config.dataset.download = False
    if config.seed is None:
        raise ConfigError(
            f"{run.path} was written with runtime.diagnostics=false: without its seeds its data cannot "
            "be rebuilt"
        )
    if allowed and str(Path.cwd()) not in sys.path:
        sys.path.append(str(Path.cwd()))  # a _target_ may name a module of the user's own
    return config


def _weights(run: StoredRun, device: Any) -> tuple[Any, int]:
    """(the last weights, of a checkpoint or by name; after how many rounds)."""
    folder = run.files
    if not run.finished and checkpoint.exists(folder):
        state: Any
        state, _ = checkpoint.read(folder, device)
        try:
            weights, statistics = state["training"]["weights"], state.get("statistics", {})
            named = {name: statistics[name] for name in ("mean", "variance") if statistics}
            return Unfinished(weights, named), int(state["round"])
        except (KeyError, TypeError, AttributeError, ValueError):
            raise ConfigError(f"{folder.checkpoint} holds no weights") from None
    if not folder.model.exists():
        raise ConfigError(f"{folder.path} holds no model yet (model.pt or checkpoint.pt)")
    rounds = run.summary.get("rounds")
    if type(rounds) is not int:
        raise ConfigError(f"{folder.summary} does not say after how many rounds the run ended")
    return run.model(device), rounds
