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
    StatedPoint,
    choices_key,
    column_key,
    key_label,
    keys_in,
    keys_of,
    limits_key,
    name_key,
    names_key,
    numbers_key,
    optional_text,
    overrides_key,
    read_numbers,
    refuse_unknown,
    seeds_key,
)

Compose = Callable[[Sequence[str]], DictConfig]
_FLAGS = ("scale", "seeds", "reuse", "draw_only")
_OF_X = ("x_label", "x_scale", "x_limits")
_OF_METRIC = (
    "column", "x", *_OF_X, "y_label", "y_scale", "y_limits", "kind", "band", "best", "vacuous_above",
)  # fmt: skip
KEYS = (
    "work", "title", "x", "x_quick", *_OF_METRIC[2:-1], "metric", "base", "curves", "panels", "show",
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
        return _Reader(plain_section(node), name).figure()
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
        folders = _folders("reuse", values.get("reuse"))
        given["reuse"] = [*(str(path.parent / f) for f in folders), *given.get("reuse", [])]
        return _Reader({**values, **given}, path.stem, path, compose).figure()
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


def _folders(key: str, value: Any) -> list[str]:
    """Return folders from a text or a list of texts."""
    words = [value] if isinstance(value, str) else checks.sequence(key, value or [], "folders")
    return [checks.text(key, word) for word in words]


class _Reader:
    """Reader of one figure.

    Args:
        values: The keys of the figure.
        name: Name of the figure's folder, unless the key ``name`` says otherwise.
        file: The user's own file that has the keys; None for a figure that Hydra composes.
        compose: Returns the configuration for a list of overrides; needed for a file.
    """

    def __init__(
        self, values: Mapping[str, Any], name: str, file: Path | None = None,
        compose: Compose | None = None,
    ):  # fmt: skip
        refuse_unknown("", values, KEYS)
        self.values, self.name, self.file, self.compose = values, name, file, compose
        self.scale = checks.one_of("scale", values.get("scale") or "paper", SCALES)
        panels, curves = values.get("panels"), values.get("curves")
        self.panels = {"all": {"title": ""}} if panels is None else choices_key("panels", panels)
        self.curves = {"runs": {}} if curves is None else choices_key("curves", curves)
        self.base = overrides_key("base", values.get("base"))
        self.points = self._points()
        self.axes = self._metrics()
        self.baselines = [
            self._baseline(f"baselines.{number}", entry)
            for number, entry in enumerate(self._list("baselines"))
        ]
        self.is_private: dict[tuple[str, ...], bool] = {}  # by the override of the algorithm

    def _list(self, key: str) -> Sequence[Any]:
        example = "a list such as [{label: guessing, value: 10}]"
        return checks.sequence(key, self.values.get(key) or [], example)

    def figure(self) -> Figure:
        """Return the figure."""
        values = self.values
        show = values.get("show")
        show = {panel: [*self.curves] for panel in self.panels} if show is None else show
        groups = [self._group(n, c) for n, c in keys_in("show", show, self.panels).items()]
        self.by_name = {g.name: {c.name: c for c in g.curves} for g in groups}
        self._refuse_points(groups)
        deviations = keys_in("deviations", values.get("deviations") or {"": ""})
        marks = [mark for baseline in self.baselines for mark in self._marks(baseline)]
        stated = [self._stated(f"stated.{n}", one) for n, one in enumerate(self._list("stated"))]
        orderings = [
            self._ordering(f"orderings.{n}", one) for n, one in enumerate(self._list("orderings"))
        ]
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
            name=self.name if values.get("name") is None else name_key("name", values["name"]),
            work=optional_text("work", values.get("work")) or "",
            title=title if values.get("title") is None else str(values["title"]),
            groups=tuple(groups),
            axes=self.axes,
            stated=tuple(stated),
            orderings=tuple(orderings),
            deviations={k: str(v) for k, v in deviations.items() if v},
            scale=self.scale,
            quick=overrides_key("quick", values.get("quick")),
            notes=str(values.get("notes") or ""),
            reuse=tuple(_folders("reuse", values.get("reuse"))),
            draw_only=checks.boolean("draw_only", values.get("draw_only") or False),
            points=self.points,
            marks=tuple(marks),
            quick_shape=str(values.get("quick_shape") or ""),
            file=self.file,
        )

    def _points(self) -> Points | None:
        """Return the values or choices of x at the scale in force; None for an x that is a column."""
        x, quick = self.values.get("x"), self.values.get("x_quick")
        if not isinstance(x, dict):
            return None
        label = optional_text("x_label", self.values.get("x_label"))
        if any(isinstance(entry, dict) for entry in x.values()):
            choices = []
            for name, entry in x.items():
                entry = keys_in(f"x.{name}", entry, ("label", "overrides"))
                words = optional_text(f"x.{name}.label", entry.get("label")) or str(name)
                overrides = overrides_key(f"x.{name}.overrides", entry.get("overrides"))
                choices.append((words, overrides))
            self.x_values: tuple[float, ...] = tuple(map(float, range(len(choices))))
            chosen = [*x] if quick is None else names_key("x_quick", quick, x)
            at_quick = tuple(float(index) for index, name in enumerate(x) if name in chosen)
            points = Points("", self.x_values, label or "choice", tuple(choices))
        else:
            if len(x) != 1:
                example = "a key with its values, such as {epsilon: [1, 2, 4]}, or a column"
                raise ArgumentError("x", x, example)
            ((key, values),) = x.items()
            if str(key) == "seed" or str(key).startswith(("runtime.", "figure.", "hydra")):
                hint = "seeds: 5 sets the seeds"
                raise ArgumentError("x", key, "a key that makes another run", hint)
            self.x_values = numbers_key(f"x.{key}", values)
            at_quick = self.x_values if quick is None else numbers_key("x_quick", quick)
            points = Points(str(key), self.x_values, label or key_label(str(key)))
        return replace(points, values=at_quick) if self.scale == "quick" else points

    def _metrics(self) -> tuple[Axes, ...]:
        given = self.values.get("metric")
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
        own, points = entry if isinstance(entry, dict) else {}, self.points
        refuse_unknown(key, own, _OF_METRIC)
        given = {k: self.values.get(k) for k in _OF_METRIC[2:-1]}
        for option in _OF_X if "x" in own else ("x_label",) if points is not None else ():
            del given[
                option
            ]  # of the figure's x, which has another unit; or the label of the points
        given = {k: v for k, v in (given | own).items() if v is not None}

        def at(option: str) -> str:
            return f"{key}.{option}" if option in own else option

        def choice(option: str, *known: str) -> str:
            return checks.one_of(at(option), given.get(option, known[0]), known)

        kinds = ("lines", "clients") if points is None else ("lines", "map")
        kind = choice("kind", *(("map",) if points is not None and points.choices else kinds))
        columns = CLIENT_COLUMNS if kind == "clients" else COLUMNS
        if points is None:  # metrics.csv has no audits
            columns = {n: c for n, c in columns.items() if n not in AUDIT_COLUMNS}
        x = own.get("x", self.values.get("x") if points is None else POINT)
        known = [*columns] if points is None else [POINT, SOUND]
        if x not in known:
            allowed = f"a key with its values ({{epsilon: [1, 2]}}), or one of {', '.join(known)}"
            raise ArgumentError(at("x"), x, allowed, did_you_mean(x, known))
        column = entry if not isinstance(entry, dict) else own.get("column", name)
        y = column_key(f"{key}.column" if "column" in own else key, column, columns)
        if "vacuous_above" in given and x != SOUND:
            value = given["vacuous_above"]
            raise ArgumentError(f"{key}.vacuous_above", value, f"absent unless x is {SOUND}")
        vacuous = checks.number(f"{key}.vacuous_above", given.get("vacuous_above", 1000.0), above=0)
        limits = given.get("y_limits", {})
        limits = limits if isinstance(limits, dict) else dict.fromkeys(self.panels, limits)
        refuse_unknown(at("y_limits"), limits, self.panels)
        x_scale = choice("x_scale", "linear", "log")
        if x == POINT and points is not None and x_scale == "log" and points.values[0] <= 0:
            raise ArgumentError(f"x.{points.key}", points.values[0], "> 0 on a logarithmic axis")
        return Axes(
            name=name or y,
            x=x,
            y=y,
            kind="map" if kind == "map" else "lines",
            lines="clients" if kind == "clients" else "curves",
            band=choice("band", "t", "range", "sd"),
            best=choice("best", "low", "high"),
            x_label=optional_text(at("x_label"), given.get("x_label")),
            y_label=optional_text(at("y_label"), given.get("y_label")),
            x_limits=limits_key(at("x_limits"), given["x_limits"]) if "x_limits" in given else None,
            y_limits={n: limits_key(at("y_limits"), pair) for n, pair in limits.items()},
            x_scale=x_scale,
            y_scale=choice("y_scale", "linear", "log"),
            vacuous_above=vacuous if x == SOUND else None,
        )

    def _group(self, name: str, names: Any) -> CurveGroup:
        """Return a panel with the curves that it shows."""
        key, values = f"panels.{name}", self.panels[name]
        refuse_unknown(key, values, _OF_PANEL)
        title, quick = values.get("title", name), values.get("quick")
        if title:
            checks.text(f"{key}.title", title)
        if quick not in (None, False):
            checks.text(f"{key}.quick", quick)
        shared = (*self.base, *overrides_key(f"{key}.overrides", values.get("overrides")))
        seeds, seeds_at = self.values.get("seeds"), "seeds"
        if seeds is None:
            seeds = 1 if self.scale == "quick" else values.get("seeds", 1)
            seeds_at = f"{key}.seeds"
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
        return CurveGroup(name, title or "", shared, seeds_key(seeds_at, seeds), tuple(curves))

    def _curve(self, name: str, colour: str, shared: tuple[str, ...]) -> Curve:
        key, value = f"curves.{name}", {k: v for k, v in self.curves[name].items() if v is not None}
        refuse_unknown(key, value, _OF_CURVE)
        at = value.get("at")
        if isinstance(at, str):
            at = checks.one_of(f"{key}.at", at, ("all", "once")) == "all"
        elif at is not None:
            at = numbers_key(f"{key}.at", at)
        minutes = keys_in(f"{key}.minutes", value["minutes"]) if "minutes" in value else {}
        seeds = value.get("seeds")
        curve = Curve(
            name=name,
            label=checks.text(f"{key}.label", value.get("label", name)),
            colour=checks.one_of(f"{key}.colour", value.get("colour", colour), COLOURS),
            overrides=overrides_key(f"{key}.overrides", value.get("overrides")),
            quick=overrides_key(f"{key}.quick", value.get("quick")),
            minutes={
                p: checks.number(f"{key}.minutes.{p}", n, above=0) for p, n in minutes.items()
            },
            seeds=None if seeds is None else checks.whole(f"{key}.seeds", seeds, at_least=1),
        )
        return self._placed(key, curve, at, shared)

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
        entry = dict.fromkeys(_OF_BASELINE) | keys_in(key, entry, _OF_BASELINE)
        checks.text(f"{key}.label", entry["label"])
        kinds = [kind for kind in ("run", "csv", "value") if entry[kind] is not None]
        if len(kinds) != 1:
            raise ArgumentError(key, ", ".join(kinds), "with one of run, csv and value")
        unread = {"run": ("x", "low", "high", "metric", "source"), "csv": ("x", "low", "high")}
        for other in unread.get(kinds[0], ()):
            if entry[other] is not None:
                raise ArgumentError(f"{key}.{other}", entry[other], f"absent beside {kinds[0]}")
        if entry["as"] is not None:
            checks.one_of(f"{key}.as", entry["as"], ("line", "points"))
        if entry["panel"] is not None:
            checks.one_of(f"{key}.panel", entry["panel"], self.panels)
        if kinds == ["run"]:
            return {**entry, "run": overrides_key(f"{key}.run", entry["run"]), "numbers": []}
        lines = [axes for axes in self.axes if axes.kind == "lines"]
        column = entry["metric"] or lines[0].y if lines else ""
        column = column_key(f"{key}.metric", column, {axes.y: COLUMNS[axes.y] for axes in lines})
        if kinds == ["csv"]:
            folder = Path() if self.file is None else self.file.parent
            numbers = read_numbers(f"{key}.csv", folder / checks.text(f"{key}.csv", entry["csv"]))
        elif isinstance(entry["value"], dict):
            pairs = keys_in(f"{key}.value", entry["value"])
            numbers = [StatedPoint(x, y) for x, y in pairs.items()]
        else:
            numbers = [StatedPoint(entry["x"], entry["value"], entry["low"], entry["high"])]
        log = {
            axis: any(getattr(axes, f"{axis}_scale") == "log" for axes in lines if axes.y == column)
            for axis in "xy"
        }

        def checked(field: str, value: Any) -> float | None:
            above = 0 if log["x" if field == "x" else "y"] else None
            name = "csv" if kinds == ["csv"] else "value" if field == "y" else field
            absent = value is None and field != "y"
            return None if absent else checks.number(f"{key}.{name}", value, above=above)

        numbers = [
            StatedPoint(*(checked(f, getattr(n, f)) for f in ("x", "y", "low", "high")))  # type: ignore[arg-type]
            for n in numbers
        ]
        if entry["as"] == "points" and any(number.x is None for number in numbers):
            raise ArgumentError(f"{key}.x", None, "given, for a point")
        largest = max(abs(number.y) for number in numbers)
        if COLUMNS[column].scale == 100 and (0 < largest <= 1 or not 0 <= largest <= 100):
            allowed = "from 0 to 100, in percent as the axis shows it"
            raise ArgumentError(f"{key}.{kinds[0]}", largest, allowed, "write 94.1, not 0.941")
        return {**entry, "metric": column, "numbers": numbers}

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

    def _about(self, key: str, entry: Any, *own: str) -> tuple[dict[str, Any], str, str]:
        """Return a stated number or an ordering with the panel and the column that it is about."""
        keys = ("panel", "metric", "x", *own)
        entry = dict.fromkeys(keys) | keys_in(key, entry, keys)
        alone = next(iter(self.by_name)) if len(self.by_name) == 1 else None
        panel = checks.one_of(f"{key}.panel", entry["panel"] or alone, self.by_name)
        return entry, panel, column_key(f"{key}.metric", entry["metric"], STATED_COLUMNS)

    def _stated(self, key: str, entry: Any) -> StatedValue:
        entry, panel, column = self._about(key, entry, "curve", "value")
        curve = checks.one_of(f"{key}.curve", entry["curve"], self.by_name[panel])
        value = checks.number(f"{key}.value", entry["value"])
        x = self._point(f"{key}.x", entry["x"], bool(self.by_name[panel][curve].points))
        return StatedValue(panel, curve, column, value, x)

    def _ordering(self, key: str, entry: Any) -> Ordering:
        entry, panel, column = self._about(key, entry, "curves")
        curves = names_key(f"{key}.curves", entry["curves"], self.by_name[panel])
        return Ordering(panel, column, curves, self._point(f"{key}.x", entry["x"], True))

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


def is_computed(config: DictConfig) -> bool:
    """Return whether the configuration's figure is computed by a function, without runs.

    Raises:
        ConfigError: The configuration has no figure.
    """
    return plain_section(config.get("figure")).get("compute") is not None
