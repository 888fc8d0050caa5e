"""Observers of a run: tables, display, snapshots and checkpoints. None of them changes anything.

They are called in this order after every round. So all that a checkpoint takes for written is on disk.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np

from fedpriv.experiment import checkpoint
from fedpriv.experiment.evaluation import Results, accuracy_of_clients, runaway
from fedpriv.experiment.loop import Loop, Round
from fedpriv.experiment.snapshots import Snapshots
from fedpriv.store.folder import RunFolder
from fedpriv.store.tables import ATTACK_METRICS, CLIENTS, METRICS, GrowingTable, ParticipationTable

_CLIENTS_SHOWN = (
    100  # clients.csv holds so many participants of a round, those with the lowest numbers
)
_MOST_SECONDS = 300  # between two checkpoints, however slow the rounds are


class Watcher(Protocol):
    """A display of a run while it goes."""

    def show(self, row: Mapping[str, object]) -> None:
        """Show the row of ``metrics.csv`` of the round that is over."""


class Quiet:
    """An observer that does nothing and has no state. Others extend it and override what they need."""

    name = ""

    def begin(self, rounds_done: int) -> None:
        pass

    def see(self, done: Round) -> None:
        pass

    def close(self) -> None:
        pass

    def state_dict(self) -> object:
        return None


class Metrics(Quiet):
    """The table ``metrics.csv`` with one row for each round, and the results for the summary.

    Args:
        loop: The loop that is observed.
        folder: The run folder.
        state: The state that a checkpoint holds; None for a new run. Rows of later rounds are cut off.

    Attributes:
        table: The file.
        columns: Columns of the table.
        results: What the summary says of all evaluations so far.
        row: The row of the last round by column. It has more entries than the table has columns: the table
            leaves out what a run without diagnostics withholds.
    """

    name = "metrics"

    def __init__(self, loop: Loop, folder: RunFolder, state: Mapping[str, Any] | None):
        self._loop = loop
        self._diagnostics = loop.settings.runtime.diagnostics
        self._attack = loop.context.attack
        attacked: tuple[str, ...] = () if self._attack is None else ATTACK_METRICS
        if self._attack is not None and self._attack.test is None:  # no backdoor
            attacked = tuple(name for name in attacked if name != "backdoor_accuracy")
        columns: tuple[str, ...] = (*METRICS, *attacked, *loop.parts.algorithm.metrics)
        if not self._diagnostics:  # the time of a round tells how many clients took part
            columns = tuple(column for column in columns if column != "seconds")
        position = None if state is None else state["position"]
        self.columns = columns
        self.table = GrowingTable(folder.metrics, columns, position)
        self.results = Results(**({} if state is None else state["results"]))
        self.row: dict[str, Any] = {}

    def see(self, done: Round) -> None:
        """Write the row of a round. Only runs with diagnostics have columns of exact private values."""
        schedule, budget = self._loop.schedule, self._loop.budget
        signal = "validation_loss" if schedule.reads_validation else "reported_loss"
        row: dict[str, Any] = {
            "round": done.number,
            signal: done.signal,
            "planned_rounds": schedule.planned_rounds,
        }
        # Clip norms and σ follow from released values, so every run may show them.
        if budget is not None:
            clip_norms = done.outcome.clip_norms.astype(float)
            row.update(
                budget.worst(seldom=False),
                noise_multiplier=done.noise_multiplier,
                clip_norm=float(clip_norms.mean()),
                clip_norm_min=float(clip_norms.min()),
                clip_norm_max=float(clip_norms.max()),
            )
        if self._diagnostics:
            row.update(
                gradient_norm=_known(done.outcome.gradient_norm),
                train_loss=_known(done.outcome.train_loss),
            )
        row.update(done.outcome.facts)
        if self._attack is not None:
            # The norms are taken from the attackers in any case, so that they do not pile up there.
            self.results.attacked_rounds += self._attack.active
            norms = self._attack.take_norms()
            if self._diagnostics:
                row.update(norms)
        row["seconds"] = round(done.seconds, 3)  # written only by runs with diagnostics
        if (evaluation := done.evaluation) is not None:
            row.update(test_loss=evaluation.loss, test_accuracy=evaluation.accuracy)
            if evaluation.backdoor_accuracy is not None:
                row["backdoor_accuracy"] = evaluation.backdoor_accuracy
            self.results.include(evaluation)
            # Some ε take long to compute and are asked for seldom. When follows from the number of the round
            # and from what was released, never from a timing, so that a resumed run asks in the same rounds.
            evaluations = done.number // self._loop.settings.evaluation_interval
            if budget is not None and (
                done.stop is not None or has_few_digits(evaluations, 1 if budget.slow else 2)
            ):
                row.update(budget.worst(seldom=True))
        self.results.ran_away |= bool(runaway(row, self._loop.context.data.classes))
        self.row = row
        self.table.append(row)

    def close(self) -> None:
        self.table.flush()

    def state_dict(self) -> dict[str, object]:
        return {"position": self.table.flush(), "results": asdict(self.results)}


class ClientsTable(Quiet):
    """The table ``clients.csv``: participants of evaluated rounds, up to a hundred of a round.

    The last round has a row for every client, with its accuracy. The values are exact, so the table is
    written with ``runtime.diagnostics`` alone.

    Args:
        loop: The loop that is observed.
        folder: The run folder.
        position: Length of the file in bytes at the checkpoint; None for a new run.
    """

    name = "clients"

    def __init__(self, loop: Loop, folder: RunFolder, position: int | None):
        self._loop, self._measure = loop, accuracy_of_clients(loop.context.data)
        columns = (*CLIENTS, *filter(None, [self._measure]))
        self._table = GrowingTable(folder.clients, columns, position)

    def see(self, done: Round) -> None:
        if done.evaluation is None:
            return
        budget, cohort = self._loop.budget, done.cohort
        epsilon = budget.epsilon() if budget is not None and budget.immediate else None
        # One clip norm stands for all clients where the server holds it.
        norms = done.outcome.clip_norms
        norms = np.broadcast_to(norms, len(cohort)) if len(norms) == 1 else norms
        gradient_norms = done.outcome.gradient_norm_per_client(len(cohort))[:_CLIENTS_SHOWN]
        rows: dict[int, dict[str, float]] = {
            client: {"gradient_norm": float(norm), "clip_norm": float(clip_norm)}
            for client, norm, clip_norm in zip(cohort.tolist(), gradient_norms, norms, strict=False)
        }
        accuracies = done.evaluation.client_accuracy
        if done.stop is not None and accuracies is not None:
            rows = {client: rows.get(client, {}) for client in range(len(accuracies))}
        for client, row in rows.items():
            row |= {"round": done.number, "client": client}
            if epsilon is not None:
                row["epsilon"] = float(epsilon[client])
            if self._measure and accuracies is not None and np.isfinite(accuracies[client]):
                row[self._measure] = float(accuracies[client])
            self._table.append(row)

    def close(self) -> None:
        self._table.flush()

    def state_dict(self) -> int:
        return self._table.flush()


class ParticipationLog(Quiet):
    """The table ``participation.csv``: which clients took part; not written where that must stay secret.

    Args:
        folder: The run folder.
        state: The state that a checkpoint holds; None for a new run.
    """

    name = "participation"

    def __init__(self, folder: RunFolder, state: Mapping[str, object] | None):
        self._table = ParticipationTable(folder.participation, state)

    def see(self, done: Round) -> None:
        self._table.enter(done.number, done.cohort)

    def close(self) -> None:
        self._table.finish()

    def state_dict(self) -> dict[str, object]:
        return self._table.state_dict()


class Display(Quiet):
    """An observer that passes each row of the metrics on to the display."""

    name = "display"

    def __init__(self, metrics: Metrics, watcher: Watcher):
        self._metrics, self._watcher = metrics, watcher

    def see(self, done: Round) -> None:
        self._watcher.show(self._metrics.row)


class RoundCallback(Quiet):
    """An observer that calls a function of the user's with a copy of each row of the metrics."""

    name = "callback"

    def __init__(self, metrics: Metrics, call: Callable[[dict[str, Any]], object]):
        self._metrics, self._call = metrics, call

    def see(self, done: Round) -> None:
        # Only what the table shows: the row also has what a run without diagnostics withholds.
        row, columns = self._metrics.row, self._metrics.columns
        self._call({column: row[column] for column in columns if column in row})


