"""``fedpriv account --history FILE``: the releases of another framework, read from what it wrote.

=====================  ==============================================================================
a CSV                  a row for each stretch of equal releases, with the columns ``COLUMNS``
a file of torch.save   ``accountant.state_dict()`` of Opacus, or its ``save_checkpoint``
JSON                   the same state; ``state_dict()`` of Flower's accountant; or
                       ``{"neighbours": ..., "event": ...}``, events of dp_accounting
=====================  ==============================================================================

The file may come from anybody. Nothing in it is run, its size is limited, and an error is one sentence that
names the file and the row.
"""

from __future__ import annotations

import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, show
from fedpriv.common.words import counted
from fedpriv.privacy.calibration import MOST_NOISE, RepeatedRelease
from fedpriv.privacy.core.events import event_words
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATIONS, REPLACE_ONE
from fedpriv.store.saved import refuse_no_file, saved_json, saved_tensors
from fedpriv.tools.accounting import arguments
from fedpriv.tools.accounting.event_json import MOST_EVENTS, MOST_STEPS, NotAnEvent, releases_of
from fedpriv.tools.accounting.releases import Releases, Stages, rows_of

LARGEST = 1 << 28  # bytes
COLUMNS = (
    "noise_multiplier", "sample_rate", "steps", "sampling", "neighbours", "records", "max_lot_size", "client",
)  # fmt: skip
_MOST_CLIENTS = 1000
_MOST_ROWS = 4_000_000  # of all clients together
# Flags for what a file does not say.
_DEFAULTS = ("sampling", "neighbours", "records", "max_lot_size")
_OPACUS = ("rdp", "gdp", "prv")
_STATE = "privacy_accountant_state_dict"  # the key in Opacus' checkpoints
_FLOWER_SAMPLINGS = {
    "poisson": "poisson", "without-replacement": "without_replacement", "no-amplification": "none",
}  # fmt: skip
_FLOWER_NEIGHBOURS = {"add-or-remove-one": ADD_OR_REMOVE, "replace-one": REPLACE_ONE}
_FIXED_AHEAD = "noise, sampling and number of steps did not depend on the data"
_FILE = "the file tells"


@dataclass(frozen=True)
class Stretch:
    """A stretch of equal releases.

    Attributes:
        event: The event of each release.
        steps: Number of releases.
        client: The client that released; empty for all clients.
    """

    event: dp_event.DpEvent
    steps: int
    client: str = ""


@dataclass(frozen=True)
class ReleaseHistory:
    """The content of a history file.

    Attributes:
        kind: The kind of file, in words.
        sampling: How lots were drawn, and the source of that information.
        neighbours: The adjacency, and the source of that information.
        stretches: The releases in order.
        delta: δ of the file's budget, if it has one.
    """

    kind: str
    sampling: tuple[str, str]
    neighbours: tuple[str, str]
    stretches: list[Stretch]
    delta: float | None = None


def from_history(options: SimpleNamespace) -> Releases:
    """Return the releases in the file of ``--history``.

    Args:
        options: The values of the flags, None for a flag that is absent. Flags may add what the file does not
            say.

    Raises:
        ConfigError: The file is no history, or a flag contradicts it.
    """
    arguments.refuse(
        options,
        ("noise_multiplier", "steps", "schedule"),
        "with --history, which holds what was released",
    )
    if not options.history:
        raise ConfigError("--history", "nothing", "a file")
    path = Path(options.history)
    history = _read(path, options)
    histories = _histories(path, history.stretches)
    steps = max(sum(count for _, count in stages) for stages in histories)
    if steps > MOST_STEPS:
        raise ConfigError(f"{path} has {steps:,} releases, more than {MOST_STEPS:,}")
    distinct = len({event for stages in histories for event, _ in stages})
    clients = len({s.client for s in history.stretches} - {""})
    parts = [counted(steps, "step"), counted(distinct, "distinct release")]
    if clients:
        parts.insert(0, f"the worst of {counted(clients, 'client')}")
    lines = (
        ("history", f"{path}, {history.kind}: {', '.join(parts)}"),
        ("sampling", f"{history.sampling[0]} ({history.sampling[1]})"),
        ("neighbours", f"{history.neighbours[0]} ({history.neighbours[1]})"),
        ("noise multiplier", "noise std / clip norm"),
        ("taken as given", _FIXED_AHEAD),
    )
    return Releases(lines, history.neighbours[0], histories, run_delta=history.delta)


