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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import attrs
import yaml

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean
from fedpriv.common.fields import declared, field, one_of, or_null, own_check, text
from fedpriv.store.columns import COLUMNS
from fedpriv.store.saved import YamlLoader, saved_text, yaml_mistake
from fedpriv.study.figures.figure_keys import (
    Choice,
    Values,
    choices_key,
    key_label,
    keys_of,
    metric_column,
    metrics_key,
    name_key,
    overrides_key,
    seeds_key,
    texts_key,
    title_key,
    x_key,
)
from fedpriv.study.figures.stated_points import StatedPoint, read_numbers

LINE, POINTS = "line", "points"


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
        band: Band around the means, as in :class:`~fedpriv.study.figures.definition.Axes`.
        quick: Further overrides at the quick scale.
        reuse: Further folders, or archives, of finished runs, relative to the file.
    """

    path: Path = field(own_check(lambda name, value: value), help="the file")
    x: str | Values = field(own_check(x_key), help="{key: [values]}, or a column such as round")
    metric: tuple[str, ...] = field(own_check(metrics_key), help="accuracy, loss, or a column")
    base: tuple[str, ...] = field(own_check(overrides_key), default=None, help="of every run")
    curves: tuple[Choice, ...] = field(own_check(choices_key), default=None, help="the curves")
    panels: tuple[Choice, ...] = field(own_check(choices_key), default=None, help="the panels")
    seeds: tuple[int, ...] = field(own_check(seeds_key), default=1, help="how many, or a list")
    baselines: Any = field(own_check(lambda name, value: value), default=None, help="compared with")
    title: str | None = field(
        own_check(title_key, "text or null"), default=None, help='title of the figure; "": none'
    )
    name: str | None = field(
        or_null(own_check(name_key)), default=None, help="folder of the figure"
    )
    notes: str | None = field(or_null(text), default=None, help="text for comparison.md")
    x_label: str | None = field(or_null(text), default=None, help="label of the x axis")
    x_scale: str = field(one_of(_SCALES), default="linear", help="scale of the x axis")
    y_scale: str = field(one_of(_SCALES), default="linear", help="scale of the y axis")
    band: str = field(one_of(("t", "range", "sd")), default="t", help="band around the means")
    quick: tuple[str, ...] = field(own_check(overrides_key), default=None, help="of --quick")
    reuse: tuple[str, ...] = field(
        own_check(texts_key), default=(), help="folders of finished runs"
    )

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
                label, overrides_key(f"{name}.run", entry["run"]), shape=shape, panel=panel
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
        if COLUMNS[metric].scale == 100:
            largest = max(abs(number.y) for number in drawn)
            if 0 < largest <= 1:
                hint = "write 94.1, not 0.941"
                raise ArgumentError(key, largest, "in percent, as the axis shows it", hint)
            if outside := [number.y for number in drawn if not 0 <= number.y <= 100]:
                raise ArgumentError(
                    key, outside[0], "from 0 to 100, in percent as the axis shows it"
                )
        for scale, values in (
            (self.x_scale, [n.x for n in drawn if n.x is not None]),
            (self.y_scale, [y for n in drawn for y in (n.y, n.low) if y is not None]),
        ):
            if scale == "log" and values and min(values) <= 0:
                raise ArgumentError(key, min(values), "> 0 on a logarithmic axis")


_BASELINE_KEYS = ("label", "run", "csv", "value", "x", "as", "panel", "metric", "source")


def refuse_unknown_keys(name: str, values: Mapping[Any, Any], known: Iterable[str]) -> None:
    """Raise ArgumentError for a key that is not known, with the nearest of those that are."""
    names = list(known)
    for key in values:
        if key not in names:
            hint = did_you_mean(str(key), names)
            raise ArgumentError(name or "a key", key, f"one of {', '.join(names)}", hint)


def _read(path: Path, values: Mapping[Any, Any]) -> FigureFile:
    """Return the checked content of a file.

    Raises:
        ConfigError: Keys are unknown, missing, wrong by themselves, or do not go with one another.
    """
    kind: type = FigureFile
    fields = {name: one for name, one in attrs.fields_dict(kind).items() if name != "path"}
    try:
        refuse_unknown_keys("", values, fields)
        for name, one in fields.items():
            if one.default is attrs.NOTHING and values.get(name) is None:
                raise ArgumentError(name, None, f"given, such as {_REQUIRED}")
        return FigureFile(path=path, **values)
    except ArgumentError as error:
        raise _in_file(path, error) from None


def _in_file(path: Path, error: ArgumentError) -> ConfigError:
    return ConfigError(f"{path}: {error.argument}", error.value, error.allowed, error.hint)


_REQUIRED = "x: {epsilon: [1, 2]} and metric: accuracy"


def read_figure_file(path: Path) -> FigureFile:
    """Return the checked content of a figure's file.

    Raises:
        ConfigError: The file cannot be read, or keys are wrong. The error names the file, and each key that
            is wrong.
    """
    if not path.is_file():
        hint = did_you_mean(path.name, [file.name for file in path.parent.glob("*.y*ml")], "; ")
        raise ConfigError(
            f"there is no file {path}{hint or '; fedpriv figure takes a YAML or a name of --list'}"
        )
    try:
        values = yaml.load(saved_text(path), YamlLoader)
    except yaml.YAMLError as error:
        raise yaml_mistake(path, error) from None
    if not isinstance(values, dict):
        raise ConfigError(str(path), values, f"keys with values, such as {_REQUIRED}")
    return _read(path, values)
