"""The round loop:  announce → who may → who does → work and release → charge → observe.

The rounds and the rules that end a run are here. An observer (:mod:`fedpriv.experiment.observers`) looks on
and changes nothing. Between two rounds the whole state is in ``Loop.state_dict``, so a checkpoint that is
written there loses nothing.
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
from fedpriv.common.attributes import is_own
from fedpriv.common.errors import ConfigError
from fedpriv.common.exact import exact_digest
from fedpriv.common.notices import notice
from fedpriv.experiment.averaging import AveragedModel
from fedpriv.experiment.contracts import refuse_near_misses
from fedpriv.experiment.evaluation import Evaluation, evaluate
from fedpriv.experiment.interrupts import StopRequest
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.second_draw import SecondDraw
from fedpriv.privacy.budget import Budget
from fedpriv.privacy.mechanisms import Announcement, OpenRound, Public, Visible
from fedpriv.store.ledger_file import RunLedger

BUDGET, ROUNDS, DIVERGED, INTERRUPTED = "budget", "rounds", "diverged", "interrupted"
SCHEDULE = "schedule"  # the noise schedule said that the round before was the last


@dataclass(frozen=True)
class Round:
    """A round that is over, as observers see it.

    Attributes:
        number: 1, 2, …
        cohort: Numbers of the clients that took part, ascending [c].
        noise_multiplier: σ of the schedule in this round.
        outcome: Exact statistics of the round; private.
        signal: The signal that the schedule read of the new weights; None if it reads none.
        evaluation: Loss and accuracy on the test records; None if this round is not evaluated.
        stop: Reason why the run ends with this round; None if the run goes on, perhaps after an interruption.
        seconds: Time of all rounds so far.
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
    """An object that looks on while a run goes.

    Attributes:
        name: Its name, under which its state goes into the checkpoint.
    """

    name: str

    def begin(self, rounds_done: int) -> None:
        """Prepare for the first round of this process.

        Args:
            rounds_done: Number of rounds before; more than 0 in a resumed run.
        """

    def see(self, done: Round) -> None:
        """Take note of a round that is over, charged and, if it is due, evaluated."""

    def close(self) -> None:
        """Write what is pending: the run has ended for good. Not called after an interruption."""

    def state_dict(self) -> Any:
        """Return what resuming needs, after everything seen so far has been written to disk."""


