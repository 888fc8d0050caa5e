"""An entry of the leaderboard: accuracy, worst case and ε of a configuration, and who reproduced it.

Each entry is one JSON file and may come from another person. ``fedpriv leaderboard check`` executes the
configuration and the page shows the texts. So every value is checked for its type and its range, and texts
may only have characters that mean nothing in Markdown or HTML.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, show
from fedpriv.common.files import json_text, write_text
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.saved import saved_json
from fedpriv.tools.leaderboard.attack_sets import ATTACK_SETS
from fedpriv.tools.leaderboard.overrides import refuse_unsafe

SCHEMA_VERSION = 1
_MOST_BYTES = 1 << 18
_MOST_RUNS = 1000
FEWEST_ATTACKED_SEEDS = 3
"""Seeds that a worst case needs at least."""
FEWEST_ORDERED_SEEDS = 5
"""Seeds from which on attacks, or entries, may be ordered by their accuracy."""


@dataclass(frozen=True)
class SeededRun:
    """A run of an entry.

    Attributes:
        seed: Seed of data, model and training.
        noise_seed: Seed of the noise and of sampling.
        test_accuracy: Test accuracy at the end, between 0 and 1.
        epsilon: Sound ε, computed from the ledger.
        rounds: Number of rounds.
        cpu_seconds: Processor time, counted from the reading of the data.
    """

    seed: int
    noise_seed: int
    test_accuracy: float
    epsilon: float
    rounds: int
    cpu_seconds: float


@dataclass(frozen=True)
class Reproduction:
    """A later run that agreed with the entry, with its date."""

    date: str
    seed: int
    noise_seed: int
    test_accuracy: float
    epsilon: float


@dataclass(frozen=True)
class AttackedRun:
    """A run of an entry's configuration under an attack of an attack set; accuracy 0 if it diverged."""

    attack: str
    seed: int
    noise_seed: int
    test_accuracy: float


@dataclass(frozen=True)
class AttackedReproduction:
    """A later run under an attack that agreed with the worst case, with its date."""

    date: str
    attack: str
    seed: int
    noise_seed: int
    test_accuracy: float


@dataclass(frozen=True)
class WorstCase:
    """The accuracy of a configuration under each attack of an attack set.

    Attributes:
        attack_set: Version of the attack set.
        runs: The runs under each attack, each attack with the same seeds.
        left_out: Attacks of the set that the configuration refuses.
        checks: Runs that reproduced the worst case.
    """

    attack_set: int
    runs: tuple[AttackedRun, ...]
    left_out: tuple[str, ...]
    checks: tuple[AttackedReproduction, ...] = ()

    def accuracies(self, attack: str) -> list[float]:
        """Return the test accuracy of each seed under an attack."""
        return [run.test_accuracy for run in self.runs if run.attack == attack]

    @property
    def attacks(self) -> tuple[str, ...]:
        """The attacks that were run, in the order of the set."""
        return tuple(a for a in ATTACK_SETS[self.attack_set] if a not in self.left_out)

    @property
    def attack(self) -> str | None:
        """The attack with the lowest mean accuracy; None where no attack goes with the configuration."""
        return min(self.attacks, key=lambda a: statistics.fmean(self.accuracies(a)), default=None)

    @property
    def seeds(self) -> int:
        """Number of seeds under each attack."""
        return len(self.runs) // max(1, len(self.attacks))


