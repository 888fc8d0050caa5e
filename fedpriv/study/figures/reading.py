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
    compute           a function that computes the figure without runs
    scale, reuse, draw_only                 as the flags of ``fedpriv figure``

    a metric          column x x_label x_scale x_limits y_label y_scale y_limits band best vacuous_above
                      kind: lines, map (over x with values) or clients (a line for each client)
    a curve           label colour overrides quick minutes seeds; at: all, a list of values of x, or once
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle
from pathlib import Path
from typing import Any

import yaml
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean
from fedpriv.store.colours import COLOURS
from fedpriv.store.columns import AUDIT_COLUMNS, CLIENT_COLUMNS, COLUMNS, STATED_COLUMNS
from fedpriv.store.saved import YamlLoader, saved_text, yaml_mistake
from fedpriv.study.figures.definition import (
    POINT,
    SCALES,
    SOUND,
    Axes,
    Curve,
    CurveGroup,
    Figure,
    Mark,
    Ordering,
    Points,
    StatedValue,
)
from fedpriv.study.figures.figure_keys import (
    Keys,
    StatedPoint,
    choices_key,
    column_key,
    each,
    folders_key,
    key_label,
    keys_of,
    limits_key,
    name_key,
    names_key,
    numbers_key,
    one_of,
    overrides_key,
    read_numbers,
    seeds_key,
)

Compose = Callable[[Sequence[str]], DictConfig]
_FLAGS = ("scale", "seeds", "reuse", "draw_only")
_OF_X = ("x_label", "x_scale", "x_limits")
_OF_METRIC = (
    "column", "x", *_OF_X, "y_label", "y_scale", "y_limits", "kind", "band", "best", "vacuous_above",
)  # fmt: skip
_SHARED = _OF_METRIC[2:-1]  # keys of a metric that may stand at the top, for every metric
KEYS = (
    "work", "title", "x", "x_quick", *_SHARED, "metric", "base", "curves", "panels", "show",
    "baselines", "stated", "orderings", "deviations", "quick", "quick_shape", "notes", "name", "compute",
    *_FLAGS,
)  # fmt: skip
_OF_CURVE = ("label", "colour", "overrides", "quick", "minutes", "seeds", "at")
_OF_PANEL = ("title", "overrides", "seeds", "quick")
_OF_BASELINE = (
    "label", "run", "csv", "value", "x", "low", "high", "as", "panel", "metric", "source",
)  # fmt: skip
_OF_PRIVACY = ("epsilon", "noise_schedule", "clipper")
"""Keys, and beginnings of keys, that runs without privacy do not take in a file of the user's own."""


def plain_section(node: object) -> dict[str, Any]:
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


def read_figure(node: DictConfig | dict[str, Any], name: str) -> Figure:
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
        folders = folders_key("reuse", values.get("reuse") or [])
        given["reuse"] = [*(str(path.parent / f) for f in folders), *given.get("reuse", [])]
        return _FigureReader({**values, **given}, path.stem, path, compose).figure()
    except ArgumentError as error:
        key = f"{path}: {error.argument}"
        raise ConfigError(key, error.value, error.allowed, error.hint) from None


