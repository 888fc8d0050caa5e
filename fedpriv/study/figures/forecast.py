"""Forecast of a figure before it is run: rounds, σ, ε and time of each of its jobs, and their joint ε.

Rounds, σ and ε are those of the plan of a run. The time follows from a finished run of the curve, or from a
short run that is made for the purpose and thrown away.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedpriv.common.config import as_tree, flatten
from fedpriv.common.errors import FedprivError
from fedpriv.common.words import round_up, span
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.sound_forecast import forecast_sound
from fedpriv.store.display import duration
from fedpriv.store.joint_privacy import RunCost, compose_runs, population, rdp_of_events
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.jobs import DONE, Job, distinct

_ROUNDS = 6  # of a short run, of which the last one alone is evaluated
_NO_SIZES = "The joint ε is known once the data have been read: it depends on the clients' sizes."


class JobForecast:
    """Plan, sound ε and seconds of each job.

    Args:
        figure: The figure.
        jobs: All jobs of the figure.
        parts: Parts of each configuration, by the identity of its object.
        say: Tells the user one line.
    """

    columns = tuple(Column(name, right=True) for name in ("rounds", "σ", "ε", "sound ε", "time"))

    def __init__(
        self,
        figure: Figure,
        jobs: Sequence[Job],
        parts: Mapping[int, Parts],
        say: Callable[[str], object],
    ):
        # Until here a command that runs the figure does the same: imports, configurations, calibrations.
        self._start, self._parts = time.process_time(), parts
        self._plans = {key: make_plan(one) for key, one in parts.items()}
        self._sound = {key: forecast_sound(one, self._plans[key]) for key, one in parts.items()}
        # Group and curve → seconds of a round, of an evaluation, and of a run beside these.
        self._paces: dict[tuple[str, str], tuple[float, float, float]] = {}
        unknown: dict[tuple[str, str], Job] = {}
        for job in jobs:
            summary = StoredRun(job.folder).summary if job.state == DONE else {}
            curve = job.group.name, job.curve.name
            if summary.get("seconds") and summary.get("rounds"):
                self._paces[curve] = summary["seconds"] / summary["rounds"], 0.0, 0.0
            elif job.state != DONE:
                unknown.setdefault(curve, job)
        unknown = {curve: job for curve, job in unknown.items() if curve not in self._paces}
        if unknown:
            say(f"measuring a short run of {' and '.join(curve for _, curve in unknown)}")
            _measured(next(iter(unknown.values())))  # what a first run imports, no other run does
        self._paces |= {curve: _measured(job) for curve, job in unknown.items()}

    def joint_sentences(self, jobs: Sequence[Job]) -> list[str]:
        """Return sentences on the joint ε of all jobs, done or not, on the same data."""
        costs = []
        for job in distinct(jobs):
            parts, sound = self._parts[id(job.config)], self._sound[id(job.config)]
            dataset = population(flatten({"dataset": as_tree(job.config)["dataset"]}))
            if sound is None:
                costs.append(RunCost(dataset, None))
            elif sound.epsilon is None:
                return [_NO_SIZES]
            else:
                view, settings = (parts.algorithm.unit, sound.neighbours), parts.settings
                paired = settings.paired is not None
                cost = RunCost(
                    dataset, view, epsilon=sound.epsilon, delta=settings.delta, paired=paired,
                    bound=sound.bound,
                )  # fmt: skip
                if sound.events is not None:
                    rdp = partial(rdp_of_events, sound.events, neighbours=sound.neighbours)
                    cost = replace(cost, rdp=rdp)
                costs.append(cost)
        return [sentence for one in compose_runs(costs) for sentence in one.sentences()]

    def _seconds(self, jobs: Sequence[Job]) -> np.ndarray:
        """Return the seconds that each job takes on this machine; NaN where they are not known."""
        seconds = []
        for job in jobs:
            a_round, evaluation, beside = self._paces[job.group.name, job.curve.name]
            planned = self._plans[id(job.config)].rounds
            rounds = math.nan if planned is None else planned
            evaluations = np.ceil(rounds / int(job.config.evaluation_interval))
            seconds.append(a_round * rounds + evaluation * evaluations + beside)
        return np.array(seconds)

    def total(self, jobs: Sequence[Job], at_a_time: object) -> str:
        """Return a line about the time of the command that makes the jobs that are not done.

        Args:
            jobs: All jobs of the figure.
            at_a_time: How many jobs the launcher runs at a time, if it says so by a number.
        """
        seconds = self._seconds([job for job in distinct(jobs) if job.state != DONE])
        unknown = int(np.isnan(seconds).sum())
        if unknown == len(seconds):
            return "the time is not known" if unknown else "nothing to run"
        known = float(np.nansum(seconds))
        whole = self._start + known
        line = f"about {duration(whole)} {'hours' if whole >= 3600 else 'minutes'}, "
        line += "one run after another on this machine, with start, data, evaluation and accounting"
        if isinstance(at_a_time, int) and at_a_time > 1:  # each process starts by itself
            parallel = 2 * self._start + known / min(at_a_time, len(seconds))
            line += f"; {at_a_time} at a time, about {duration(parallel)}"
        if unknown:
            line += f"; without {unknown} runs whose time is not known"
        return f"{line}, audits not counted" if any(j.config.get("audit") for j in jobs) else line

    def cells(self, same: Sequence[Job]) -> tuple[str, ...]:
        """Return rounds, σ and ε of one run, and the time of those not done, of jobs that differ in seeds."""
        key = id(same[0].config)
        plan, sound, schedule = self._plans[key], self._sound[key], self._parts[key].noise_schedule
        noise = "–"
        if plan.first is not None:
            ends = (0, max((plan.rounds or 1) - 1, 0))
            first, last = (f"{schedule.noise_multiplier(end):.4g}" for end in ends)
            noise = f"{first}, adapts" if schedule.adaptive else span(first, last)
        left = [job for job in same if job.state != DONE]
        seconds = np.nansum(self._seconds(left))
        took = "done" if not left else duration(float(seconds)) if seconds else "?"
        return (
            "–" if plan.rounds is None else f"{plan.rounds}",
            noise,
            _epsilon(plan.epsilon, plan.bound, "none"),
            "none" if sound is None else _epsilon(sound.epsilon, sound.bound, "?"),
            took,
        )


def _epsilon(epsilon: float | None, bound: bool, unknown: str) -> str:
    if epsilon is None:
        return unknown
    return f"{'≤ ' if bound and math.isfinite(epsilon) else ''}{round_up(epsilon)}"


def _measured(job: Job) -> tuple[float, float, float]:
    """Return seconds of a round, an evaluation, and a job beside these; NaN where a short run fails."""
    from fedpriv.experiment.run import run  # imported late, as it needs torch

    config = job.config.copy()
    with tempfile.TemporaryDirectory() as folder:
        runtime = {"run_dir": f"{folder}/run", "progress": "none", "plots": False}
        changes = {"seed": job.seed, "rounds": _ROUNDS, "evaluation_interval": _ROUNDS}
        config.merge_with({**changes, "dry_run": False, "audit": None, "runtime": runtime})
        began = time.perf_counter()
        try:
            run(config, label="")
        except FedprivError:
            return math.nan, math.nan, math.nan
        whole = time.perf_counter() - began
        ends = [float(end) for end in StoredRun(f"{folder}/run").metrics["seconds"]]
    last = max(ends, default=0.0)
    beside = max(0.0, whole - last)
    if len(ends) < _ROUNDS:  # the budget ended it before
        return last / max(1, len(ends)), 0.0, beside
    a_round = (ends[-2] - ends[0]) / (_ROUNDS - 2)  # in the first round much is imported
    return a_round, max(0.0, last - ends[-2] - a_round), beside
