"""A row of the table of claims: a YAML in ``conf/claims``, read and checked."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import yaml

from fedpriv.common.errors import ConfigError, did_you_mean
from fedpriv.common.groups import conf_dir
from fedpriv.tools.claims.epsilon import ReleaseKind

VERDICTS = (
    "agrees with our computation",
    "no deviation found",
    "holds if",
    "not as stated",
    "no DP claimed",
    "not tested",
)
NEEDS_CONTROL = ("holds if", "not as stated")
"""Verdicts that need a control where a demonstration runs software."""
KINDS = ("accounting", "neighbours", "noise", "adapter", "audit", "none")
SUBJECTS = ("work", "software", "fedpriv")
REPORT = (
    "An error in a row: open an issue of fedpriv that names the row. Authors were not contacted."
)
_EPSILON_FIELDS = ("delta", "stated", "releases", "ours", "second", "unit")
_DEMONSTRATION_FIELDS = (
    "kind", "script", "adapter", "packages", "also", "download_mb", "disk_mb", "seconds", "expect", "control",
)  # fmt: skip
_TEXTS = ("title", "version", "source", "stated", "assumption", "shows", "detail", "contact")
_PACKAGE_FIELDS = ("name", "version", "sha256", "dependencies")


@dataclass(frozen=True)
class ClaimRow:
    """One published guarantee.

    Attributes:
        name: Name of the row, the file's name.
        subject: ``work`` (a publication), ``software``, or ``fedpriv`` itself.
        title: Title of the work or name of the software.
        version: Version, or year.
        source: Page, theorem, or file and function.
        stated: What is stated, quoted briefly or in a neutral summary.
        setting: The correct setting, for software that is deployed; None for others.
        assumption: Assumption under which the claim is judged.
        shows: What the text or the code shows.
        verdict: One of :data:`VERDICTS`.
        detail: The condition of "holds if", the checks of "no deviation found", a reason otherwise.
        epsilon: The ε of the row: delta, stated, releases, ours, second, unit; None where there is none.
        no_epsilon: Reason for no ε.
        demonstration: How the row is demonstrated: kind, script, packages, expected numbers, control.
        date: Date of the last look.
        upstream: Address of an issue of the software; None if none was found.
        contact: ``authors not contacted``, or who was.
    """

    name: str
    subject: str
    title: str
    version: str
    source: str
    stated: str
    setting: str | None
    assumption: str
    shows: str
    verdict: str
    detail: str
    epsilon: Mapping[str, Any] | None
    no_epsilon: str | None
    demonstration: Mapping[str, Any]
    date: datetime.date
    upstream: str | None
    contact: str

    @property
    def releases(self) -> list[ReleaseKind]:
        """The releases that ε is computed for."""
        assert self.epsilon is not None  # asked of rows with an ε
        return [ReleaseKind(**values) for values in self.epsilon["releases"]]

    @property
    def judgement(self) -> str:
        """The verdict with its condition or its checks."""
        return {
            "holds if": f"holds if {self.detail}",
            "no deviation found": f"no deviation found ({self.detail})",
        }.get(self.verdict, self.verdict)

    @property
    def packages(self) -> list[dict[str, Any]]:
        """The packages that the demonstration runs: name, version, sha256 of the wheel."""
        return list(self.demonstration.get("packages") or [])

    @property
    def script(self) -> list[str]:
        """The demonstration's script below ``conf/claims`` and its argument; empty if there is none."""
        return str(self.demonstration.get("script") or "").split()

    @property
    def adapters(self) -> dict[str, str]:
        """The adapters that ``fedpriv verify --adapter`` runs, as FILE:make below ``conf/claims``.

        The one under ``measured`` shows what the row states, the one under ``control`` must pass.
        """
        control = self.demonstration.get("control") or {}
        found = {"measured": self.demonstration.get("adapter"), "control": control.get("adapter")}
        return {part: str(adapter) for part, adapter in found.items() if adapter}

    @cached_property
    def transcript(self) -> str | None:
        """The stored transcript of the demonstration, or None."""
        path = folder() / f"{self.name}.txt"
        return path.read_text("utf-8") if path.exists() else None


