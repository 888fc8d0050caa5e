"""What a trial may release at most, known before it starts; what a search cannot account for is refused."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent
from omegaconf import DictConfig, OmegaConf

from fedpriv.common.config import as_tree, with_protocol
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.privacy.core.names import SOUND

_ALIKE = (
    "seed",
    "noise_seed",
    "delta",
    "budget_view",
    "accountant",
    "dataset",
    "partition",
    "attack",
)
"""Keys that are the same in all trials: else client k is not the same client, or ε is not of one δ."""


@dataclass(frozen=True)
class PlannedTrial:
    """``events``: what any client may release at most, and how often."""

    parts: Parts
    events: dict[DpEvent, int]
    alike: dict[str, object]

    @property
    def neighbours(self) -> str:
        return self.parts.costs().neighbours


def plan_trial(config: DictConfig) -> PlannedTrial:
    """Raises ConfigError for what a search cannot account for."""
    config = with_protocol(config)
    parts = build_parts(config)
    _refuse(parts)
    plan = make_plan(parts)
    if parts.settings.epsilon is not None:
        plan.refuse_if_impossible(parts.settings.epsilon)
    costs = parts.costs()
    rounds, sigma = parts.settings.rounds, parts.noise_schedule.noise_multiplier
    if plan.rounds is not None:  # it holds if every round releases what the plan counted with
        kinds = parts.clipper.kinds_of_rounds(max(1, plan.rounds))
        if len(kinds) == 1 and all(sigma(t) == sigma(0) for t in range(plan.rounds + 1)):
            rounds = plan.rounds
    if rounds is None:
        raise ConfigError("rounds", None, "a whole number >= 1 in a search with noise that moves")
    resolved = config.copy()
    OmegaConf.resolve(resolved)
    plain = as_tree(resolved, resolve=False)
    alike = {key: plain.get(key) for key in _ALIKE}
    algorithm = parts.algorithm
    alike["algorithm"] = (algorithm.unit, algorithm.trust.name, costs.neighbours)
    return PlannedTrial(parts, costs.of_rounds(rounds), alike)


def plan_ends(configs: Iterable[DictConfig]) -> list[PlannedTrial]:
    """The trials at the ends of the searched keys. Raises ConfigError where they may not be of one search."""
    planned = [plan_trial(config) for config in configs]
    for other in planned[1:]:
        refuse_unlike(planned[0], other)
    return planned


def _refuse(parts: Parts) -> None:
    settings, algorithm = parts.settings, parts.algorithm
    if not algorithm.private:
        raise ConfigError("algorithm", algorithm.name, "a private one in a search")
    if parts.adaptive:
        raise ConfigError(
            "hydra/sweeper=search needs a noise_schedule whose noise does not follow released values, such "
            "as constant, calibrated, or validation_decay with noise_schedule.beta=1"
        )
    if settings.budget_view != SOUND:
        raise ConfigError("budget_view", settings.budget_view, f"{SOUND} in a search")
    if settings.publish:
        raise ConfigError("publish", settings.publish, "null in a search")
    refuse_paired(settings.paired)
    if settings.resume:
        raise ConfigError(
            "resume", settings.resume, "null in a search, which goes on when it is given again"
        )
    if parts.unprotected:
        raise ConfigError(
            f"dataset.{next(iter(parts.unprotected))} is released without noise, which no search can pay for"
        )
    if algorithm.search is not None:
        raise ConfigError("algorithm", algorithm.name, "one without a search of its own")
    if algorithm.cost_depends_on_records:
        raise ConfigError(
            f"algorithm={algorithm.name} samples lots whose privacy cost depends on how many records a "
            "client has, which is not known before a search; use Poisson sampling"
        )


def refuse_paired(name: object) -> None:
    """Raise ConfigError for trials that share their noise; ``name``: the value of the key ``paired``."""
    if name is not None:
        hint = "trials with common noise have no finite epsilon together"
        raise ConfigError("paired", name, "null in a search", hint)


def refuse_unlike(first: PlannedTrial, other: PlannedTrial) -> None:
    """Raise ConfigError where trials differ in what all must share."""
    for key, value in first.alike.items():
        if other.alike[key] != value:
            raise ConfigError(
                f"{key} must be the same in all trials of a search, so that what a client releases adds up"
            )