class Loop:
    """State and rounds of one run.

    Attributes:
        parts: The objects of all groups of the configuration.
        context: Data, model, engine and streams.
        budget: Ledger and totals of all clients; None where the algorithm claims no privacy.
        trainer: The algorithm, started: what clients compute and how the server steps.
        average: Running average of the released models; None unless ``averaging`` asks for one.
        own: Parts of the user's own whose state nothing else saves, by name.
        ledger: The file of the releases; None in a run without privacy, or without a folder.
        statistics: Statistics of features that are released before the first round; None if there are none.
        second_draw: Check of the cohorts and lots of an algorithm of the user's own; None for other runs.
        rounds_done: Number of rounds so far, over all sessions of a resumed run.
        not_finite: Number of gradients or uploads that were left out because they had nan or inf.
        aborted_rounds: Number of rounds that lost too many clients and released nothing.
        last_sigma: σ of the schedule in the last round; None before the first.
        began: Clock and processor time of this process from which on :attr:`seconds` and
            :attr:`cpu_seconds` count.
        on_cluster: Whether a cluster computed, in any session of the run.
    """

    def __init__(self, parts: Parts, context: RunContext, budget: Budget | None):
        self.parts, self.context, self.budget = parts, context, budget
        self.settings, self.schedule = parts.settings, parts.noise_schedule
        self.mechanism = context.mechanism
        self.trainer = parts.algorithm.start(context)
        refuse_near_misses("server step", self.trainer.server)
        refuse_near_misses("uploads", self.trainer.computation.uploads)
        averaging = self.settings.averaging
        self.average = None if averaging is None else AveragedModel(averaging, context.model)
        self.statistics = None
        if (statistics := parts.released_statistics) is not None:
            row_per_client = parts.algorithm.row_per_client
            self.statistics = FeatureStatistics(context, statistics, row_per_client)
        self._loss_query = None
        if (loss_query := self.schedule.loss_query) is not None:
            self._loss_query = ReportedLoss(context, loss_query, parts.algorithm.unit)
        # Parts of the user's own whose state nothing else saves.
        computation, attack = self.trainer.computation, parts.attack
        own = {
            "algorithm": parts.algorithm,
            "work": computation,
            "uploads": computation.uploads,
            "attack": attack,
            "attack.trigger": None if attack is None else attack.trigger,
            "accountant": parts.accountant,
        }
        self.own: dict[str, Any] = {
            name: part for name, part in own.items() if is_own(part) and hasattr(part, "state_dict")
        }
        self.ledger: RunLedger | None = None
        self.second_draw: SecondDraw | None = None
        self.rounds_done = 0
        self.not_finite = 0
        self.aborted_rounds = 0
        self.last_sigma: float | None = None
        self.on_cluster = self.settings.runtime.cluster is not None
        self._seconds_before = self._cpu_seconds_before = 0.0
        self.began = time.perf_counter(), time.process_time()

    # ---- rounds

    def run(self, observers: Sequence[Observer], interrupts: StopRequest) -> str:
        """Run rounds until a rule ends the run or an interrupt is requested.

        Args:
            observers: Called after every round, in this order.
            interrupts: Asked after every round whether somebody wants the run to end.

        Returns:
            The reason why the run ended, one of the constants of this module.

        Raises:
            ReleaseError: A round released something else than it had announced. The round is neither charged
                nor saved.
        """
        if self.rounds_done == 0:
            # A resumed run has the state of its schedule from the checkpoint instead.
            self.schedule.begin(self._validation_loss)
        for observer in observers:
            # The observer that saves checkpoints writes one here, so a run that is killed in round 1 can
            # be resumed.
            observer.begin(self.rounds_done)
        if self.statistics is not None and not self.statistics.known:
            self._release_statistics(self.statistics)
        announced, eligible, stop = self._next()
        while stop is None:
            # Noted before the round, whose signal may change the schedule.
            sigma = self.schedule.noise_multiplier(self.rounds_done)
            opened, outcome, signal = self._round(announced, eligible)
            self.rounds_done += 1
            if self.average is not None:
                self.average.observe()
            self.last_sigma = sigma
            self.not_finite += outcome.not_finite
            self.aborted_rounds += opened.aborted

            # The next round is announced before this one is evaluated: the last round is always evaluated.
            announced, eligible, stop = self._next()
            if not outcome.healthy or (signal is not None and not math.isfinite(signal)):
                stop = DIVERGED
            evaluation = None
            if stop is not None or self.rounds_done % self.settings.evaluation_interval == 0:
                with self.evaluated_model():
                    evaluation = evaluate(self.context, self.settings.runtime.diagnostics)
                # The end of a published run is public, so it must not follow from private test records.
                private_test = self.settings.publish and not self.settings.publish_test_metrics
                if not private_test and not math.isfinite(evaluation.loss):
                    stop = DIVERGED

            done = Round(
                number=self.rounds_done,
                cohort=opened.cohort,
                noise_multiplier=sigma,
                outcome=outcome,
                signal=signal,
                evaluation=evaluation,
                stop=stop,
                seconds=self.seconds,
            )
            # Observers see no interruption: the resumed run writes what the uninterrupted one would write.
            if stop is None and interrupts.requested:
                stop = INTERRUPTED
            for observer in observers:
                observer.see(done)
        return stop

    def _next(self) -> tuple[Announcement, np.ndarray, str | None]:
        """Return the announcement of the next round, who may take part [K], and why there is no next round.

        The reason is None if there is a next round.
        """
        announced = self._announce()
        eligible = self.eligible(announced)
        stop = None
        if self.settings.rounds is not None and self.rounds_done >= self.settings.rounds:
            stop = ROUNDS
        elif self.schedule.ended(self.rounds_done):
            stop = SCHEDULE
        elif eligible.sum() < self.parts.algorithm.fewest_clients:
            stop = BUDGET
        return announced, eligible, stop

    def _announce(self) -> Announcement:
        """Return what the next round will release."""
        return self.mechanism.announce(self.rounds_done)

    def eligible(self, announced: Announcement | None = None) -> np.ndarray:
        """Return a mask [K] of the clients that have records and can afford a round.

        All with records can where the algorithm claims no privacy.

        Args:
            announced: What the round will release. Default: the announcement of the next round.
        """
        # A client without records releases nothing and pays nothing, unless its share of the noise is needed.
        with_records = self.context.data.records_per_client > 0
        with_records |= self.parts.algorithm.trust.sees_only_a_sum
        if self.budget is None:
            return with_records
        announced = self._announce() if announced is None else announced
        return self.budget.eligible(announced) & with_records

    def _release_statistics(self, statistics: FeatureStatistics) -> None:
        """Let every client release statistics of its features, and charge it for them.

        A client without records has none, and pays nothing where each client releases its own.
        """
        announced = self.mechanism.announce_before()
        everyone = np.arange(self.context.data.client_count)
        if self.parts.algorithm.trust.sees_each_upload:
            everyone = everyone[self.context.data.records_per_client > 0]
        opened = self.mechanism.open(announced, everyone, self.context.streams, everyone)
        if self.ledger is not None:
            self.ledger.open(0, opened.charges())
        statistics.release(opened)
        assert self.budget is not None
        self.budget.charge_before(opened.close(), announced)
        if self.ledger is not None:
            self.ledger.close(opened.digest)

    def _round(
        self, announced: Announcement, eligible: np.ndarray
    ) -> tuple[OpenRound, RoundOutcome, float | None]:
        """Run one round and charge it.

        Returns:
            The round that was opened, exact statistics of the round, and the signal that the schedule read.
        """
        context, t = self.context, self.rounds_done

        # 1. Sample the cohort.
        sampled = self.parts.algorithm.cohort(context.streams, t, eligible.copy())
        if self.second_draw is not None:
            self.second_draw.hold_cohort(announced, eligible, sampled)
        cohort = context.joined_by_attackers(t, sampled)

        # 2. Train. Nothing leaves the round but through ``opened``, which adds the announced noise.
        charged = None if self.budget is None else self.budget.payers(cohort)
        opened = self.mechanism.open(announced, cohort, context.streams, charged)
        if self.second_draw is not None:
            self.second_draw.watch(opened)
        if self.ledger is not None:
            self.ledger.open(t + 1, opened.charges())
        outcome = self.trainer.round(opened)

        # 3. Ask for the loss of the new weights, if the schedule reads one.
        signal: Visible | None = None
        if self.schedule.reads_validation:
            signal = Public(self._validation_loss())
        elif self._loss_query is not None:
            signal = self._loss_query.ask(opened)

        # 4. Charge everything that was released, and only then let the schedule see the signal.
        if self.budget is not None:
            self.budget.charge(opened.close(), announced, sampled)
        if self.ledger is not None:
            self.ledger.close(opened.digest)
        if signal is None:
            return opened, outcome, None
        self.schedule.observe(t, signal)
        return opened, outcome, signal.values

    def _validation_loss(self) -> float:
        """Return the loss of the global weights on the public validation records."""
        records = self.context.data.validation
        assert records is not None
        return self.context.model.evaluate(records.inputs, records.targets)[0]

    # ---- views of the run

    @property
    def can_abort(self) -> bool:
        """True if a round that loses too many clients releases nothing, as the column ``aborted`` tells."""
        return "aborted" in self.parts.algorithm.metrics

    @property
    def seconds(self) -> float:
        """Time since :attr:`began`, over all sessions of a resumed run."""
        return self._seconds_before + time.perf_counter() - self.began[0]

    @property
    def cpu_seconds(self) -> float:
        """Processor time since :attr:`began`, over all sessions of a resumed run.

        All threads count, and so do chunks that workers computed.
        """
        shares = self.context.shares
        of_workers = 0.0 if shares is None else shares.cpu_seconds
        return self._cpu_seconds_before + time.process_time() - self.began[1] + of_workers

    def fraction(self) -> float | None:
        """Return the progress of the run in [0, 1], by rounds or by budget, whichever is further.

        The budget does not count where the whole run is charged at once.

        Returns:
            None if neither the number of rounds nor the budget is known to limit the run.
        """
        fractions: list[float | None] = []
        for rounds in (self.settings.rounds, self.schedule.planned_rounds):
            if rounds is not None:
                fractions.append(min(1.0, self.rounds_done / max(1.0, rounds)))
        by_round = self.mechanism.charged_at_once is None
        if self.budget is not None and self.budget.limit is not None and by_round:
            fractions.append(self.budget.fraction_spent())
        return max((part for part in fractions if part is not None), default=None)

    def evaluated_model(self) -> AbstractContextManager[None]:
        """Return a context within which the model has the weights that are evaluated and saved.

        These are the averaged weights where ``averaging`` asks for them, else the global weights.
        """
        return nullcontext() if self.average is None else self.average.in_place()

    # ---- state between two rounds

    def state_dict(self) -> dict[str, object]:
        """Return the whole state between two rounds: tensors and plain values."""
        optional: dict[str, Any] = (
            {} if self.average is None else {"average": self.average.state_dict()}
        )
        if self.statistics is not None:
            optional["statistics"] = self.statistics.state_dict()
        if (attack := self.context.attack) is not None and (state := attack.state_dict()):
            optional["attack"] = state
        if own_state := states_of(self.own):
            optional["own"] = own_state
        if self.aborted_rounds:
            optional["aborted_rounds"] = self.aborted_rounds
        if self.on_cluster:
            optional["on_cluster"] = True
        if kept := self._kept_by_own_parts():
            optional["kept"] = kept
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
        """Go on from a state that :meth:`state_dict` returned, in a loop with the same parts and data.

        Keys that only some runs have are absent from checkpoints of the other runs, and then stand for their
        initial values.
        """
        saved: Mapping[str, Any] = state
        self.rounds_done, self.not_finite = saved["round"], saved["not_finite"]
        self.last_sigma = saved["last_sigma"]
        self.on_cluster |= saved.get("on_cluster", False)
        self.aborted_rounds = saved.get("aborted_rounds", 0)
        self._seconds_before = saved["seconds"]
        self._cpu_seconds_before = saved["cpu_seconds"]
        self.trainer.load_state_dict(saved["training"])
        self.mechanism.load_state_dict(saved["mechanism"])
        self.schedule.load_state_dict(saved["schedule"])
        if "attack" in saved:
            assert self.context.attack is not None
            self.context.attack.load_state_dict(saved["attack"])
        load_states_of(self.own, saved.get("own", {}))
        if self.average is not None:
            self.average.load_state_dict(saved["average"])
        if self.statistics is not None:
            self.statistics.load_state_dict(saved["statistics"])
        if self.budget is not None:
            self.budget.load_state_dict(saved["budget"])
        now = self._kept_by_own_parts()
        for name in (name for name in now if saved["kept"].get(name) != now[name]):
            notice(
                f"warning: {name} keeps more from round to round than its state_dict saves: the rounds "
                "that follow are not those of an uninterrupted run"
            )

    def _kept_by_own_parts(self) -> dict[str, str]:
        """Return digests of all that a clipper and a schedule of the user's own hold."""
        parts = {"clipper": self.context.clipper, "noise_schedule": self.schedule}
        return {name: exact_digest(vars(part)) for name, part in parts.items() if is_own(part)}


def states_of(parts: Mapping[str, Any]) -> dict[str, object]:
    """Return the states of parts that have any."""
    return {name: state for name, part in parts.items() if (state := part.state_dict())}


def load_states_of(parts: Mapping[str, Any], saved: Mapping[str, Any]) -> None:
    """Restore what :func:`states_of` returned."""
    for name in saved.keys() & parts.keys():
        part = parts[name]
        if not hasattr(part, "load_state_dict"):
            raise ConfigError(
                f"resume: {name} ({type(part).__name__}) has state_dict and no load_state_dict"
            )
        part.load_state_dict(saved[name])
