"""The worst case of an entry: its configuration is run under every attack of an attack set.

Each run takes the code of the entry's commit, as a check does. The attack set is that of this code.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.common.words import counted
from fedpriv.store.stored_run import StoredRun
from fedpriv.tools.leaderboard.attack_sets import ATTACK_SETS
from fedpriv.tools.leaderboard.code import export, refuse_foreign_commit
from fedpriv.tools.leaderboard.entry import (
    FEWEST_ATTACKED_SEEDS,
    AttackedReproduction,
    AttackedRun,
    LeaderboardEntry,
    WorstCase,
)
from fedpriv.tools.leaderboard.measured import measure
from fedpriv.tools.leaderboard.trial import (
    STANDARD_DEVIATIONS,
    disagreements,
    fresh_noise_seed,
    run_arguments,
    run_code,
)

_ROUNDING = 1e-9


@dataclass(frozen=True)
class AttackedCode:
    """The exported code of an entry's commit, which runs the entry's configuration under attacks.

    Attributes:
        entry: The entry.
        where: The file of the entry.
        attack_set: Version of the attack set.
        folder: Folder of the code.
        out: Folder below which the run folders are made.
    """

    entry: LeaderboardEntry
    where: Path
    attack_set: int
    folder: Path
    out: Path

    def refusals(self) -> dict[str, str]:
        """Return the attacks that the configuration does not go with, each with the reason.

        Raises:
            FedprivError: The configuration does not run without attackers either.
            ConfigError: The commit lacks an attack of the set.
        """
        commit = self.entry.commit[:12]
        for attack in ATTACK_SETS[self.attack_set]:
            if not (self.folder / "conf" / "attack" / f"{attack}.yaml").exists():
                raise ConfigError(
                    f"{self.where}: its commit {commit} has no attack={attack}; train the configuration "
                    "again with newer code, and make the entry anew"
                )
        status, reason = self._plan(())
        if status != 0:
            raise FedprivError(
                f"{self.where}: its configuration does not run at commit {commit}: {reason}"
            )
        answers = {
            a: self._plan(overrides) for a, overrides in ATTACK_SETS[self.attack_set].items()
        }
        return {attack: reason for attack, (status, reason) in answers.items() if status != 0}

    def accuracy(self, attack: str, seed: int, noise_seed: int) -> tuple[float, list[str]]:
        """Run the configuration under an attack.

        Returns:
            The test accuracy, 0 if the run diverged; and where the run disagrees with what the entry states
            beside accuracies. A run that diverged is not compared.

        Raises:
            FedprivError: The run failed for another reason.
        """
        entry = self.entry
        name = f"{self.where.stem}-{entry.commit[:12]}-{attack}-noise{noise_seed}"
        folder = (self.out / name).resolve()
        overrides = ATTACK_SETS[self.attack_set][attack]
        # A command that was interrupted goes on where it stopped.
        machine = (*run_arguments(seed, noise_seed, folder), "runtime.reuse=true")
        arguments = (*entry.overrides, *overrides, *machine)
        status, reason = run_code(arguments, self.folder, self.where)
        if status != 0:
            run = StoredRun(folder)
            if run.files.summary.exists() and run.summary.get("stop_reason") == "diverged":
                return 0.0, []
            raise FedprivError(
                f"{self.where}: its configuration does not run under {attack}: {reason}"
            )
        measured = measure(folder, attacked=True)
        problems = disagreements(entry, measured.facts, measured.epsilon, entry.epsilon)
        return measured.test_accuracy, [f"under {attack} {problem}" for problem in problems]

    def _plan(self, attack_overrides: Sequence[str]) -> tuple[int, str]:
        arguments = (
            *self.entry.overrides,
            *attack_overrides,
            "dry_run=true",
            "runtime.progress=none",
        )
        return run_code(arguments, self.folder, self.where, quiet=True)


def measure_worst_case(
    entry: LeaderboardEntry,
    where: Path,
    attack_set: int,
    seeds: int | None,
    out: Path,
    say: Callable[[str], None],
) -> WorstCase:
    """Run an entry's configuration under every attack of a set, with seeds of the entry's runs.

    Args:
        entry: The entry.
        where: The file of the entry.
        attack_set: Version of the attack set.
        seeds: Number of seeds under each attack; None: those of all runs of the entry.
        out: Folder below which the run folders are made.
        say: Function that shows a line of progress.

    Raises:
        ConfigError: There are too few seeds, the attack set is unknown, or the commit lacks an attack of it.
        FedprivError: A run fails, or under an attack something else than the accuracy is not as stated.
    """
    if attack_set not in ATTACK_SETS:
        known = " or ".join(map(str, ATTACK_SETS))
        raise ConfigError("--set", attack_set, f"a version of the attack set: {known}")
    available = len(entry.runs)
    count = available if seeds is None else seeds
    if not FEWEST_ATTACKED_SEEDS <= count <= available:
        raise ConfigError(
            "--seeds",
            count,
            f"{FEWEST_ATTACKED_SEEDS} to {available}, the seeds of {where}"
            if available >= FEWEST_ATTACKED_SEEDS
            else f"{FEWEST_ATTACKED_SEEDS} or more, and {where} has only {counted(available, 'seed')}: add "
            "runs of further seeds",
        )
    with _attacked_code(entry, where, attack_set, out) as code:
        refusals = code.refusals()
        for attack, reason in refusals.items():
            say(f"left out: {attack}: {reason}")
        runs = []
        for attack in ATTACK_SETS[attack_set]:
            if attack in refusals:
                continue
            for clean_run in entry.runs[:count]:
                seed, noise_seed = clean_run.seed, clean_run.noise_seed
                accuracy, problems = code.accuracy(attack, seed, noise_seed)
                if problems:
                    raise FedprivError(f"{where} is not as it states: {'; '.join(problems)}")
                runs.append(AttackedRun(attack, seed, noise_seed, accuracy))
            accuracies = [run.test_accuracy for run in runs[-count:]]
            say(f"{attack}: {_percent(accuracies)} over {counted(count, 'seed')}")
    return WorstCase(attack_set, tuple(runs), tuple(refusals))


def worst_case_again(
    entry: LeaderboardEntry, where: Path, runs: int, out: Path, say: Callable[[str], None]
) -> tuple[list[AttackedReproduction], list[str]]:
    """Run an entry under every attack of its worst case, with fresh noise.

    Args:
        entry: The entry, whose worst case was measured.
        where: The file of the entry.
        runs: Number of runs under each attack; they take the seeds of the worst case in turn.
        out: Folder below which the run folders are made.
        say: Function that shows a line of progress.

    Returns:
        The runs, and the reasons why they do not agree with the entry.

    Raises:
        ConfigError: The entry's commit is not in the history of the checkout.
        FedprivError: A run fails.
    """
    worst_case = entry.worst_case
    assert worst_case is not None
    used = {run.noise_seed for run in entry.runs} | {run.noise_seed for run in entry.checks}
    used |= {run.noise_seed for run in worst_case.runs}
    used |= {run.noise_seed for run in worst_case.checks}
    reproductions: list[AttackedReproduction] = []
    with _attacked_code(entry, where, worst_case.attack_set, out) as code:
        refused = set(code.refusals())
        problems = [
            f"it is run under {attack}, which the entry leaves out"
            for attack in sorted(set(worst_case.left_out) - refused)
        ]
        problems += [
            f"{attack} does not go with it, and the entry states an accuracy"
            for attack in sorted(refused - set(worst_case.left_out))
        ]
        attacks = [attack for attack in worst_case.attacks if attack not in refused]
        seeds = [run.seed for run in worst_case.runs[: worst_case.seeds]]
        for number in range(runs):
            seed = seeds[number % len(seeds)] if seeds else 0
            for attack in attacks:
                noise_seed = fresh_noise_seed(used)
                used.add(noise_seed)
                accuracy, found = code.accuracy(attack, seed, noise_seed)
                found += judge_attack(entry, attack, accuracy)
                say(f"under {attack}: accuracy {100 * accuracy:.2f} %, noise_seed {noise_seed}")
                problems += found
                today = datetime.now(UTC).date().isoformat()
                reproductions.append(
                    AttackedReproduction(today, attack, seed, noise_seed, accuracy)
                )
    return reproductions, problems


def judge_attack(entry: LeaderboardEntry, attack: str, accuracy: float) -> list[str]:
    """Return why the accuracy of a run under an attack contradicts the entry's worst case, if it does.

    Under the attack that the entry states as the worst, the accuracy must be within three standard deviations
    of its mean. Under the others it must not be lower than the worst case by more. As without attackers, a
    standard deviation is at least the binomial error of the test accuracy.

    Args:
        entry: The entry, whose worst case was measured.
        attack: The attack.
        accuracy: The test accuracy of the new run.
    """
    worst_case = entry.worst_case
    assert worst_case is not None
    worst = worst_case.attack
    assert worst is not None
    mean = statistics.fmean(worst_case.accuracies(worst))
    sd = max(statistics.stdev(worst_case.accuracies(a)) for a in {worst, attack})
    tolerance = STANDARD_DEVIATIONS * max(sd, math.sqrt(mean * (1.0 - mean) / entry.test_records))
    is_above = attack == worst and accuracy > mean + tolerance + _ROUNDING
    if not is_above and accuracy >= mean - tolerance - _ROUNDING:
        return []
    return [
        f"under {attack} accuracy {100 * accuracy:.2f} % is {100 * abs(accuracy - mean):.2f} points "
        f"{'above' if is_above else 'below'} the entry's worst case {100 * mean:.2f} % ({worst}), more than "
        f"{100 * tolerance:.2f}"
    ]


@contextmanager
def _attacked_code(
    entry: LeaderboardEntry, where: Path, attack_set: int, out: Path
) -> Iterator[AttackedCode]:
    """Export the code of the entry's commit for the time of the block."""
    refuse_foreign_commit(entry.commit, where)
    with tempfile.TemporaryDirectory(prefix="fedpriv-leaderboard-") as name:
        export(entry.commit, Path(name))
        yield AttackedCode(entry, where, attack_set, Path(name), out)


def _percent(accuracies: Sequence[float]) -> str:
    mean, sd = statistics.fmean(accuracies), statistics.stdev(accuracies)
    return f"accuracy {100 * mean:.2f} +- {100 * sd:.2f} %"
