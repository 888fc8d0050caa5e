"""The run that is audited: data and model rebuilt from its own configuration, and its weights."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from omegaconf import DictConfig
from torch import Tensor

from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.experiment import checkpoint, snapshots
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts, without_rule
from fedpriv.experiment.consent import stored_configuration
from fedpriv.experiment.instantiate import first_line
from fedpriv.experiment.machine import resolve_device
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.warm_start import begin_warm
from fedpriv.store.stored_run import StoredRun


@dataclass
class AuditedRun:
    """A run whose data, model and weights are in memory.

    Attributes:
        run: The stored run.
        parts: The parts that its configuration names.
        context: Data, model and engine of the run.
        initial: Weights before the first round [d].
        final: Weights after the last round [d].
        rounds: Number of rounds so far.
        config: The configuration, with defaults for keys that it was written without.
    """

    run: StoredRun
    parts: Parts
    context: RunContext
    initial: Tensor
    final: Tensor
    rounds: int
    config: DictConfig

    def facts(self) -> dict[str, Any]:
        """Return the facts about the run that stand beside the results of an audit."""
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

    def snapshot_rounds(self, most: int) -> list[int]:
        """Return at most ``most`` of the rounds with snapshots, spread evenly."""
        available = [r for r in snapshots.rounds_of(self.run.files) if r <= self.rounds]
        chosen = np.unique(
            np.linspace(0, len(available) - 1, min(most, len(available))).round().astype(int)
        )
        return [available[i] for i in chosen]

    def trajectory(self, most: int) -> list[tuple[int, Tensor]]:
        """Return (rounds, weights [d]) from the initial over ``most`` snapshots to the last weights."""
        between = [r for r in self.snapshot_rounds(most) if 0 < r < self.rounds]
        device, trained = self.final.device, self.context.model.without_frozen
        passed = [
            (r, trained(snapshots.load(self.run.files, r).weights).to(device)) for r in between
        ]
        return [(0, self.initial), *passed, (self.rounds, self.final)]

    def took_part(self) -> np.ndarray | None:
        """Return the clients that took part in any round, ascending; None if they were not recorded."""
        clients = self.run.participants(self.context.data.client_count)
        return None if clients is None else np.array(clients, dtype=np.int64)

    def noise_multipliers(self) -> dict[int, float]:
        """Return σ of every round so far, from round 1; empty for a run without noise."""
        metrics = self.run.metrics
        if "noise_multiplier" not in metrics:
            return {}
        noised = metrics.dropna(subset="noise_multiplier")
        pairs = zip(noised["round"], noised["noise_multiplier"], strict=True)
        return {int(number): float(sigma) for number, sigma in pairs}


def open_run(
    path: str | Path,
    device: str = "auto",
    threads: int | None = None,
    allowed: Collection[str] = (),
) -> AuditedRun:
    """Read a run folder, and rebuild its data and model.

    Args:
        path: The run folder.
        device: Device to compute on, such as ``auto`` or ``cpu``.
        threads: Number of threads; None chooses by the work of a step.
        allowed: Modules outside fedpriv that the run's configuration may name.

    Raises:
        FedprivError: The run cannot be audited; one sentence says why.
    """
    run = StoredRun(path)
    config = stored_configuration(run, allowed)
    run.files.refuse_links()
    config.runtime.device, config.runtime.threads = device, threads
    parts = build_parts(without_rule(config))
    resolved_device = resolve_device(device, "--device")
    stored, rounds = _weights(run, resolved_device)
    context = make_context(parts, resolved_device)
    begin_warm(parts.settings.warm_start, context)
    context.model.module.eval()
    initial = context.model.flat.clone()
    final = _fitted(run, context, stored)
    return AuditedRun(run, parts, context, initial, final, rounds, config)


def weights_of(run: StoredRun, context: RunContext) -> Tensor:
    """Return the last weights [d] of another run of the same model.

    Args:
        run: The other run.
        context: The context whose model takes the weights.

    Raises:
        FedprivError: The run holds no weights, or they do not fit the model.
    """
    stored, _ = _weights(run, context.model.device)
    return _fitted(run, context, stored)


@dataclass(frozen=True)
class Unfinished:
    """The model in a checkpoint of an unfinished run.

    Attributes:
        weights: The weights [d].
        statistics: Released statistics by which the first layer normalizes inputs, by name.
    """

    weights: Tensor
    statistics: dict[str, Tensor]


def _fitted(run: StoredRun, context: RunContext, stored: Any) -> Tensor:
    """Return stored weights as the model has them [d]; released statistics become those of the model."""
    try:
        if isinstance(stored, Unfinished):
            context.model.set(stored.weights)
            context.model.module.load_state_dict(stored.statistics, strict=False)
        else:
            context.model.module.load_state_dict(stored)
    except Exception as error:  # the file can contain anything
        raise FedprivError(
            f"the weights in {run.path} do not fit the model of its config.yaml: {first_line(error)}"
        ) from None
    if not context.model.flat.isfinite().all():
        raise FedprivError(
            f"the weights in {run.path} are not all finite numbers: the run diverged or its files are "
            "damaged, so there is nothing to audit"
        )
    return context.model.flat.clone()


def _weights(run: StoredRun, device: Any) -> tuple[Any, int]:
    """Return the last weights, of a checkpoint or by name, and the number of rounds before them."""
    folder = run.files
    if not run.finished and folder.checkpoint.exists():
        state: Any = checkpoint.read(folder, device)
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
