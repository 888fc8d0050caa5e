"""The search itself: propose, look whether the budget allows it, run, charge, tell."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.files import write_json, write_text
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
_NOT_ENDED = ("running", "interrupted", "failed")
_ENDED_BY_OUTCOME = (None, "diverged", "interrupted")


class Search:
    """A search in its folder, where each trial has a folder named by its number."""

    def __init__(
        self,
        settings: SearchSettings,
        arguments: Sequence[str],
        folder: Path,
        compose: Compose,
        say: Callable[[str], None],
    ):
        """Looks at the ends of the space and at what the folder holds. Raises ConfigError."""
        self.settings, self.folder, self._compose, self._say = settings, folder, compose, say
        self.space: Space = read_space(arguments)
        self._proposals = Proposals(
            self.space, settings.sampler, settings.seed, settings.objective.maximize
        )
        self.budget, self._first = self._look_at(self.space.corners())
        self.ledger = SearchLedger(self._first.neighbours)
        self.trials: list[dict[str, Any]] = self._stored()
        self._stored_trials = len(self.trials)

    def _look_at(self, corners: Sequence[Sequence[str]]) -> tuple[SearchBudget, PlannedTrial]:
        """The budget: adaptive where the ends of the searched keys release different things."""
        first, *others = plan_ends(map(self._compose, corners))
        refuse_without_score(self.settings.objective, first.parts)
        budget = SearchBudget(
            epsilon=self.settings.epsilon,
            delta=first.parts.settings.delta,
            neighbours=first.neighbours,
            accountant=first.parts.accountant,
            first=first.events,
            adaptive=any(other.events != first.events for other in others),
        )
        if all(
            budget.would_exceed(SearchLedger(first.neighbours), t.events) for t in (first, *others)
        ):
            budget.refuse_too_small(first.events)
        return budget, first

    @property
    def dry(self) -> bool:
        """Whether only the plan is asked for."""
        return self._first.parts.settings.dry_run

    def plan(self) -> list[str]:
        """What is fixed before the first trial, in a few lines."""
        budget, events, most = self.budget, self._first.events, self.settings.trials
        trials = budget.trials_allowed(events, most)
        like = "each like the first" if budget.adaptive else "all with the same events"
        return [
            f"search: {', '.join(self.space.searched)} by {self.settings.sampler}",
            f"search: one trial costs at most epsilon {budget.epsilon_of(events):.4g} at delta "
            f"{budget.delta:g}; the budget of {budget.limit:g} allows {trials} of {most} trials, {like}",
            f"search: {budget.describe()}",
            f"search: {self.settings.objective.name} reads {self.settings.objective.reads}",
        ]

    # ---- what is stored

    def _stored(self) -> list[dict[str, Any]]:
        path = self.folder / RECORD
        if not path.exists():
            return []
        try:
            stored = saved_json(path)
            definition, trials = stored["search"], stored["trials"]
            rows = [{"values": dict(row["values"])} for row in trials]
        except (ConfigError, ValueError, KeyError, TypeError):
            raise ConfigError(f"{path} cannot be read, so what was spent is not known") from None
        if definition != self.settings.definition(self.space):
            raise ConfigError(
                f"{path} is of another search: what is spent and allowed is fixed before the first trial; "
                "choose another hydra.sweep.dir"
            )
        return rows

    def _write(self, number: int, ledger: SearchLedger) -> None:
        """State what the trials up to ``number`` cost; what is stored of later ones stands until then."""
        if number + 1 < self._stored_trials:
            return
        found = facts(
            self.settings.definition(self.space),
            self.budget,
            ledger,
            self.settings.objective,
            self.trials,
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        write_json(self.folder / RECORD, found)
        write_text(self.folder / STATEMENT, words(found))

    # ---- trials

    def go(self, launch: Launch) -> dict[str, Any] | None:
        """Run the trials that are missing; returns the best, None where all failed."""
        for number in range(self.settings.trials):
            if number < len(self.trials):
                row = self.trials[number]
            else:
                row = {"values": self._proposals.ask(number)}
            same = self._same(number, row["values"])
            if same is not None:
                self._repeat(number, row, same)
                continue
            overrides = self.space.overrides(row["values"])
            planned = self._planned(overrides)
            if self.budget.would_exceed(self.ledger, planned.events):
                self._say(f"search: the budget allows no trial {number}")
                break
            if number == len(self.trials):
                self.trials.append(row)
            row["state"] = "running"
            self._write(number, self.ledger.with_everyone(planned.events))  # before any release
            try:
                launch(number, overrides)
            finally:
                self._charge(number, row, planned)
                self._write(number, self.ledger)
            if row["state"] == "interrupted":
                raise KeyboardInterrupt
            self._proposals.tell(Trial(row["values"], row["score"]))
            score = row["score"]
            name = self.settings.objective.name
            found = row["state"] if score is None else f"{name} {score:.4f}"
            self._say(
                f"search: trial {number}: {found}; epsilon spent {self.budget.spent(self.ledger):.4g} of "
                f"{self.settings.epsilon:g}"
            )
        return self.best()

    def _same(self, number: int, values: dict[str, Any]) -> int | None:
        """The earlier trial with these values: the same run, the same noise, so nothing new is released."""
        ended = (n for n in range(number) if self.trials[n].get("state") not in (None, *_NOT_ENDED))
        return next((n for n in ended if self.trials[n]["values"] == values), None)

    def _repeat(self, number: int, row: dict[str, Any], same: int) -> None:
        """Enter a trial that is an earlier one: it is neither run nor charged."""
        if number == len(self.trials):
            self.trials.append(row)
        row.update(state=f"the same as trial {same}", score=self.trials[same]["score"])
        self._write(number, self.ledger)
        self._proposals.tell(Trial(row["values"], row["score"]))
        self._say(f"search: trial {number} is the same as trial {same}: not run, not charged")

    def _planned(self, overrides: Sequence[str]) -> PlannedTrial:
        planned = plan_trial(self._compose(overrides))
        refuse_unlike(self._first, planned)
        if not self.budget.adaptive and planned.events != self._first.events:
            raise FedprivError(
                f"search: {' '.join(overrides)} releases something else than other trials, though the ends "
                "of the searched keys do not; give the key that changes it as a choice"
            )
        return planned

    def _charge(self, number: int, row: dict[str, Any], planned: PlannedTrial) -> None:
        """Enter what the trial released, or may have."""
        run = StoredRun(self.folder / str(number))
        reason = run.summary.get("stop_reason")
        row.update(state=reason or "failed", score=None)
        early = reason in _ENDED_BY_OUTCOME
        if reason is None or (early and not self.budget.adaptive) or not run.files.ledger.exists():
            self.ledger.add_to_everyone(planned.events)  # all that it may have released
        else:
            self.ledger.add(read_trial(run, self.budget.neighbours, planned.events))
        if not early:
            row["score"] = self.settings.objective.score(run)

    def best(self) -> dict[str, Any] | None:
        """The best trial so far: its number, values and score."""
        scored = [
            (row["score"], n) for n, row in enumerate(self.trials) if row.get("score") is not None
        ]
        if not scored:
            return None
        sign = -1 if self.settings.objective.maximize else 1
        score, number = min(scored, key=lambda pair: (sign * pair[0], pair[1]))
        return {"number": number, "values": self.trials[number]["values"], "score": score}
