"""The display of a run while it goes and when it ends: live on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any, cast

from rich.console import Group
from rich.live import Live
from rich.panel import Panel
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from fedpriv.common.files import saying_where
from fedpriv.common.notices import complain
from fedpriv.common.words import counted, round_up
from fedpriv.data.federated import size_words
from fedpriv.experiment.evaluation import runaway
from fedpriv.experiment.plan import Plan
from fedpriv.experiment.running import Run
from fedpriv.store.display import console, duration, statement_lines, summary_lines
from fedpriv.store.statement import headline, publishable
from fedpriv.store.table import pairs

_SECONDS_BETWEEN_LINES = 5.0
_SECONDS_BETWEEN_FRAMES = 0.2
_SECONDS_TO_JUDGE = 1.0  # of rounds, before their pace tells anything
_MARKS = 60  # of the pace, a second apart: older ones are forgotten
_REMEDY = "a smaller algorithm.learning_rate may help"
_REMEDY_OF_NOISE = "a smaller algorithm.learning_rate or clip norm, or less noise, may help"


class Pace:
    """The pace of the last minute of a run, from which the remaining time is estimated.

    The last minute is the best guess, because rounds cost more budget as the noise falls. The first round
    warms up and does not count.
    """

    def __init__(self) -> None:
        self._marks: deque[tuple[float, float]] = deque(maxlen=_MARKS)
        self._latest = (0.0, 0.0)

    def note(self, now: float, fraction: float) -> None:
        """Note that at time ``now`` this ``fraction`` of the run is done.

        Args:
            now: Time in seconds, by a clock that only goes forward.
            fraction: Progress of the run in [0, 1].
        """
        self._latest = (now, fraction)
        if not self._marks or now - self._marks[-1][0] >= _SECONDS_TO_JUDGE:
            self._marks.append(self._latest)

    def left(self) -> float | None:
        """Return the estimated seconds to the end.

        Returns:
            None before there is a second of rounds to go by, or while nothing moves.
        """
        if not self._marks:
            return None
        seconds, done = (b - a for a, b in zip(self._marks[0], self._latest, strict=True))
        if seconds < _SECONDS_TO_JUDGE or done <= 0:
            return None
        return seconds * (1.0 - self._latest[1]) / done


class Reporter:
    """The display of one run; a ``Watcher`` of the observers.

    When it is made it opens ``run.log``, prints the plan, and writes the notes of the run. ``close`` closes
    the log.

    Args:
        run: The run that is shown.
        plan: Its plan, which is shown first.
        label: Words that set one job of a sweep apart. Such a job gets a line at its end instead of tables.
    """

    def __init__(self, run: Run, plan: Plan, label: str | None = None):
        self.label, brief = label, label is not None
        self.folder, self.loop, self.plan, self.out = run.folder, run.loop, plan, console()
        loop = run.loop
        self._epsilon: float | None = None  # the last one known: some accountants answer seldom
        wish = loop.settings.runtime.progress
        self.mode = wish if wish != "auto" else ("live" if self.out.is_terminal else "lines")
        self._began = time.perf_counter()
        self._last_shown = self._began if brief else 0.0
        self._last_fraction, self._last_noted = loop.fraction() or 0.0, 0.0
        self._pace = Pace()
        self._evaluated: dict[str, Any] = {}
        self._warned = False  # of a loss far above that of guessing
        self._live: Live | None = None
        self._log = open(self.folder.log, "a", encoding="utf-8")  # noqa: SIM115 - see close
        if self.mode != "none" and not brief:
            self.out.print(pairs("Plan", plan.rows(self._data_rows(), run.caveats())))
        for note in run.notes:
            self.line(note)
        if (shares := loop.context.shares) is not None:
            shares.line = self.line
        if run.resumed:
            self.line(f"resumed after round {loop.rounds_done} of {self.folder.path}")

    def _data_rows(self) -> Iterator[tuple[str, str]]:
        context = self.loop.context
        data, sizes = context.data, context.data.records_per_client
        public = f", {len(data.validation)} public validation" if data.validation else ""
        parameters = f"{context.model.size:,} parameters"
        whole = sum(p.numel() for p in context.model.module.parameters())
        if whole > context.model.size:
            parameters = f"{context.model.size:,} of {whole:,} parameters train"
        words = (
            f"{size_words(sizes)}; {len(data.test)} test{public}; "
            f"{parameters}, engine {context.engine.name}, device {context.model.device}"
        )
        # After a resume, clients may be left out because they have spent their budget.
        left_out = data.client_count - int(self.loop.eligible().sum())
        if left_out and not self.loop.rounds_done:
            words += (
                f"; excluded: {counted(left_out, 'client')}, as one round would exceed the budget"
            )
        yield "data", words
        yield "run folder", str(self.folder.path)

    def line(self, text: str) -> None:
        """Write one line to ``run.log``, and to the console unless ``runtime.progress=none``.

        A line that begins with ``warning: `` goes to standard error, always.

        Raises:
            WriteError: The log cannot be written.
        """
        with saying_where(self.folder.log):
            self._log.write(text + "\n")
            self._log.flush()
        if text.startswith("warning: "):
            complain(text)
        elif self.mode != "none":
            self.out.print(Text(text))

    def close(self) -> None:
        """Close run.log, however the run ended."""
        with suppress(OSError):  # a full disk was reported when the line was written
            self._log.close()

    def watch(self, run: Callable[[], str]) -> str:
        """Call ``run`` with the live display, if there is one, around it."""
        if self.mode != "live":
            return run()
        with Live(console=self.out, refresh_per_second=4, transient=True) as self._live:
            return run()

    def show(self, row: Mapping[str, object]) -> None:
        """Show the row of a round, unless the last one was shown a moment ago.

        On a terminal the display moves a few times a second, elsewhere there is a line every few seconds. The
        lines go to ``run.log`` only with diagnostics.

        Args:
            row: The row of ``metrics.csv`` by column. ε and accuracies are absent from rows in which they
                were not computed; then the last known ones are shown.
        """
        if row.get("epsilon") is not None:
            self._epsilon = cast("float", row["epsilon"])
        self._warn_of_runaway(row)
        if row.get("test_accuracy") is not None:
            columns = ("test_accuracy", "backdoor_accuracy")
            self._evaluated = {column: row[column] for column in columns if column in row}
        now = time.perf_counter()
        if now - self._last_noted >= _SECONDS_BETWEEN_FRAMES:
            self._last_noted = now
            # Progress by the budget, or else by the rounds that were planned.
            fraction = self.loop.fraction()
            if fraction is None and self.plan.rounds:
                fraction = min(1.0, cast("int", row["round"]) / self.plan.rounds)
            self._last_fraction = fraction or 0.0
            self._pace.note(now, self._last_fraction)
        pause = _SECONDS_BETWEEN_FRAMES if self._live else _SECONDS_BETWEEN_LINES
        if now - self._last_shown < pause:
            return
        self._last_shown = now
        if self._live is not None:
            self._live.update(self._frame(row))
        elif self.loop.settings.runtime.diagnostics:
            self.line(self._words(row))
        elif (
            self.mode != "none"
        ):  # not for run.log, as the number of lines tells how long rounds take
            self.out.print(Text(self._words(row)))

    @property
    def _remedy(self) -> str:
        return _REMEDY if self.loop.budget is None else _REMEDY_OF_NOISE

    def _warn_of_runaway(self, row: Mapping[str, object]) -> None:
        """Warn once of a loss far above that of guessing: the weights run away."""
        words = "" if self._warned else runaway(row, self.loop.context.data.classes)
        if words:
            self._warned = True
            # A job of a sweep or figure is told apart by its folder; its overrides fill lines.
            job = f"{self.folder.path.name}: " if self.label else ""
            self.line(
                f"warning: {job}round {row['round']}: {words}: the run diverges; {self._remedy}"
            )

    def _summary_lines(self, summary: Mapping[str, Any]) -> list[tuple[str, str]]:
        limited = self.loop.settings.epsilon is not None
        return summary_lines(summary, self.loop.parts.adaptive, limited)

    def _epsilon_words(self, row: Mapping[str, object]) -> str | None:
        """Return ε of this round; where its accountant is slow, a bound or the last ε that is known."""
        budget, limit = self.loop.budget, self.loop.settings.epsilon
        of = "" if limit is None else f" of {limit:g}"
        if budget is None:
            return None
        # Accountants that take long answer seldom. Meanwhile RDP gives a bound, or the last ε is shown.
        if row.get("epsilon") is None and (self._epsilon is None or budget.slow):
            bound = budget.bound()
            if bound is not None:
                name = self.loop.parts.accountant.name
                if bound == limit:  # this is the budget itself, of which less may be spent
                    return f"within the budget of {limit:g} ({name} is slow)"
                return f"<= {round_up(bound)}{of} (by RDP, {name} is slow)"
        return None if self._epsilon is None else f"{round_up(self._epsilon)}{of}"

    def _facts(self, row: Mapping[str, Any]) -> list[tuple[str, str]]:
        """Return (name, text) of what a progress line says of a round.

        What the round does not have is left out.
        """
        facts = [("round", str(row["round"]))]
        if (epsilon := self._epsilon_words(row)) is not None:
            facts.append(("epsilon", epsilon))
        if row.get("noise_multiplier"):
            facts.append(("sigma", f"{row['noise_multiplier']:.3f}"))
        if row.get("clip_norm") is not None and math.isfinite(row["clip_norm"]):
            facts.append(("C", f"{row['clip_norm']:.4g}"))
        # A run without diagnostics has no loss of private lots.
        loss = row.get("train_loss", row.get("validation_loss"))
        if loss is not None:
            facts.append(("loss", f"{loss:.3f}"))
        if self._evaluated:
            facts += [
                (column.partition("_")[0].replace("test", "accuracy"), f"{100 * share:.2f} %")
                for column, share in self._evaluated.items()
            ]
        seconds_left = self._pace.left()
        facts.append(("ETA", "?" if seconds_left is None else duration(seconds_left)))
        return facts

    def _words(self, row: Mapping[str, object]) -> str:
        return "  ".join(f"{name} {value}" for name, value in self._facts(row))

    def _frame(self, row: Mapping[str, object]) -> Group:
        """Return the picture of the live display: a bar above the facts of the round.

        The bar is made anew for each picture. Its clock is set back to the beginning of the run, so that it
        shows the time since then.
        """
        bar = Progress(
            TextColumn(f"{self.loop.parts.algorithm.name} on {self.loop.parts.dataset.name}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeElapsedColumn(),
        )
        task = bar.add_task("", total=1.0)
        bar.update(task, completed=self._last_fraction)
        bar.tasks[task].start_time = bar.get_time() - (time.perf_counter() - self._began)
        table = Table.grid(padding=(0, 3))
        facts = self._facts(row)
        table.add_row(*(Text(name, style="cyan") for name, _ in facts))
        table.add_row(*(Text(value, style="bold") for _, value in facts))
        return Group(bar, table)

    def finish(self, summary: Mapping[str, Any], privacy: Mapping[str, Any]) -> None:
        """Show the summary, the privacy statement in short, and the folder of the run.

        Args:
            summary: The row of ``summary.json``.
            privacy: The facts of ``privacy.json``.
        """
        ended = f"ended after {counted(summary['rounds'], 'round')}: {summary['stop_reason']}"
        with saying_where(self.folder.log):
            self._log.write(f"{ended}\n{headline(dict(privacy))}\n")
            self._log.flush()
        if self.mode == "none":
            return
        if self.label is not None:
            results = "; ".join(f"{n} {value}" for n, value in self._summary_lines(summary)[3:])
            job = self.label or self.folder.path.name
            self.out.print(Text(f"{job}: {results}"))
            return
        self.out.print(pairs("Result", self._summary_lines(summary)))
        style = "red" if math.isinf(privacy.get("epsilon_sound", 0.0)) else "green"
        if not privacy["private"]:
            style = "yellow"
        self.out.print(
            Panel(Text(statement_lines(privacy)), title="Privacy", border_style=style, expand=False)
        )
        self.out.print(Text(f"run folder: {self.folder.path}", style="bold"))
        if self.loop.settings.publish:
            why_not = publishable(dict(privacy))
            public = str(self.folder.public) if why_not is None else f"nothing: {why_not}"
            self.out.print(Text(f"public:     {public}"))
        if self.loop.settings.runtime.plots:
            self.out.print(Text(f"plots:      {self.folder.plots}"))
