"""Forecast of a figure before it is run: rounds, σ, ε and time of each of its jobs, and their joint ε.

Rounds, σ and ε are those of the plan of a run. The time follows from a finished run of the curve, or from a
short run that is made for the purpose and thrown away. The short run also tells what every run takes beside
its rounds, and is drawn as the figure will be.
"""

from __future__ import annotations

import importlib
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from fedpriv.common.errors import FedprivError
from fedpriv.common.words import round_up
from fedpriv.experiment.parts import Parts
from fedpriv.experiment.plan import Plan, make_plan
from fedpriv.experiment.sound_forecast import SoundForecast, forecast_sound
from fedpriv.store.display import duration
from fedpriv.store.folder import RunFolder
from fedpriv.store.joint_privacy import RunCost, compose_runs, dataset_name, rdp_of_events
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.jobs import DONE, Job, distinct

_ROUNDS = 4  # of a short run, of which the last one alone is evaluated
_SECONDS, _MANY = 2.0, 200  # most seconds, and rounds, of a longer run where rounds are fast
_MODULES = ("experiment.assemble", "experiment.reporter", "engine.fast")
"""Modules that the first run of a process imports, with torch; the time of it is not that of each run."""

Curve = tuple[str, str]
"""Names of a group and of one of its curves, which take one measurement."""


@dataclass(frozen=True)
class RunPace:
    """Seconds that a run takes.

    Attributes:
        round: Seconds of each round.
        evaluation: Seconds of each evaluation.
        beside: Seconds of data, model, accounting and files, before the first round and after the last.
    """

    round: float
    evaluation: float
    beside: float = 0.0

    def seconds(self, rounds: int, interval: int) -> float:
        """Return the seconds of a run that evaluates every ``interval`` rounds, and at its end."""
        return self.beside + rounds * self.round + math.ceil(rounds / interval) * self.evaluation


