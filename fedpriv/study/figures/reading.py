"""The reader of figures: checks the keys of a figure, and returns a :class:`Figure`.

A figure of a published work is a YAML of ``conf/figure/<work>``, which Hydra composes with what the figures
of the work share. A figure of the user's own is a file with the same keys. Every error names the key.

    x                 {KEY: [values]}, {NAME: {label, overrides}} or a column, over which whole runs are drawn
    x_quick           values or names of x at the quick scale
    metric            a column, a list of columns, or NAME: a column or keys (below); a column of panels each
    x_label, …        keys of a metric that hold for every metric without an x of its own
    base              overrides of every run
    curves            {KEY: [values]} (all combinations), or NAME: overrides or keys (below)
    panels            {KEY: [values]}, or NAME: overrides or {title, overrides, seeds, quick}; rows of panels
    show              PANEL: names of curves; null: every curve in every panel
    baselines         a list of {label, and one of run, csv, value; x, low, high, as, panel, metric, source}
    stated            a list of {panel, curve, metric, x, value}: numbers that the paper states
    orderings         a list of {panel, curves, metric, x}: curves from best to worst, as the paper states
    seeds             how many, or a list, for all panels; null: those of the panels
    quick             overrides of every run at the quick scale
    quick_shape       what the quick scale shows
    work, title, notes, deviations, name    texts
    whose             whose settings the runs have, such as "ours: smaller models"; null: the paper's
    compute           a function that computes the figure without runs
    scale, reuse, draw_only                 as the flags of ``fedpriv figure``

    a metric          column x x_label x_scale x_limits y_label y_scale y_limits band best vacuous_above
                      kind: lines, map (over x with values) or clients (a line for each client)
    a curve           label colour overrides quick minutes seeds; at: all, a list of values of x, or once
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, product
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean, show
from fedpriv.store.colours import COLOURS
from fedpriv.store.columns import (
    AUDIT_COLUMNS,
    CLIENT_COLUMNS,
    COLUMNS,
    STATED_COLUMNS,
    Quantity,
)
from fedpriv.store.saved import YamlLoader, saved_rows, saved_text, yaml_mistake
from fedpriv.study.figures.definition import (
    POINT,
    SCALES,
    SOUND,
    Axes,
    Curve,
    CurveGroup,
    Figure,
    Mark,
    Points,
    Stated,
    key_of,
)

Check = Callable[[str, Any], Any]
Compose = Callable[[Sequence[str]], DictConfig]
Given = dict[str, Any]
_SHORT = {"accuracy": "test_accuracy", "loss": "test_loss"}
_SET_ELSEWHERE = ("seed", "dry_run", "resume", "publish")
_NAME = re.compile(r"(?!\.)[\w.+=-]+(/(?!\.)[\w.+=-]+)*")
_FLAGS = ("scale", "seeds", "reuse", "draw_only")
_OF_X = ("x_label", "x_scale", "x_limits")
_SHARED = (*_OF_X, "y_label", "y_scale", "y_limits", "kind", "band", "best")
"""Keys of a metric that may stand at the top, for every metric."""
_OF_METRIC = ("column", "x", *_SHARED, "vacuous_above")
KEYS = (
    "work", "title", "x", "x_quick", *_SHARED, "metric", "base", "curves", "panels", "show",
    "baselines", "stated", "orderings", "deviations", "quick", "quick_shape", "notes", "name", "whose",
    "compute", *_FLAGS,
)  # fmt: skip
_OF_CURVE = ("label", "colour", "overrides", "quick", "minutes", "seeds", "at")
_OF_PANEL = ("title", "overrides", "seeds", "quick")
_BASELINES = {  # kind → its keys beside label, as and panel
    "run": (),
    "csv": ("metric", "source"),
    "value": ("x", "low", "high", "metric", "source"),
}
_OF_PRIVACY = ("epsilon", "noise_schedule", "clipper")
"""Keys, and beginnings of keys, that runs without privacy do not take in a file of the user's own."""


# ---- the figure


