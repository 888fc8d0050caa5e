"""Forecast of a figure before it is run: rounds, σ, ε and time of each of its jobs, and their joint ε.

Rounds, σ and ε are those of the plan of a run. The time follows from a finished run of the curve, or from a
short run that is made for the purpose and thrown away.
"""

from __future__ import annotations

import math
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from omegaconf import OmegaConf

from fedpriv.common.errors import FedprivError
from fedpriv.common.words import round_up
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import make_plan
from fedpriv.experiment.sound_forecast import SoundForecast, forecast_sound
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.store.display import duration
from fedpriv.store.folder import RunFolder
from fedpriv.store.joint_privacy import RunCost, compose_runs, dataset_name, rdp_of_events
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.jobs import DONE, Job, distinct

_ROUNDS = 6  # of a short run, of which the last one alone is evaluated


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
        self._paces: dict[tuple[str, str], tuple[float, float, float] | None] = {}
        unknown: dict[tuple[str, str], Job] = {}
        for job in jobs:
            curve = job.group.name, job.curve.name
            if job.state != DONE:
                unknown.setdefault(curve, job)
                continue
            summary = StoredRun(job.folder).summary
            if summary.get("seconds") and summary.get("rounds"):
                self._paces[curve] = summary["seconds"] / summary["rounds"], 0.0, 0.0
        unknown = {curve: job for curve, job in unknown.items() if curve not in self._paces}
        if unknown:
            say(f"measuring a short run of {' and '.join(curve for _, curve in unknown)}")
        for curve, job in unknown.items():
            self._paces[curve] = _measured(job)

    def joint_sentences(self, jobs: Sequence[Job]) -> list[str]:
        """Return sentences on the joint ε of all jobs, done or not, on the same data."""
        costs = []
        for job in distinct(jobs):
            parts, sound = self._parts[id(job.config)], self._sound[id(job.config)]
            dataset = dataset_name(job.config.dataset.get("_target_"))
            if sound is None:
                costs.append(RunCost(dataset, None))
                continue
            if sound.epsilon is None:
                return [
                    "The joint ε is known once the data have been read: it depends on the clients' sizes."
                ]
            costs.append(
                RunCost(
                    dataset,
                    (parts.algorithm.unit, sound.neighbours),
                    epsilon=sound.epsilon,
                    delta=parts.settings.delta,
                    paired=parts.settings.paired is not None,
                    bound=sound.bound,
                    rdp=partial(_rdp, sound),
                )
            )
        return [sentence for one in compose_runs(costs) for sentence in one.sentences()]

    def seconds(self, job: Job) -> float | None:
        """Return the seconds that a job takes on this machine; None where they are not known."""
        pace = self._paces.get((job.group.name, job.curve.name))
        rounds = self._plans[id(job.config)].rounds
        if pace is None or rounds is None:
            return None
        evaluations = math.ceil(rounds / int(job.config.evaluation_interval))
        return pace[0] * rounds + pace[1] * evaluations + pace[2]

    def total(self, jobs: Sequence[Job], at_a_time: object) -> str:
        """Return a line about the time of the command that makes the jobs that are not done.

        Args:
            jobs: All jobs of the figure.
            at_a_time: How many jobs the launcher runs at a time, if it says so by a number.
        """
        seconds = [self.seconds(job) for job in distinct(jobs) if job.state != DONE]
        known = [s for s in seconds if s is not None]
        if not known:
            return "nothing to run" if not seconds else "the time is not known"
        whole = self._start + math.fsum(known)
        line = f"about {duration(whole)} {'hours' if whole >= 3600 else 'minutes'}, "
        line += "one run after another on this machine, with start, data, evaluation and accounting"
        if isinstance(at_a_time, int) and at_a_time > 1:  # each process starts by itself
            parallel = 2 * self._start + math.fsum(known) / min(at_a_time, len(seconds))
            line += f"; {at_a_time} at a time, about {duration(parallel)}"
        if len(known) < len(seconds):
            line += f"; without {len(seconds) - len(known)} runs whose time is not known"
        return f"{line}, audits not counted" if any(j.config.get("audit") for j in jobs) else line

    def cells(self, same: Sequence[Job]) -> tuple[str, ...]:
        """Return rounds, σ and ε of one run, and the time of those not done, of jobs that differ in seeds."""
        key = id(same[0].config)
        plan, sound, schedule = self._plans[key], self._sound[key], self._parts[key].noise_schedule
        noise = "–"
        if plan.first is not None:
            first = schedule.noise_multiplier(0)
            last = (
                first if plan.rounds is None else schedule.noise_multiplier(max(plan.rounds - 1, 0))
            )
            noise = f"{first:.4g}" if last == first else f"{first:.4g} to {last:.4g}"
            if schedule.adaptive:
                noise = f"{first:.4g}, adapts"
        sound_epsilon = "none"
        if sound is not None:
            sound_epsilon = "?" if sound.epsilon is None else _at_most(sound.epsilon, sound.bound)
        seconds = [self.seconds(job) for job in same if job.state != DONE]
        known = [s for s in seconds if s is not None]
        return (
            "–" if plan.rounds is None else f"{plan.rounds}",
            noise,
            "none" if plan.epsilon is None else _at_most(plan.epsilon, plan.bound),
            sound_epsilon,
            "done" if not seconds else duration(math.fsum(known)) if known else "?",
        )


def _measured(job: Job) -> tuple[float, float, float] | None:
    """Return seconds of a round, an evaluation, and a job beside these; None where a short run fails."""
    from fedpriv.experiment.run import run  # imported late, as it needs torch

    config = job.config.copy()
    OmegaConf.set_struct(config, False)
    with tempfile.TemporaryDirectory() as folder:
        changes = {
            "seed": job.seed, "rounds": _ROUNDS, "evaluation_interval": _ROUNDS, "dry_run": False,
            "audit": None, "runtime.run_dir": f"{folder}/run", "runtime.progress": "none",
            "runtime.plots": False,
        }  # fmt: skip
        for key, value in changes.items():
            OmegaConf.update(config, key, value)
        began = time.perf_counter()
        try:
            run(config, label="")
        except FedprivError:
            return None
        whole = time.perf_counter() - began
        ends = [float(t) for t in StoredRun(RunFolder(Path(folder) / "run")).metrics["seconds"]]
    if not ends:
        return None
    beside = max(0.0, whole - ends[-1])
    if len(ends) < _ROUNDS:  # the budget ended it before
        return ends[-1] / len(ends), 0.0, beside
    a_round = (ends[-2] - ends[0]) / (_ROUNDS - 2)  # in the first round much is imported
    return a_round, max(0.0, ends[-1] - ends[-2] - a_round), beside


def _rdp(sound: SoundForecast, accountant: RdpAccountant) -> np.ndarray | None:
    if sound.events is None:
        return None
    return rdp_of_events(sound.events, accountant, sound.neighbours)


def _at_most(epsilon: float, bound: bool) -> str:
    return f"{'≤ ' if bound and math.isfinite(epsilon) else ''}{round_up(epsilon)}"
