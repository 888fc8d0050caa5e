"""The loop of a search: propose a trial, ask the budget, run, charge, tell the sampler the score."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.files import write_json, write_text
from fedpriv.common.words import digits_up
from fedpriv.store.saved import saved_json
from fedpriv.store.searches import RECORD, STATEMENT
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.search_budget import SearchBudget, SearchLedger, read_trial
from fedpriv.study.search_objective import refuse_without_score
from fedpriv.study.search_planned import PlannedTrial, plan_ends, plan_trial, refuse_unlike
from fedpriv.study.search_settings import SearchSettings
from fedpriv.study.search_space import Proposals, Space, Trial, read_space
from fedpriv.study.search_statement import facts, words

Compose = Callable[[Sequence[str]], DictConfig]
Launch = Callable[[int, Sequence[str]], object]
_NOT_ENDED = ("running", "interrupted", "failed")  # states of trials that run again
# Stop reasons of trials that ended before their plan did; None: the trial was killed.
_ENDED_BY_OUTCOME = (None, "diverged", "interrupted")


class Search:
    """A search in its folder. Each trial has a folder in it, named by the trial's number.

    The constructor plans the trials at the ends of the searched keys and reads the trials that the folder
    holds already. It writes nothing.

    Args:
        settings: Budget, number of trials, objective and sampler.
        arguments: Overrides of the command line, of which some are sweeps.
        folder: Folder of the search.
        compose: Returns the configuration for a list of overrides.
        say: Prints a line for the user.

    Attributes:
        settings: Budget, number of trials, objective and sampler.
        folder: Folder of the search.
        space: The fixed and the searched keys.
        budget: ε and δ that all trials share.
        ledger: Releases of the trials that ``go`` has been through so far.
        trials: Values of each trial and, once it was run, its state and score.

    Raises:
        ConfigError: A trial could not run, the budget allows no trial, or the folder holds another search.
    """

    def __init__(
        self,
        settings: SearchSettings,
        arguments: Sequence[str],
        folder: Path,
        compose: Compose,
        say: Callable[[str], None],
    ):
        self.settings, self.folder, self._compose, self._say = settings, folder, compose, say
        self.space: Space = read_space(arguments)
        self._proposals = Proposals(
            self.space, settings.sampler, settings.seed, settings.objective.maximize
        )
        # The ends stand for all values: whether trials can run, and whether they release the same.
        first, *others = plan_ends(map(compose, self.space.corners()))
        refuse_without_score(settings.objective, first.parts)
        self._first = first
        self.budget = SearchBudget(
            epsilon=settings.epsilon,
            delta=first.parts.settings.delta,
            neighbours=first.neighbours,
            accountant=first.parts.accountant,
            first=first.events,
            adaptive=any(other.events != first.events for other in others),
        )
        self.ledger = SearchLedger(first.neighbours)
        # If a cheaper end fits, the search may begin: an expensive trial is then refused when it is proposed.
        if all(self.budget.would_exceed(self.ledger, t.events) for t in (first, *others)):
            self.budget.refuse_too_small(first.events)
        self.trials: list[dict[str, Any]] = self._stored()
        self._stored_trials = len(self.trials)

    @property
    def dry(self) -> bool:
        """True where the user asks for the plan alone."""
        return self._first.parts.settings.dry_run

    def plan(self) -> list[str]:
        """Return the lines that tell, before the first trial, what is fixed for all trials."""
        budget, events, most = self.budget, self._first.events, self.settings.trials
        trials = budget.trials_allowed(events, most)
        like = "each like the first" if budget.adaptive else "all with the same events"
        return [
            f"search: {', '.join(self.space.searched)} by {self.settings.sampler}",
            f"search: one trial costs at most epsilon {digits_up(budget.epsilon_of(events))} at delta "
            f"{budget.delta:g}; the budget of {budget.limit:g} allows {trials} of {most} trials, {like}",
            f"search: {budget.describe()}",
            f"search: {self.settings.objective.name} reads {self.settings.objective.reads}",
        ]

    # ---- the folder

    def _stored(self) -> list[dict[str, Any]]:
        """Return the values of the trials that the folder holds. The trials are charged again in ``go``."""
        path = self.folder / RECORD
        if not path.exists():
            return []
        try:
            stored = saved_json(path)
            definition, trials = stored["search"], stored["trials"]
            rows = [{"values": dict(row["values"])} for row in trials]
        except (ConfigError, ValueError, KeyError, TypeError):
            raise ConfigError(f"{path} cannot be read, so what was spent is not known") from None
        # A larger ε for the same trials, say, would be chosen after looking at them.
        if definition != self.settings.definition(self.space):
            raise ConfigError(
                f"{path} is of another search: what is spent and allowed is fixed before the first trial; "
                "choose another hydra.sweep.dir"
            )
        return rows

    def _write(self, number: int, ledger: SearchLedger) -> None:
        """Write record and statement of the trials up to ``number``.

        While stored trials are repeated, the files already state the cost of later trials and stay.
        """
        if number + 1 < self._stored_trials:
            return
        definition = self.settings.definition(self.space)
        record = facts(definition, self.budget, ledger, self.settings.objective, self.trials)
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / RECORD, record)
        write_text(self.folder / STATEMENT, words(record))

    # ---- trials

    def go(self, launch: Launch) -> dict[str, Any] | None:
        """Run the missing trials, with the cost on disk before and after each.

        Trials that the folder holds are launched again, and charged as they stand. The launcher finds those
        that are finished, so they are not run twice. The search ends before its last trial where the budget
        allows no further one.

        Args:
            launch: Runs the trial with a given number and overrides in the folder of that number.

        Returns:
            Number, values and score of the best trial, or None where no trial has a score.

        Raises:
            FedprivError: A trial failed, or released something else than planned.
            KeyboardInterrupt: A trial was interrupted. The same command goes on with the search.
        """
        for number in range(self.settings.trials):
            if number < len(self.trials):
                row = self.trials[number]
            else:
                row = {"values": self._proposals.ask(number)}
            if self._repeats_earlier(number, row):
                continue
            overrides = self.space.overrides(row["values"])
            planned = self._planned(overrides)
            if self.budget.would_exceed(self.ledger, planned.events):
                self._say(f"search: the budget allows no trial {number}")
                break
            if number == len(self.trials):
                self.trials.append(row)
            row["state"] = "running"
            # The charge is on disk before the first release, so that a killed search cannot spend unnoticed.
            self._write(number, self.ledger.with_everyone(planned.events))
            try:
                launch(number, overrides)
            finally:
                self._charge(number, row, planned)
                self._write(number, self.ledger)
            if row["state"] == "interrupted":
                raise KeyboardInterrupt
            score = row["score"]
            # A trial that failed is told too, as one without a score.
            self._proposals.tell(Trial(row["values"], score))
            name = self.settings.objective.name
            outcome = row["state"] if score is None else f"{name} {score:.4f}"
            spent = digits_up(self.budget.spent(self.ledger))
            self._say(
                f"search: trial {number}: {outcome}; epsilon spent {spent} of {self.settings.epsilon:g}"
            )
        return self.best()

    def _repeats_earlier(self, number: int, row: dict[str, Any]) -> bool:
        """Enter a trial that has the values of an earlier trial, and return whether it has.

        Equal values make the same run with the same noise. Nothing new is released, so such a trial is
        neither run nor charged.
        """
        ended = (n for n in range(number) if self.trials[n].get("state") not in (None, *_NOT_ENDED))
        earlier = next((n for n in ended if self.trials[n]["values"] == row["values"]), None)
        if earlier is None:
            return False
        if number == len(self.trials):
            self.trials.append(row)
        row.update(state=f"the same as trial {earlier}", score=self.trials[earlier]["score"])
        self._write(number, self.ledger)
        self._proposals.tell(Trial(row["values"], row["score"]))
        self._say(f"search: trial {number} is the same as trial {earlier}: not run, not charged")
        return True

    def _planned(self, overrides: Sequence[str]) -> PlannedTrial:
        """Plan a trial. Without a filter, a trial must release the same as the trials planned at first."""
        planned = plan_trial(self._compose(overrides))
        refuse_unlike(self._first, planned)
        if not self.budget.adaptive and planned.events != self._first.events:
            raise FedprivError(
                f"search: {' '.join(overrides)} releases something else than other trials, though the ends "
                "of the searched keys do not; give the key that changes it as a choice"
            )
        return planned

    def _charge(self, number: int, row: dict[str, Any], planned: PlannedTrial) -> None:
        """Charge the releases of an ended trial, and enter its state and score in ``row``."""
        run = StoredRun(self.folder / str(number))
        reason = run.summary.get("stop_reason")
        row.update(state=reason or "failed", score=None)
        early = reason in _ENDED_BY_OUTCOME
        # Without a ledger, or where composition allows for no early end, the whole plan is charged.
        if reason is None or (early and not self.budget.adaptive) or not run.files.ledger.exists():
            self.ledger.add_to_everyone(planned.events)
        else:
            self.ledger.add(read_trial(run, self.budget.neighbours, planned.events))
        if not early:
            row["score"] = self.settings.objective.score(run)

    def best(self) -> dict[str, Any] | None:
        """Return number, values and score of the best trial so far, or None without a score."""
        scored = [
            (row["score"], n) for n, row in enumerate(self.trials) if row.get("score") is not None
        ]
        if not scored:
            return None
        sign = -1 if self.settings.objective.maximize else 1
        score, number = min(scored, key=lambda pair: (sign * pair[0], pair[1]))
        return {"number": number, "values": self.trials[number]["values"], "score": score}