def plain_section(node: object) -> Given:
    """Return a config's ``figure`` section as plain values.

    Raises:
        ConfigError: There is no such section, or it has an interpolation without a target.
    """
    try:
        values = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    except OmegaConfBaseException as error:
        raise ConfigError(f"figure: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError("figure", values, "a group of keys")
    return values


def is_computed(config: DictConfig) -> bool:
    """Return whether the configuration's figure is computed by a function, without runs.

    Raises:
        ConfigError: The configuration has no figure.
    """
    return plain_section(config.get("figure")).get("compute") is not None


def compose_safely(overrides: Sequence[str], extra: Path | None = None) -> DictConfig:
    """Compose a configuration by Hydra.

    Raises:
        ConfigError: A YAML or an override has a mistake.
    """
    from fedpriv.common.config import compose, explain  # imported late: this imports Hydra

    try:
        return compose(overrides, extra)
    except (ValueError, TypeError, AttributeError, AssertionError) as error:
        raise explain(error, overrides) from None


def read_figure(node: DictConfig | Given, name: str) -> Figure:
    """Return the figure that a configuration defines.

    Args:
        node: The configuration's ``figure`` section.
        name: Name of the figure, ``<work>/<figure>``.

    Raises:
        ConfigError: A value is not allowed. The error names the key.
    """
    try:
        return _FigureReader(plain_section(node), name).figure()
    except ArgumentError as error:
        raise error.within("figure") from None


def read_own(settings: Mapping[str, Any], compose: Compose) -> Figure:
    """Return the figure that the file ``figure.file`` describes.

    Curves without privacy are run without the keys of budget, noise and clipping that the others have.

    Args:
        settings: The section ``figure`` of the configuration: ``file``, and the flags of the command.
        compose: Returns the configuration for a list of overrides.

    Raises:
        ConfigError: The file cannot be read, or a key of the file or of the section is wrong.
    """
    given = {key: value for key, value in settings.items() if value is not None}
    path = Path(str(given.pop("file")))
    values = load_file(path)
    if odd := [key for key in given if key not in _FLAGS]:
        raise ConfigError(f"figure.{odd[0]}", given[odd[0]], f"given in {path}")
    try:
        if given.get("scale") == "quick" and values.get("seeds") is not None:
            values["seeds"] = [seeds_key("seeds", values["seeds"])[0]]
        own = read_keys("", values, KEYS).get("reuse", ())
        given["reuse"] = [*(str(path.parent / folder) for folder in own), *given.get("reuse", [])]
        return _FigureReader({**values, **given}, path.stem, path, compose).figure()
    except ArgumentError as error:
        key = f"{path}: {error.argument}"
        raise ConfigError(key, error.value, error.allowed, error.hint) from None


def load_file(path: Path) -> Given:
    """Return the content of a figure's file. Raise ConfigError for a file that cannot be read."""
    if not path.is_file():
        hint = did_you_mean(path.name, [file.name for file in path.parent.glob("*.y*ml")], "; ")
        hint = hint or "; fedpriv figure takes a YAML or a name of --list"
        raise ConfigError(f"there is no file {path}{hint}")
    try:
        values = yaml.load(saved_text(path), YamlLoader)
    except yaml.YAMLError as error:
        raise yaml_mistake(path, error) from None
    if not isinstance(values, dict):
        example = "x: {epsilon: [1, 2]} and metric: accuracy"
        raise ConfigError(str(path), values, f"keys with values, such as {example}")
    return values


class _FigureReader:
    """Reader of one figure.

    Args:
        values: The keys of the figure.
        name: Name of the figure's folder, unless the key ``name`` says otherwise.
        file: The user's own file that has the keys; None for a figure that Hydra composes.
        compose: Returns the configuration for a list of overrides; needed for a file.
    """

    def __init__(
        self,
        values: Mapping[str, Any],
        name: str,
        file: Path | None = None,
        compose: Compose | None = None,
    ):
        self.given = {"name": name, **read_keys("", values, KEYS)}
        self.file, self.compose, self.quick = file, compose, self.given.get("scale") == "quick"
        self.base: tuple[str, ...] = self.given.get("base", ())
        own = {"title": title_or(""), "quick": title_or(False)}
        self.panels = {
            name: read_keys(f"panels.{name}", entry, _OF_PANEL, **own)
            for name, entry in self.given.get("panels", {"all": {"title": ""}}).items()
        }
        count = partial(checks.whole, at_least=1)
        self.curves = {
            name: read_keys(f"curves.{name}", entry, _OF_CURVE, seeds=count)
            for name, entry in self.given.get("curves", {"runs": {}}).items()
        }
        self.points = self._points()
        self.axes = self._metrics()
        key = self.points and self.points.key
        x = key_label(key) if key else (self.points or COLUMNS[self.axes[0].x]).label
        made = f"{', '.join(COLUMNS[axes.y].label for axes in self.axes)} over {x}"
        self.title: str = self.given.get("title", made)
        if "curves" not in self.given:
            self.curves["runs"]["label"] = self.title or "runs"
        self.baselines = each(self._baseline)("baselines", self.given.get("baselines", []))
        self.is_private: dict[tuple[str, ...], bool] = {}  # by the override of the algorithm

    def figure(self) -> Figure:
        """Return the figure."""
        show = self.given.get("show", {panel: [*self.curves] for panel in self.panels})
        read_keys("show", show, self.panels)
        groups = [self._group(name, curves) for name, curves in show.items()]
        self.by_name = {g.name: {c.name: c for c in g.curves} for g in groups}
        marks = [mark for baseline in self.baselines for mark in self._marks(baseline)]
        stated, orderings = (
            each(partial(self._stated, curves=curves))(key, self.given.get(key, []))
            for key, curves in (("stated", "curve"), ("orderings", "curves"))
        )
        deviations = self.given.get("deviations", {})
        if not isinstance(deviations, dict):
            raise ArgumentError("deviations", deviations, "a group of keys")
        if self.quick:  # leaves panels out, unless no other panel would be left
            quick = {name: self.panels[name].get("quick") for name in self.by_name}
            groups = [g for g in groups if quick[g.name] is not False] or groups
            left = {g.name for g in groups}
            stated = [s for s in stated if s.group in left]
            orderings = [o for o in orderings if o.group in left]
            marks = [m for m in marks if m.group in left and not quick[m.group]]  # of other data
            groups = [replace(g, title=quick[g.name] or g.title) for g in groups]
        plain = ("name", "work", "scale", "whose", "quick", "notes", *_FLAGS[2:], "quick_shape")
        return Figure(
            title=self.title,
            groups=tuple(groups),
            axes=self.axes,
            stated=tuple(stated),
            orderings=tuple(orderings),
            deviations={k: str(v) for k, v in deviations.items() if v},
            points=self.points,
            marks=tuple(marks),
            file=self.file,
            **{key: self.given[key] for key in plain if key in self.given},
        )

    def _points(self) -> Points | None:
        """Return the values or choices of x at the scale in force; None for an x that is a column."""
        x, key = self.given.get("x"), ""
        if not isinstance(x, dict):
            return None
        choices = {}
        read: Callable[[str, Any], tuple[float, ...]] = numbers_key
        if any(isinstance(entry, dict) for entry in x.values()):
            for name, entry in x.items():
                found = read_keys(f"x.{name}", entry, ("label", "overrides"))
                choices[name] = (found.get("label", str(name)), found.get("overrides", ()))
            places = {name: float(place) for place, name in enumerate(x)}

            def read(key: str, names: Any) -> tuple[float, ...]:
                return tuple(sorted(places[name] for name in names_key(key, names, places)))

            self.x_values = read("x", [*x])
        else:
            if len(x) != 1:
                example = "a key with its values, such as {epsilon: [1, 2, 4]}, or a column"
                raise ArgumentError("x", x, example)
            ((key, values),) = x.items()
            overrides_key("x", [f"{key}="])
            self.x_values = numbers_key(f"x.{key}", values)
        quick = read("x_quick", self.given["x_quick"]) if "x_quick" in self.given else self.x_values
        values = quick if self.quick else self.x_values
        label = self.given.get("x_label", key_label(key) if key else "choice")
        return Points(key, values, label, tuple(choices.values()))

    def _metrics(self) -> tuple[Axes, ...]:
        given = self.given.get("metric")
        if given is None:
            raise ArgumentError("metric", None, "given, such as metric: accuracy")
        if isinstance(given, dict):
            entries = [(f"metric.{name}", str(name), entry) for name, entry in given.items()]
        else:
            entries = [
                ("metric" if isinstance(entry, str) else f"metric.{number}", "", entry)
                for number, entry in enumerate(given if isinstance(given, list) else [given])
            ]
        axes = tuple(self._metric(*entry) for entry in entries)
        if not axes or len({one.name for one in axes}) < len(axes):
            raise ArgumentError("metric", given, "a metric, or a list of different ones")
        return axes

    def _metric(self, path: str, name: str, entry: Any) -> Axes:
        """Return the axes of a metric. Its columns depend on the kind, and on whether x has values."""
        own = read_keys(path, entry if isinstance(entry, dict) else {}, _OF_METRIC)
        points = self.points
        # Of the figure's x, which has another unit than an x of the metric's own; the label of points.
        left = _OF_X if "x" in own else ("x_label",) if points is not None else ()
        keys = {k: v for k, v in self.given.items() if k in _SHARED and k not in left} | own

        def at(key: str) -> str:
            return f"{path}.{key}" if key in own else key

        kinds: tuple[str, ...] = ("lines", "clients" if points is None else "map")
        kinds = ("map",) if points is not None and points.choices else kinds
        kind = checks.one_of(at("kind"), keys.get("kind", kinds[0]), kinds)
        columns = CLIENT_COLUMNS if kind == "clients" else COLUMNS
        if points is None:  # metrics.csv has no audits
            columns = {n: c for n, c in columns.items() if n not in AUDIT_COLUMNS}
        known = [*columns] if points is None else [POINT, SOUND]
        x = own.get("x", self.given.get("x") if points is None else POINT)
        if x not in known:
            allowed = f"a key with its values ({{epsilon: [1, 2]}}), or one of {', '.join(known)}"
            raise ArgumentError(at("x"), x, allowed, did_you_mean(x, known))
        column = keys.pop("column", name) if isinstance(entry, dict) else entry
        y = column_key(path, column, columns)
        if x == SOUND:
            keys.setdefault("vacuous_above", 1000.0)
        elif "vacuous_above" in own:
            allowed = f"absent unless x is {SOUND}"
            raise ArgumentError(at("vacuous_above"), own["vacuous_above"], allowed)
        log = keys.get("x_scale") == "log"
        if x == POINT and points is not None and log and points.values[0] <= 0:
            raise ArgumentError(f"x.{points.key}", points.values[0], "> 0 on a logarithmic axis")
        return Axes(**{**keys, "name": name or y, "x": x, "y": y, "kind": kind})

    def _group(self, name: str, names: Any) -> CurveGroup:
        """Return a panel with the curves that it shows."""
        panel, palette, curves = self.panels[name], cycle(COLOURS), []
        shared = (*self.base, *panel.get("overrides", ()))
        for key in names_key(f"show.{name}", names, self.curves):
            keys = {"label": key, "colour": next(palette), "overrides": (), **self.curves[key]}
            at = keys.pop("at", None)
            curves.append(self._placed(f"curves.{key}.at", Curve(key, **keys), at, shared))
        for number, one in enumerate(self.baselines):
            label, where = one["label"], f"baselines.{number}"
            if any(label in (curve.name, curve.label) for curve in curves):
                raise ArgumentError(f"{where}.label", label, "a label that no curve has")
            if "run" in one and one.get("panel") in (None, name):
                at = {"line": False, "points": True}.get(one.get("as"))
                curve = Curve(label, label, next(palette), one["run"])
                curves.append(self._placed(f"{where}.as", curve, at, shared))
        seeds = self.given.get("seeds", (0,) if self.quick else panel.get("seeds", (0,)))
        shared = shared if self.file is None else ()
        return CurveGroup(name, panel.get("title", name), shared, seeds, tuple(curves))

    def _placed(
        self, key: str, curve: Curve, at: bool | tuple[float, ...] | None, shared: tuple[str, ...]
    ) -> Curve:
        """Return a curve with the points at which it is run.

        A curve of the user's own file has the overrides ``shared`` with the panel among its own: without
        privacy it is run without the keys of budget, noise and clipping that the other curves have.
        """
        if self.points is not None and isinstance(at, tuple) and not {*at} <= {*self.x_values}:
            allowed = f"all, once, or some of {', '.join(map(str, self.x_values))}"
            raise ArgumentError(key, list(at), allowed)
        if self.file is None or self.compose is None:
            return replace(curve, points=True if at is None else at)
        x, given = self.points.key if self.points else "", {*map(key_of, curve.overrides)}
        last = {key_of(o): o for o in shared}  # later overrides win
        if x and (x in given or x in last):
            where = "base" if x in map(key_of, self.base) else key
            raise ArgumentError(where, x, "without the key of x")
        kept = [o for k, o in last.items() if k not in given]
        algorithm = tuple(o for o in (*kept, *curve.overrides) if key_of(o) == "algorithm")
        if algorithm not in self.is_private:
            from fedpriv.experiment.sweeps import is_private  # imported late: this imports Hydra

            self.is_private[algorithm] = is_private(self.compose(algorithm))
        without: tuple[str, ...] = ()
        if not self.is_private[algorithm]:
            kept = [o for o in kept if key_of(o).partition(".")[0] not in _OF_PRIVACY]
            without = () if "epsilon" in given else ("epsilon=null",)
            if x.partition(".")[0] in _OF_PRIVACY:
                if at:
                    allowed = f"line, or once: runs without privacy take no {x}"
                    raise ArgumentError(key, "points", allowed)
                at = False
        points = True if at is None else at
        return replace(curve, overrides=(*kept, *curve.overrides, *without), points=points)

    def _baseline(self, key: str, entry: Any) -> Given:
        """Return a baseline with its keys, checked; ``numbers`` are those from elsewhere."""
        kinds = [
            kind for kind in _BASELINES if isinstance(entry, dict) and entry.get(kind) is not None
        ]
        if len(kinds) > 1 or (isinstance(entry, dict) and not kinds):
            raise ArgumentError(key, ", ".join(kinds), "with one of run, csv and value")
        more = _BASELINES[kinds[0]] if kinds else ()
        found = read_keys(key, entry, ("label", *kinds, "as", "panel", *more))
        checks.text(f"{key}.label", found.get("label"))
        if "panel" in found:
            checks.one_of(f"{key}.panel", found["panel"], self.panels)
        if kinds == ["run"]:
            return found
        lines = [axes for axes in self.axes if axes.kind == "lines"]
        columns = {axes.y: COLUMNS[axes.y] for axes in lines}
        given, value = found.get("metric", next(iter(columns), "")), found.get("value")
        column = column_key(f"{key}.metric", given, columns)
        if "csv" in found:
            folder = Path() if self.file is None else self.file.parent
            numbers = read_numbers(f"{key}.csv", folder / found["csv"])
        elif isinstance(value, dict) and value:
            numbers = [{"x": x, "y": y} for x, y in value.items()]
        else:
            numbers = [{"y": value} | {k: found[k] for k in ("x", "low", "high") if k in found}]
        for number in numbers:
            for name, one in number.items():
                scales = [a.x_scale if name == "x" else a.y_scale for a in lines if a.y == column]
                where = f"{key}.{kinds[0] if name == 'y' else name}"
                checks.number(where, one, above=0 if "log" in scales else None)
            if found.get("as") == "points" and "x" not in number:
                raise ArgumentError(f"{key}.x", None, "given, for a point")
        largest = max(abs(number["y"]) for number in numbers)
        if COLUMNS[column].scale == 100 and (0 < largest <= 1 or largest > 100):
            allowed = "from 0 to 100, in percent as the axis shows it"
            raise ArgumentError(f"{key}.{kinds[0]}", largest, allowed, "write 94.1, not 0.941")
        return {**found, "metric": column, "numbers": numbers}

    def _marks(self, baseline: Given) -> Iterable[Mark]:
        """Yield the numbers of a baseline in each panel that shows them."""
        for panel in self.by_name:
            for number in baseline.get("numbers", ()):
                if baseline.get("panel") in (None, panel):
                    shape = baseline.get("as", "points" if "x" in number else "line")
                    yield Mark(
                        group=panel,
                        column=baseline["metric"],
                        point=number.get("x"),
                        value=number["y"],
                        label=baseline["label"],
                        low=number.get("low"),
                        high=number.get("high"),
                        joined=shape == "line",
                        source=baseline.get("source") or baseline.get("csv", ""),
                    )

    def _stated(self, key: str, entry: Any, curves: str) -> Stated:
        """Return a stated number, whose key for the curve is ``curve``, or an order (``curves``)."""
        one = curves == "curve"
        allowed = ("panel", "metric", "x", curves, *["value"] * one)
        found = read_keys(key, entry, allowed, curves=lambda _, names: names)
        alone = next(iter(self.by_name)) if len(self.by_name) == 1 else None
        panel = checks.one_of(f"{key}.panel", found.get("panel", alone), self.by_name)
        named = [found.get(curves)] if one else found.get(curves)
        names = names_key(f"{key}.{curves}", named, self.by_name[panel])
        x, where = found.get("x"), f"{key}.x"
        if self.points is None or not any(self.by_name[panel][name].points for name in names):
            if x is not None:
                raise ArgumentError(where, x, "absent: the curve is run at no value of x")
        elif self.points.choices:
            labels = [label for label, _ in self.points.choices]
            x = float(labels.index(checks.one_of(where, x, labels)))
        else:
            x = checks.number(where, x)  # not necessarily one in force
        column = column_key(f"{key}.metric", found.get("metric"), STATED_COLUMNS)
        value = checks.number(f"{key}.value", found.get("value")) if one else None
        return Stated(panel, column, names, x, value)


# ---- single keys


def one_of(options: Iterable[str]) -> Check:
    """Return the check of a choice among names."""
    return lambda key, value: checks.one_of(key, value, options)


def each(read: Check) -> Check:
    """Return the reader of a list, given that of an entry."""
    example = "a list such as [{label: guessing, value: 10}]"
    return lambda key, value: [
        read(f"{key}.{number}", entry)
        for number, entry in enumerate(checks.sequence(key, value, example))
    ]


def _different(key: str, values: Sequence[Any], what: str) -> None:
    if not values or len(set(map(str, values))) < len(values):
        raise ArgumentError(key, values or "[]", f"at least one {what}, all of them different")


def overrides_key(key: str, value: Any) -> tuple[str, ...]:
    """Return overrides from a text as after ``fedpriv train``, or from a list of such texts."""
    allowed = "overrides such as algorithm=dp_fl rounds=50"
    if isinstance(value, str):
        try:
            words = shlex.split(value)
        except ValueError:  # an open quote
            raise ArgumentError(key, value, allowed) from None
    else:
        words = [checks.text(key, word) for word in checks.sequence(key, value, allowed)]
    for word in words:
        name, equals, _ = word.partition("=")
        bare = name.lstrip("+~")
        if not equals or not name or word.startswith("-"):
            raise ArgumentError(key, word, allowed)
        if bare in _SET_ELSEWHERE or re.split(r"[./]", bare)[0] in ("hydra", "figure"):
            hint = f"the figure has seeds: [0, 1, 2]; fedpriv figure FILE {word} takes others"
            raise ArgumentError(key, word, f"without {bare}", hint)
    return tuple(words)


def choices_key(key: str, value: Any) -> dict[str, dict[str, Any]]:
    """Return curves or panels: name → keys, among which are the overrides.

    Keys with lists of values make a choice for every combination of the values.
    """
    if not isinstance(value, dict) or not value:
        example = "{algorithm: [adap_dpfl, dp_fl]}"
        allowed = f"keys with their values, such as {example}, or names with overrides or keys each"
        raise ArgumentError(key, value, allowed)
    if not any(isinstance(entry, list) for entry in value.values()):
        return {
            str(name): entry if isinstance(entry, dict) else {"overrides": entry}
            for name, entry in value.items()
        }
    lists = []
    for name, values in value.items():
        labels = {}
        for one in checks.sequence(f"{key}.{name}", values, "a list, as its neighbours are"):
            word = show(one) if one is None or isinstance(one, bool) else str(one)
            named = isinstance(one, str) and "." not in name
            labels[f"{name}={word}"] = word if named else f"{_in_words(name)} = {word}"
        _different(f"{key}.{name}", values, "value")
        lists.append(labels.items())
    return {
        ", ".join(label for _, label in chosen): {"overrides": [override for override, _ in chosen]}
        for chosen in product(*lists)
    }


def key_label(key: str) -> str:
    """Return the label of an axis over the values of a key, as that of the column of the same name."""
    column = COLUMNS.get(key.rpartition(".")[2])
    return "ε asked for" if key == "epsilon" else column.label if column else _in_words(key)


def _in_words(key: str) -> str:
    return key.rpartition(".")[2].replace("_", " ")


def numbers_key(key: str, value: Any) -> tuple[float, ...]:
    """Return different numbers, in increasing order."""
    numbers = checks.sequence(key, value, "a list of numbers")
    for number in numbers:
        if not checks.is_number(number):
            hint = "options and texts belong under curves or panels"
            raise ArgumentError(key, number, "numbers", hint)
        checks.number(key, number)
    _different(key, numbers, "number")
    return tuple(sorted(numbers))


def seeds_key(key: str, value: Any) -> tuple[int, ...]:
    """Return the seeds of a list, or so many seeds from 0."""
    if checks.is_number(value):
        return tuple(range(checks.whole(key, value, at_least=1, at_most=10_000)))
    given = checks.sequence(key, value, "how many seeds (5), or a list of seeds ([0, 1, 2])")
    seeds = tuple(checks.seed(key, seed) for seed in given)
    _different(key, seeds, "seed")
    return seeds


def column_key(key: str, value: Any, columns: Mapping[str, Quantity]) -> str:
    """Return a column, which may be given by its short name."""
    known = (*(short for short, name in _SHORT.items() if name in columns), *columns)
    if not isinstance(value, str) or value not in known:
        hint = did_you_mean(show(value), known)
        raise ArgumentError(key, value, f"one of {', '.join(known)}", hint)
    return _SHORT.get(value, value)


def limits_key(key: str, value: Any) -> tuple[float, float]:
    """Return two limits of an axis."""
    pair = [checks.number(key, v) for v in checks.sequence(key, value, "[from, to]")]
    if len(pair) != 2 or pair[0] >= pair[1]:
        raise ArgumentError(key, value, "[from, to] with from < to")
    return pair[0], pair[1]


def names_key(key: str, value: Any, known: Iterable[str]) -> tuple[str, ...]:
    """Return a list of different known names."""
    known, chosen = list(known), checks.sequence(key, value, "a list of names")
    for name in chosen:
        if not isinstance(name, str) or name not in known:
            hint = did_you_mean(show(name), known)
            raise ArgumentError(key, name, f"out of {', '.join(map(show, known))}", hint)
    _different(key, chosen, "name")
    return tuple(chosen)


def name_key(key: str, value: Any) -> str:
    """Return the name of a figure's folder."""
    if not _NAME.fullmatch(checks.text(key, value)):
        raise ArgumentError(key, value, "letters, digits and . _ - + =, with / for subfolders")
    return str(value)


def read_numbers(key: str, path: Path) -> list[dict[str, float]]:
    """Return the numbers of a CSV with the columns x and y, and optionally low and high, or seed.

    With ``seed``, the rows of one x are averaged, and low and high are the interval over the seeds.

    Args:
        key: Key of the file, for the error.
        path: The CSV.

    Raises:
        ArgumentError: There is no such file, a column is missing or unknown, or a cell is no number.
    """
    import numpy as np  # imported late, as pandas takes a while
    import pandas as pd

    from fedpriv.store.pairs import spread

    if not path.is_file():
        raise ArgumentError(
            key, str(path), "an existing CSV file", "paths are relative to the YAML"
        )
    key = f"{key} ({path.name})"
    names, *cells = saved_rows(path) or [[]]
    names = [name.strip() for name in names]
    forms = ["x", "y"], ["high", "low", "x", "y"], ["seed", "x", "y"]
    if sorted(names) not in forms or not cells:
        got = f"{', '.join(names) or 'nothing'}{'' if cells else ' and no row'}"
        allowed = "a CSV with the columns x and y, and low and high, or seed, if there are any"
        raise ArgumentError(key, got, allowed)
    texts = pd.DataFrame(cells).reindex(columns=range(len(names)), fill_value="").fillna("")
    texts = texts.set_axis(names, axis=1)
    table = texts.apply(pd.to_numeric, errors="coerce").astype(float)
    for line, column in np.argwhere(~np.isfinite(table.to_numpy())):
        cell = texts.iat[line, column] or "nothing"
        where = f"{cell} in line {line + 2}, column {names[column]}"
        raise ArgumentError(key, where, "a number in every cell")
    if "seed" in names:
        averaged = [
            spread(np.array([x]), rows[["y"]].to_numpy(), Axes.band)
            for x, rows in table.groupby("x")
        ]
        table = pd.concat(averaged).rename(columns={"mean": "y"})[["x", "y", "low", "high"]]
    return table.sort_values("x").to_dict("records")


def _at(key: str, value: Any) -> bool | tuple[float, ...]:
    if isinstance(value, str):
        return checks.one_of(key, value, ("all", "once")) == "all"
    return numbers_key(key, value)


def _folders(key: str, value: Any) -> tuple[str, ...]:
    words = [value] if isinstance(value, str) else checks.sequence(key, value, "folders")
    return tuple(checks.text(key, word) for word in words)


def _minutes(key: str, value: Any) -> dict[str, float]:
    if not isinstance(value, dict):
        raise ArgumentError(key, value, "a number for each panel")
    return {n: checks.number(f"{key}.{n}", m, above=0) for n, m in value.items()}


def title_or(other: object) -> Check:
    """Return the check of a title, in whose place another value may stand."""
    return lambda key, value: value if value == other else checks.text(key, value)


_CHECKS: dict[str, Check] = {
    **dict.fromkeys(("label", "work", "csv", "x_label", "y_label", "whose"), checks.text),
    **dict.fromkeys(("title", "notes", "quick_shape", "source"), lambda _, value: str(value)),
    **dict.fromkeys(("base", "overrides", "quick", "run"), overrides_key),
    **dict.fromkeys(("x_scale", "y_scale"), one_of(("linear", "log"))),
    **dict.fromkeys(("x_limits", "y_limits"), limits_key),
    **dict.fromkeys(("curves", "panels"), choices_key),
    "vacuous_above": partial(checks.number, above=0),
    "band": one_of(("t", "range", "sd")),
    "best": one_of(("low", "high")),
    "as": one_of(("line", "points")),
    "colour": one_of(COLOURS),
    "scale": one_of(SCALES),
    "draw_only": checks.boolean,
    "seeds": seeds_key,
    "reuse": _folders,
    "name": name_key,
    "minutes": _minutes,
    "at": _at,
}
"""Key → check of its value. The other keys are checked where more is known."""


def read_keys(path: str, values: Any, allowed: Iterable[str], **own: Check) -> dict[str, Any]:
    """Return the values of a group of keys as their checks return them, without those that are null.

    Args:
        path: The path of the group; empty for the figure itself.
        values: The group.
        allowed: The keys that are allowed.
        own: Key → check, where the key has another meaning in this group.

    Raises:
        ArgumentError: The values are no group of keys, a key is not allowed, or a value is wrong.
    """
    if not isinstance(values, dict):
        raise ArgumentError(path, values, "a group of keys")
    found, known = {}, [*allowed]
    for name, value in values.items():
        key = f"{path}.{name}" if path else str(name)
        if name not in known:
            hint = did_you_mean(name, known)
            raise ArgumentError(key[:80], name, f"one of {', '.join(known)}", hint)
        if value is not None:
            check = (_CHECKS | own).get(name)
            found[name] = value if check is None else check(key, value)
    return found
