"""Search by random stopping: only the best of a secret number K of trials is shown.

The theorems (Papernot and Steinke 2022) have conditions. This module meets them as follows:

- K is drawn beforehand from its law, and the values of each trial independently from the space. Both draws
  use secret streams of the operating system, which are stored nowhere.
- Each trial is a run with ``publish=true``. Its lots, cohorts and noise come from a key of its own.
- Losing trials are never shown. Trials run without launcher, tracker and display in a hidden folder. A losing
  trial is deleted as soon as it has lost, and the hidden folder is deleted however the search ends.
- No remaining file tells K: no numbers, no lines, no times. Files bear the time at which the search began.

A search that does not reach its end has shown how far it came. So the search cannot go on, and is charged
for the composition of all trials that had begun.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from fedpriv.common.config import with_protocol
from fedpriv.common.errors import ConfigError, FedprivError, Interrupted, WriteError
from fedpriv.common.files import locked, write_json, write_text
from fedpriv.common.words import round_up
from fedpriv.experiment.secrets import streams_of_search
from fedpriv.store.folder import RunFolder
from fedpriv.store.saved import saved_json
from fedpriv.store.searches import RECORD, STATEMENT
from fedpriv.store.statement import publishable
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.search_budget import EPSILON, read_trial
from fedpriv.study.search_objective import refuse_without_score
from fedpriv.study.search_planned import plan_ends, plan_trial, refuse_unlike
from fedpriv.study.search_run import Compose
from fedpriv.study.search_settings import SearchSettings
from fedpriv.study.search_space import Space, read_space
from fedpriv.study.search_statement import facts_of_stopping, words_of_stopping
from fedpriv.study.search_stopping import bound_of

HIDDEN, BEST = ".trials", "best"
_COUNT = "begun"
RUNNING, ENDED, INTERRUPTED = "running", "ended", "interrupted"
_SIGNALS = [
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
]


class SecretTrials:
    """A search by random stopping in its folder.

    The constructor plans the trials at the ends of the searched keys. It writes nothing.

    Args:
        settings: Budget, law of the number of trials and objective.
        arguments: Overrides of the command line, of which some are sweeps.
        folder: Folder of the search.
        compose: Returns the configuration for a list of overrides.

    Attributes:
        bound: ε of releasing the best of the trials.
        best: Values and score of the best trial so far; None before a trial has a score.

    Raises:
        ConfigError: A trial could not run, no theorem covers the search, or the budget is too small.
    """

    def __init__(
        self,
        settings: SearchSettings,
        arguments: Sequence[str],
        folder: Path,
        compose: Compose,
    ):
        assert settings.law is not None
        self.settings, self.folder, self._compose = settings, folder, compose
        self.space: Space = read_space(arguments)
        planned = plan_ends(map(compose, self.space.corners()))
        self._first = planned[0]
        self.bound = bound_of(settings.law, planned)
        refuse_without_score(settings.objective, self._first.parts)
        # The cost is that of the whole search and is known before a trial runs, so it is refused here.
        if self.bound.epsilon > settings.epsilon:
            needed = f">= {round_up(self.bound.epsilon)}, the cost of the search"
            raise ConfigError(EPSILON, settings.epsilon, needed)
        self._hidden = folder / HIDDEN
        self._begun = 0
        self._started = time.time()
        self.best: dict[str, Any] | None = None

    @property
    def dry(self) -> bool:
        """True where the user asks for the plan alone."""
        return self._first.parts.settings.dry_run

    def plan(self) -> list[str]:
        """Return the lines that tell, before the first trial, what is fixed for the search."""
        bound, mean = self.bound, self.settings.trials
        return [
            f"search: {', '.join(self.space.searched)}, drawn at random for each trial",
            f"search: number of trials by a {bound.law.words}; 99 of 100 searches have at most "
            f"{bound.most_often}",
            f"search: the search costs epsilon {round_up(bound.epsilon)} at delta {bound.delta:g} (one trial "
            f"{round_up(bound.trial)}; {mean} trials that are all shown {round_up(bound.composed(mean))})",
            f"search: {bound.describe()}",
            f"search: {self.settings.objective.name} reads {self.settings.objective.reads}",
            "search: the number of trials, the trials that lose and the duration of the search stay secret",
        ]

    # ---- the search

    def go(self) -> dict[str, Any] | None:
        """Run the search, unless its folder already holds the result.

        Returns:
            Values and score of the best trial, or None where no trial has a score.

        Raises:
            FedprivError: The search did not reach its end. The message states the cost.
        """
        made = not self.folder.exists()
        self.folder.mkdir(parents=True, exist_ok=True)
        with locked(self.folder) as free:
            if not free:
                raise FedprivError(f"{self.folder} is being searched by another process")
            if not self._ended_before():
                try:
                    with _signals(_raise):
                        self._search()
                except BaseException as error:
                    self._end_early(made)
                    if self._begun and isinstance(error, KeyboardInterrupt | FedprivError):
                        raise self._early_error(error) from None
                    raise
        return self.best

    def _search(self) -> None:
        """Draw the number of trials and their values, run all trials, and show the best."""
        streams = streams_of_search()
        trials = self.bound.law.quantile(streams.sampling("number of trials").random())
        # For its owner alone, as the trials that lose are in it.
        self._hidden.mkdir(mode=0o700)
        # Before the first trial: a folder without this record is taken for one in which nothing has run.
        self._write(RUNNING)
        for number in range(trials):
            values = self.space.drawn(streams.sampling("values of a trial", number).random)
            config = self._compose(self.space.overrides(values))
            planned = plan_trial(config)
            refuse_unlike(self._first, planned)
            if planned.events != self._first.events:
                raise FedprivError(
                    "search: a trial would release something else than others, though the ends of the "
                    "searched keys do not; give the key that changes it as a choice"
                )
            self._trial(config, values)
        with _signals(signal.SIG_IGN):  # an interruption here could show a part of the result
            self._show()

    def _trial(self, config: DictConfig, values: dict[str, Any]) -> None:
        """Run a trial, and keep its folder if the trial is the best so far.

        Among equal scores the first trial is kept. Trials are exchangeable, so this choice is as good as a
        secret random one.
        """
        config = with_protocol(config)
        run = RunFolder(self._hidden / "running")
        # The trial gets its randomness from the operating system, and shows nothing while it runs.
        config.publish = True
        config.runtime.run_dir, config.runtime.reuse = str(run.path), False
        config.runtime.progress, config.runtime.plots = "none", False
        self._begun += 1
        # The next command reads this count if the process is killed, and charges so many trials.
        write_text(self._hidden / _COUNT, str(self._begun))
        try:
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
                stop_reason = self._run(config)
        except BaseException:
            # Without a configuration in its folder, the trial had not begun and has released nothing.
            self._begun -= not run.config.exists()
            raise
        if stop_reason == "interrupted":
            raise KeyboardInterrupt
        trial = StoredRun(run)
        # Only for its refusals: the ledger must have no more than the bound assumes.
        read_trial(trial, self.bound.neighbours, dict(self.bound.events))
        if reason := publishable(trial.statement):
            raise FedprivError(f"search: nothing of a trial may be shown: {reason}")
        score = None if stop_reason == "diverged" else self.settings.objective.score(trial)
        sign = 1 if self.settings.objective.maximize else -1
        if score is None or (
            self.best is not None and not sign * score > sign * self.best["score"]
        ):
            shutil.rmtree(run.path)
            return
        shutil.rmtree(self._hidden / BEST, ignore_errors=True)
        # A process that is killed between these lines shows nothing: the search is then charged by
        # composition.
        run.path.rename(self._hidden / BEST)
        self.best = {"values": values, "score": score}

    @staticmethod
    def _run(config: DictConfig) -> str | None:
        from fedpriv.experiment.run import run

        return run(config).stop_reason

    def _show(self) -> None:
        """Copy the best model and its configuration out of the hidden folder, and write the statement."""
        if self.best is not None:
            hidden_run = RunFolder(self._hidden / BEST)
            shown = self.folder / BEST
            shown.mkdir()
            for file in (hidden_run.model, hidden_run.config):
                shutil.copyfile(hidden_run.public / file.name, shown / file.name)
        self._write(ENDED)
        shutil.rmtree(self._hidden)
        self._hide_times()

    def _hide_times(self) -> None:
        """Set the times of all files to the beginning, as the duration would tell the number of trials."""
        files = [self.folder / name for name in (RECORD, STATEMENT, BEST)]
        for path in (*(self.folder / BEST).glob("*"), *files, self.folder):
            if path.exists():
                os.utime(path, (self._started, self._started))

    # ---- the folder

    def _write(self, state: str, begun: int | None = None) -> None:
        """Write record and statement; ``begun`` trials are stated of an interrupted search alone."""
        definition = self.settings.definition(self.space)
        record = facts_of_stopping(definition, self.bound, self.settings, state, self.best, begun)
        write_json(self.folder / RECORD, record)
        write_text(self.folder / STATEMENT, words_of_stopping(record))

    def _ended_before(self) -> bool:
        """Return whether the folder holds the result of this search.

        Raises:
            ConfigError: The folder holds other files, another search, or a search that cannot go on.
        """
        record = self.folder / RECORD
        if not record.exists():
            # a process that was killed before its first trial may have left the hidden folder
            shutil.rmtree(self._hidden, ignore_errors=True)
            if any(self.folder.iterdir()):
                raise ConfigError("hydra.sweep.dir", str(self.folder), "a new or an empty folder")
            return False
        stored = saved_json(record)
        if stored.get("search") != self.settings.definition(self.space):
            raise ConfigError(f"{record} is of another search; choose another hydra.sweep.dir")
        if stored.get("state") == ENDED:
            self.best = stored.get("best")
            if self._hidden.exists():  # the process was killed while it deleted the trials
                shutil.rmtree(self._hidden)
                self._hide_times()
            return True
        if stored.get("state") == RUNNING:  # the process was killed
            try:
                begun: int | None = int((self._hidden / _COUNT).read_text(encoding="ascii"))
            except (OSError, ValueError):
                begun = None
            self._state_early(begun)
        raise ConfigError(
            f"{self.folder} holds a search that did not reach its end: it cannot go on, and what ran is "
            f"charged by composition ({self.folder / STATEMENT}); choose another hydra.sweep.dir"
        )

    def _end_early(self, made: bool) -> None:
        """Charge and delete the trials that had begun. Without such a trial, remove every trace."""
        with _signals(signal.SIG_IGN):
            if self._begun:
                self._state_early(self._begun)
                return
            shutil.rmtree(self._hidden, ignore_errors=True)
            for name in (RECORD, STATEMENT):
                (self.folder / name).unlink(missing_ok=True)
            if made:
                with suppress(OSError):
                    self.folder.rmdir()

    def _state_early(self, begun: int | None) -> None:
        """State the cost of ``begun`` trials by composition (None: number not known), and delete them."""
        self.best = None
        try:
            self._write(INTERRUPTED, begun)
        finally:
            shutil.rmtree(self._hidden, ignore_errors=True)
            shutil.rmtree(self.folder / BEST, ignore_errors=True)

    def _early_error(self, error: BaseException) -> FedprivError:
        """Return an error with the cause of the end and the cost of the search.

        The message of the trial's own error is left out, since it tells how to resume that run.
        """
        by_hand = isinstance(error, KeyboardInterrupt | Interrupted)
        cause = error.__context__ if isinstance(error.__context__, WriteError) else error
        message = "interrupted" if by_hand else f"{cause}".removeprefix("search: ")
        return (Interrupted if by_hand else FedprivError)(
            f"search: {message}; it cannot go on, and the trials that had begun cost epsilon "
            f"{round_up(self.bound.composed(self._begun))} by composition: {self.folder / STATEMENT}"
        )


def _raise(number: int, frame: object) -> None:
    raise KeyboardInterrupt


@contextmanager
def _signals(handler: Any) -> Iterator[None]:
    """Handle signals that end a process by ``handler``, except signals that the process ignores.

    ``handler`` either raises, so that the trials are deleted on the way out, or ignores the signal.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    heeded = (n for n in _SIGNALS if signal.getsignal(n) not in (signal.SIG_IGN, None))
    previous = {number: signal.signal(number, handler) for number in heeded}
    try:
        yield
    finally:
        for number, before in previous.items():
            signal.signal(number, before)
