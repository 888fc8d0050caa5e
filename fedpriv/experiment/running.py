"""A run that is ready to go: its loop, its folder and its observers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import numpy as np

from fedpriv.common.attributes import is_own, own_classes
from fedpriv.data.federated import smallest_client
from fedpriv.data.names import MISLABELLED
from fedpriv.experiment.canaries import CanaryScores
from fedpriv.experiment.checkpoint import Origin
from fedpriv.experiment.interrupts import Interrupts
from fedpriv.experiment.loop import DIVERGED, INTERRUPTED, Loop, Observer
from fedpriv.experiment.observers import (
    Checkpoints,
    ClientsTable,
    Display,
    Metrics,
    ParticipationLog,
    Quiet,
    SnapshotFiles,
    Watcher,
)
from fedpriv.experiment.own_code import own_targets
from fedpriv.experiment.plan import VACUOUS_EPSILON
from fedpriv.privacy.budgeted_schedules import UniformBudget
from fedpriv.privacy.mechanisms import GRADIENT, Release
from fedpriv.privacy.mechanisms.query import EARLIER
from fedpriv.store.caveats import CAVEATS, aborted_words, own_code, own_sampling, split_by_count
from fedpriv.store.folder import RunFolder
from fedpriv.store.ledger_file import RunLedger


class Run:
    """One run, new or resumed.

    Making it opens the tables in the folder. Those of a resumed run are cut back to what its checkpoint has
    seen.

    Args:
        loop: State and rounds.
        folder: The run folder.
        origin: The run, code and machine, for its checkpoints.
        state: The checkpoint that the run goes on from; None if it begins with round 1.
        notes: Lines about the folder and its checkpoint that the user must see.

    Attributes:
        loop: State and rounds.
        folder: The run folder.
        notes: Lines about the folder and its checkpoint that the user must see.
        origin: The run, code and machine, for its checkpoints.
        resumed: The run goes on from a checkpoint.
        metrics: The table ``metrics.csv``, with the results so far.
    """

    def __init__(
        self,
        loop: Loop,
        folder: RunFolder,
        origin: Origin,
        state: Mapping[str, object] | None,
        notes: Sequence[str] = (),
    ):
        self.loop, self.folder, self.notes = loop, folder, list(notes)
        self.origin = origin
        self.resumed = state is not None
        saved: Mapping[str, Any] = state or {}
        observers = {} if state is None else saved["observers"]
        diagnostics = loop.settings.runtime.diagnostics
        if loop.budget is not None:
            # Statistics of features are released before the first round, after the first checkpoint.
            pending = loop.statistics is not None and not loop.statistics.known
            loop.ledger = RunLedger(
                folder.ledger,
                loop.budget,
                published=loop.settings.publish,
                done=loop.rounds_done - pending if self.resumed else None,
            )
        self.metrics = Metrics(loop, folder, observers.get("metrics"))
        self._tables: list[Quiet] = [self.metrics]
        if diagnostics:
            self._tables.append(ClientsTable(loop, folder, observers.get("clients")))
        if diagnostics or not loop.parts.algorithm.trust.secret_cohort:
            self._tables.append(ParticipationLog(folder, observers.get("participation")))
        if loop.context.canaries is not None:
            self._tables.append(CanaryScores(loop, folder, observers.get(CanaryScores.name)))
        self._snapshots = SnapshotFiles(loop, folder)
        self._checkpoints = Checkpoints(loop, folder, origin, self._tables)

    def go(self, watcher: Watcher, *others: Observer) -> str:
        """Run to the end, leave a checkpoint, and return the reason why the run ended.

        Args:
            watcher: Shows each row of the metrics.
            others: Further observers. They are called after the tables and before snapshots and checkpoints.
        """
        display = Display(self.metrics, watcher)
        # The order matters: the display reads the row that the table has made, and a checkpoint comes
        # last, so that all which it takes for written is on disk.
        observers = [*self._tables, display, *others, self._snapshots, self._checkpoints]
        with Interrupts(self.loop.settings.runtime.stop_file) as interrupts:
            stop = self.loop.run(observers, interrupts)
            if self.loop.ledger is not None and stop != INTERRUPTED:
                self.loop.ledger.charge_rest()
            self.save()
        return stop

    def save(self) -> None:
        """Write the checkpoint now."""
        self._checkpoints.save()

    def close(self, stop_reason: str) -> None:
        """Write what is pending. An interrupted run goes on later, so its tables stay open-ended."""
        if stop_reason == INTERRUPTED:
            self.metrics.close()
            return
        for table in self._tables:
            table.close()

    def charge_search(self, runs: Mapping[int, int]) -> None:
        """Charge the runs that were made to find T, as if every client had been in every round.

        They go into the ledger and into the sound totals. The published view is about the last run alone.

        Args:
            runs: By T: number of samples that a client answered on in all runs with this T, by their own
                ledgers.
        """
        loop, mechanism = self.loop, self.loop.mechanism
        costs = loop.parts.costs()
        # The runs of the search had the clip norm of round 1, and the σ that spreads the budget over T.
        clip_norm = loop.context.clipper.clip_norm(0, loop.context.model.flat.new_zeros(1).long())
        sensitivity = clip_norm.cpu().numpy()
        everyone = np.arange(loop.context.data.client_count)
        for rounds, samples in runs.items():
            sigma = cast("UniformBudget", loop.schedule).noise_multiplier_over(rounds)
            joint = mechanism.joint(costs.sampling, sigma, 0)
            std = sensitivity.astype(float) * joint.query(GRADIENT).noise_multiplier
            release = Release(
                joint, everyone, {GRADIENT: sensitivity}, {GRADIENT: std}, count=samples
            )
            assert loop.budget is not None
            loop.budget.charge_prior(release)

    def own_texts(self) -> list[str]:
        """Return the texts of code outside fedpriv that the privacy statement may hold."""
        parts, claim = self.loop.parts, self.loop.parts.algorithm.claim
        claim_texts = () if claim is None else (claim.source, claim.statement)
        imagined = self.loop.schedule.imagined(self.loop.rounds_done) or {}
        texts = {
            parts.dataset.without_features(): parts.dataset.caveats,
            parts.algorithm: [*parts.algorithm.own_caveats(), *claim_texts],
            parts.clipper: (parts.clipper.caveat, parts.clipper.aggregator_caveat),
            self.loop.schedule: (self.loop.schedule.caveat, *imagined.values()),
            parts.accountant: (parts.accountant.describe(),),
        }
        own = [text for part, given in texts.items() if is_own(part) for text in given]
        return [text for text in own if text and isinstance(text, str)]

    def caveats(self, stop_reason: str | None = None) -> list[str]:
        """Return the sentences that a reader of the privacy numbers must know.

        Args:
            stop_reason: Reason why the run ended; None before its first round.
        """
        loop = self.loop
        budget, context, algorithm = loop.budget, loop.context, loop.parts.algorithm
        if budget is None:
            return []
        delta, rule = loop.settings.delta, loop.parts.aggregation
        warm_start = loop.settings.warm_start
        # δ must be below 1/n for n units: with δ >= 1/n, publishing one unit in full would be allowed.
        applies = {
            **dict.fromkeys(algorithm.caveats(), True),
            "own_model": is_own(loop.parts.model),
            "run_again": any(EARLIER in joint.names for joint, _ in budget.ledger),
            "search": algorithm.search is not None,
            "validation": loop.schedule.reads_validation,
            "warm_start": warm_start is not None and not warm_start.on_clients,
            "warm_start_on_clients": warm_start is not None and warm_start.on_clients,
            "root": loop.parts.aggregation is not None and loop.parts.aggregation.reads_validation,
            "delta": algorithm.unit == "record" and delta * smallest_client(context.data) >= 1,
            "delta_of_clients": algorithm.unit == "client"
            and delta * context.data.client_count >= 1,
            "declared_records": loop.parts.dataset.declared_records is not None,
            "paired": loop.settings.paired is not None,
            "cluster": loop.on_cluster,
            "attackers": context.attack is not None,
            "omniscient": bool(loop.parts.attack and loop.parts.attack.hidden(algorithm)),
            "aggregation": rule is not None and rule.buckets is None,
            "buckets": rule is not None and rule.buckets is not None,
            "canaries": loop.settings.canaries > 0,
            "mislabelled": loop.settings.canary == MISLABELLED,
            "large": VACUOUS_EPSILON < float(np.max(budget.epsilon_sound())) < math.inf,
            "diverged": stop_reason == DIVERGED,
            "interrupted": stop_reason == INTERRUPTED,
        }
        clipper = loop.parts.clipper
        aggregated = algorithm.unit == "client" and algorithm.trust.sees_each_upload
        # Trackers are no part of the identity, as they change no result, but their code runs in the process.
        targets = own_targets(self.origin.identity)
        targets |= {
            f"tracker.{name}": f"{type(tracker).__module__}.{type(tracker).__qualname__}"
            for name, tracker in loop.parts.trackers.items()
            if is_own(tracker)
        }
        samplings = own_classes(loop.parts.samplings(context.data.client_count))
        statements = [
            own_code(targets) if targets else None,
            own_sampling(samplings) if samplings else None,
            None if algorithm.augmentation is None else algorithm.augmentation.statement(),
            *algorithm.own_caveats(),
            aborted_words(loop.aborted_rounds, loop.rounds_done) if loop.aborted_rounds else None,
            *loop.parts.dataset.caveats,
            start.caveat if (start := loop.parts.model.starting_point) else None,
            split_by_count(loop.parts.split_by_count) if loop.parts.split_by_count else None,
            *loop.parts.replaced,
            loop.schedule.caveat,
            clipper.caveat,
            clipper.aggregator_caveat if aggregated else None,
        ]
        return [caveat for caveat in statements if caveat] + [
            CAVEATS[name] for name, holds in applies.items() if holds
        ]