def folder() -> Path:
    """Return the folder of the rows, their scripts and their transcripts."""
    return conf_dir() / "claims"


def read_rows() -> list[ClaimRow]:
    """Return all rows, works first, then software, then fedpriv's own, each by name."""
    rows = [read_row(path) for path in sorted(folder().glob("*.yaml"))]
    return sorted(rows, key=lambda row: (SUBJECTS.index(row.subject), row.name))


def row_named(name: str) -> ClaimRow:
    """Return the row of this name.

    Raises:
        ConfigError: There is none.
    """
    names = sorted(path.stem for path in folder().glob("*.yaml"))
    if name not in names:
        raise ConfigError("the claim", name or "nothing", "a name that fedpriv claims lists",
                          did_you_mean(name, names))  # fmt: skip
    return read_row(folder() / f"{name}.yaml")


def read_row(path: Path) -> ClaimRow:
    """Read and check a row.

    Raises:
        ConfigError: A field is missing, unknown, or has a value that is not allowed.
    """
    try:
        values = yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is no YAML: {str(error).partition(chr(10))[0]}") from None
    if not isinstance(values, dict):
        raise ConfigError(f"{path} is no row of claims: it must be a mapping")
    known = [field.name for field in fields(ClaimRow) if field.name != "name"]
    _only(path, values, known)
    row = ClaimRow(name=path.stem, **values)
    for problem in _problems(row):
        raise ConfigError(f"{path}: {problem}")
    return row


def _only(path: Path, values: Mapping[str, Any], known: list[str] | tuple[str, ...]) -> None:
    """Refuse unknown fields of a row, and missing ones."""
    unknown = sorted(set(map(str, values)) - set(known))
    missing = [name for name in known if name not in values]
    if unknown:
        raise ConfigError(f"{path} has an unknown field {unknown[0]}; known are {', '.join(known)}")
    if missing:
        raise ConfigError(f"{path} has no field {missing[0]}")


def _problems(row: ClaimRow) -> list[str]:
    """Return what is wrong with the values of a row."""
    problems = []
    if row.subject not in SUBJECTS:
        problems.append(f"subject must be one of {', '.join(SUBJECTS)}, got {row.subject}")
    if row.verdict not in VERDICTS:
        problems.append(f"verdict must be one of {', '.join(VERDICTS)}, got {row.verdict}")
    for name in _TEXTS:
        if not _is_text(getattr(row, name)):
            problems.append(f"{name} must be a text that is not empty")
    for name in ("setting", "no_epsilon", "upstream"):
        if getattr(row, name) is not None and not _is_text(getattr(row, name)):
            problems.append(f"{name} must be null or a text that is not empty")
    if not isinstance(row.date, datetime.date):
        problems.append("date must be a date, such as 2026-11-26")
    if (row.epsilon is None) == (row.no_epsilon is None):
        problems.append("either epsilon or no_epsilon must be given, the other null")
    return [*problems, *_problems_of_epsilon(row.epsilon), *_problems_of_demonstration(row)]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_span(value: object) -> bool:
    """Return whether a value is a list of two numbers, from and to."""
    return isinstance(value, list) and len(value) == 2 and all(map(_is_number, value))


