"""Objectives of a search: scores that follow from released values or from public records alone."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.experiment.parts import Parts
from fedpriv.store.stored_run import StoredRun

TEST = "hydra.sweeper.public_test_records"


@dataclass(frozen=True)
class Objective:
    """A score by which trials are compared.

    Attributes:
        name: A column of metrics.csv, whose last value is the score.
        maximize: True where a larger score is better.
        reads: The records that the score is computed on, in words of the statement.
    """

    name: str
    maximize: bool
    reads: str

    def score(self, run: StoredRun) -> float | None:
        """Return the score of a finished run, its last value in the column.

        Returns:
            None where the score is not finite.

        Raises:
            FedprivError: The run has no such column, or no value in it.
        """
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
    """Return the objective of that name.

    Raises:
        ConfigError: There is no such objective, or the objective would read private records.
    """
    if name not in OBJECTIVES:
        raise ConfigError(
            "hydra.sweeper.objective",
            name,
            f"one of {', '.join(OBJECTIVES)}",
            "a search may look at what was released and at public records, not at metrics of private ones",
        )
    if not isinstance(public_test_records, bool):
        raise ConfigError(TEST, public_test_records, "true or false")
    objective = OBJECTIVES[name]
    if objective.reads == _TESTED and not public_test_records:
        raise ConfigError(
            f"hydra.sweeper.objective={name} reads the test records; {TEST}=true declares these public"
        )
    return objective


def refuse_without_score(objective: Objective, parts: Parts) -> None:
    """Raise ConfigError where the runs of this configuration would not have the score."""
    if objective.name == "validation_loss" and not parts.noise_schedule.reads_validation:
        raise ConfigError(
            "hydra.sweeper.objective=validation_loss needs a noise_schedule that sets public validation "
            "records apart, such as noise_schedule=validation_decay noise_schedule.beta=1, whose noise is "
            "constant"
        )
