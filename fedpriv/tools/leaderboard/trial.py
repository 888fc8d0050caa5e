"""An entry's configuration run again, with the code of its commit and fresh noise."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedpriv.common.errors import FedprivError, Interrupted
from fedpriv.common.words import round_up
from fedpriv.tools.leaderboard.code import export, refuse_foreign_commit
from fedpriv.tools.leaderboard.entry import LeaderboardEntry, Reproduction
from fedpriv.tools.leaderboard.measured import Measured, measure

ROUNDS = "rounds"  # the stop reason of a run whose number of rounds is its configuration's
STANDARD_DEVIATIONS = 3.0
EPSILON_TOLERANCE = 0.01
"""How much of ε a run of other seeds may take more: whom clients' sampling hits most differs by the seed."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """``problems``: why the run does not agree with the entry; none: it is accepted."""

    check: Reproduction
    words: str
    problems: tuple[str, ...]


def margin(entry: LeaderboardEntry) -> tuple[float, str]:
    """(how far from the entry's mean an accuracy may be, what that is): three times the standard deviation
    over seeds, but at least the binomial error of the test accuracy, as a few seeds say little about it."""
    sd, error = entry.sd, entry.test_error
    if sd is not None and sd >= error:
        words = f"3 sd of its {len(entry.runs)} seeds"
    else:
        why = "one seed has no sd" if sd is None else f"sd of its seeds {100 * sd:.2f} %"
        words = f"3 x the binomial error of {entry.test_records:,} test records; {why}"
    return STANDARD_DEVIATIONS * max(sd or 0.0, error), words


def judge(entry: LeaderboardEntry, run: Measured, check: Reproduction) -> Verdict:
    """Compare a run, measured by the accounting of this code, with all that an entry says and a machine does
    not decide."""
    room, words = margin(entry)
    problems = [
        f"{name} is {found}, not {getattr(entry, name)}"
        for name, found in run.facts.items()
        if found != getattr(entry, name)
    ]
    problems += _other_rounds(entry, run, check)
    off = abs(check.test_accuracy - entry.mean)
    if off > room + _ROUNDING:
        side = "below" if check.test_accuracy < entry.mean else "above"
        problems.append(
            f"accuracy {100 * check.test_accuracy:.2f} % is {100 * off:.2f} points {side} the entry's "
            f"{100 * entry.mean:.2f} %, more than {100 * room:.2f} ({words})"
        )
    stated = [one.epsilon for one in entry.runs if one.seed == check.seed] or [entry.epsilon]
    for epsilon in sorted(set(stated)):
        if not check.epsilon <= epsilon * (1.0 + EPSILON_TOLERANCE):
            problems.append(
                f"epsilon {round_up(check.epsilon)} is above the entry's {round_up(epsilon)} by more than "
                f"{100 * EPSILON_TOLERANCE:g} %"
            )
    said = (
        f"accuracy {100 * check.test_accuracy:.2f} % (entry: {100 * entry.mean:.2f} +- {100 * room:.2f} %: "
        f"{words}), epsilon {round_up(check.epsilon)} (entry: {round_up(entry.epsilon)}), "
        f"{_cpu_words(entry, run)}noise_seed {check.noise_seed}"
    )
    return Verdict(check, said, tuple(problems))


def _cpu_words(entry: LeaderboardEntry, run: Measured) -> str:
    seconds = run.summary.get("cpu_seconds")
    if not isinstance(seconds, int | float):
        return ""
    return f"CPU minutes {seconds / 60:.2g} (entry: {entry.cpu_minutes:.2g}), "


def _other_rounds(entry: LeaderboardEntry, run: Measured, check: Reproduction) -> list[str]:
    """Return a problem where the run's rounds are not those of the entry's runs of its seed. A run that its
    budget ends is let off: whom the noise seed samples, and noise that adapts, move its end."""
    stated = {one.rounds for one in entry.runs if one.seed == check.seed}
    rounds = run.summary.get("rounds")
    if run.summary.get("stop_reason") != ROUNDS or not stated or rounds in stated:
        return []
    return [f"rounds is {rounds}, not {' or '.join(map(str, sorted(stated)))}"]


def again(
    entry: LeaderboardEntry, where: Path, runs: int, out: Path, say: Callable[[str], None]
) -> list[Verdict]:
    """Run the entry so many times below ``out``. Raises ConfigError for code that is not the reader's."""
    refuse_foreign_commit(entry.commit, where)
    used = {run.noise_seed for run in entry.runs} | {run.noise_seed for run in entry.checks}
    verdicts = []
    with _code_of(entry) as code:
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
    """A noise_seed that nobody chose."""
    while (seed := int.from_bytes(os.urandom(4))) in used:
        pass
    return seed


@contextmanager
def _code_of(entry: LeaderboardEntry) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="fedpriv-leaderboard-") as name:
        export(entry.commit, Path(name))
        yield Path(name)


def _train(
    entry: LeaderboardEntry, seed: int, noise_seed: int, folder: Path, code: Path, where: Path
) -> None:
    """``fedpriv train`` by the code in a folder, where it also works: what is imported is that and no other.
    Raises FedprivError with what it said where it fails."""
    place = str(folder).replace("'", "\\'")
    shown = "auto" if sys.stdout.isatty() else "none"
    given = (f"seed={seed}", f"noise_seed={noise_seed}", f"runtime.run_dir='{place}'")
    quiet = ("runtime.plots=false", f"runtime.progress={shown}")
    line = [sys.executable, "-m", "fedpriv", "train", *entry.overrides, *given, *quiet]
    path = os.pathsep.join(filter(None, (str(code), os.environ.get("PYTHONPATH"))))
    places = {
        name: str(Path(os.environ[name]).resolve())
        for name in ("FEDPRIV_DATA", "XDG_CACHE_HOME")
        if os.environ.get(name)
    }
    told = {**os.environ, **places, "PYTHONPATH": path}
    done = subprocess.run(line, cwd=code, env=told, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode == Interrupted.exit_status:
        raise Interrupted(f"interrupted: {where} was not checked")
    if done.returncode != 0:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1].removeprefix("fedpriv: ")
        raise FedprivError(
            f"{where}: its configuration does not run at commit {entry.commit[:12]}: {said}"
        )
