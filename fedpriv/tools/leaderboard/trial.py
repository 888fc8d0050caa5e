"""Reproduction of an entry: its configuration is run again with the code of its commit and fresh noise."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedpriv.common.errors import FedprivError, Interrupted
from fedpriv.common.words import round_up
from fedpriv.tools.leaderboard.code import export, refuse_foreign_commit
from fedpriv.tools.leaderboard.entry import LeaderboardEntry, Reproduction
from fedpriv.tools.leaderboard.measured import Measured, measure

ROUNDS = "rounds"  # the stop reason of a run that did all rounds of its configuration
STANDARD_DEVIATIONS = 3.0
EPSILON_TOLERANCE = 0.01
"""Relative excess of ε that is accepted: the client who is sampled most often differs by the seed."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """The judgement of one run.

    Attributes:
        check: The run as the entry will state it.
        words: The comparison in words.
        problems: Reasons why the run does not agree with the entry. The entry is accepted if there are none.
    """

    check: Reproduction
    words: str
    problems: tuple[str, ...]


def margin(entry: LeaderboardEntry) -> tuple[float, str]:
    """Return how far an accuracy may be from the entry's mean, and why.

    The tolerance is three standard deviations over seeds. A few seeds say little about the standard
    deviation, so it counts as no less than the binomial error of the test accuracy.
    """
    sd, error = entry.sd, entry.test_error
    if sd is not None and sd >= error:
        reason = f"3 sd of its {len(entry.runs)} seeds"
    else:
        why = "one seed has no sd" if sd is None else f"sd of its seeds {100 * sd:.2f} %"
        reason = f"3 x the binomial error of {entry.test_records:,} test records; {why}"
    return STANDARD_DEVIATIONS * max(sd or 0.0, error), reason


def judge(entry: LeaderboardEntry, run: Measured, check: Reproduction) -> Verdict:
    """Compare a run with every statement of an entry that does not depend on the machine.

    ε is compared with the entry's runs of the same seed, or with its largest where there is none.

    Args:
        entry: The entry.
        run: The new run, measured by the accounting of this code.
        check: The same run as the entry will state it.
    """
    tolerance, reason = margin(entry)
    # The noise seed decides who is sampled, and adaptive noise follows it. Both move the end of a run that
    # stops at its budget, so only a run that did its configured rounds must agree.
    problems = []
    runs_of_seed = [entry_run for entry_run in entry.runs if entry_run.seed == check.seed]
    rounds_of_seed = {entry_run.rounds for entry_run in runs_of_seed}
    rounds = run.summary.get("rounds")
    if run.summary.get("stop_reason") == ROUNDS and rounds_of_seed and rounds not in rounds_of_seed:
        allowed = " or ".join(map(str, sorted(rounds_of_seed)))
        problems.append(f"rounds is {rounds}, not {allowed}")
    distance = abs(check.test_accuracy - entry.mean)
    if distance > tolerance + _ROUNDING:
        side = "below" if check.test_accuracy < entry.mean else "above"
        problems.append(
            f"accuracy {100 * check.test_accuracy:.2f} % is {100 * distance:.2f} points {side} the entry's "
            f"{100 * entry.mean:.2f} %, more than {100 * tolerance:.2f} ({reason})"
        )
    stated = {entry_run.epsilon for entry_run in runs_of_seed} or {entry.epsilon}
    problems = [*disagreements(entry, run.facts, check.epsilon, min(stated)), *problems]
    seconds, cpu_time = run.summary.get("cpu_seconds"), ""
    if isinstance(seconds, int | float):
        cpu_time = f"CPU minutes {seconds / 60:.2g} (entry: {entry.cpu_minutes:.2g}), "
    words = (
        f"accuracy {100 * check.test_accuracy:.2f} % (entry: {100 * entry.mean:.2f} +- "
        f"{100 * tolerance:.2f} %: {reason}), epsilon {round_up(check.epsilon)} (entry: "
        f"{round_up(entry.epsilon)}), {cpu_time}noise_seed {check.noise_seed}"
    )
    return Verdict(check, words, tuple(problems))


def disagreements(
    entry: LeaderboardEntry, facts: Mapping[str, object], epsilon: float, stated_epsilon: float
) -> list[str]:
    """Return where a run disagrees with what an entry states beside its accuracy.

    Args:
        entry: The entry.
        facts: The run's data set, trust, unit, adjacency, δ and number of test records.
        epsilon: The run's ε.
        stated_epsilon: The entry's ε.
    """
    problems = [
        f"{name} is {value}, not {getattr(entry, name)}"
        for name, value in facts.items()
        if value != getattr(entry, name)
    ]
    if not epsilon <= stated_epsilon * (1.0 + EPSILON_TOLERANCE):
        problems.append(
            f"epsilon {round_up(epsilon)} is above the entry's {round_up(stated_epsilon)} by more than "
            f"{100 * EPSILON_TOLERANCE:g} %"
        )
    return problems


def again(
    entry: LeaderboardEntry, where: Path, runs: int, out: Path, say: Callable[[str], None]
) -> list[Verdict]:
    """Run an entry several times and judge each run.

    The runs take the seeds of the entry in turn, each with a fresh ``noise_seed``.

    Args:
        entry: The entry.
        where: The file of the entry.
        runs: Number of runs.
        out: Folder below which the run folders are made.
        say: Function that shows a line of progress.

    Raises:
        ConfigError: The entry's commit is not in the history of the checkout.
        FedprivError: A run fails.
    """
    refuse_foreign_commit(entry.commit, where)
    used = {run.noise_seed for run in entry.runs} | {run.noise_seed for run in entry.checks}
    verdicts = []
    with tempfile.TemporaryDirectory(prefix="fedpriv-leaderboard-") as name:
        code = Path(name)
        export(entry.commit, code)
        for number in range(runs):
            seed, noise_seed = entry.runs[number % len(entry.runs)].seed, fresh_noise_seed(used)
            used.add(noise_seed)
            folder = (out / f"{where.stem}-noise{noise_seed}").resolve()
            say(f"run {number + 1} of {runs}, about {entry.cpu_minutes:.2g} CPU minutes: {folder}")
            _train(entry, seed, noise_seed, folder, code, where)
            run = measure(folder)
            today = datetime.now(UTC).date().isoformat()
            check = Reproduction(today, seed, noise_seed, run.test_accuracy, run.epsilon)
            verdicts.append(judge(entry, run, check))
            say(verdicts[-1].words)
    return verdicts


def fresh_noise_seed(used: set[int]) -> int:
    """Return a noise_seed from the operating system that no run of the entry used."""
    while (seed := int.from_bytes(os.urandom(4))) in used:
        pass
    return seed


def _train(
    entry: LeaderboardEntry, seed: int, noise_seed: int, folder: Path, code: Path, where: Path
) -> None:
    """Run the configuration of an entry with the code in the folder ``code``.

    Raises:
        Interrupted: The run was interrupted.
        FedprivError: The run failed; its last line of output is the reason.
    """
    arguments = (*entry.overrides, *run_arguments(seed, noise_seed, folder))
    status, reason = run_code(arguments, code, where)
    if status != 0:
        raise FedprivError(
            f"{where}: its configuration does not run at commit {entry.commit[:12]}: {reason}"
        )


def run_arguments(seed: int, noise_seed: int, folder: Path) -> tuple[str, ...]:
    """Return the arguments of ``fedpriv train`` that differ between the runs of an entry."""
    run_dir = str(folder).replace("'", "\\'")
    progress = "auto" if sys.stdout.isatty() else "none"
    return (
        f"seed={seed}",
        f"noise_seed={noise_seed}",
        f"runtime.run_dir='{run_dir}'",
        "runtime.plots=false",
        f"runtime.progress={progress}",
    )


def run_code(
    arguments: Sequence[str], code: Path, where: Path, quiet: bool = False
) -> tuple[int, str]:
    """Run ``fedpriv train`` with the code in a folder.

    Args:
        arguments: Arguments of ``fedpriv train``.
        code: The exported code.
        where: The file of the entry, for messages.
        quiet: Whether standard output is discarded.

    Returns:
        The exit status, and the last line on standard error.

    Raises:
        Interrupted: The run was interrupted.
    """
    line = [sys.executable, "-m", "fedpriv", "train", *arguments]
    # The working folder and PYTHONPATH make Python import the exported code and no other. Relative paths of
    # data and caches refer to the present working folder, so they are resolved here.
    folders = {
        name: str(Path(os.environ[name]).resolve())
        for name in ("FEDPRIV_DATA", "XDG_CACHE_HOME")
        if os.environ.get(name)
    }
    path = os.pathsep.join(filter(None, (str(code), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, **folders, "PYTHONPATH": path}
    output = subprocess.DEVNULL if quiet else None
    result = subprocess.run(
        line, cwd=code, env=env, stdout=output, stderr=subprocess.PIPE, text=True, check=False
    )
    if result.returncode == Interrupted.exit_status:
        raise Interrupted(f"interrupted: {where} was not checked")
    last_line = (result.stderr.strip().splitlines() or ["nothing"])[-1]
    return result.returncode, last_line.removeprefix("fedpriv: ")