@dataclass(frozen=True)
class LeaderboardEntry:
    """A configuration, its runs, and the runs that reproduced it.

    Attributes:
        dataset: Name of the data set.
        trust: Trust model: local, distributed or central.
        unit: Protected unit: record or client.
        neighbours: Adjacency that ε refers to.
        delta: δ of every ε.
        overrides: Arguments of ``fedpriv train``, without the seeds.
        runs: Runs that differ in their seeds only.
        test_records: Number of test records.
        fedpriv: Version of fedpriv.
        commit: The 40 digits of the commit whose code made the runs.
        machine: Processor, cores, threads and device.
        checks: Runs that reproduced the entry.
        worst_case: Accuracy under attacks; None: not measured, and the file does not have the key.
    """

    dataset: str
    trust: str
    unit: str
    neighbours: str
    delta: float
    overrides: tuple[str, ...]
    runs: tuple[SeededRun, ...]
    test_records: int
    fedpriv: str
    commit: str
    machine: str
    checks: tuple[Reproduction, ...] = ()
    worst_case: WorstCase | None = None

    @property
    def epsilon(self) -> float:
        """The largest ε of all seeds."""
        return max(run.epsilon for run in self.runs)

    @property
    def mean(self) -> float:
        """The mean test accuracy of the seeds."""
        return statistics.fmean(run.test_accuracy for run in self.runs)

    @property
    def sd(self) -> float | None:
        """The standard deviation of the test accuracy over seeds; None where there is one seed."""
        if len(self.runs) == 1:
            return None
        return statistics.stdev(run.test_accuracy for run in self.runs)

    @property
    def test_error(self) -> float:
        """The binomial error of the test accuracy of one model, sqrt(a (1 - a) / n)."""
        return math.sqrt(self.mean * (1.0 - self.mean) / self.test_records)

    @property
    def cpu_minutes(self) -> float:
        """The mean processor time of a run in minutes."""
        return statistics.fmean(run.cpu_seconds for run in self.runs) / 60.0

    @property
    def command(self) -> str:
        """The command that makes such a run, with the default seed."""
        return " ".join(("fedpriv train", *self.overrides))


def write_entry(path: Path, entry: LeaderboardEntry) -> None:
    """Write the file of an entry. Equal entries give equal bytes."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(entry)}
    if entry.worst_case is None:
        del content["worst_case"]
    write_text(path, json_text(content, sort_keys=True, allow_nan=False))


def read_entry(path: Path) -> LeaderboardEntry:
    """Return the entry of a file.

    Raises:
        ConfigError: The file is no entry, or one of its values is not allowed.
    """
    if path.is_dir():
        hint = "fedpriv leaderboard add makes one from runs"
        raise ConfigError(
            "the entry", str(path), "a JSON file of a leaderboard entry, not a folder", hint
        )
    content = saved_json(path, _MOST_BYTES)
    if content.pop("schema_version", None) != SCHEMA_VERSION:
        raise ConfigError(f"{path} is no entry: its schema_version is not {SCHEMA_VERSION}")
    return entry_of(content, path)


def entry_of(content: Mapping[str, object], where: object) -> LeaderboardEntry:
    """Return the entry of these values.

    Args:
        content: The values of a :class:`LeaderboardEntry` as JSON has them.
        where: The origin of the values, for messages.

    Raises:
        ConfigError: A value is not allowed, two runs have the same seeds, or the worst case is not of every
            attack of its set.
    """
    try:
        values = _read({"worst_case": None, **content}, LeaderboardEntry, "", where)
        entry = LeaderboardEntry(**values)
        if entry.worst_case is not None:
            _refuse_incomplete(entry.worst_case)
    except ArgumentError as error:
        raise ConfigError(f"{where}: {error}") from None
    if len({(run.seed, run.noise_seed) for run in entry.runs}) < len(entry.runs):
        raise ConfigError(f"{where}: two of its runs have the same seeds")
    return entry


def _refuse_incomplete(worst_case: WorstCase) -> None:
    """Raise ArgumentError unless every attack of the set is left out or has runs of the same seeds."""
    for attack in ATTACK_SETS[worst_case.attack_set]:
        if (attack in worst_case.left_out) == bool(worst_case.accuracies(attack)):
            raise ArgumentError(
                "worst_case.runs", attack, "runs of each attack that is not left out"
            )
    seeds = [
        sorted((r.seed, r.noise_seed) for r in worst_case.runs if r.attack == attack)
        for attack in worst_case.attacks
    ]
    for attack, pairs in zip(worst_case.attacks, seeds, strict=True):
        if len(set(pairs)) < max(len(pairs), FEWEST_ATTACKED_SEEDS) or pairs != seeds[0]:
            allowed = f"runs of {FEWEST_ATTACKED_SEEDS} or more seeds, the same for every attack"
            raise ArgumentError("worst_case.runs", attack, allowed)


def read_entries(folder: Path) -> list[LeaderboardEntry]:
    """Return the entries of a folder, ordered by the names of their files.

    Raises:
        ConfigError: There is no such folder, or one of its JSON files is no entry.
    """
    if not folder.is_dir():
        raise ConfigError("--entries", str(folder), "an existing folder")
    return [read_entry(path) for path in sorted(folder.glob("*.json"))]


def plain_words(text: str) -> str:
    """Return a text of the system, such as a processor's name, in the characters of an entry."""
    return re.sub(r"[^\w .,()@/+-]", " ", text, flags=re.ASCII)[:200].strip() or "unknown"


