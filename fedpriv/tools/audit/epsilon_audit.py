"""The audit of ε of one run: trained again with canaries, or by the canaries that were planted in the run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.attacks.canary_scores import Kind
from fedpriv.common.errors import ConfigError
from fedpriv.common.words import counted, digits_up
from fedpriv.data.names import DIRECTION, MISLABELLED
from fedpriv.experiment.build import build_parts, without_rule
from fedpriv.experiment.combinations import refuse_canaries
from fedpriv.experiment.consent import stored_configuration
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.settings import CANARIES
from fedpriv.store.canary_file import HEADLINES, CanaryFile
from fedpriv.store.display import console
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools.audit.epsilon_evaluate import (
    BOUND,
    CLOPPER_PEARSON,
    ONE_RUN,
    AuditedEpsilon,
    AuditSetup,
    evaluate,
)
from fedpriv.tools.audit.epsilon_guesses import Scores
from fedpriv.tools.audit.epsilon_trial import (
    CanaryTrial,
    must_be_apart,
    pooled,
    train_apart,
    train_with_canaries,
)
from fedpriv.tools.audit.request import EpsilonOptions

RUNS = 500
"""Default number of runs with one canary each."""


@dataclass(frozen=True)
class EpsilonAudit:
    """The result of an audit of ε.

    Attributes:
        subject: Facts about the run, as in the first keys of epsilon.json.
        options: Options of the audit.
        unit: The unit of the audited guarantee.
        neighbours: The adjacency of the audited guarantee.
        delta: δ of the audited guarantee.
        canaries: Number of canaries in all trainings together.
        canary: Kind of the canaries.
        planted: Whether the canaries were part of the run itself.
        independent: Whether each canary was in a run of its own.
        found: Every number, by observer and method.
    """

    subject: dict[str, Any]
    options: EpsilonOptions
    unit: str
    neighbours: str
    delta: float
    canaries: int
    canary: str
    planted: bool
    independent: bool
    found: list[AuditedEpsilon]

    @property
    def headline(self) -> AuditedEpsilon:
        """The number that was chosen beforehand: the bound with the fewest assumptions.

        It belongs to the observer who can make most of such canaries.
        """
        method = CLOPPER_PEARSON if self.independent else ONE_RUN
        chosen = (HEADLINES[self.canary], method.name)
        return next(f for f in self.found if (f.observer, f.method) == chosen)

    def summary(self) -> dict[str, Any]:
        """Return the entries for ``summary.json``."""
        return {"epsilon_audited": self.headline.epsilon}

    def warnings(self) -> list[str]:
        """Return a sentence for each bound that is above the ledger's ε."""
        sound = self.subject.get("epsilon_sound")
        return [
            f"{number.method} of {number.observer}: at least {number.epsilon:.3g}, more than the ledger's "
            f"{digits_up(float(sound), 3)}. With confidence {self.options.confidence:g} the mechanism leaks "
            "more than it is charged for."
            for number in self.found
            if number.kind == BOUND and sound is not None and number.epsilon > float(sound)
        ]

    def as_json(self) -> dict[str, Any]:
        """Return the content of epsilon.json."""
        return {
            "schema_version": 1,
            **self.subject,
            "options": asdict(self.options),
            "unit": self.unit,
            "neighbours": self.neighbours,
            "delta": self.delta,
            "confidence": self.options.confidence,
            "canaries": self.canaries,
            "canary": self.canary,
            "planted_in_the_run": self.planted,
            "found": [number.row() for number in self.found],
            "warnings": self.warnings(),
        }


