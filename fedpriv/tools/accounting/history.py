"""``fedpriv account --history FILE``: the releases of another framework, read from what it wrote.

=====================  ==============================================================================
a CSV                  a row for each stretch of equal releases, with the columns ``COLUMNS``
a file of torch.save   ``accountant.state_dict()`` of Opacus, or its ``save_checkpoint``
JSON                   the same state; ``state_dict()`` of Flower's accountant; the parameters of an
                       accountant of pfl (:mod:`~fedpriv.tools.accounting.pfl_plan`); or
                       ``{"neighbours": ..., "event": ...}``, events of dp_accounting
=====================  ==============================================================================

The file may come from anybody. Nothing in it is run, its size is limited, and an error is one sentence that
names the file and the row. Where file and flags leave sampling or neighbours open, the error says what each
choice would cost.
"""

from __future__ import annotations

import math
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean, show
from fedpriv.common.words import counted
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.grid import FEW
from fedpriv.privacy.core.names import ADD_OR_REMOVE, RELATIONS, REPLACE_ONE
from fedpriv.store.saved import refuse_no_file, saved_json, saved_tensors
from fedpriv.tools.accounting import arguments
from fedpriv.tools.accounting.event_json import (
    MOST_EVENTS,
    MOST_STEPS,
    NotAnEvent,
    mechanism_of,
    releases_of,
    sampling_of,
)
from fedpriv.tools.accounting.pfl_plan import is_plan, plan_of
from fedpriv.tools.accounting.releases import Releases, Stages, rows_of, tightest_epsilon
from fedpriv.tools.accounting.rows import (
    BY_FLAG,
    COLUMNS,
    DEFAULTS,
    IN_FILE,
    HistoryRows,
    ReleaseHistory,
    Stretch,
    Untold,
)

LARGEST = 1 << 28  # bytes
_MOST_CLIENTS = 1000
_SIZES_SHOWN = 5  # lot sizes
_MOST_ROWS = 4_000_000  # of all clients together
_OPACUS = ("rdp", "gdp", "prv")
_STATE = "privacy_accountant_state_dict"  # the key in Opacus' checkpoints
_FLOWER_SAMPLINGS = {
    "poisson": "poisson", "without-replacement": "without_replacement", "no-amplification": "none",
}  # fmt: skip
_FLOWER_NEIGHBOURS = {"add-or-remove-one": ADD_OR_REMOVE, "replace-one": REPLACE_ONE}
_FIXED_AHEAD = "noise, sampling and number of steps did not depend on the data"


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
    try:
        history = _read(path, options)
    except Untold as untold:
        raise ConfigError(_what_to_tell(path, options, untold)) from None
    releases = _releases(path, history)
    if _other_delta(options, history.delta):
        line = ("delta", f"{history.delta:g} in the file, another by --delta")
        releases = replace(releases, lines=(*releases.lines, line))
    if history.simulated is not None:
        releases = replace(releases, simulated=_releases(path, history.simulated))
    return releases


def _other_delta(options: SimpleNamespace, stated: float | None) -> bool:
    """Return whether ``--delta`` names another δ than the file's own."""
    if stated is None or options.delta is None:
        return False
    return any(arguments.delta(part) != stated for part in options.delta.split(","))


def _releases(path: Path, history: ReleaseHistory) -> Releases:
    """Return the releases of a history, with what the table says about them."""
    histories = _histories(path, history.stretches)
    steps = max(sum(count for _, count in stages) for stages in histories)
    if steps > MOST_STEPS:
        raise ConfigError(f"{path} has {steps:,} releases, more than {MOST_STEPS:,}")
    distinct = len({event for stages in histories for event, _ in stages})
    clients = len({s.client for s in history.stretches} - {""})
    parts = [counted(steps, "step"), counted(distinct, "distinct release")]
    if clients:
        parts.insert(0, f"the worst of {counted(clients, 'client')}")
    population = (("population", history.population),) if history.population else ()
    with_gaussians = any(isinstance(_innermost(s.event), _GAUSSIANS) for s in history.stretches)
    gaussian = (("noise multiplier", "noise std / clip norm"),) if with_gaussians else ()
    lines = (
        ("history", f"{path}, {history.kind}: {', '.join(parts)}"),
        *population,
        ("sampling", f"{history.sampling[0]} ({history.sampling[1]})"),
        *((("mechanism", history.mechanism),) if history.mechanism else ()),
        *_lot_sizes(history.stretches),
        ("neighbours", f"{history.neighbours[0]} ({history.neighbours[1]})"),
        *gaussian,
        ("taken as given", _FIXED_AHEAD),
    )
    return Releases(lines, history.neighbours[0], histories, run_delta=history.delta)


