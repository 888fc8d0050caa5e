"""A figure of one's own: a short YAML outside the package, as ``fedpriv figure FILE.yaml`` reads it.

    base: algorithm=adap_dpfl dataset=digits rounds=50
    x: {epsilon: [1, 2, 4, 8]}
    curves: {algorithm: [adap_dpfl, dp_fl]}
    seeds: 5
    metric: accuracy
    baselines:
      - {label: no privacy, run: algorithm=fedavg}
      - {label: their paper, csv: theirs.csv, source: table 2}
      - {label: guessing, value: 10}

:class:`FigureFile` checks the file, and every error names the file and the key.
:mod:`fedpriv.study.figures.from_file` makes a :class:`~fedpriv.study.figures.definition.Figure` of it, which
is run and drawn like the figures of published works.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attrs
import yaml

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean, show
from fedpriv.common.fields import declared, field, one_of, or_null, own_check, text
from fedpriv.store.columns import AUDIT_COLUMNS, COLUMNS
from fedpriv.store.saved import YamlLoader, yaml_text
from fedpriv.study.figures.stated_points import StatedPoint, read_numbers

LINE, POINTS = "line", "points"
SHORT_METRICS = {"accuracy": "test_accuracy", "loss": "test_loss"}
_SET_ELSEWHERE = {
    "seed": "seeds: [0, 1, 2]",
    "dry_run": "fedpriv figure FILE --dry-run",
    "resume": "nothing; a figure goes on with its runs by itself",
    "publish": "nothing; the runs of a figure are found by their seeds",
}
_NAME = re.compile(r"(?!\.)[\w.+=-]+(/(?!\.)[\w.+=-]+)*")


@dataclass(frozen=True)
class Values:
    """A config key and its values.

    Attributes:
        key: The config key.
        values: The values.
    """

    key: str
    values: tuple[float, ...]


@dataclass(frozen=True)
class Choice:
    """One of the curves or panels of a file.

    Attributes:
        label: Label in the legend, or title of the panel.
        overrides: Overrides of its runs.
    """

    label: str
    overrides: tuple[str, ...]


@dataclass(frozen=True)
class Baseline:
    """Something that the curves are compared with: runs of its own, or numbers from elsewhere.

    Attributes:
        label: Label in the legend.
        overrides: Overrides of its runs; None for numbers from elsewhere.
        numbers: The numbers from elsewhere, by increasing x.
        shape: ``line`` or ``points``; None: as suits the kind.
        panel: Label of the panel that shows the baseline; None: all panels.
        metric: Column that the numbers are of; None: the first metric.
        source: Where the numbers come from.
        csv: File of the numbers, relative to the figure's file.
    """

    label: str
    overrides: tuple[str, ...] | None
    numbers: tuple[StatedPoint, ...] = ()
    shape: str | None = None
    panel: str | None = None
    metric: str | None = None
    source: str = ""
    csv: str | None = None


# ---- checks of the keys


def _overrides(name: str, value: Any) -> tuple[str, ...]:
    """Return overrides from a text as after ``fedpriv train``, or from a list of such texts."""
    allowed = "overrides such as algorithm=dp_fl rounds=50"
    if value is None:
        return ()
    try:
        words = (
            shlex.split(value)
            if isinstance(value, str)
            else [checks.text(name, word) for word in checks.sequence(name, value, allowed)]
        )
    except ValueError as error:  # an open quote, or a part that is no text
        if isinstance(error, ArgumentError):
            raise
        raise ArgumentError(name, value, allowed) from None
    for word in words:
        key, equals, _ = word.partition("=")
        if not equals or not key or word.startswith("-"):
            raise ArgumentError(name, word, allowed)
        bare = key.lstrip("+~")
        if bare in _SET_ELSEWHERE:
            raise ArgumentError(name, word, f"without {bare}", f"use {_SET_ELSEWHERE[bare]}")
        if bare.partition(".")[0] in ("hydra", "figure") or bare.startswith("hydra/"):
            raise ArgumentError(
                name, word, "about the runs", f"fedpriv figure FILE {word} takes it"
            )
    return tuple(words)


def _x(name: str, value: Any) -> str | Values:
    """Return a column that is drawn over rounds, or a key with its values."""
    allowed = "a key with its values, such as {epsilon: [1, 2, 4]}, or a column such as round"
    if isinstance(value, str):
        columns = [column for column in COLUMNS if column not in AUDIT_COLUMNS]
        if value not in columns:
            raise ArgumentError(name, value, allowed, did_you_mean(value, columns))
        return value
    if not isinstance(value, Mapping) or len(value) != 1:
        raise ArgumentError(name, value, allowed)
    ((key, values),) = value.items()
    if key == "seed" or key.startswith(("runtime.", "figure.", "hydra")):
        raise ArgumentError(name, key, "a key that makes another run", "seeds: 5 sets the seeds")
    numbers = checks.sequence(f"{name}.{key}", values, "a list of numbers")
    if not numbers:
        raise ArgumentError(f"{name}.{key}", "[]", "at least one number")
    for number in numbers:
        if not checks.is_number(number):
            hint = "options and texts belong under curves or panels"
            raise ArgumentError(f"{name}.{key}", number, "numbers", hint)
        checks.number(f"{name}.{key}", number)
    if len(set(numbers)) < len(numbers):
        raise ArgumentError(f"{name}.{key}", values, "different numbers")
    return Values(key, tuple(sorted(numbers)))


def _choices(name: str, value: Any) -> tuple[Choice, ...]:
    """Return curves or panels: every combination of keys with values, or labels with overrides."""
    allowed = f"keys with their values, such as {{{_EXAMPLE}}}, or labels with overrides each"
    if value is None:
        return ()
    if not isinstance(value, Mapping) or not value:
        raise ArgumentError(name, value, allowed)
    listed = [isinstance(values, list) for values in value.values()]
    if not any(listed):
        return tuple(
            Choice(str(label), _overrides(f"{name}.{label}", text)) for label, text in value.items()
        )
    if not all(listed):
        odd = next(key for key, values in value.items() if not isinstance(values, list))
        raise ArgumentError(f"{name}.{odd}", value[odd], "a list of values, as its neighbours are")
    choices = [Choice("", ())]
    for key, values in value.items():
        if not values:
            raise ArgumentError(f"{name}.{key}", "[]", "at least one value")
        for one in values:
            if isinstance(one, list | dict):
                raise ArgumentError(f"{name}.{key}", one, "texts, numbers, true, false or null")
        words = [written(one) for one in values]
        if len(set(words)) < len(words):
            raise ArgumentError(f"{name}.{key}", values, "different values")
        _overrides(f"{name}.{key}", [f"{key}={word}" for word in words])
        choices = [
            Choice(_joined(choice.label, _label(key, one)), (*choice.overrides, f"{key}={word}"))
            for choice in choices
            for one, word in zip(values, words, strict=True)
        ]
    return tuple(choices)


_EXAMPLE = "algorithm: [adap_dpfl, dp_fl]"


def written(value: object) -> str:
    """Return a plain value of a YAML as it is typed in an override."""
    return repr(value) if isinstance(value, float) else show(value)


def _label(key: str, value: object) -> str:
    """Return the label of a value: an option by its name, a number with the last part of its key."""
    is_option = isinstance(value, str) and "." not in key
    return written(value) if is_option else f"{_in_words(key)} = {written(value)}"


def key_label(key: str) -> str:
    """Return the label of an axis over the values of a key, as that of the column of the same name."""
    column = COLUMNS.get(key.rpartition(".")[2])
    return "ε asked for" if key == "epsilon" else column.label if column else _in_words(key)


def _title(name: str, value: object) -> object:
    return value if value is None or value == "" else checks.text(name, value)


def _in_words(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")


def _joined(first: str, second: str) -> str:
    return f"{first}, {second}" if first else second


def _seeds(name: str, value: Any) -> tuple[int, ...]:
    """Return the seeds of a list, or so many seeds from 0."""
    if not isinstance(value, list):
        try:
            return tuple(range(checks.whole(name, value, at_least=1, at_most=10_000)))
        except ArgumentError:
            raise ArgumentError(name, value, "how many (5), or a list ([0, 1, 2])") from None
    seeds = tuple(checks.seed(name, seed) for seed in value)
    if not seeds or len(set(seeds)) < len(seeds):
        raise ArgumentError(name, value, "one seed or several different ones")
    return seeds


def metric_column(name: str, value: Any) -> str:
    """Return the column that a metric of the file names."""
    if value in SHORT_METRICS:
        return SHORT_METRICS[value]
    columns = [column for column in COLUMNS if column != "round"]
    if not isinstance(value, str) or value not in columns:
        known = (*SHORT_METRICS, *columns)
        hint = did_you_mean(value, known) if isinstance(value, str) else ""
        raise ArgumentError(name, value, f"one of {', '.join(known)}", hint)
    return value


def _metrics(name: str, value: Any) -> tuple[str, ...]:
    values = value if isinstance(value, list) else [value]
    columns = tuple(metric_column(name, one) for one in values)
    if not columns or len(set(columns)) < len(columns):
        raise ArgumentError(name, value, "a metric, or a list of different ones")
    return columns


def _texts(name: str, value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else checks.sequence(name, value, "a list of folders")
    return tuple(checks.text(name, word) for word in words)


def _name(name: str, value: Any) -> str:
    if not _NAME.fullmatch(checks.text(name, value)):
        raise ArgumentError(name, value, "letters, digits and . _ - + =, with / for subfolders")
    return str(value)


_SCALES = ("linear", "log")


@declared
class FigureFile:
    """The checked content of a figure's file.

    Attributes:
        path: The file.
        base: Overrides of every run.
        x: Key and values of the x axis, or a column over which whole runs are drawn.
        curves: The curves; without any, the figure has one curve.
        panels: The panels; without any, the figure has one panel.
        seeds: Seeds of every curve.
        metric: Columns of the y axes, a column of panels each.
        baselines: What the curves are compared with.
        title: Title of the figure.
        name: Folder of the figure below ``<output_dir>/figures``.
        notes: Text for comparison.md.
        quick: Further overrides at the quick scale.
        reuse: Further folders, or archives, of finished runs, relative to the file.
    """

    path: Path = field(own_check(lambda name, value: value), help="the file")
    x: str | Values = field(own_check(_x), help="{key: [values]}, or a column such as round")
    metric: tuple[str, ...] = field(own_check(_metrics), help="accuracy, loss, or a column")
    base: tuple[str, ...] = field(own_check(_overrides), default=None, help="of every run")
    curves: tuple[Choice, ...] = field(own_check(_choices), default=None, help="the curves")
    panels: tuple[Choice, ...] = field(own_check(_choices), default=None, help="the panels")
    seeds: tuple[int, ...] = field(own_check(_seeds), default=1, help="how many, or a list")
    baselines: Any = field(own_check(lambda name, value: value), default=None, help="compared with")
    title: str | None = field(
        own_check(_title, "text or null"), default=None, help='title of the figure; "": none'
    )
    name: str | None = field(or_null(own_check(_name)), default=None, help="folder of the figure")
    notes: str | None = field(or_null(text), default=None, help="text for comparison.md")
    x_label: str | None = field(or_null(text), default=None, help="label of the x axis")
    x_scale: str = field(one_of(_SCALES), default="linear", help="scale of the x axis")
    y_scale: str = field(one_of(_SCALES), default="linear", help="scale of the y axis")
    quick: tuple[str, ...] = field(own_check(_overrides), default=None, help="of --quick")
    reuse: tuple[str, ...] = field(own_check(_texts), default=(), help="folders of finished runs")

    def __attrs_post_init__(self) -> None:
        x = self.x
        if self.x_scale == "log" and isinstance(x, Values) and x.values[0] <= 0:
            raise ArgumentError(f"x.{x.key}", x.values[0], "> 0 on a logarithmic axis")
        self._refuse_given_twice()
        entries = [] if self.baselines is None else self.baselines
        allowed = "a list such as [{label: guessing, value: 10}]"
        self.baselines: tuple[Baseline, ...] = tuple(
            self._baseline(f"baselines.{number}", entry)
            for number, entry in enumerate(checks.sequence("baselines", entries, allowed))
        )
        labels = [c.label for c in self.curves] + [b.label for b in self.baselines]
        for label in labels:
            if labels.count(label) > 1:
                raise ArgumentError(
                    "baselines", label, "labels that no curve or other baseline has"
                )

    def _refuse_given_twice(self) -> None:
        """Raise ArgumentError for a key that two of x, base, curves and panels set."""
        x = {self.x.key} if isinstance(self.x, Values) else set()
        keys = {"x": x, "base": keys_of(self.base)}
        for name, choices in (("panels", self.panels), ("curves", self.curves)):
            keys[name] = {key for choice in choices for key in keys_of(choice.overrides)}
        if both := keys["panels"] & keys["curves"]:
            raise ArgumentError("panels", min(both), "keys that curves does not set")
        for name in ("base", "panels", "curves"):
            if both := x & keys[name]:
                raise ArgumentError(name, min(both), "without the key of x")

    @property
    def folder(self) -> str:
        """Folder of the figure below ``<output_dir>/figures``: the name, or that of the file."""
        return self.name or self.path.stem

    @property
    def title_words(self) -> str:
        """The title, or one made of the axes."""
        if self.title is not None:
            return self.title
        x = key_label(self.x.key) if isinstance(self.x, Values) else COLUMNS[self.x].label
        return f"{', '.join(COLUMNS[column].label for column in self.metric)} over {x}"

    def _baseline(self, name: str, entry: Any) -> Baseline:
        """Return a checked baseline; its numbers are read from its file."""
        if not isinstance(entry, Mapping):
            raise ArgumentError(name, entry, "keys such as {label: guessing, value: 10}")
        refuse_unknown_keys(name, entry, _BASELINE_KEYS)
        label = checks.text(f"{name}.label", entry.get("label"))
        kinds = [key for key in ("run", "csv", "value") if entry.get(key) is not None]
        if len(kinds) != 1:
            raise ArgumentError(name, ", ".join(kinds), "with one of run, csv and value")
        shape, panel = entry.get("as"), entry.get("panel")
        if shape is not None:
            shape = checks.one_of(f"{name}.as", shape, (LINE, POINTS))
        if panel is not None:
            titles = [choice.label for choice in self.panels]
            panel = checks.one_of(f"{name}.panel", panel, titles or ["absent: there are no panels"])
        if "x" in entry and kinds != ["value"]:
            raise ArgumentError(f"{name}.x", entry["x"], "beside a value; a csv has a column x")
        if kinds == ["run"]:
            if unused := [key for key in ("metric", "source") if key in entry]:
                raise ArgumentError(f"{name}.{unused[0]}", entry[unused[0]], "absent beside run")
            return Baseline(
                label, _overrides(f"{name}.run", entry["run"]), shape=shape, panel=panel
            )
        metric = metric_column(f"{name}.metric", entry.get("metric", self.metric[0]))
        if metric not in self.metric:
            raise ArgumentError(f"{name}.metric", entry["metric"], "a metric of the figure")
        if kinds == ["csv"]:
            file = self.path.parent / checks.text(f"{name}.csv", entry["csv"])
            numbers = tuple(read_numbers(f"{name}.csv", file))
            said = str(entry["csv"])
        else:
            at = None if entry.get("x") is None else checks.number(f"{name}.x", entry["x"])
            if at is None and shape == POINTS:
                raise ArgumentError(f"{name}.x", None, "given, for a point")
            numbers = (StatedPoint(at, checks.number(f"{name}.value", entry["value"])),)
            said = ""
        key = f"{name}.{kinds[0]}"
        self._refuse_unfit(key, metric, numbers)
        source = str(entry.get("source") or said)
        return Baseline(label, None, numbers, shape, panel, metric, source, said or None)

    def _refuse_unfit(self, key: str, metric: str, numbers: Iterable[StatedPoint]) -> None:
        """Raise ArgumentError for numbers in another unit than the axis, or not on a logarithmic one."""
        drawn = list(numbers)
        largest = max(abs(number.y) for number in drawn)
        if COLUMNS[metric].scale == 100 and 0 < largest <= 1:
            hint = "write 94.1, not 0.941"
            raise ArgumentError(key, largest, "in percent, as the axis shows it", hint)
        for scale, values in (
            (self.x_scale, [n.x for n in drawn if n.x is not None]),
            (self.y_scale, [y for n in drawn for y in (n.y, n.low) if y is not None]),
        ):
            if scale == "log" and values and min(values) <= 0:
                raise ArgumentError(key, min(values), "> 0 on a logarithmic axis")


_BASELINE_KEYS = ("label", "run", "csv", "value", "x", "as", "panel", "metric", "source")


def keys_of(overrides: Iterable[str]) -> set[str]:
    """Return the keys that overrides set, without the signs of Hydra."""
    return {override.lstrip("+~").partition("=")[0] for override in overrides}


def refuse_unknown_keys(name: str, values: Mapping[Any, Any], known: Iterable[str]) -> None:
    """Raise ArgumentError for a key that is not known, with the nearest of those that are."""
    allowed = list(known)
    for key in values:
        if key not in allowed:
            hint = did_you_mean(str(key), allowed)
            raise ArgumentError(name or "a key", key, f"one of {', '.join(allowed)}", hint)


def read_figure_file(path: Path) -> FigureFile:
    """Return the checked content of a figure's file.

    Raises:
        ConfigError: The file cannot be read, or a key is wrong; the error names the file and the key.
    """
    if not path.is_file():
        raise ConfigError(
            f"there is no file {path}; fedpriv figure takes a YAML or a name of --list"
        )
    try:
        values = yaml.load(yaml_text(path), YamlLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from None
    kind: type = FigureFile
    known = [name for name in attrs.fields_dict(kind) if name != "path"]
    example = "x: {epsilon: [1, 2]} and metric: accuracy"
    if not isinstance(values, dict):
        raise ConfigError(str(path), values, f"keys with values, such as {example}")
    try:
        refuse_unknown_keys("", values, known)
        for key in ("x", "metric"):
            if values.get(key) is None:
                raise ArgumentError(key, None, f"given, such as {example}")
        return FigureFile(path=path, **values)
    except ArgumentError as error:
        raise ConfigError(
            f"{path}: {error.argument}", error.value, error.allowed, error.hint
        ) from None