def _read(path: Path, options: SimpleNamespace) -> ReleaseHistory:
    """Read the file by the reader that its name and content call for."""
    refuse_no_file(path, LARGEST)
    if path.suffix.lower() == ".csv":
        return _csv(path, options)
    # Files of torch.save are ZIP archives. The content decides, as their names have any ending.
    if zipfile.is_zipfile(path):
        return _opacus(path, saved_tensors(path, "cpu"), options)
    try:
        content = saved_json(path, LARGEST)
    except ConfigError as error:
        raise ConfigError(
            f"{error}; --history takes a .csv, JSON, or an Opacus accountant's state by torch.save"
        ) from None
    if "compositions" in content:
        return _flower(path, content, options)
    if "history" in content or _STATE in content:
        return _opacus(path, content, options)
    return _dp_accounting(path, content, options)


def _histories(path: Path, stretches: Sequence[Stretch]) -> tuple[Stages, ...]:
    """Return the distinct histories of the clients; a stretch without a client belongs to all of them."""
    clients = {stretch.client for stretch in stretches} - {""} or {""}
    # Rows of all clients are copied to each client below: this limits the copies.
    of_all = sum(not stretch.client for stretch in stretches)
    if len(clients) > _MOST_CLIENTS or of_all * len(clients) > _MOST_ROWS:
        raise ConfigError(
            f"{path} has more than {_MOST_CLIENTS:,} clients, or too many rows that are of all of them"
        )
    of_client: dict[str, list[tuple[dp_event.DpEvent, int]]] = {
        client: [] for client in sorted(clients)
    }
    for stretch in stretches:
        for stages in [of_client[stretch.client]] if stretch.client else of_client.values():
            stages.append((stretch.event, stretch.steps))
    distinct = tuple(dict.fromkeys(map(tuple, of_client.values())))
    if not any(distinct):
        raise ConfigError(f"{path} has no releases")
    return distinct


# ---- rows of Gaussians: CSV, Opacus, Flower


class _Rows:
    """Stretches from rows of plain values; flags supply what the rows do not say.

    Args:
        path: The file, for messages.
        options: The values of the flags.
        told_by: The beginning of a message about a value that both the file and a flag give.
    """

    def __init__(self, path: Path, options: SimpleNamespace, told_by: str):
        self.path, self.options, self.told_by = path, options, told_by
        self.stretches: list[Stretch] = []
        self._told: dict[
            str, set[str]
        ] = {}  # sources of each of _DEFAULTS; "" where a row has none
        self._releases: dict[tuple[object, ...], tuple[RepeatedRelease, dp_event.DpEvent]] = {}
        self._samplings: dict[str, None] = {}
        self._neighbours: str | None = None

    def add(self, where: str, row: Mapping[str, object]) -> None:
        """Add a row.

        Args:
            where: The position of the row, for messages.
            row: A value for each column. Without ``steps`` it stands for one release, without ``client`` for
                all clients.

        Raises:
            ConfigError: A value is not allowed, a flag says it too, or the adjacency differs from that of
                earlier rows.
        """
        if len(self.stretches) >= MOST_EVENTS:
            raise ConfigError(f"{self.path} has more than {MOST_EVENTS:,} rows")
        for name, value in row.items():
            if not isinstance(value, (str, int, float)):
                raise ConfigError(f"{where}: {name}", value, "a number or a word")
        client = str(row.get("client", ""))[:80]
        # Rows repeat a few kinds of releases, so each kind is read and checked once.
        kind = tuple(row.get(name) for name in COLUMNS if name not in ("steps", "client"))
        try:
            if kind not in self._releases:
                self._releases[kind] = self._release(row)
            release, event = self._releases[kind]
            steps = checks.whole(
                "steps", _number(row.get("steps", 1)), at_least=1, at_most=MOST_STEPS
            )
        except (ArgumentError, ConfigError) as error:
            raise ConfigError(f"{where}: {error}") from None
        if self._neighbours not in (None, release.neighbours):
            raise ConfigError(
                f"{where}: neighbours are {release.neighbours} here and {self._neighbours} before; a "
                "guarantee has one kind"
            )
        self._neighbours = release.neighbours
        self._samplings[release.sampling] = None
        self.stretches.append(Stretch(event, steps, client))

    def _release(self, row: Mapping[str, object]) -> tuple[RepeatedRelease, dp_event.DpEvent]:
        """Return the kind of release of a row, and its event.

        What a row does not say is taken from a flag. The source of each value is noted for the table.
        """
        values: dict[str, Any] = {name: row[name] for name in _DEFAULTS if name in row}
        for name in _DEFAULTS:
            flag = getattr(self.options, name)
            if flag is not None and name in values:
                raise ConfigError(f"{arguments.flag(name)} cannot be given: {self.told_by} {name}")
            if flag is not None:
                values[name] = flag
            self._told.setdefault(name, set()).add(
                "" if name not in values else "by its flag" if flag is not None else _FILE
            )
        for name in ("records", "max_lot_size"):
            if name in values:
                values[name] = _number(values[name])
        release = RepeatedRelease(**{"sampling": "poisson", **values})
        if "noise_multiplier" not in row:
            raise ConfigError("noise_multiplier is missing")
        multiplier = _number(row["noise_multiplier"])
        multiplier = checks.number(
            "noise_multiplier", multiplier, at_least=1e-100, at_most=MOST_NOISE
        )
        return release, release.event(multiplier, self._rate(release, row))

    def _rate(self, release: RepeatedRelease, row: Mapping[str, object]) -> float:
        """Return the sample rate of a row, from its column or from the flag."""
        flag = self.options.sample_rate
        if "sample_rate" in row and flag is not None:
            raise ConfigError(f"--sample-rate cannot be given: {self.told_by} sample_rate")
        value = row.get("sample_rate", flag)
        if value is None and release.sampling != "none":
            raise ConfigError(
                "sample_rate is missing; a row, --sample-rate or the sampling none must say it"
            )
        if value is None:
            return 1.0
        return checks.number("sample_rate", _number(value), above=0, at_most=1)

    def history(self, kind: str, otherwise: str, delta: float | None = None) -> ReleaseHistory:
        """Return the history of all rows.

        Args:
            kind: The kind of file, in words.
            otherwise: The source of what neither the file nor a flag says.
            delta: δ of the file's budget, if it has one.

        Raises:
            ConfigError: There is no row.
        """
        if not self.stretches:
            raise ConfigError(f"{self.path} has no releases")
        sources = {
            name: otherwise if "" in told else " and ".join(told)
            for name, told in self._told.items()
        }
        return ReleaseHistory(
            kind,
            (" and ".join(self._samplings), sources["sampling"]),
            (self._neighbours or "", sources["neighbours"]),
            self.stretches,
            delta,
        )