def audit_epsilon(
    run: StoredRun,
    options: EpsilonOptions,
    device: str = "auto",
    threads: int | None = None,
    allowed: Collection[str] = (),
) -> EpsilonAudit:
    """Audit ε of a run.

    The canaries that were planted in the run are used if they fit the options. Otherwise the run is trained
    again with canaries.

    Args:
        run: The run.
        options: Options of the audit.
        device: Device of the trainings.
        threads: Number of threads of the trainings; None chooses by the work of a step.
        allowed: Modules outside fedpriv that the run's configuration may name.

    Returns:
        The audit, not written yet.

    Raises:
        FedprivError: The run cannot be audited.
    """
    config = stored_configuration(run, allowed)
    run.files.refuse_links()
    config.runtime.device, config.runtime.threads = device, threads
    config.audit = None
    parts = build_parts(without_rule(config))
    _refuse(parts, options)
    apart = options.independent or must_be_apart(parts)
    trial = None
    if options.canaries is None and not apart and run.canaries is not None:
        trial = _stored(run.canaries, run.files.canaries)
        if options.canary not in (None, trial.canary):
            trial = None
    planted = trial is not None
    if trial is None:
        kind = options.canary or DIRECTION
        refuse_canaries(parts, "--canary", kind)
        rounds = _rounds(run, parts.settings.rounds)
        count = options.canaries or (RUNS if apart else CANARIES)
        announcement = _what_is_trained(options.repetitions, count, rounds, apart, kind)
        console().print(announcement, style="dim")
        trials = []
        for repetition in range(options.repetitions):
            seed, fewer = options.seed + repetition, options.canaries is None
            if apart:
                trials.append(train_apart(config, count, rounds, seed, kind))
            else:
                trials.append(train_with_canaries(config, count, rounds, seed, fewer, kind))
        trial = pooled(trials)
    setup = AuditSetup(
        parts.settings.delta, options.confidence, trial.independent, trial.released, options.seed
    )
    return EpsilonAudit(
        subject={
            "run": str(run.path),
            "algorithm": parts.algorithm.name,
            "dataset": parts.dataset.name,
            "seed": parts.settings.seed,
            "rounds": trial.rounds,
            "finished": run.finished,
            "epsilon_sound": run.summary.get("epsilon_sound"),
            "epsilon_published": run.summary.get("epsilon_published"),
            "test_accuracy": run.summary.get("test_accuracy"),
        },
        options=options,
        unit=parts.algorithm.unit,
        neighbours=setup.neighbours,
        delta=parts.settings.delta,
        canaries=len(trial.scores[HEADLINES[trial.canary]]),
        canary=trial.canary,
        planted=planted,
        independent=trial.independent,
        found=evaluate(trial.scores, setup),
    )


def _what_is_trained(repetitions: int, count: int, rounds: int, apart: bool, kind: str) -> str:
    """Return a line about the trainings to come, which take their time."""
    length, adjective = counted(rounds, "round"), "mislabelled " if kind == MISLABELLED else ""
    if apart:
        return f"{counted(repetitions * count, 'run')} of {length}, one {adjective}canary each"
    return f"{counted(repetitions, 'training')} of {length}, up to {count} {adjective}canaries each"


def _refuse(parts: Parts, options: EpsilonOptions) -> None:
    """Raise ConfigError for a run whose ε cannot be audited."""
    if not parts.private:
        raise ConfigError(
            f"algorithm={parts.algorithm.name} claims no privacy: there is no ε to audit"
        )
    if parts.attack is not None:
        raise ConfigError(
            "a run with an attack cannot be audited for ε, because attackers take the place of canaries: "
            "audit a run with attack=none"
        )
    refuse_canaries(parts, "--canary", options.canary)


def _rounds(run: StoredRun, asked: int | None) -> int:
    """Return the number of rounds of a run."""
    rounds = run.summary.get("rounds", asked)
    if type(rounds) is not int or rounds < 1:
        raise ConfigError(f"{run.files.summary} does not say after how many rounds the run ended")
    return rounds


def _stored(file: CanaryFile, path: Path) -> CanaryTrial:
    """Return the canaries and scores that a run stored."""
    coins = np.array(file.coins)
    try:
        released = Counter({Kind.of_plain(kind): int(kind["count"]) for kind in file.released})
    except (ValueError, TypeError, KeyError):
        raise ConfigError(f"{path} cannot be read: its releases are missing or damaged") from None
    scores = {name: Scores(np.array(values), coins) for name, values in file.scores.items()}
    return CanaryTrial(scores, released, file.rounds, file.independent, file.canary)