def _lot_sizes(stretches: Sequence[Stretch]) -> tuple[tuple[str, str], ...]:
    """Return the line of the table about lots of a fixed size, if there are such lots."""
    sizes = sorted(
        {
            (stretch.event.sample_size, stretch.event.source_dataset_size)
            for stretch in stretches
            if isinstance(stretch.event, dp_event.SampledWithoutReplacementDpEvent)
        }
    )
    if not sizes:
        return ()
    words = [f"{lot:,} of {records:,}" for lot, records in sizes]
    if len(words) > _SIZES_SHOWN:
        words = [f"{len(words):,} sizes, from {words[0]} to {words[-1]}"]
    return (("lot size", ", ".join(words)),)


_GAUSSIANS = (dp_event.GaussianDpEvent, dp_event.TruncatedSubsampledGaussianDpEvent)


def _innermost(event: dp_event.DpEvent) -> dp_event.DpEvent:
    return getattr(event, "event", event)


_OPEN = {
    "sampling": "how lots were drawn",
    "neighbours": "which data sets are neighbours",
}
_CHOICES = {
    ("sampling", "neighbours"): (
        ("poisson", ADD_OR_REMOVE), ("none", ADD_OR_REMOVE), ("poisson", REPLACE_ONE),
        ("none", REPLACE_ONE),
    ),
    ("sampling",): (("poisson", None), ("none", None)),
    ("neighbours",): ((None, ADD_OR_REMOVE), (None, REPLACE_ONE)),
}  # fmt: skip
_MEANS: dict[str | None, str] = {"none": "whatever the lots, such as shuffled batches"}


def _what_to_tell(path: Path, options: SimpleNamespace, untold: Untold) -> str:
    """Return the sentence that asks for sampling or neighbours, with ε of each choice at the first δ.

    Args:
        path: The file.
        options: The values of the flags.
        untold: What is open.
    """
    names = tuple(name for name in _OPEN if name in untold.names)
    delta, first_mistake = None, ""
    choices: list[str] = []
    for sampling, neighbours in _CHOICES[names]:
        given = {"sampling": sampling, "neighbours": neighbours}
        given = {name: value for name, value in given.items() if value is not None}
        try:
            releases = from_history(SimpleNamespace(**{**vars(options), **given}))
        except ConfigError as error:  # the file does not go with this choice
            first_mistake = first_mistake or str(error)
            continue
        flags = " ".join(f"{arguments.flag(name)} {value}" for name, value in given.items())
        first = not choices
        meaning = untold.by_default if first else _MEANS.get(sampling, "")
        if (sampling, neighbours) == ("none", REPLACE_ONE):
            meaning = ""  # said of none before
        delta = releases.run_delta
        if options.delta is not None:
            delta = arguments.delta(options.delta.split(",")[0])
        if delta is not None:
            flags = f"{_about(releases, delta)} by {flags}"
        choices.append(f"{flags} ({meaning})" if meaning else flags)
    if not choices:
        return first_mistake
    listed = " or ".join(filter(None, (", ".join(choices[:-1]), choices[-1])))
    depends = ": give --delta and" if delta is None else f"; epsilon at delta = {delta:g} is"
    return f"{path} does not say {' or '.join(_OPEN[name] for name in names)}{depends} {listed}"


def _about(releases: Releases, delta: float) -> str:
    """Return ε in words; of many kinds of releases RDP's, which is quick and larger."""
    if len(releases.events()) <= FEW:
        at_most, epsilon = "", tightest_epsilon(releases, delta)
    else:
        at_most, accountant = "at most ", RdpAccountant()
        refused = releases.refusal(accountant)
        epsilon = math.inf if refused else releases.epsilon(accountant, delta)
    return "unknown" if epsilon == math.inf else at_most + arguments.rounded_up(epsilon, digits=4)


def _read(path: Path, options: SimpleNamespace) -> ReleaseHistory:
    """Read the file by the reader that its name and content call for."""
    refuse_no_file(path, LARGEST)
    if path.suffix.lower() == ".csv":
        return _csv(path, options)
    # Files of torch.save are ZIP archives. The content decides, as their names have any ending.
    if zipfile.is_zipfile(path):
        try:
            content = saved_tensors(path, "cpu")
        except ConfigError:
            raise ConfigError(
                f"{path} cannot be read: it is damaged, compressed, or holds more than tensors and plain "
                "values"
            ) from None
        return _opacus(path, content, options)
    with open(path, "rb") as file:
        if file.read(2) == b"PK":
            raise ConfigError(
                f"{path} cannot be read: it begins as a file of torch.save; cut short?"
            )
    try:
        content = saved_json(path, LARGEST)
    except ConfigError as error:
        raise ConfigError(
            f"{error}; --history takes a .csv, JSON, or an Opacus accountant's state by torch.save"
        ) from None
    if "history" in content or _STATE in content:
        return _opacus(path, content, options)
    if "compositions" in content:
        return _flower(path, content, options)
    if is_plan(content):
        return plan_of(path, content, options)
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