class SnapshotFiles(Quiet):
    """Copies of the released state, one after every ``runtime.snapshot_interval`` rounds, or none."""

    name = "snapshots"

    def __init__(self, loop: Loop, folder: RunFolder):
        runtime = loop.settings.runtime
        self._context, self._average = loop.context, loop.average
        self._files = Snapshots(folder, runtime.snapshot_interval, dated=runtime.diagnostics)

    def begin(self, rounds_done: int) -> None:
        # Also before the first round: an audit compares weights before and after rounds.
        self._files.begin(rounds_done)
        self._files.offer(rounds_done, self._context, self._average)

    def see(self, done: Round) -> None:
        self._files.offer(done.number, self._context, self._average)


class Checkpoints(Quiet):
    """The file ``checkpoint.pt``: the whole state of the loop and of the observers.

    It is written when a process begins, after every ``runtime.checkpoint_interval`` rounds, and after a round
    that ends more than five minutes after the last one was written. The first one shows at once whether the
    state can be saved, and is there if the process is killed in its first round.

    Args:
        loop: The loop whose state is saved.
        folder: The run folder.
        origin: The run, code and machine that the state comes from.
        others: Observers that have a state. They must be called before this one.
    """

    name = "checkpoints"

    def __init__(self, loop: Loop, folder: RunFolder, origin: checkpoint.Origin, others: list[Any]):
        self._loop, self._folder, self._origin, self._others = loop, folder, origin, others
        self._interval = loop.settings.runtime.checkpoint_interval
        self._saved_at = time.monotonic()

    def begin(self, rounds_done: int) -> None:
        self.save()

    def see(self, done: Round) -> None:
        waited = time.monotonic() - self._saved_at
        if done.number % self._interval == 0 or waited > _MOST_SECONDS:
            self.save()

    def save(self) -> None:
        """Write the checkpoint now; also called at the end of the run."""
        state = {**self._origin.state_dict(), **self._loop.state_dict()}
        # Each of these calls brings the rows of a table to disk, before the checkpoint says that they are
        # there.
        state["observers"] = {o.name: o.state_dict() for o in self._others}
        checkpoint.save(self._folder, state)
        # Afterwards: a process that is killed in between leaves the rounds in the ledger one by one.
        if self._loop.ledger is not None:
            self._loop.ledger.save()
        self._saved_at = time.monotonic()


def has_few_digits(number: int, digits: int) -> bool:
    """Return whether a number has at most so many significant digits.

    With two digits: all of 1 … 99, every tenth of 100 … 990, and so on.
    """
    while number >= 10**digits:
        number, last = divmod(number, 10)
        if last:
            return False
    return True


def _known(value: float) -> float | None:
    """Return the value, or None for nan, the mean over no records."""
    return None if math.isnan(value) else value
