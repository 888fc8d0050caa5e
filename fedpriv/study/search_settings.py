"""``hydra.sweeper``: what is fixed before the first trial."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.privacy.random_stopping import NegativeBinomialTrials, PoissonTrials
from fedpriv.study.search_objective import Objective, read_objective
from fedpriv.study.search_space import SAMPLERS, Space

NONE, NEGATIVE_BINOMIAL, POISSON = "none", "negative_binomial", "poisson"
STOPPINGS = (NONE, NEGATIVE_BINOMIAL, POISSON)
Law = NegativeBinomialTrials | PoissonTrials


@dataclass(frozen=True)
class SearchSettings:
    """``law``: of the number of trials under random stopping; None: at most ``trials``, which compose."""

    epsilon: float
    trials: int
    objective: Objective
    sampler: str
    seed: int
    stopping: str = NONE
    law: Law | None = None

    @classmethod
    def of(
        cls,
        epsilon: Any,
        trials: Any,
        objective: Any,
        public_test_records: Any,
        sampler: Any,
        seed: Any,
        stopping: Any = NONE,
        eta: Any = 0,
    ) -> SearchSettings:
        """Checked. Raises ConfigError that names the key."""
        try:
            stopping = checks.one_of("stopping", stopping, STOPPINGS)
            found = cls(
                epsilon=checks.number("epsilon", epsilon, above=0),
                trials=checks.whole("trials", trials, at_least=1 if stopping == NONE else 2),
                objective=read_objective(objective, public_test_records),
                sampler=checks.one_of("sampler", sampler, SAMPLERS),
                seed=checks.whole("seed", seed, at_least=0),
                stopping=stopping,
                law=_law(stopping, trials, eta),
            )
        except ArgumentError as error:
            raise error.within("hydra.sweeper") from None
        if found.law is not None:
            _refuse_unproved(found)
        return found

    def definition(self, space: Space) -> dict[str, Any]:
        """What makes it the same search."""
        found: dict[str, Any] = {
            "fixed": list(space.fixed),
            "searched": {key: str(kind) for key, kind in space.searched.items()},
            "epsilon": self.epsilon,
            "trials": self.trials,
            "objective": self.objective.name,
            "sampler": self.sampler,
            "seed": self.seed,
        }
        if self.law is not None:
            found |= {"stopping": self.stopping, **vars(self.law)}
        return found


def _law(stopping: str, trials: Any, eta: Any) -> Law | None:
    """The law whose mean is ``trials``. Raises ArgumentError."""
    if stopping != NEGATIVE_BINOMIAL and eta != 0:
        raise ArgumentError("eta", eta, f"0 unless stopping={NEGATIVE_BINOMIAL}")
    try:
        if stopping == NEGATIVE_BINOMIAL:
            return NegativeBinomialTrials.of_mean(eta, trials)
        return PoissonTrials(trials) if stopping == POISSON else None
    except ArgumentError as error:
        name = {"mean": "trials"}.get(error.argument, error.argument)
        raise ArgumentError(name, error.value, error.allowed) from None


def _refuse_unproved(settings: SearchSettings) -> None:
    """Raise ConfigError for proposals that are not independent of each other, or not secret."""
    hint = f"hydra.sweeper.stopping={settings.stopping} holds for independent proposals alone"
    if settings.sampler != "random":
        raise ConfigError("hydra.sweeper.sampler", settings.sampler, "random", hint)
    if settings.seed != 0:
        hint = "under random stopping proposals are secret, and come from the operating system"
        raise ConfigError("hydra.sweeper.seed", settings.seed, "0, its default", hint)
