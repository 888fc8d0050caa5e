"""A figure's YAML, checked: from the config's ``figure`` section to a :class:`Figure`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from itertools import pairwise
from typing import Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, did_you_mean, show
from fedpriv.store.colours import COLOURS
from fedpriv.store.columns import AUDIT_COLUMNS, CLIENT_COLUMNS, COLUMNS, STATED_COLUMNS
from fedpriv.study.figures.definition import (
    POINT,
    SCALES,
    Axes,
    Curve,
    CurveGroup,
    Figure,
    Mark,
    Ordering,
    Points,
    StatedValue,
)


def is_computed(config: DictConfig) -> bool:
    """Whether the configuration's figure has no runs. Raises ConfigError where it has no figure."""
    return plain_section(config.get("figure")).get("compute") is not None


def read_figure(node: DictConfig | dict[str, Any], name: str) -> Figure:
    """The figure defined by the config's ``figure`` section. Raises ConfigError naming the key."""
    values = plain_section(node)
    try:
        return _figure(values, name)
    except ArgumentError as error:
        raise error.within("figure") from None


def plain_section(node: object) -> dict[str, Any]:
    """A config's ``figure`` section as plain values. Raises ConfigError where it has none."""
    try:
        values = OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node
    except OmegaConfBaseException as error:  # ${…} that leads nowhere
        raise ConfigError(f"figure: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise ConfigError("figure", values, "a group of keys")
    return values


KEYS = (
    "work", "title", "groups", "curves", "show", "points", "axes", "stated", "orderings", "marks",
    "deviations", "quick", "notes", "scale", "seeds", "reuse", "draw_only", "compute",
)  # fmt: skip


def _figure(values: dict[str, Any], name: str) -> Figure:
    refuse_unknown("", values, KEYS)
    scale = checks.one_of("scale", values.get("scale", "paper"), SCALES)
    seeds = values.get("seeds")
    if seeds is None and scale == "quick":
        seeds = [0]
    show = _mapping("show", values.get("show"))
    curves = _mapping("curves", values.get("curves"))
    groups = _mapping("groups", values.get("groups"))
    deviations = values.get("deviations") or {}
    if not isinstance(deviations, dict):
        raise ArgumentError("deviations", deviations, "a group of keys with a text each")
    shown = tuple(
        _group(group, groups, _names(f"show.{group}", chosen, curves, "curve"), curves, seeds)
        for group, chosen in show.items()
    )
    by_name = {group.name: {c.name: c for c in group.curves} for group in shown}
    points = _points(values.get("points"), scale)
    if points is not None:
        _refuse_other_points(shown, values["points"]["values"], points)
    axes = tuple(
        _axes(key, value, by_name, points)
        for key, value in _mapping("axes", values.get("axes")).items()
    )
    return Figure(
        name=name,
        work=checks.text("work", values.get("work")),
        title=checks.text("title", values.get("title")),
        groups=shown,
        axes=axes,
        stated=tuple(_stated(i, s, by_name, points) for i, s in _listed(values, "stated")),
        orderings=tuple(_ordering(i, o, by_name, points) for i, o in _listed(values, "orderings")),
        deviations={k: str(v) for k, v in deviations.items() if v},
        scale=scale,
        quick=_texts("quick", values.get("quick") or []),
        notes=str(values.get("notes") or ""),
        reuse=_texts("reuse", values.get("reuse") or []),
        draw_only=checks.boolean("draw_only", values.get("draw_only", False)),
        points=points,
        marks=_marks(values, shown, axes, points),
    )


def _points(value: Any, scale: str) -> Points | None:
    if value is None:
        return None
    value = _mapping("points", value)
    refuse_unknown("points", value, ("key", "values", "label", "quick"))
    key = checks.text("points.key", value.get("key"))
    if key == "seed" or key.startswith(("runtime.", "figure.")):
        raise ArgumentError(
            "points.key", key, "a key that makes another run (seeds are figure.seeds)"
        )
    values = _increasing("points.values", value.get("values"))
    quick = values if value.get("quick") is None else _increasing("points.quick", value["quick"])
    return Points(
        key=key,
        values=quick if scale == "quick" else values,
        label=_optional_text("points.label", value.get("label")) or key,
    )


def _refuse_other_points(
    groups: Sequence[CurveGroup], values: Sequence[float], points: Points
) -> None:
    """A curve's own points are some of the figure's, and no group is left without a point."""
    for group in groups:
        for curve in group.curves:
            if isinstance(curve.points, tuple) and not set(curve.points) <= set(values):
                allowed = f"true, or some of figure.points.values {listed(values)}"
                raise ArgumentError(f"curves.{curve.name}.points", list(curve.points), allowed)
        own = [c.points for c in group.curves]
        if not any(isinstance(o, bool) or set(o) & set(points.values) for o in own):
            allowed = f"such that a curve of group {group.name} is run at one of them"
            raise ArgumentError("points.quick", list(points.values), allowed)


def _increasing(
    key: str, value: Any, allowed: str = "a list of increasing numbers"
) -> tuple[float, ...]:
    numbers = checks.sequence(key, value, allowed)
    for number in numbers:
        checks.number(key, number)
    if not numbers or any(a >= b for a, b in pairwise(numbers)):
        raise ArgumentError(key, value, allowed)
    return tuple(numbers)


def _group(
    name: str, groups: dict, chosen: tuple[str, ...], curves: dict, seeds: list[int] | None
) -> CurveGroup:
    key = f"groups.{name}"
    if name not in groups:
        raise ArgumentError(f"show.{name}", name, f"one of the groups {listed(groups)}")
    value = _mapping(key, groups[name])
    refuse_unknown(key, value, ("title", "overrides", "seeds"))
    wanted = value.get("seeds") if seeds is None else seeds
    where = f"{key}.seeds" if seeds is None else "seeds"
    numbers = [checks.seed(where, s) for s in checks.sequence(where, wanted, "a list of seeds")]
    if not numbers or len(set(numbers)) != len(numbers):
        raise ArgumentError(where, wanted, "one seed or several different ones")
    return CurveGroup(
        name=name,
        title=checks.text(f"{key}.title", value.get("title")),
        overrides=_texts(f"{key}.overrides", value.get("overrides") or []),
        seeds=tuple(numbers),
        curves=tuple(_curve(c, curves[c]) for c in chosen),
    )


def _curve(name: str, value: Any) -> Curve:
    key = f"curves.{name}"
    value = _mapping(key, value)
    _known_fields(key, value, Curve)
    return Curve(
        name=name,
        label=checks.text(f"{key}.label", value.get("label")),
        colour=checks.one_of(f"{key}.colour", value.get("colour"), COLOURS),
        overrides=_texts(f"{key}.overrides", value.get("overrides") or []),
        quick=_texts(f"{key}.quick", value.get("quick") or []),
        minutes={
            group: checks.number(f"{key}.minutes.{group}", number, above=0)
            for group, number in _optional_mapping(f"{key}.minutes", value.get("minutes")).items()
        },
        points=_own_points(f"{key}.points", value.get("points", True)),
        seeds=None
        if (n := value.get("seeds")) is None
        else checks.whole(f"{key}.seeds", n, at_least=1),
    )


def _own_points(key: str, value: Any) -> bool | tuple[float, ...]:
    allowed = "true or false, or a list of increasing numbers"
    return value if isinstance(value, bool) else _increasing(key, value, allowed)


def _axes(name: str, value: Any, groups: Mapping[str, Any], points: Points | None) -> Axes:
    key = f"axes.{name}"
    value = _mapping(key, value)
    _known_fields(key, value, Axes)

    def choice(what: str, default: str, *others: str) -> str:
        return checks.one_of(f"{key}.{what}", value.get(what, default), (default, *others))

    over_points = points is not None
    lines = choice("lines", "curves", *(() if over_points else ("clients",)))
    columns = COLUMNS if lines == "curves" else CLIENT_COLUMNS
    if not over_points:  # metrics.csv has no audits
        columns = {name: column for name, column in columns.items() if name not in AUDIT_COLUMNS}
    if value.get("x") == POINT and not over_points:
        raise ArgumentError(f"{key}.x", POINT, "a column, unless the figure has points")
    return Axes(
        name=name,
        x=checks.one_of(f"{key}.x", value.get("x"), (POINT,) if over_points else columns),
        y=checks.one_of(f"{key}.y", value.get("y"), columns),
        kind=choice("kind", "lines", *(("map",) if over_points else ())),
        lines=lines,
        band=choice("band", "range", "sd"),
        best=choice("best", "low", "high"),
        x_label=_optional_text(f"{key}.x_label", value.get("x_label")),
        y_label=_optional_text(f"{key}.y_label", value.get("y_label")),
        x_limits=_limits(f"{key}.x_limits", value["x_limits"]) if "x_limits" in value else None,
        y_limits={
            checks.one_of(f"{key}.y_limits", group, groups): _limits(
                f"{key}.y_limits.{group}", pair
            )
            for group, pair in _optional_mapping(f"{key}.y_limits", value.get("y_limits")).items()
        },
        x_scale=choice("x_scale", "linear", "log"),
        y_scale=choice("y_scale", "linear", "log"),
    )


def _limits(key: str, value: Any) -> tuple[float, float]:
    pair = [checks.number(key, v) for v in checks.sequence(key, value, "[from, to]")]
    if len(pair) != 2 or pair[0] >= pair[1]:
        raise ArgumentError(key, value, "[from, to] with from < to")
    return pair[0], pair[1]


def _stated(
    index: int, value: Any, curves: Mapping[str, Mapping[str, Curve]], points: Points | None
) -> StatedValue:
    key = f"stated.{index}"
    value = _mapping(key, value)
    _known_fields(key, value, StatedValue, named=())
    group = checks.one_of(f"{key}.group", value.get("group"), curves)
    curve = checks.one_of(f"{key}.curve", value.get("curve"), curves[group])
    return StatedValue(
        group=group,
        curve=curve,
        column=checks.one_of(f"{key}.column", value.get("column"), STATED_COLUMNS),
        value=checks.number(f"{key}.value", value.get("value")),
        point=_point(f"{key}.point", value, points if curves[group][curve].points else None),
    )


def _ordering(
    index: int, value: Any, curves: Mapping[str, Mapping[str, Curve]], points: Points | None
) -> Ordering:
    key = f"orderings.{index}"
    value = _mapping(key, value)
    _known_fields(key, value, Ordering, named=())
    group = checks.one_of(f"{key}.group", value.get("group"), curves)
    return Ordering(
        group=group,
        column=checks.one_of(f"{key}.column", value.get("column"), STATED_COLUMNS),
        curves=_names(f"{key}.curves", value.get("curves"), curves[group], "curve shown"),
        point=_point(f"{key}.point", value, points),
    )


def _marks(
    values: Mapping[str, Any],
    groups: Sequence[CurveGroup],
    axes: Sequence[Axes],
    points: Points | None,
) -> tuple[Mark, ...]:
    if points is None and values.get("marks"):
        allowed = "absent: only axes with x: point have marks, in a figure with points"
        raise ArgumentError("marks", values["marks"], allowed)
    return tuple(_mark(i, m, groups, axes) for i, m in _listed(values, "marks"))


def _mark(index: int, value: Any, groups: Sequence[CurveGroup], axes: Sequence[Axes]) -> Mark:
    key = f"marks.{index}"
    value = _mapping(key, value)
    _known_fields(key, value, Mark, named=())
    lines = [a for a in axes if a.kind == "lines"]
    columns = dict.fromkeys(a.y for a in lines)
    column = checks.one_of(f"{key}.column", value["column"], columns)
    drawn = [a for a in lines if a.y == column]
    label = checks.text(f"{key}.label", value["label"])
    if any(label in (curve.name, curve.label) for group in groups for curve in group.curves):
        raise ArgumentError(f"{key}.label", label, "another text than that of a curve")

    def number(what: str, scales: Iterable[str]) -> float:
        return checks.number(f"{key}.{what}", value[what], above=0 if "log" in scales else None)

    return Mark(
        group=checks.one_of(f"{key}.group", value["group"], [group.name for group in groups]),
        column=column,
        point=number("point", [a.x_scale for a in drawn]),
        value=number("value", [a.y_scale for a in drawn]),
        label=label,
    )


def _point(key: str, value: Mapping[str, Any], points: Points | None) -> float | None:
    """Where a number or an ordering is stated; perhaps not among the values in force."""
    if points is None:
        if value.get("point") is not None:
            raise ArgumentError(key, value["point"], "absent: what it is about has no points")
        return None
    return checks.number(key, value.get("point"))


def _names(key: str, value: Any, known: Mapping[str, Any], what: str) -> tuple[str, ...]:
    names = checks.sequence(key, value, f"a list of {what}s")
    for name in names:
        if isinstance(name, list | dict):
            raise ArgumentError(key, value, f"a list of {what}s")
        if name not in known:
            hint = did_you_mean(name, known, "; ")
            raise ConfigError(
                f"figure.{key}: no {what} {show(name)}{hint} (known: {listed(known)})"
            )
    if not names or len(set(names)) != len(names):
        raise ArgumentError(key, value, f"one {what} or several different ones")
    return tuple(names)


def _listed(values: Mapping[str, Any], key: str) -> Iterator[tuple[int, Any]]:
    return enumerate(checks.sequence(key, values.get(key) or []))


def _texts(key: str, value: Any) -> tuple[str, ...]:
    return tuple(checks.text(key, v) for v in checks.sequence(key, value, "a list of overrides"))


def _optional_text(key: str, value: Any) -> str | None:
    return None if value is None else checks.text(key, value)


def _optional_mapping(key: str, value: Any) -> dict[str, Any]:
    return {} if value is None else _mapping(key, value)


def _mapping(key: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise ArgumentError(key, value, "a group of keys")
    return value


def _known_fields(
    key: str, value: Mapping[str, Any], kind: type, named: tuple[str, ...] = ("name",)
) -> None:
    """Refuse keys that ``kind`` has not; ``named``: those that the YAML gives as its own key."""
    allowed = [f.name for f in fields(kind) if f.name not in named]
    refuse_unknown(key, value, allowed)
    for f in fields(kind):
        required = f.default is MISSING and f.default_factory is MISSING
        if required and f.name in allowed and value.get(f.name) is None:
            raise ArgumentError(f"{key}.{f.name}", None, "given")


def refuse_unknown(key: str, value: Mapping[str, Any], allowed: Any) -> None:
    """Raise ConfigError for a key below ``figure.<key>`` that is not among those allowed."""
    for name in value:
        if name not in allowed:
            hint = did_you_mean(str(name), allowed, "; ")
            dotted = ".".join(part for part in ("figure", key, str(name)) if part)
            raise ConfigError(f"unknown key {show(dotted)}{hint} (known: {', '.join(allowed)})")


def listed(names: Iterable[object]) -> str:
    """Names in a sentence, each cut to a line."""
    return ", ".join(map(show, names))