def _problems_of_epsilon(epsilon: object) -> list[str]:
    """Return what is wrong with the ε of a row."""
    if epsilon is None:
        return []
    if not isinstance(epsilon, dict) or set(epsilon) != set(_EPSILON_FIELDS):
        return [f"epsilon must have the fields {', '.join(_EPSILON_FIELDS)}"]
    found = [
        f"epsilon.{name} must be a number"
        for name in ("delta", "ours")
        if not _is_number(epsilon[name])
    ]
    if not (epsilon["stated"] is None or _is_number(epsilon["stated"])):
        found.append("epsilon.stated must be null or a number")
    if not _is_span(epsilon["second"]):
        found.append("epsilon.second must be two numbers, from and to")
    if not _is_text(epsilon["unit"]):
        found.append("epsilon.unit must be a text that is not empty")
    if not (isinstance(epsilon["releases"], list) and epsilon["releases"]):
        return [*found, "epsilon.releases must be a list that is not empty"]
    try:
        releases = [ReleaseKind(**values) for values in epsilon["releases"]]
    except (TypeError, ValueError) as error:
        return [*found, f"epsilon.releases: {error}"]
    pure = {release.pure_epsilon is not None for release in releases}
    # The sum of pure ε is exact at δ = 0 only, and a Gaussian has no finite ε there.
    if not found and pure != {epsilon["delta"] == 0}:
        found.append("epsilon.delta must be 0 for pure_epsilon, and above 0 for noise_multiplier")
    return found


def _problems_of_demonstration(row: ClaimRow) -> list[str]:
    """Return what is wrong with the demonstration of a row."""
    told = row.demonstration
    if not isinstance(told, dict):
        return ["demonstration must be a mapping"]
    wrong = _wrong_types(told)
    if wrong:
        return wrong
    found = []
    unknown = sorted(set(map(str, told)) - set(_DEMONSTRATION_FIELDS))
    if unknown:
        found.append(f"demonstration has an unknown field {unknown[0]}")
    if told.get("kind") not in KINDS:
        found.append(f"demonstration.kind must be one of {', '.join(KINDS)}")
    if told.get("kind") == "accounting" and row.epsilon is None and not row.script:
        found.append("a demonstration by accounting needs epsilon or a script")
    if told.get("kind") == "adapter" and not row.adapters:
        found.append("a demonstration by an adapter needs demonstration.adapter")
    files = [*row.script[:1], *(adapter.partition(":")[0] for adapter in row.adapters.values())]
    found += [
        f"demonstration: there is no {file} in {folder()}"
        for file in files
        if not (folder() / file).is_file()
    ]
    if files and not told.get("expect"):
        found.append("a demonstration with a script or an adapter needs demonstration.expect")
    needs_control = row.subject == "software" and files and row.verdict in NEEDS_CONTROL
    if needs_control and not told.get("control"):
        found.append("demonstration.control must show what passes on a minimal correction")
    return found


def _wrong_types(told: Mapping[str, Any]) -> list[str]:
    """Return which values of a demonstration have the wrong type."""
    control = told.get("control")
    if control is not None and not (isinstance(control, dict) and _is_text(control.get("text"))):
        return ["demonstration.control must be a mapping with a text"]
    found = _wrong_part("demonstration", told)
    found += _wrong_part("demonstration.control", control or {})
    if told.get("script") is not None and not _is_text(told["script"]):
        found.append("demonstration.script must be a file and an argument")
    for name in ("download_mb", "disk_mb", "seconds"):
        if told.get(name) is not None and not _is_number(told[name]):
            found.append(f"demonstration.{name} must be a number")
    for name in ("packages", "also"):
        if told.get(name) is not None and not isinstance(told[name], list):
            found.append(f"demonstration.{name} must be a list")
    packages = told.get("packages")
    for package in packages if isinstance(packages, list) else []:
        known = isinstance(package, dict) and set(package) <= set(_PACKAGE_FIELDS)
        if not known or len(str(package.get("sha256"))) != 64:
            found.append("a package has a name, a version and the sha256 of its wheel")
    return found


def _wrong_part(where: str, part: Mapping[str, Any]) -> list[str]:
    """Return what is wrong with the expected numbers and the adapter of a demonstration or its control."""
    expected = part.get("expect") or {}
    if not isinstance(expected, dict):
        return [f"{where}.expect must be a mapping"]
    found = [
        f"{where}.expect.{name} must be two numbers, from and to"
        for name, span in expected.items()
        if not _is_span(span)
    ]
    if part.get("adapter") is not None and not _is_text(part["adapter"]):
        found.append(f"{where}.adapter must be FILE:make")
    return found