def _number(value: object) -> object:
    """Return the number that a text stands for, and any other value as it is."""
    return checks.parsed(value) if isinstance(value, str) else value


def _csv(path: Path, options: SimpleNamespace) -> ReleaseHistory:
    rows = _Rows(path, options, f"{path} has a column")
    _refuse_cut_short(path)
    for line, row in rows_of(path, "--history"):
        for name in row:
            if name not in COLUMNS:
                raise ConfigError(
                    f"{path}, line 1: column {show(name)} is unknown; known are {', '.join(COLUMNS)}"
                )
        if row.get("steps") == "":  # else it would count as one step
            raise ConfigError(f"{path}, line {line}: steps is empty; every row states it")
        rows.add(f"{path}, line {line}", {name: text for name, text in row.items() if text})
    return rows.history("CSV", "assumed: neither a column nor a flag says")


def _refuse_cut_short(path: Path) -> None:
    """Raise ConfigError for a file that ends in a comma: its last row was not written to the end."""
    with open(path, "rb") as file:
        file.seek(max(0, path.stat().st_size - 64))
        if file.read().rstrip(b" \t").endswith(b","):
            raise ConfigError(
                f"{path}: its last cell is empty and its last line does not end; cut short?"
            )


def _opacus(path: Path, content: object, options: SimpleNamespace) -> ReleaseHistory:
    """Read the state of an Opacus accountant.

    Its ``history`` has (noise multiplier, sample rate, steps) for each stretch, oldest first.
    """
    if isinstance(content, dict) and isinstance(content.get(_STATE), dict):
        content = content[_STATE]
    entries = content.get("history") if isinstance(content, dict) else None
    mechanism = content.get("mechanism") if isinstance(content, dict) else None
    if not isinstance(entries, list) or mechanism not in _OPACUS:
        raise ConfigError(
            f"{path} is no state of an Opacus accountant: a history, a list, and a mechanism, one of "
            + ", ".join(_OPACUS)
        )
    rows = _Rows(path, options, f"{path} has a")
    for number, entry in enumerate(entries, start=1):
        where = f"{path}, history entry {number}"
        if not isinstance(entry, (tuple, list)) or len(entry) != 3:
            raise ConfigError(f"{where}: not (noise multiplier, sample rate, steps)")
        if not all(type(value) in (int, float) for value in entry):
            raise ConfigError(f"{where}: {show(entry)} are not three numbers")
        rows.add(where, dict(zip(COLUMNS, entry, strict=False)))
    return rows.history(f"Opacus, {mechanism} accountant", "assumed, as Opacus' accountants do")


