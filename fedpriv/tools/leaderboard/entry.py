"""An entry of the leaderboard: what a configuration reaches within which ε, and who found it so.

One JSON file each. It may come from somebody else, and ``check`` runs what it says and the page shows it:
every value has a type, a range and, where it is text, an alphabet without what Markdown or HTML would read.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, show
from fedpriv.common.files import json_text, write_text
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.saved import saved_json
from fedpriv.tools.leaderboard.overrides import refuse_unsafe

SCHEMA_VERSION = 1
_LARGEST = 1 << 18  # bytes
_MOST_RUNS = 1000
_UNITS = ("record", "client")
_TRUSTS = ("local", "distributed", "central")


@dataclass(frozen=True)
class SeededRun:
    """A run of an entry: ``epsilon``: sound, from its ledger; ``cpu_seconds``: from reading the data on."""

    seed: int
    noise_seed: int
    test_accuracy: float
    epsilon: float
    rounds: int
    cpu_seconds: float


@dataclass(frozen=True)
class Reproduction:
    """A run that agreed with the entry, and the day."""

    date: str
    seed: int
    noise_seed: int
    test_accuracy: float
    epsilon: float


@dataclass(frozen=True)
class LeaderboardEntry:
    """``overrides``: of ``fedpriv train``, without seeds; ``neighbours``: the adjacency of ε."""

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

    @property
    def epsilon(self) -> float:
        """The largest over seeds."""
        return max(run.epsilon for run in self.runs)

    @property
    def mean(self) -> float:
        """Test accuracy."""
        return statistics.fmean(run.test_accuracy for run in self.runs)

    @property
    def sd(self) -> float | None:
        """Over seeds; None of one."""
        if len(self.runs) == 1:
            return None
        return statistics.stdev(run.test_accuracy for run in self.runs)

    @property
    def test_error(self) -> float:
        """The binomial error of the test accuracy of one model, sqrt(a (1 - a) / n)."""
        return math.sqrt(self.mean * (1.0 - self.mean) / self.test_records)

    @property
    def cpu_minutes(self) -> float:
        """Of a run."""
        return statistics.fmean(run.cpu_seconds for run in self.runs) / 60.0

    @property
    def command(self) -> str:
        """What makes such a run, with its default seed."""
        return " ".join(("fedpriv train", *self.overrides))


def write_entry(path: Path, entry: LeaderboardEntry) -> None:
    """Write the file; the same entry gives the same bytes."""
    content = {"schema_version": SCHEMA_VERSION, **asdict(entry)}
    write_text(path, json_text(content, sort_keys=True, allow_nan=False))


def read_entry(path: Path) -> LeaderboardEntry:
    """Raises ConfigError for what is not an entry through and through."""
    if path.is_dir():
        hint = "fedpriv leaderboard add makes one from runs"
        raise ConfigError(
            "the entry", str(path), "a JSON file of a leaderboard entry, not a folder", hint
        )
    content = saved_json(path, _LARGEST)
    if content.pop("schema_version", None) != SCHEMA_VERSION:
        raise ConfigError(f"{path} is no entry: its schema_version is not {SCHEMA_VERSION}")
    return entry_of(content, path)


def entry_of(content: Mapping[str, object], where: object) -> LeaderboardEntry:
    """The entry of these values. Raises ConfigError for one that no entry has."""
    try:
        entry = LeaderboardEntry(**_read(content, LeaderboardEntry, "", where))
    except ArgumentError as error:
        raise ConfigError(f"{where}: {error}") from None
    if len({(run.seed, run.noise_seed) for run in entry.runs}) < len(entry.runs):
        raise ConfigError(f"{where}: two of its runs have the same seeds")
    return entry


def read_entries(folder: Path) -> list[LeaderboardEntry]:
    """All of a folder, by the names of their files. Raises ConfigError."""
    if not folder.is_dir():
        raise ConfigError("--entries", str(folder), "an existing folder")
    return [read_entry(path) for path in sorted(folder.glob("*.json"))]


def plain_words(text: str) -> str:
    """A text of the system's, such as a processor's name, in the alphabet of an entry."""
    return re.sub(r"[^\w .,()@/+-]", " ", text, flags=re.ASCII)[:200].strip() or "unknown"


def _read(content: object, kind: type, where: str, path: object) -> dict[str, Any]:
    """The checked values of a dataclass. Raises ArgumentError, or ConfigError about overrides."""
    if not isinstance(content, dict):
        raise ArgumentError(where or "it", content, "a JSON object")
    names = {field.name for field in fields(kind)}
    if odd := sorted(names ^ content.keys()):
        raise ArgumentError(
            f"{where}{odd[0]}",
            content.get(odd[0]),
            "among its keys" if odd[0] in names else "no key",
        )
    values = {}
    for name in names:
        if name == "overrides":
            values[name] = tuple(refuse_unsafe(content[name], path))
        elif name in ("runs", "checks"):
            values[name] = _several(content[name], name, path)
        else:
            values[name] = _CHECKS[name](where + name, content[name])
    return values


def _several(content: object, name: str, path: object) -> tuple[Any, ...]:
    least, kind = (1, SeededRun) if name == "runs" else (0, Reproduction)
    if not isinstance(content, list | tuple) or not least <= len(content) <= _MOST_RUNS:
        raise ArgumentError(name, content, f"a list of {least} to {_MOST_RUNS} objects")
    return tuple(kind(**_read(one, kind, f"{name}.{i}.", path)) for i, one in enumerate(content))


def _text(pattern: str, words: str) -> Callable[[str, object], str]:
    def check(name: str, value: object) -> str:
        if not isinstance(value, str) or re.fullmatch(pattern, value, re.ASCII) is None:
            raise ArgumentError(name, show(value), words)
        return value

    return check


def _one_of(options: Sequence[str]) -> Callable[[str, object], str]:
    return lambda name, value: checks.one_of(name, value, options)


def _number(**bounds: float) -> Callable[[str, object], float]:
    return lambda name, value: checks.number(name, value, **bounds)


def _whole(**bounds: int) -> Callable[[str, object], int]:
    return lambda name, value: checks.whole(name, value, **bounds)


_CHECKS: Mapping[str, Callable[[str, object], Any]] = {
    "dataset": _text(r"[a-z][a-z0-9_]{0,40}", "the name of a data set"),
    "trust": _one_of(_TRUSTS),
    "unit": _one_of(_UNITS),
    "neighbours": _one_of(tuple(RELATION_WORDS)),
    "delta": _number(above=0, below=1),
    "epsilon": _number(above=0, at_most=1e6),
    "test_accuracy": _number(at_least=0, at_most=1),
    "test_records": _whole(at_least=1, at_most=10**9),
    "rounds": _whole(at_least=1, at_most=10**9),
    "cpu_seconds": _number(at_least=0, at_most=1e9),
    "seed": checks.seed,
    "noise_seed": checks.seed,
    "fedpriv": _text(r"[\w.+-]{1,40}", "a version"),
    "commit": _text(r"[0-9a-f]{40}", "the 40 hexadecimal digits of a commit"),
    "machine": _text(r"[\w .,()@/+-]{1,200}", "words without marks"),
    "date": _text(r"\d{4}-\d{2}-\d{2}", "a day such as 2026-11-23"),
}
