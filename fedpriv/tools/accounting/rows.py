"""Stretches of equal releases, as another framework wrote them, and what a file has to say of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from dp_accounting import dp_event

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.privacy.calibration import MOST_NOISE, RepeatedRelease
from fedpriv.tools.accounting import arguments
from fedpriv.tools.accounting.event_json import MOST_EVENTS, MOST_STEPS

COLUMNS = (
    "noise_multiplier", "sample_rate", "steps", "sampling", "neighbours", "records", "max_lot_size", "client",
)  # fmt: skip
# Flags for what a file does not say.
DEFAULTS = ("sampling", "neighbours", "records", "max_lot_size")
IN_FILE = "the file tells"
BY_FLAG = "by its flag"


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
        mechanism: The mechanisms in words, where they need not be Gaussian noise.
        population: Whose lots these are, in words, where the file describes two populations.
        simulated: The releases as the simulated users see them, if this history is that of an imagined
            population.
    """

    kind: str
    sampling: tuple[str, str]
    neighbours: tuple[str, str]
    stretches: list[Stretch]
    delta: float | None = None
    mechanism: str = ""
    population: str = ""
    simulated: ReleaseHistory | None = None


class Untold(Exception):
    """A file and the flags leave sampling or neighbours open, on which ε depends.

    Attributes:
        names: What is open: ``sampling``, ``neighbours``, or both.
        by_default: What the framework's own accountant assumes, in words; empty if it has none.
    """

    def __init__(self, names: tuple[str, ...], by_default: str):
        super().__init__(*names)
        self.names, self.by_default = names, by_default


class HistoryRows:
    """Stretches from rows of plain values; flags supply what the rows do not say.

    Args:
        path: The file, for messages.
        options: The values of the flags.
        told_by: The beginning of a message about a value that both the file and a flag give.
    """

    def __init__(self, path: Path, options: SimpleNamespace, told_by: str):
        self.path, self.options, self.told_by = path, options, told_by
        self.stretches: list[Stretch] = []
        self._told: dict[str, set[str]] = {}  # sources of each of DEFAULTS; "" where a row has none
        self._untold: dict[str, None] = {}
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
                "steps", number(row.get("steps", 1)), at_least=1, at_most=MOST_STEPS
            )
        except (ArgumentError, ConfigError) as error:
            if isinstance(error, ArgumentError) and error.value is None:
                by_flag = arguments.flag(error.argument)
                raise ConfigError(
                    f"{where}: {error.argument} must be {error.allowed} ({by_flag})"
                ) from None
            raise ConfigError(f"{where}: {error}") from None
        if "neighbours" not in self._untold and self._neighbours not in (None, release.neighbours):
            raise ConfigError(
                f"{where}: neighbours are {release.neighbours} here and {self._neighbours} before; a "
                "guarantee has one kind"
            )
        self._neighbours = release.neighbours
        self._samplings[release.sampling] = None
        self.stretches.append(Stretch(event, steps, client))

    def _release(self, row: Mapping[str, object]) -> tuple[RepeatedRelease, dp_event.DpEvent]:
        """Return the kind of release of a row, and its event.

        What a row does not say is taken from a flag. The source of each value is noted for the table. Where
        sampling or neighbours are open, a default stands for them, so that other mistakes are found first.
        """
        values: dict[str, Any] = {name: row[name] for name in DEFAULTS if name in row}
        for name in DEFAULTS:
            flag = getattr(self.options, name)
            if flag is not None and name in values:
                raise ConfigError(f"{arguments.flag(name)} cannot be given: {self.told_by} {name}")
            if flag is not None:
                values[name] = flag
            self._told.setdefault(name, set()).add(
                "" if name not in values else BY_FLAG if flag is not None else IN_FILE
            )
        if "sampling" not in values:
            self._untold["sampling"] = None
            values = {name: values[name] for name in values if name == "neighbours"}
        if "neighbours" not in values and values.get("sampling") != "without_replacement":
            self._untold["neighbours"] = None
        for name in ("records", "max_lot_size"):
            if name in values:
                values[name] = number(values[name])
        release = RepeatedRelease(**{"sampling": "poisson", **values})
        if "noise_multiplier" not in row:
            raise ConfigError("noise_multiplier is missing")
        multiplier = number(row["noise_multiplier"])
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
        return checks.number("sample_rate", number(value), above=0, at_most=1)

    def history(
        self, kind: str, by_default: str = "", delta: float | None = None
    ) -> ReleaseHistory:
        """Return the history of all rows.

        Args:
            kind: The kind of file, in words.
            by_default: What the framework's own accountant assumes, in words.
            delta: δ of the file's budget, if it has one.

        Raises:
            ConfigError: There is no row, or some rows leave open what others say.
            Untold: All rows leave the sampling or the neighbours open.
        """
        if not self.stretches:
            raise ConfigError(f"{self.path} has no releases")
        for name in self._untold:
            if len(self._told[name]) > 1:
                raise ConfigError(
                    f"{self.path}: {name} is empty in some rows; each row states it, or none does"
                )
        if set(self._samplings) == {"none"}:
            arguments.refuse(self.options, ("sample_rate",), "with the sampling none")
        if self._untold:
            raise Untold(tuple(self._untold), by_default)
        sources = {
            name: " and ".join(sorted(told - {""})) or "which such lots need"
            for name, told in self._told.items()
        }
        return ReleaseHistory(
            kind,
            (" and ".join(self._samplings), sources["sampling"]),
            (self._neighbours or "", sources["neighbours"]),
            self.stretches,
            delta,
        )


def number(value: object) -> object:
    """Return the number that a text stands for, and any other value as it is."""
    return checks.parsed(value) if isinstance(value, str) else value