def load_file(path: Path) -> dict[str, Any]:
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
        self.keys = Keys("", values, KEYS, empty=True)
        self.take, self.name, self.file, self.compose = self.keys.take, name, file, compose
        self.scale = self.take("scale", one_of(SCALES), "paper")
        self.panels = self.take("panels", choices_key, {"all": {"title": ""}})
        self.curves = self.take("curves", choices_key, {"runs": {}})
        self.base = self.take("base", overrides_key, ())
        self.points = self._points()
        self.axes = self._metrics()
        self.baselines = self.take("baselines", each(self._baseline), [])
        self.is_private: dict[tuple[str, ...], bool] = {}  # by the override of the algorithm

    def figure(self) -> Figure:
        """Return the figure."""
        show = self.keys.values.get("show", {panel: [*self.curves] for panel in self.panels})
        Keys("show", show, self.panels)
        groups = [self._group(name, curves) for name, curves in show.items()]
        self.by_name = {g.name: {c.name: c for c in g.curves} for g in groups}
        self._refuse_points(groups)
        marks = [mark for baseline in self.baselines for mark in self._marks(baseline)]
        stated = self.take("stated", each(self._stated), [])
        orderings = self.take("orderings", each(self._ordering), [])
        deviations = Keys("deviations", self.keys.values.get("deviations", {}), empty=True).values
        key = self.points and self.points.key
        x = key_label(key) if key else (self.points or COLUMNS[self.axes[0].x]).label
        title = f"{', '.join(COLUMNS[axes.y].label for axes in self.axes)} over {x}"
        if self.scale == "quick":  # leaves panels out, unless no other panel would be left
            quick = {name: self.panels[name].get("quick") for name in self.by_name}
            groups = [g for g in groups if quick[g.name] is not False] or groups
            left = {g.name for g in groups}
            stated = [s for s in stated if s.group in left]
            orderings = [o for o in orderings if o.group in left]
            marks = [m for m in marks if m.group in left and not quick[m.group]]  # of other data
            groups = [replace(g, title=quick[g.name] or g.title) for g in groups]
        return Figure(
            name=self.take("name", name_key, self.name),
            work=self.take("work", checks.text, ""),
            title=self.take("title", _any_text, title),
            groups=tuple(groups),
            axes=self.axes,
            stated=tuple(stated),
            orderings=tuple(orderings),
            deviations={k: str(v) for k, v in deviations.items() if v},
            scale=self.scale,
            quick=self.take("quick", overrides_key, ()),
            notes=self.take("notes", _any_text, ""),
            reuse=self.take("reuse", folders_key, ()),
            draw_only=self.take("draw_only", checks.boolean, False),
            points=self.points,
            marks=tuple(marks),
            quick_shape=self.take("quick_shape", _any_text, ""),
            file=self.file,
        )

    def _points(self) -> Points | None:
        """Return the values or choices of x at the scale in force; None for an x that is a column."""
        x, label = self.keys.values.get("x"), self.take("x_label", checks.text)
        if not isinstance(x, dict):
            return None
        choices: list[tuple[str, tuple[str, ...]]] = []
        key = ""
        if any(isinstance(entry, dict) for entry in x.values()):
            for name, entry in x.items():
                take = Keys(f"x.{name}", entry, ("label", "overrides")).take
                overrides = take("overrides", overrides_key, ())
                choices.append((take("label", checks.text, str(name)), overrides))
            self.x_values: tuple[float, ...] = tuple(map(float, range(len(choices))))
            chosen = self.take("x_quick", lambda key, names: names_key(key, names, x), [*x])
            quick = tuple(float(index) for index, name in enumerate(x) if name in chosen)
        else:
            if len(x) != 1:
                example = "a key with its values, such as {epsilon: [1, 2, 4]}, or a column"
                raise ArgumentError("x", x, example)
            ((key, values),) = x.items()
            if key == "seed" or str(key).startswith(("runtime.", "figure.", "hydra")):
                hint = "seeds: 5 sets the seeds"
                raise ArgumentError("x", key, "a key that makes another run", hint)
            self.x_values = numbers_key(f"x.{key}", values)
            quick = self.take("x_quick", numbers_key, self.x_values)
        label = label or (key_label(str(key)) if key else "choice")
        values = quick if self.scale == "quick" else self.x_values
        return Points(str(key), values, label, tuple(choices))

    def _metrics(self) -> tuple[Axes, ...]:
        given = self.keys.values.get("metric")
        if given is None:
            raise ArgumentError("metric", None, "given, such as metric: accuracy")
        if isinstance(given, dict):
            return tuple(self._metric(f"metric.{n}", str(n), entry) for n, entry in given.items())
        entries = given if isinstance(given, list) else [given]
        axes = [
            self._metric("metric" if isinstance(entry, str) else f"metric.{number}", None, entry)
            for number, entry in enumerate(entries)
        ]
        if not axes or len({one.name for one in axes}) < len(axes):
            raise ArgumentError("metric", given, "a metric, or a list of different ones")
        return tuple(axes)

    def _metric(self, key: str, name: str | None, entry: Any) -> Axes:
        """Return the axes of a metric. Its columns depend on the kind, and on whether x has values."""
        own = Keys(key, entry if isinstance(entry, dict) else {}, _OF_METRIC, empty=True)
        points = self.points
        # Of the figure's x, which has another unit than an x of the metric's own; the label of points.
        not_shared = _OF_X if "x" in own.values else ("x_label",) if points is not None else ()

        def take(name: str, check: Callable[[str, Any], Any], default: Any = None) -> Any:
            shared = name in _SHARED and name not in not_shared and name not in own.values
            return (self.keys if shared else own).take(name, check, default)

        kinds: tuple[str, ...] = ("lines", "clients" if points is None else "map")
        if points is not None and points.choices:
            kinds = ("map",)
        kind = take("kind", one_of(kinds), kinds[0])
        columns = CLIENT_COLUMNS if kind == "clients" else COLUMNS
        if points is None:  # metrics.csv has no audits
            columns = {n: c for n, c in columns.items() if n not in AUDIT_COLUMNS}
        x = own.values.get("x", self.keys.values.get("x") if points is None else POINT)
        known = [*columns] if points is None else [POINT, SOUND]
        if x not in known:
            allowed = f"a key with its values ({{epsilon: [1, 2]}}), or one of {', '.join(known)}"
            where = own.at("x") if "x" in own.values else "x"
            raise ArgumentError(where, x, allowed, did_you_mean(x, known))
        column = entry if not isinstance(entry, dict) else own.values.get("column", name)
        y = column_key(own.at("column") if "column" in own.values else key, column, columns)
        vacuous = own.take("vacuous_above", partial(checks.number, above=0))
        if vacuous is not None and x != SOUND:
            raise ArgumentError(own.at("vacuous_above"), vacuous, f"absent unless x is {SOUND}")
        x_scale = take("x_scale", one_of(("linear", "log")), "linear")
        if x == POINT and points is not None and x_scale == "log" and points.values[0] <= 0:
            raise ArgumentError(f"x.{points.key}", points.values[0], "> 0 on a logarithmic axis")
        return Axes(
            name=name or y,
            x=x,
            y=y,
            kind="map" if kind == "map" else "lines",
            lines="clients" if kind == "clients" else "curves",
            band=take("band", one_of(("t", "range", "sd")), "t"),
            best=take("best", one_of(("low", "high")), "low"),
            x_label=take("x_label", checks.text),
            y_label=take("y_label", checks.text),
            x_limits=take("x_limits", limits_key),
            y_limits=take("y_limits", self._y_limits, {}),
            x_scale=x_scale,
            y_scale=take("y_scale", one_of(("linear", "log")), "linear"),
            vacuous_above=vacuous or 1000.0 if x == SOUND else None,
        )

    def _y_limits(self, key: str, value: Any) -> dict[str, tuple[float, float]]:
        """Return panel → limits, from limits for all panels or for some."""
        limits = value if isinstance(value, dict) else dict.fromkeys(self.panels, value)
        Keys(key, limits, self.panels, empty=True)
        return {name: limits_key(key, pair) for name, pair in limits.items()}

    def _group(self, name: str, names: Any) -> CurveGroup:
        """Return a panel with the curves that it shows."""
        take = Keys(f"panels.{name}", self.panels[name], _OF_PANEL, empty=True).take
        take("quick", lambda key, quick: quick is False or checks.text(key, quick))
        title = take("title", lambda key, title: title and checks.text(key, title), name)
        shared = (*self.base, *take("overrides", overrides_key, ()))
        seeds = (0,) if self.scale == "quick" else take("seeds", seeds_key, (0,))
        palette = cycle(COLOURS)
        curves = [
            self._curve(curve, next(palette), shared)
            for curve in names_key(f"show.{name}", names, self.curves)
        ]
        for number, one in enumerate(self.baselines):
            label, where = one["label"], f"baselines.{number}"
            if any(label in (curve.name, curve.label) for curve in curves):
                raise ArgumentError(f"{where}.label", label, "a label that no curve has")
            if one["run"] is not None and one["panel"] in (None, name):
                at = {"line": False, "points": True}.get(one["as"])
                curve = Curve(label, label, next(palette), one["run"])
                curves.append(self._placed(f"{where}.as", curve, at, shared))
        shared = shared if self.file is None else ()
        return CurveGroup(name, title, shared, self.take("seeds", seeds_key, seeds), tuple(curves))

    def _curve(self, name: str, colour: str, shared: tuple[str, ...]) -> Curve:
        keys = Keys(f"curves.{name}", self.curves[name], _OF_CURVE, empty=True)
        curve = Curve(
            name=name,
            label=keys.take("label", checks.text, name),
            colour=keys.take("colour", one_of(COLOURS), colour),
            overrides=keys.take("overrides", overrides_key, ()),
            quick=keys.take("quick", overrides_key, ()),
            minutes=keys.take("minutes", _minutes, {}),
            seeds=keys.take("seeds", partial(checks.whole, at_least=1)),
        )
        return self._placed(keys.path, curve, keys.take("at", _at), shared)

    def _placed(
        self, key: str, curve: Curve, at: bool | tuple[float, ...] | None, shared: tuple[str, ...]
    ) -> Curve:
        """Return a curve with the points at which it is run.

        A curve of the user's own file has the overrides ``shared`` with the panel among its own: without
        privacy it is run without the keys of budget, noise and clipping that the other curves have.
        """
        if self.file is None or self.compose is None:
            return replace(curve, points=True if at is None else at)
        x, given = self.points.key if self.points else "", keys_of(curve.overrides)
        if x and x in given | keys_of(shared):
            where = "base" if x in keys_of(self.base) else key
            raise ArgumentError(where, x, "without the key of x")
        kept = [
            o
            for number, o in enumerate(shared)
            if not keys_of([o]) & (given | keys_of(shared[number + 1 :]))
        ]
        without: tuple[str, ...] = ()
        algorithm = tuple(o for o in (*kept, *curve.overrides) if keys_of([o]) == {"algorithm"})
        if algorithm not in self.is_private:
            from fedpriv.experiment.sweeps import is_private  # imported late: this imports Hydra

            self.is_private[algorithm] = is_private(self.compose(algorithm))
        if not self.is_private[algorithm]:
            kept = [
                o
                for o in kept
                if o.lstrip("+~").partition("=")[0].partition(".")[0] not in _OF_PRIVACY
            ]
            without = () if "epsilon" in given else ("epsilon=null",)
            if x.partition(".")[0] in _OF_PRIVACY:
                if at:
                    allowed = f"line, or once: runs without privacy take no {x}"
                    raise ArgumentError(key, "points", allowed)
                at = False
        points = True if at is None else at
        return replace(curve, overrides=(*kept, *curve.overrides, *without), points=points)

    def _refuse_points(self, groups: Sequence[CurveGroup]) -> None:
        """Refuse points of curves that x has not, and a panel without a point in force."""
        points = self.points
        if points is None:
            return
        for group in groups:
            for curve in group.curves:
                if not isinstance(curve.points, bool) and not set(curve.points) <= {*self.x_values}:
                    allowed = f"all, once, or some of {', '.join(map(str, self.x_values))}"
                    raise ArgumentError(f"curves.{curve.name}.at", list(curve.points), allowed)
            chosen = [curve.points for curve in group.curves]
            if not any(isinstance(c, bool) or set(c) & set(points.values) for c in chosen):
                allowed = f"such that a curve of panel {group.name} is run at one of them"
                raise ArgumentError("x_quick", list(points.values), allowed)

    def _baseline(self, key: str, entry: Any) -> dict[str, Any]:
        """Return a baseline with all of its keys, checked; ``numbers`` are those from elsewhere."""
        keys = Keys(key, entry, _OF_BASELINE)
        found = dict.fromkeys(_OF_BASELINE) | keys.values | {"numbers": []}
        checks.text(keys.at("label"), found["label"])
        keys.take("as", one_of(("line", "points")))
        keys.take("panel", one_of(self.panels))
        kinds = [kind for kind in ("run", "csv", "value") if kind in keys.values]
        if len(kinds) != 1:
            raise ArgumentError(key, ", ".join(kinds), "with one of run, csv and value")
        unread = {"run": ("x", "low", "high", "metric", "source"), "csv": ("x", "low", "high")}
        for other in unread.get(kinds[0], ()):
            if other in keys.values:
                raise ArgumentError(keys.at(other), found[other], f"absent beside {kinds[0]}")
        if kinds == ["run"]:
            return {**found, "run": keys.take("run", overrides_key)}
        column, numbers = self._numbers(keys, kinds[0])
        if found["as"] == "points" and any(number.x is None for number in numbers):
            raise ArgumentError(keys.at("x"), None, "given, for a point")
        return {**found, "metric": column, "numbers": numbers}

    def _numbers(self, keys: Keys, kind: str) -> tuple[str, list[StatedPoint]]:
        """Return the column that a baseline is about, and its numbers."""
        given = keys.values
        lines = [axes for axes in self.axes if axes.kind == "lines"]
        columns = {axes.y: COLUMNS[axes.y] for axes in lines}
        column = column_key(
            keys.at("metric"), given.get("metric", next(iter(columns), "")), columns
        )
        if kind == "csv":
            folder = Path() if self.file is None else self.file.parent
            numbers = read_numbers(keys.at("csv"), folder / keys.take("csv", checks.text))
        elif isinstance(given["value"], dict):
            pairs = Keys(keys.at("value"), given["value"]).values
            numbers = [StatedPoint(x, y) for x, y in pairs.items()]
        else:
            more = (given.get(name) for name in ("low", "high"))
            numbers = [StatedPoint(given.get("x"), given["value"], *more)]
        for field in ("x", "y", "low", "high"):
            scales = [
                axes.x_scale if field == "x" else axes.y_scale for axes in lines if axes.y == column
            ]
            where = keys.at("csv" if kind == "csv" else "value" if field == "y" else field)
            for value in (getattr(number, field) for number in numbers):
                if value is not None or field == "y":
                    checks.number(where, value, above=0 if "log" in scales else None)
        largest = max(abs(number.y) for number in numbers)
        if COLUMNS[column].scale == 100 and (0 < largest <= 1 or not 0 <= largest <= 100):
            allowed = "from 0 to 100, in percent as the axis shows it"
            raise ArgumentError(keys.at(kind), largest, allowed, "write 94.1, not 0.941")
        return column, numbers

    def _marks(self, baseline: Mapping[str, Any]) -> Iterable[Mark]:
        """Yield the numbers of a baseline in each panel that shows them."""
        for panel in self.by_name:
            for number in baseline["numbers"] if baseline["panel"] in (None, panel) else ():
                shape = baseline["as"] or ("line" if number.x is None else "points")
                yield Mark(
                    group=panel,
                    column=baseline["metric"],
                    point=number.x,
                    value=number.y,
                    label=baseline["label"],
                    low=number.low,
                    high=number.high,
                    joined=shape == "line",
                    source=str(baseline["source"] or baseline["csv"] or ""),
                )

    def _about(self, key: str, entry: Any, *own: str) -> tuple[Keys, str, str]:
        """Return a stated number or an ordering with the panel and the column that it is about."""
        keys = Keys(key, entry, ("panel", "metric", "x", *own))
        alone = next(iter(self.by_name)) if len(self.by_name) == 1 else None
        panel = checks.one_of(keys.at("panel"), keys.values.get("panel", alone), self.by_name)
        column = column_key(keys.at("metric"), keys.values.get("metric"), STATED_COLUMNS)
        return keys, panel, column

    def _stated(self, key: str, entry: Any) -> StatedValue:
        keys, panel, column = self._about(key, entry, "curve", "value")
        curves = self.by_name[panel]
        curve = checks.one_of(keys.at("curve"), keys.values.get("curve"), curves)
        value = checks.number(keys.at("value"), keys.values.get("value"))
        x = self._point(keys.at("x"), keys.values.get("x"), bool(curves[curve].points))
        return StatedValue(panel, curve, column, value, x)

    def _ordering(self, key: str, entry: Any) -> Ordering:
        keys, panel, column = self._about(key, entry, "curves")
        curves = names_key(keys.at("curves"), keys.values.get("curves"), self.by_name[panel])
        x = self._point(keys.at("x"), keys.values.get("x"), True)
        return Ordering(panel, column, curves, x)

    def _point(self, key: str, x: Any, at_points: bool) -> float | None:
        """Return the value of x that a number or an ordering is about. It need not be one in force."""
        if self.points is None or not at_points:
            if x is not None:
                raise ArgumentError(key, x, "absent: the curve is run at no value of x")
            return None
        if self.points.choices:
            labels = [label for label, _ in self.points.choices]
            return float(labels.index(checks.one_of(key, x, labels)))
        return checks.number(key, x)


def _any_text(key: str, value: object) -> str:
    return str(value)


def _minutes(key: str, value: Any) -> dict[str, float]:
    return {n: checks.number(f"{key}.{n}", m, above=0) for n, m in Keys(key, value).values.items()}


def _at(key: str, value: Any) -> bool | tuple[float, ...]:
    if isinstance(value, str):
        return checks.one_of(key, value, ("all", "once")) == "all"
    return numbers_key(key, value)


def is_computed(config: DictConfig) -> bool:
    """Return whether the configuration's figure is computed by a function, without runs.

    Raises:
        ConfigError: The configuration has no figure.
    """
    return plain_section(config.get("figure")).get("compute") is not None
