"""What a search may look at: values that were released, or scores on public records."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.experiment.parts import Parts
from fedpriv.store.stored_run import StoredRun

TEST = "hydra.sweeper.public_test_records"


@dataclass(frozen=True)
class Objective:
    """``name``: a column of metrics.csv, whose last value is the score."""

    name: str
    maximize: bool
    reads: str
    """What it looks at, for the statement."""

    def score(self, run: StoredRun) -> float | None:
        """Return the score of a finished run; None where it is not finite. Raises FedprivError for none."""
        score = run.last_value(self.name)
        if score is None:
            raise FedprivError(f"search: {run.path} has no {self.name}")
        return score if math.isfinite(score) else None


_PUBLIC = "the public validation records, which no client's data hold"
_TESTED = f"the test records, which are public ({TEST}=true)"
OBJECTIVES = {
    "validation_loss": Objective("validation_loss", False, _PUBLIC),
    "test_accuracy": Objective("test_accuracy", True, _TESTED),
    "test_loss": Objective("test_loss", False, _TESTED),
}


def read_objective(name: object, public_test_records: object) -> Objective:
    """The objective of that name. Raises ConfigError where it is none, or would read private records."""
    if name not in OBJECTIVES:
        raise ConfigError(
            "hydra.sweeper.objective",
            name,
            f"one of {', '.join(OBJECTIVES)}",
            "a search may look at what was released and at public records, no metric of private ones",
        )
    if not isinstance(public_test_records, bool):
        raise ConfigError(TEST, public_test_records, "true or false")
    objective = OBJECTIVES[name]
    if objective.reads == _TESTED and not public_test_records:
        raise ConfigError(
            f"hydra.sweeper.objective={name} reads the test records, which {TEST}=true declares public"
        )
    return objective


def refuse_without_score(objective: Objective, parts: Parts) -> None:
    """Raise ConfigError where runs would not have the score."""
    if objective.name == "validation_loss" and not parts.noise_schedule.reads_validation:
        raise ConfigError(
            "hydra.sweeper.objective=validation_loss needs a noise_schedule that sets public validation "
            "records apart, such as noise_schedule=validation_decay noise_schedule.beta=1, whose noise is "
            "constant"
        )
