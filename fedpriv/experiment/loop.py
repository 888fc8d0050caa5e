"""The round loop:  announce → who may → who does → work and release → charge → observe.

Rounds and stop rules are here. An observer (:mod:`fedpriv.experiment.observers`) looks on and changes
nothing. Between two rounds the whole state is in ``state_dict``, so a checkpoint there loses nothing.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from fedpriv.algorithms.feature_statistics import FeatureStatistics
from fedpriv.algorithms.losses import ReportedLoss
from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.trainer import RoundOutcome
from fedpriv.experiment.averaging import AveragedModel
from fedpriv.experiment.evaluation import Evaluation, evaluate
from fedpriv.experiment.interrupts import StopRequest
from fedpriv.experiment.own_state import OwnState
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.second_draw import SecondDraw
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import Announcement, OpenRound, Public, Visible

BUDGET, ROUNDS, DIVERGED, INTERRUPTED = "budget", "rounds", "diverged", "interrupted"
SCHEDULE = "schedule"  # it said that the round before was the last


@dataclass(frozen=True)
class Round:
    """A round that is over.

    Attributes:
        number: 1, 2, …
        cohort: Who took part, ascending [c].
        noise_multiplier: σ of the schedule.
        signal: The signal that the schedule read of the new weights; None: it reads none.
        evaluation: On the test records; None: not at this round.
        stop: Why the run ends with this round; None: it goes on, perhaps after it was interrupted here.
        seconds: Of all rounds so far.
    """

    number: int
    cohort: np.ndarray
    noise_multiplier: float
    outcome: RoundOutcome
    signal: float | None
    evaluation: Evaluation | None
    stop: str | None
    seconds: float


class Observer(Protocol):
    """Looks on. What it keeps goes into the checkpoint under its name."""

    name: str

    def begin(self, rounds_done: int) -> None:
        """Called before the first round of this process."""

    def see(self, done: Round) -> None:
        """Called after every round."""

    def close(self) -> None:
        """The run has ended for good: write what is pending."""

    def state_dict(self) -> Any:
        """What resuming needs; whatever was seen is on disk when this returns."""


class Loop:
    """State and rounds of one run. ``budget``: None where the algorithm claims no privacy; ``second_draw``:
    None unless cohorts and lots of an algorithm of the user's own are drawn again."""

    def __init__(self, parts: Parts, context: RunContext, budget: Budget | None):
        self.parts, self.context, self.budget = parts, context, budget
        self.settings, self.schedule = parts.settings, parts.noise_schedule
        self.mechanism = context.mechanism
        self.trainer = parts.algorithm.start(context)
        averaging = self.settings.averaging
        self.average = None if averaging is None else AveragedModel(averaging, context.model)
        self.statistics = None
        if (statistics := parts.released_statistics) is not None:
            row_per_client = parts.algorithm.row_per_client
            self.statistics = FeatureStatistics(context, statistics, row_per_client)
        asked = self.schedule.loss_query
        self._loss_query = None
        if asked is not None:
            self._loss_query = ReportedLoss(context, asked, parts.algorithm.unit)
        self._own = OwnState(parts, self.trainer, context.model, context.attack)
        self.second_draw: SecondDraw | None = None
        self.rounds_done = 0
        self.not_finite = 0
        self.aborted_rounds = 0
        self.last_sigma: float | None = None
        self._seconds_before = self._cpu_seconds_before = 0.0
        self._started = time.perf_counter()
        self.cpu_began = time.process_time()

    @property
    def can_abort(self) -> bool:
        """Whether a round that loses too many clients releases nothing, as the column ``aborted`` tells."""
        return "aborted" in self.parts.algorithm.metrics

    @property
    def seconds(self) -> float:
        """Time in rounds so far, over all sessions of a resumed run."""
        return self._seconds_before + time.perf_counter() - self._started

    @property
    def cpu_seconds(self) -> float:
        """Of this process from :attr:`cpu_began` on, over all sessions and threads."""
        return self._cpu_seconds_before + time.process_time() - self.cpu_began

    def run(self, observers: Sequence[Observer], interrupts: StopRequest) -> str:
        """Run to the end, or until an interrupt, and return the reason it ended. Raises ReleaseError before a
        round that released something else than announced is charged or saved."""
        self._started = time.perf_counter()
        if self.rounds_done == 0:
            self.schedule.begin(self._validation_loss)
        for observer in observers:
            observer.begin(self.rounds_done)
        if self.statistics is not None and not self.statistics.known:
            self._release_statistics(self.statistics)
        announced, eligible, stop = self._next()
        while stop is None:
            sigma = self.schedule.noise_multiplier(self.rounds_done)
            opened, outcome, signal = self._round(announced, eligible)
            self.rounds_done += 1
            if self.average is not None:
                self.average.observe()
            self.last_sigma = sigma
            self.not_finite += outcome.not_finite
            self.aborted_rounds += opened.aborted
            healthy = outcome.healthy and (signal is None or math.isfinite(signal))
            announced, eligible, stop = self._next()
            stop = stop if healthy else DIVERGED
            evaluation = None
            if stop is not None or self.rounds_done % self.settings.evaluation_interval == 0:
                with self.evaluated_model():
                    evaluation = evaluate(self.context)
                if self._stops_by_test_loss and not math.isfinite(evaluation.loss):
                    stop = DIVERGED
            self.trainer.refuse_changed(self.rounds_done - 1)  # by a loss, or by evaluating
            done = Round(
                self.rounds_done,
                opened.cohort,
                sigma,
                outcome,
                signal,
                evaluation,
                stop,
                self.seconds,
            )
            if stop is None and interrupts.requested:
                stop = INTERRUPTED
            for observer in observers:
                observer.see(done)
        return stop

    def _release_statistics(self, statistics: FeatureStatistics) -> None:
        """Let every client release statistics of its features, and charge it for them."""
        announced = self.mechanism.announce_before()
        self.context.streams.bind("announced", announced)
        everyone = np.arange(self.context.data.client_count)
        opened = self.mechanism.open(announced, everyone, self.context.streams, everyone)
        statistics.release(opened)
        assert self.budget is not None
        self.budget.charge_before(opened.close(), announced)

    def _round(
        self, announced: Announcement, eligible: np.ndarray
    ) -> tuple[OpenRound, RoundOutcome, float | None]:
        """Run one round and charge it.

        Returns:
            The round that was opened, exact statistics of it, and the signal that the schedule read.
        """
        context, t = self.context, self.rounds_done
        context.streams.bind("announced", announced)
        sampled = self.parts.algorithm.cohort(context.streams, t, eligible.copy())
        if self.second_draw is not None:
            self.second_draw.hold_cohort(announced, eligible, sampled)
        cohort = context.joined_by_attackers(t, sampled)
        charged = None if self.budget is None else self.budget.payers(cohort)
        opened = self.mechanism.open(announced, cohort, context.streams, charged)
        if self.second_draw is not None:
            self.second_draw.watch(opened)
        outcome = self.trainer.round(opened)
        context.streams.bind("weights", context.model.flat)
        self.trainer.hold_state()
        signal = self._release_signal(opened)
        if self.budget is not None:
            self.budget.charge(opened.close(), announced, sampled)
        if signal is None:
            return opened, outcome, None
        self.schedule.observe(t, signal)
        return opened, outcome, signal.values

    @property
    def _stops_by_test_loss(self) -> bool:
        """Not where the end of the run is told and the test records are not public."""
        return not self.settings.publish or self.settings.publish_test_metrics

    def _next(self) -> tuple[Announcement, np.ndarray, str | None]:
        """Return what the next round will release, which clients may take part in it [K], and why there is no
        such round (None: there is)."""
        announced = self._announce()
        eligible = self._eligible(announced)
        return announced, eligible, self._stop_before_next(eligible)

    def _announce(self) -> Announcement:
        """Return what the next round will release."""
        return self.mechanism.announce(self.rounds_done)

    def _eligible(self, announced: Announcement) -> np.ndarray:
        if self.budget is None:
            return np.ones(self.context.data.client_count, dtype=bool)
        return self.budget.eligible(announced)

    def eligible(self) -> np.ndarray:
        """Return which clients may take part in the next round [K]."""
        return self._eligible(self._announce())

    def _stop_before_next(self, eligible: np.ndarray) -> str | None:
        if self.settings.rounds is not None and self.rounds_done >= self.settings.rounds:
            return ROUNDS
        if self.schedule.ended(self.rounds_done):
            return SCHEDULE
        return None if eligible.sum() >= self.parts.algorithm.fewest_clients else BUDGET

    def _release_signal(self, opened: OpenRound) -> Visible | None:
        """Return what the schedule reads of the new global weights: the loss on public records, or one that
        clients report with noise; None: it reads nothing."""
        if self.schedule.reads_validation:
            return Public(self._validation_loss())
        return None if self._loss_query is None else self._loss_query.ask(opened)

    def _validation_loss(self) -> float:
        """J of the global weights on the public split."""
        records = self.context.data.validation
        assert records is not None
        return self.context.model.evaluate(records.inputs, records.targets)[0]

    def fraction(self) -> float | None:
        """How far the run is, 0 … 1, by rounds or by budget, whichever is further."""
        parts: list[float | None] = []
        for rounds in (self.settings.rounds, self.schedule.planned_rounds):
            if rounds is not None:
                parts.append(min(1.0, self.rounds_done / max(1.0, rounds)))
        by_round = self.mechanism.charged_at_once is None
        if self.budget is not None and self.budget.limit is not None and by_round:
            parts.append(self.budget.fraction_spent())
        return max((part for part in parts if part is not None), default=None)

    def evaluated_model(self) -> AbstractContextManager[None]:
        """Give the model, within the context, the weights that are evaluated and left behind: the averaged
        ones where they are asked for."""
        return nullcontext() if self.average is None else self.average.in_place()

    def state_dict(self) -> dict[str, object]:
        optional: dict[str, Any] = (
            {} if self.average is None else {"average": self.average.state_dict()}
        )
        if self.statistics is not None:
            optional["statistics"] = self.statistics.state_dict()
        if (attack := self.context.attack) is not None and (state := attack.state_dict()):
            optional["attack"] = state
        if own := self._own.state_dict():
            optional["own"] = own
        if (history := self.context.streams.history) is not None:
            optional["history"] = history.state_dict()
        if self.aborted_rounds:
            optional["aborted_rounds"] = self.aborted_rounds
        return {
            **optional,
            "round": self.rounds_done,
            "not_finite": self.not_finite,
            "last_sigma": self.last_sigma,
            "seconds": self.seconds,
            "cpu_seconds": self.cpu_seconds,
            "training": self.trainer.state_dict(),
            "mechanism": self.mechanism.state_dict(),
            "schedule": self.schedule.state_dict(),
            "budget": None if self.budget is None else self.budget.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self.rounds_done, self.not_finite = saved["round"], saved["not_finite"]
        self.last_sigma = saved["last_sigma"]
        self.aborted_rounds = saved.get("aborted_rounds", 0)
        self._seconds_before = saved["seconds"]
        self._cpu_seconds_before = saved.get("cpu_seconds", 0.0)
        self.trainer.load_state_dict(saved["training"])
        self.mechanism.load_state_dict(saved["mechanism"])
        self.schedule.load_state_dict(saved["schedule"])
        if "attack" in saved:
            assert self.context.attack is not None
            self.context.attack.load_state_dict(saved["attack"])
        self._own.load_state_dict(saved.get("own", {}))
        if self.average is not None:
            self.average.load_state_dict(saved["average"])
        if self.statistics is not None:
            self.statistics.load_state_dict(saved["statistics"])
        if (history := self.context.streams.history) is not None:
            history.load_state_dict(saved["history"])
        if self.budget is not None:
            self.budget.load_state_dict(saved["budget"])