class JobForecast:
    """Plan, sound ε and seconds of each job.

    Args:
        figure: The figure.
        jobs: All jobs of the figure.
        parts: Parts of each configuration, by the identity of its object.
        say: Tells the user one line.
    """

    def __init__(
        self,
        figure: Figure,
        jobs: Sequence[Job],
        parts: Mapping[int, Parts],
        say: Callable[[str], object],
    ):
        # Until here a command that runs the figure does the same: imports, configurations, calibrations.
        self._once = time.process_time()
        self._parts = parts
        self._plans = {key: make_plan(one) for key, one in parts.items()}
        self._sound = {key: forecast_sound(one, self._plans[key]) for key, one in parts.items()}
        self._paces: dict[Curve, RunPace | None] = {}
        left = [job for job in jobs if job.state != DONE]
        unknown = {_curve(job): job for job in reversed(left)}
        for job in jobs:
            if job.state == DONE and (finished := _pace_of_finished(job)) is not None:
                unknown.pop(_curve(job), None)
                self._paces.setdefault(_curve(job), finished)
        if unknown:
            say(f"measuring a short run of {' and '.join(curve for _, curve in unknown)}")
            self._measure(figure, unknown)

    def _measure(self, figure: Figure, unknown: Mapping[Curve, Job]) -> None:
        """Make a short run of each curve, and draw the short runs."""
        began = time.perf_counter()
        for name in _MODULES:
            importlib.import_module(f"fedpriv.{name}")
        self._once += time.perf_counter() - began
        with tempfile.TemporaryDirectory() as folder:
            made = []
            for number, (curve, job) in enumerate(unknown.items()):
                short = RunFolder(Path(folder) / f"run{number}")
                self._paces[curve] = _measured(job, short, self.plan(job).rounds)
                made += [replace(job, folder=short)] if self._paces[curve] is not None else []
            self._once += _seconds_to_draw(figure, made, Path(folder) / "figure")

    def plan(self, job: Job) -> Plan:
        """Return the plan of a job."""
        return self._plans[id(job.config)]

    def sound(self, job: Job) -> SoundForecast | None:
        """Return the forecast of a job's sound ε; None without privacy."""
        return self._sound[id(job.config)]

    def noise_words(self, job: Job) -> str:
        """Return σ of a job, with that of its last round where the schedule changes it."""
        plan, schedule = self.plan(job), self._parts[id(job.config)].noise_schedule
        if plan.first is None:
            return "–"
        first = schedule.noise_multiplier(0)
        if schedule.adaptive:
            return f"{first:.4g}, adapts"
        last = first if plan.rounds is None else schedule.noise_multiplier(max(plan.rounds - 1, 0))
        return f"{first:.4g}" if last == first else f"{first:.4g} to {last:.4g}"

    def joint_sentences(self, jobs: Sequence[Job]) -> list[str]:
        """Return sentences on the joint ε of all jobs, done or not, on the same data."""
        unknown = [job for job in jobs if (s := self.sound(job)) is not None and s.epsilon is None]
        if unknown:
            return [
                "The joint ε is known once the data have been read: it depends on the clients' sizes."
            ]
        return [s for one in compose_runs(map(self._cost, distinct(jobs))) for s in one.sentences()]

    def _cost(self, job: Job) -> RunCost:
        """Return the planned cost of a job."""
        parts, sound = self._parts[id(job.config)], self.sound(job)
        dataset = dataset_name(job.config.dataset.get("_target_"))
        if sound is None or sound.epsilon is None:
            return RunCost(dataset, None)
        neighbours, events = sound.neighbours, sound.events
        return RunCost(
            dataset,
            (parts.algorithm.unit, neighbours),
            epsilon=sound.epsilon,
            delta=parts.settings.delta,
            paired=parts.settings.paired is not None,
            bound=sound.bound,
            rdp=lambda accountant: (
                None if events is None else rdp_of_events(events, accountant, neighbours)
            ),
        )

    def seconds(self, job: Job) -> float | None:
        """Return the seconds that a job takes on this machine; None where they are not known."""
        pace, rounds = self._paces[_curve(job)], self.plan(job).rounds
        if pace is None or rounds is None:
            return None
        return pace.seconds(rounds, int(job.config.evaluation_interval))

    def total(self, jobs: Sequence[Job], at_a_time: int) -> str:
        """Return a line about the time of the command that makes the jobs that are not done."""
        seconds = [self.seconds(job) for job in distinct(jobs) if job.state != DONE]
        known = [s for s in seconds if s is not None]
        if not known:
            return "nothing to run" if not seconds else "the time is not known"
        runs = math.fsum(known)
        unit = "hours" if self._once + runs >= 3600 else "minutes"
        line = f"about {duration(self._once + runs)} {unit}, one run after another on this machine, with "
        line += "start, data, evaluation, accounting and pictures"
        if at_a_time > 1:  # each process starts by itself
            line += f"; {at_a_time} at a time, about {duration(2 * self._once + runs / at_a_time)}"
        if len(known) < len(seconds):
            line += f"; without {len(seconds) - len(known)} runs whose time is not known"
        return f"{line}, audits not counted" if any(j.config.get("audit") for j in jobs) else line


def _curve(job: Job) -> Curve:
    return job.group.name, job.curve.name


def _pace_of_finished(job: Job) -> RunPace | None:
    """Return the pace of a finished run, or None for a run that does not tell."""
    stored = StoredRun(job.folder)
    seconds, rounds = stored.summary.get("seconds"), stored.summary.get("rounds")
    return RunPace(seconds / rounds, 0.0) if seconds and rounds else None