def _flower(path: Path, content: Mapping[str, Any], options: SimpleNamespace) -> ReleaseHistory:
    """Read the state of a Flower accountant: events with counts; ``config`` has what the events share."""
    arguments.refuse(options, (*_DEFAULTS, "sample_rate"), f"with {path}, which states them")
    config, entries = content.get("config"), content["compositions"]
    if not isinstance(config, dict) or not isinstance(entries, list):
        raise ConfigError(
            f"{path} is no state of a Flower accountant: it has no config or compositions"
        )
    shared = {
        "sampling": _known(path, config, "sampling_method", _FLOWER_SAMPLINGS),
        "neighbours": _known(path, config, "neighboring_relation", _FLOWER_NEIGHBOURS),
    }
    rows = _Rows(path, options, f"{path} has a")
    for number, entry in enumerate(entries, start=1):
        where = f"{path}, composition {number}"
        event = entry.get("event") if isinstance(entry, dict) else None
        names = ("noise_multiplier", "sample_size", "population_size")
        if not isinstance(event, dict) or not all(name in event for name in names):
            raise ConfigError(f"{where}: not an event with {', '.join(names)}")
        try:
            size, population = (checks.whole(name, event[name], at_least=1) for name in names[1:])
            rate = checks.number(
                "sample_size / population_size", size / population, above=0, at_most=1
            )
        except ArgumentError as error:
            raise ConfigError(f"{where}: {error}") from None
        row = {"noise_multiplier": event["noise_multiplier"], "sample_rate": rate, **shared}
        if shared["sampling"] == "without_replacement":
            row["records"] = population
        rows.add(where, {**row, "steps": entry.get("count", 1)})
    delta = config.get("target_delta")
    usable = type(delta) is float and 0 < delta < 1
    return rows.history("Flower accountant", _FILE, delta if usable else None)


def _known(path: Path, config: Mapping[str, Any], key: str, names: Mapping[str, str]) -> str:
    value = config.get(key)
    if not isinstance(value, str) or value not in names:
        raise ConfigError(f"{path}, config.{key}", value, "one of " + ", ".join(names))
    return names[value]


# ---- events


def _dp_accounting(
    path: Path, content: Mapping[str, Any], options: SimpleNamespace
) -> ReleaseHistory:
    """Read an event of dp_accounting, alone or as ``event`` beside ``neighbours``."""
    arguments.refuse(
        options,
        ("sampling", "records", "max_lot_size", "sample_rate"),
        f"with {path}, whose events state them",
    )
    event = content if "class_name" in content else content.get("event")
    if event is None:
        raise ConfigError(
            f"{path} is no history: neither an event of dp_accounting (event, neighbours), nor the state "
            "of an accountant of Opacus (history) or Flower (compositions)"
        )
    unknown = sorted(set(content) - {"event", "neighbours"}) if event is not content else []
    if unknown:
        raise ConfigError(
            f"{path} has an unknown key {show(unknown[0])}; known are event, neighbours"
        )
    # An event alone does not say its adjacency.
    stated = None if event is content else content.get("neighbours")
    if stated is not None and options.neighbours is not None:
        raise ConfigError(f"--neighbours cannot be given: {path} has a key neighbours")
    neighbours = stated or options.neighbours or ADD_OR_REMOVE
    if neighbours not in RELATIONS:
        raise ConfigError(f"{path}, neighbours", neighbours, "one of " + ", ".join(RELATIONS))
    stretches = []
    try:
        for number, (kind, count) in enumerate(releases_of(event, neighbours)):
            # Nested compositions can stand for far more events than the file has bytes.
            if number >= MOST_EVENTS:
                raise ConfigError(f"{path} has more than {MOST_EVENTS:,} events")
            stretches.append(Stretch(kind, count))
    except NotAnEvent as error:
        raise ConfigError(f"{path}: {error}") from None
    source = (
        _FILE
        if stated
        else "by its flag"
        if options.neighbours
        else "assumed: neither file nor flag says"
    )
    kinds = ", ".join(dict.fromkeys(event_words(s.event) for s in stretches))
    return ReleaseHistory(
        "events of dp_accounting", (kinds, _FILE), (neighbours, source), stretches
    )