def _csv(path: Path, options: SimpleNamespace) -> ReleaseHistory:
    rows = HistoryRows(path, options, f"{path} has a column")
    _refuse_cut_short(path)
    for line, row in rows_of(path, "--history"):
        for name in row:
            if name not in COLUMNS:
                raise ConfigError(
                    f"{path}, line 1: column {show(name)} is unknown; known are {', '.join(COLUMNS)}"
                )
        if row.get("steps") == "":  # else it would count as one step
            raise ConfigError(f"{path}, line {line}: steps is empty; every row states it")
        if row.get("sampling") == "none" and row.get("sample_rate"):
            raise ConfigError(
                f"{path}, line {line}: sample_rate must be empty where sampling is none, got "
                f"{show(row['sample_rate'])}"
            )
        rows.add(f"{path}, line {line}", {name: text for name, text in row.items() if text})
    return rows.history("CSV")


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

    Its ``history`` has (noise multiplier, sample rate, steps) for each stretch, oldest first. JSON may say
    ``sampling`` and ``neighbours`` beside it.
    """
    if isinstance(content, dict) and isinstance(content.get(_STATE), dict):
        content = content[_STATE]
    entries = content.get("history") if isinstance(content, dict) else None
    mechanism = content.get("mechanism") if isinstance(content, dict) else None
    if not isinstance(content, dict) or not isinstance(entries, list) or mechanism not in _OPACUS:
        raise ConfigError(
            f"{path} is no state of an Opacus accountant: a history, a list, and a mechanism, one of "
            + ", ".join(_OPACUS)
        )
    known = ("history", "mechanism", "sampling", "neighbours")
    unknown = sorted(str(key) for key in set(content) - set(known))
    if unknown:
        raise ConfigError(
            f"{path} has an unknown key {show(unknown[0])} beside an Opacus accountant's history; known are "
            + ", ".join(known)
            + did_you_mean(unknown[0], known, "; ")
        )
    shared = {name: content[name] for name in known[2:] if name in content}
    rows = HistoryRows(path, options, f"{path} has a key")
    for number, entry in enumerate(entries, start=1):
        where = f"{path}, history entry {number}"
        if not isinstance(entry, (tuple, list)) or len(entry) != 3:
            raise ConfigError(f"{where}: not (noise multiplier, sample rate, steps)")
        if not all(type(value) in (int, float) for value in entry):
            raise ConfigError(f"{where}: {show(entry)} are not three numbers")
        rows.add(where, {**dict(zip(COLUMNS, entry, strict=False)), **shared})
    return rows.history(f"Opacus, {mechanism} accountant", "as Opacus' accountants assume")


def _flower(path: Path, content: Mapping[str, Any], options: SimpleNamespace) -> ReleaseHistory:
    """Read the state of a Flower accountant: events with counts; ``config`` has what the events share."""
    arguments.refuse(options, (*DEFAULTS, "sample_rate"), f"with {path}, which states them")
    version = content.get("schema_version", 1)
    if version != 1:
        raise ConfigError(f"{path}, schema_version", version, "1, that of Flower 1.41 and 1.42")
    config, entries = content.get("config"), content["compositions"]
    if not isinstance(config, dict) or not isinstance(entries, list):
        raise ConfigError(
            f"{path} is no state of a Flower accountant: it has no config or compositions"
        )
    shared = {
        "sampling": _known(path, config, "sampling_method", _FLOWER_SAMPLINGS),
        "neighbours": _known(path, config, "neighboring_relation", _FLOWER_NEIGHBOURS),
    }
    rows = HistoryRows(path, options, f"{path} has a")
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
    return rows.history("Flower accountant", delta=delta if usable else None)


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
            "of an accountant of Opacus (history), Flower (compositions) or pfl (accountant)"
        )
    unknown = sorted(set(content) - {"event", "neighbours"}) if event is not content else []
    if unknown:
        raise ConfigError(
            f"{path} has an unknown key {show(unknown[0])}; known are event, neighbours"
            + did_you_mean(unknown[0], ("event", "neighbours"), "; ")
        )
    # An event alone does not say its adjacency.
    stated = None if event is content else content.get("neighbours")
    if stated is not None and options.neighbours is not None:
        raise ConfigError(f"--neighbours cannot be given: {path} has a key neighbours")
    neighbours = stated or options.neighbours or ADD_OR_REMOVE
    if not isinstance(neighbours, str) or neighbours not in RELATIONS:
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
    if stretches and stated is None and options.neighbours is None:
        raise Untold(("neighbours",), "as dp_accounting's accountants assume by default")
    samplings = " and ".join(dict.fromkeys(sampling_of(s.event) for s in stretches))
    kinds = ", ".join(dict.fromkeys(mechanism_of(s.event) for s in stretches))
    source = BY_FLAG if stated is None else IN_FILE
    return ReleaseHistory(
        "events of dp_accounting",
        (samplings, IN_FILE),
        (neighbours, source),
        stretches,
        mechanism=kinds,
    )