def _measured(job: Job, folder: RunFolder, rounds: int | None) -> RunPace | None:
    """Return the pace of a job by short runs; None where a short run fails.

    Where rounds are fast, a second, longer run is measured with its evaluations: what is done only now and
    then, and accounting that grows with the rounds, would be missed in a few rounds.

    Args:
        job: The job.
        folder: Folder of the (last) short run.
        rounds: Planned number of rounds; None if it is not known.
    """
    times, beside = _short_run(job, folder, _ROUNDS, _ROUNDS)
    if not times:
        return None
    if len(times) < _ROUNDS:  # the budget ended it before
        return RunPace(times[-1] / len(times), 0.0, beside)
    a_round = (times[2] - times[0]) / 2  # the first round takes longer, as much is imported in it
    evaluation = max(0.0, times[3] - times[2] - a_round)
    pace = RunPace(a_round, evaluation, beside)
    more = min(rounds or _MANY, _MANY, int(_SECONDS / max(a_round, 1e-3)))
    if more < 2 * _ROUNDS:
        return pace
    shutil.rmtree(folder.path)
    interval = int(job.config.evaluation_interval)
    times, beside = _short_run(job, folder, more, interval)
    return RunPace(times[-1] / len(times), 0.0, beside) if times else pace


def _short_run(
    job: Job, folder: RunFolder, rounds: int, interval: int
) -> tuple[list[float], float]:
    """Make a short, silent run of a job in a folder.

    Returns:
        Seconds up to the end of each round, empty where the run failed; and seconds beside the rounds.
    """
    from fedpriv.experiment.run import run  # imported late, as it needs torch

    config = job.config.copy()
    OmegaConf.set_struct(config, False)
    changes = {
        "seed": job.seed, "rounds": rounds, "evaluation_interval": interval, "dry_run": False, "audit": None,
        "runtime.run_dir": str(folder.path), "runtime.progress": "none", "runtime.plots": False,
    }  # fmt: skip
    for key, value in changes.items():
        OmegaConf.update(config, key, value)
    began = time.perf_counter()
    try:
        run(config, label="")
    except FedprivError:
        return [], 0.0
    whole = time.perf_counter() - began
    times = [float(t) for t in StoredRun(folder).metrics["seconds"]]
    return times, max(0.0, whole - times[-1]) if times else 0.0


def _seconds_to_draw(figure: Figure, jobs: Sequence[Job], folder: Path) -> float:
    """Return the seconds that the files of a figure take, by writing them for finished short runs."""
    if not jobs:
        return 0.0
    began = time.perf_counter()
    from fedpriv.study.figures.series import read_runs
    from fedpriv.study.figures.write import write_figure
    from fedpriv.tools.report.write import write_figure_report

    write_figure(figure, read_runs(jobs), {}, folder, "")
    write_figure_report(folder)
    return time.perf_counter() - began


def forecast_columns() -> tuple[Column, ...]:
    """Return the columns of a table of jobs that a forecast fills."""
    return tuple(Column(name, right=True) for name in ("rounds", "σ", "ε", "sound ε", "time"))


def forecast_cells(forecast: JobForecast, same: Sequence[Job]) -> tuple[str, ...]:
    """Return rounds, σ, ε of one run, and the time of those not done, for jobs that differ in their seeds."""
    plan, sound = forecast.plan(same[0]), forecast.sound(same[0])
    rounds = "–" if plan.rounds is None else f"{plan.rounds}"
    epsilon = "none" if plan.epsilon is None else _at_most(plan.epsilon, plan.bound)
    sound_epsilon = "none"
    if sound is not None:
        sound_epsilon = "?" if sound.epsilon is None else _at_most(sound.epsilon, sound.bound)
    seconds = [forecast.seconds(job) for job in same if job.state != DONE]
    known = [s for s in seconds if s is not None]
    time = "done" if not seconds else "?" if not known else duration(math.fsum(known))
    return rounds, forecast.noise_words(same[0]), epsilon, sound_epsilon, time


def _at_most(epsilon: float, bound: bool) -> str:
    return f"{'≤ ' if bound and math.isfinite(epsilon) else ''}{round_up(epsilon)}"


def processes(figure: Figure, launcher: DictConfig) -> int:
    """Return how many runs a launcher makes at a time, as far as it says so."""
    number = launcher.get("n_jobs")
    return min(number, figure.run_count) if isinstance(number, int) and number > 0 else 1