def _read(content: object, kind: type, prefix: str, where: object) -> dict[str, Any]:
    """Return the checked values of the dataclass ``kind``.

    Args:
        content: The values as JSON has them.
        kind: A dataclass of this module.
        prefix: The path of the object inside the file, such as ``runs.0.``, for messages.
        where: The origin of the values, for messages about overrides.

    Raises:
        ArgumentError: A value is not allowed.
        ConfigError: An override is not allowed.
    """
    if not isinstance(content, dict):
        raise ArgumentError(prefix or "it", content, "a JSON object")
    names = {field.name for field in fields(kind)}
    if differing := sorted(names ^ content.keys()):
        key = differing[0]
        allowed = "among its keys" if key in names else "no key"
        raise ArgumentError(prefix + key, content.get(key), allowed)
    values: dict[str, Any] = {}
    for name in names:
        value = content[name]
        if name == "overrides":
            values[name] = tuple(refuse_unsafe(value, where))
        elif name == "worst_case":
            if value is not None:
                value = WorstCase(**_read(value, WorstCase, "worst_case.", where))
            values[name] = value
        elif name == "left_out":
            items = value if isinstance(value, list | tuple) else [value]
            values[name] = tuple(_CHECKS["attack"](prefix + name, item) for item in items)
        elif name in ("runs", "checks"):
            least, item = _ITEMS[kind, name]
            if not isinstance(value, list | tuple) or not least <= len(value) <= _MOST_RUNS:
                raise ArgumentError(
                    prefix + name, value, f"a list of {least} to {_MOST_RUNS} objects"
                )
            values[name] = tuple(
                item(**_read(run, item, f"{prefix}{name}.{i}.", where))
                for i, run in enumerate(value)
            )
        else:
            values[name] = _CHECKS[name](prefix + name, value)
    return values


def _text(name: str, value: object, pattern: str, allowed: str) -> str:
    if not isinstance(value, str) or re.fullmatch(pattern, value, re.ASCII) is None:
        raise ArgumentError(name, show(value), allowed)
    return value


def _known_set(name: str, value: object) -> int:
    version = checks.whole(name, value)
    return (
        version
        if version in ATTACK_SETS
        else int(checks.one_of(name, str(value), map(str, ATTACK_SETS)))
    )


_ITEMS: Mapping[tuple[type, str], tuple[int, type]] = {
    (LeaderboardEntry, "runs"): (1, SeededRun),
    (LeaderboardEntry, "checks"): (0, Reproduction),
    (WorstCase, "runs"): (0, AttackedRun),
    (WorstCase, "checks"): (0, AttackedReproduction),
}
"""The fewest items of each list, and their class."""
_CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "dataset": partial(_text, pattern=r"[a-z][a-z0-9_]{0,40}", allowed="the name of a data set"),
    "trust": partial(checks.one_of, options=("local", "distributed", "central")),
    "unit": partial(checks.one_of, options=("record", "client")),
    "neighbours": partial(checks.one_of, options=tuple(RELATION_WORDS)),
    "delta": partial(checks.number, above=0, below=1),
    "epsilon": partial(checks.number, above=0, at_most=1e6),
    "test_accuracy": partial(checks.number, at_least=0, at_most=1),
    "test_records": partial(checks.whole, at_least=1, at_most=10**9),
    "rounds": partial(checks.whole, at_least=1, at_most=10**9),
    "cpu_seconds": partial(checks.number, at_least=0, at_most=1e9),
    "attack_set": _known_set,
    "attack": partial(checks.one_of, options=sorted(set().union(*ATTACK_SETS.values()))),
    "seed": checks.seed,
    "noise_seed": checks.seed,
    "fedpriv": partial(_text, pattern=r"[\w.+-]{1,40}", allowed="a version"),
    "commit": partial(
        _text, pattern=r"[0-9a-f]{40}", allowed="the 40 hexadecimal digits of a commit"
    ),
    "machine": partial(
        _text, pattern=r"[\w .,()@/+-]{1,200}", allowed="letters, digits, spaces and .,()@/+-"
    ),
    "date": partial(_text, pattern=r"\d{4}-\d{2}-\d{2}", allowed="a day such as 2026-11-23"),
}
