"""Plans of trials: the most that a trial may release, known before the trial starts.

A configuration whose releases a search cannot account for is refused here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from dp_accounting.dp_event import DpEvent
from omegaconf import DictConfig, OmegaConf

from fedpriv.common.attributes import own_classes
from fedpriv.common.config import as_tree, with_protocol
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.privacy.core.names import SOUND

# Keys that must be the same in all trials: else client k is not the same client in two trials, or ε is not at
# one δ.
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


@dataclass(frozen=True)
class PlannedTrial:
    """A trial that may run within a search.

    Attributes:
        parts: Objects built from the trial's configuration.
        events: Events that any client may release at most, and how often.
        alike: Key → value of the settings that all trials of a search share.
    """

    parts: Parts
    events: dict[DpEvent, int]
    alike: dict[str, object]

    @property
    def neighbours(self) -> str:
        """Adjacency under which the events are counted."""
        return self.parts.costs().neighbours


def plan_trial(config: DictConfig) -> PlannedTrial:
    """Plan a trial from its configuration.

    Raises:
        ConfigError: The configuration cannot run, or a search cannot account for its releases.
    """
    config = with_protocol(config)
    parts = build_parts(config)
    _refuse_unaccountable(parts)
    plan = make_plan(parts)
    assert plan.first is not None  # the algorithm is private
    queries = [query for sample in plan.first.samples for query in sample.joint.queries]
    if own_makers := own_classes((parts.accountant, *parts.makers_of_events, *queries)):
        raise ConfigError(
            "a search is charged by fedpriv's own classes, and its accountant or what states its events is "
            f"{', '.join(own_makers)}"
        )
    if parts.settings.epsilon is not None:
        plan.refuse_if_impossible(parts.settings.epsilon)
    costs = parts.costs()
    rounds, sigma = parts.settings.rounds, parts.noise_schedule.noise_multiplier
    # The planned number of rounds is a bound only if every round releases exactly what the plan assumed.
    if plan.rounds is not None:
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
    """Plan the trials at the ends of the searched keys.

    Raises:
        ConfigError: A trial cannot run, or two trials may not be of one search.
    """
    planned = [plan_trial(config) for config in configs]
    for other in planned[1:]:
        refuse_unlike(planned[0], other)
    return planned


def _refuse_unaccountable(parts: Parts) -> None:
    """Raise ConfigError for a configuration whose releases no search can bound or compose.

    The cost of a trial must be known before the trial starts. So noise that follows released values, a cost
    that depends on private record counts, and searches within a trial are refused.
    """
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
            f"{next(iter(parts.unprotected))} is released without noise: no ε bounds such a search"
        )
    if algorithm.search is not None:
        raise ConfigError(
            "algorithm", algorithm.name, "an algorithm that does not search the rounds itself"
        )
    if algorithm.cost_depends_on_records:
        raise ConfigError(
            f"algorithm={algorithm.name} samples lots whose privacy cost depends on how many records a "
            "client has, which is not known before a search; use Poisson sampling"
        )


def refuse_paired(name: object) -> None:
    """Raise ConfigError for trials that share their noise.

    Args:
        name: The value of the key ``paired``.
    """
    if name is not None:
        hint = "trials with common noise have no finite epsilon together"
        raise ConfigError("paired", name, "null in a search", hint)


def refuse_unlike(first: PlannedTrial, other: PlannedTrial) -> None:
    """Raise ConfigError where two trials differ in a setting that all trials must share."""
    for key, value in first.alike.items():
        if other.alike[key] != value:
            raise ConfigError(
                f"{key} must be the same in all trials of a search, so that what a client releases adds up"
            )
