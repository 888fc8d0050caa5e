"""Forecast of a figure before it is run: rounds, ε and time of each of its jobs.

Rounds and ε are those of the plan of a run. The time follows from a finished run of the curve, or from a
short run that is made for the purpose and thrown away.
"""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from fedpriv.common.errors import FedprivError
from fedpriv.common.words import round_up
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import Plan, make_plan
from fedpriv.store.display import duration
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.jobs import DONE, Job, distinct

_ROUNDS = 4  # of a short run, of which the last one alone is evaluated
Curve = tuple[str, str]
"""Names of a group and of one of its curves, which take one measurement."""


@dataclass(frozen=True)
class RunPace:
    """Seconds that a run takes in each round and in each evaluation."""

    round: float
    evaluation: float

    def seconds(self, rounds: int, interval: int) -> float:
        """Return the seconds of a run that evaluates every ``interval`` rounds, and at its end."""
        return rounds * self.round + math.ceil(rounds / interval) * self.evaluation


class JobForecast:
    """Rounds, ε and seconds of each job.

    Args:
        jobs: All jobs of the figure.
        parts: Parts of each configuration, by the identity of its object.
        say: Tells the user one line.
    """

    def __init__(
        self, jobs: Sequence[Job], parts: Mapping[int, Parts], say: Callable[[str], object]
    ):
        self._plans = {key: make_plan(one) for key, one in parts.items()}
        self._paces: dict[Curve, RunPace | None] = {}
        for job in jobs:
            if (finished := _pace_of_finished(job)) is not None:
                self._paces.setdefault(_curve(job), finished)
        unknown = {_curve(job): job for job in reversed(jobs) if _curve(job) not in self._paces}
        if unknown:
            say(f"measuring a short run of {' and '.join(curve for _, curve in unknown)}")
        for curve, job in unknown.items():
            self._paces[curve] = _measured(job)

    def plan(self, job: Job) -> Plan:
        """Return the plan of a job."""
        return self._plans[id(job.config)]

    def seconds(self, job: Job) -> float | None:
        """Return the seconds that a job takes on this machine; None where they are not known."""
        pace, rounds = self._paces[_curve(job)], self.plan(job).rounds
        if pace is None or rounds is None:
            return None
        return pace.seconds(rounds, int(job.config.evaluation_interval))

    def total(self, jobs: Sequence[Job], at_a_time: int) -> str:
        """Return a line about the time of the jobs that are not done."""
        seconds = [self.seconds(job) for job in distinct(jobs) if job.state != DONE]
        known = [s for s in seconds if s is not None]
        if not known:
            return "nothing to run" if not seconds else "the time is not known"
        unit = "hours" if math.fsum(known) >= 3600 else "minutes"
        line = f"about {duration(math.fsum(known))} {unit} of rounds, and seconds a run to start and account"
        line += ", one run after another on this machine"
        if at_a_time > 1:
            line += f"; {at_a_time} at a time, about {duration(math.fsum(known) / at_a_time)}"
        if len(known) < len(seconds):
            line += f"; without {len(seconds) - len(known)} runs whose time is not known"
        return f"{line}, audits not counted" if any(j.config.get("audit") for j in jobs) else line


def _curve(job: Job) -> Curve:
    return job.group.name, job.curve.name


def _pace_of_finished(job: Job) -> RunPace | None:
    """Return the pace of a finished run, or None for a run that is not finished or does not tell."""
    if job.state != DONE:
        return None
    summary = StoredRun(job.folder).summary
    seconds, rounds = summary.get("seconds"), summary.get("rounds")
    return RunPace(seconds / rounds, 0.0) if seconds and rounds else None


def _measured(job: Job) -> RunPace | None:
    """Return the pace of a short run of a job; None where the short run fails."""
    from fedpriv.experiment.run import run  # imported late, as it needs torch

    config = job.config.copy()
    OmegaConf.set_struct(config, False)
    OmegaConf.update(config, "seed", job.seed)
    with tempfile.TemporaryDirectory() as folder:
        _shorten(config, Path(folder) / "run")
        try:
            result = run(config, label="")
        except FedprivError:
            return None
        assert result.folder is not None
        times = [float(t) for t in StoredRun(result.folder).metrics["seconds"]]
    if len(times) < _ROUNDS:  # the budget ended it before
        return RunPace(times[-1] / len(times), 0.0)
    a_round = (times[2] - times[0]) / 2  # the first round takes longer, as much is imported in it
    return RunPace(a_round, max(0.0, times[3] - times[2] - a_round))


def _shorten(config: DictConfig, folder: Path) -> None:
    """Make a configuration that of a short, silent run in a folder."""
    changes = {
        "rounds": _ROUNDS, "evaluation_interval": _ROUNDS, "dry_run": False, "audit": None,
        "runtime.run_dir": str(folder), "runtime.progress": "none", "runtime.plots": False,
    }  # fmt: skip
    for key, value in changes.items():
        OmegaConf.update(config, key, value)


def forecast_columns() -> tuple[Column, ...]:
    """Return the columns of a table of jobs that a forecast fills."""
    return tuple(Column(name, right=True) for name in ("rounds", "ε", "time"))


def forecast_cells(forecast: JobForecast, same: Sequence[Job]) -> tuple[str, str, str]:
    """Return rounds, ε of one run, and the time of those not done, for jobs that differ in their seeds."""
    plan = forecast.plan(same[0])
    rounds = "–" if plan.rounds is None else f"{plan.rounds}"
    at_most = "≤ " if plan.bound else ""
    epsilon = "none" if plan.epsilon is None else f"{at_most}{round_up(plan.epsilon)}"
    seconds = [forecast.seconds(job) for job in same if job.state != DONE]
    known = [s for s in seconds if s is not None]
    time = "done" if not seconds else "?" if not known else duration(math.fsum(known))
    return rounds, epsilon, time


def processes(figure: Figure, launcher: DictConfig) -> int:
    """Return how many runs a launcher makes at a time, as far as it says so."""
    number = launcher.get("n_jobs")
    return min(number, figure.run_count) if isinstance(number, int) and number > 0 else 1
