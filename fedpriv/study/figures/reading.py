"""Reader of a figure's YAML: checks the config's ``figure`` section and returns a :class:`Figure`.

Every check names the key below ``figure`` that it is about.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, replace
from typing import Any, TypeVar

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.store.colours import COLOURS
from fedpriv.store.columns import AUDIT_COLUMNS, CLIENT_COLUMNS, COLUMNS, STATED_COLUMNS
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
from fedpriv.study.figures.entries import (
    increasing,
    listed,
    mapping,
    names,
    optional_text,
    refuse_unknown,
    texts,
)


def is_computed(config: DictConfig) -> bool:
    """Return whether the configuration's figure is computed by a function, without runs.

    Raises:
        ConfigError: The configuration has no figure.
    """
    return plain_section(config.get("figure")).get("compute") is not None


def read_figure(node: DictConfig | dict[str, Any], name: str) -> Figure:
    """Return the figure that a configuration defines.

    Args:
        node: The configuration's ``figure`` section.
        name: Name of the figure, ``<work>/<figure>``.

    Raises:
        ConfigError: A value is not allowed. The error names the key.
    """
    values = plain_section(node)
    try:
        return _figure(values, name)
    except ArgumentError as error:
        raise error.within("figure") from None


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


_Part = TypeVar("_Part")
KEYS = (
    "work", "title", "groups", "curves", "show", "points", "axes", "stated", "orderings", "marks",
    "deviations", "quick", "quick_shape", "notes", "scale", "seeds", "reuse", "draw_only", "compute",
)  # fmt: skip


def _figure(values: dict[str, Any], name: str) -> Figure:
    """Return the figure. Groups come first, since points, axes and stated numbers refer to their curves."""
    refuse_unknown("", values, KEYS)
    scale = checks.one_of("scale", values.get("scale", "paper"), SCALES)
    seeds = values.get("seeds")
    if seeds is None and scale == "quick":
        seeds = [0]
    show = mapping("show", values.get("show"))
    curves = mapping("curves", values.get("curves"))
    groups = mapping("groups", values.get("groups"))
    deviations = values.get("deviations") or {}
    if not isinstance(deviations, dict):
        raise ArgumentError("deviations", deviations, "a group of keys with a text each")
    shown = tuple(
        _group(group, groups, names(f"show.{group}", chosen, curves, "curve"), curves, seeds)
        for group, chosen in show.items()
    )
    by_name = {group.name: {c.name: c for c in group.curves} for group in shown}
    points = _points(values.get("points"), scale)
    if points is not None:
        allowed = values["points"].get("values") or range(len(points.choices))
        _refuse_other_points(shown, allowed, points)
    axes = tuple(
        _axes(key, value, by_name, points)
        for key, value in mapping("axes", values.get("axes")).items()
    )

    def each(key: str, read: Callable[..., _Part], *context: object) -> tuple[_Part, ...]:
        """Read each entry of the list ``key``."""
        entries = enumerate(checks.sequence(key, values.get(key) or []))
        return tuple(
            read(f"{key}.{i}", mapping(f"{key}.{i}", entry), *context) for i, entry in entries
        )

    figure = Figure(
        name=name,
        work=checks.text("work", values.get("work")),
        title=checks.text("title", values.get("title")),
        groups=shown,
        axes=axes,
        stated=each("stated", _stated, by_name, points),
        orderings=each("orderings", _ordering, by_name, points),
        deviations={k: str(v) for k, v in deviations.items() if v},
        scale=scale,
        quick=texts("quick", values.get("quick") or []),
        notes=str(values.get("notes") or ""),
        reuse=texts("reuse", values.get("reuse") or []),
        draw_only=checks.boolean("draw_only", values.get("draw_only", False)),
        points=points,
        marks=each("marks", _mark, shown, axes),
        quick_shape=str(values.get("quick_shape") or ""),
    )
    return _at_quick_scale(figure, groups) if scale == "quick" else figure


def _at_quick_scale(figure: Figure, groups: Mapping[str, Any]) -> Figure:
    """Return the figure with the groups that the quick scale shows, under the titles that they have there.

    A group with ``quick: false`` is left out, unless no other group would be left. A group with a title for
    the quick scale has other data there, so that no mark is drawn in its panel.
    """
    at_quick = {g.name: groups[g.name].get("quick") for g in figure.groups}
    for name, value in at_quick.items():
        if value is not None and value is not False:
            checks.text(f"groups.{name}.quick", value)
    kept = [g for g in figure.groups if at_quick[g.name] is not False] or list(figure.groups)
    names = {g.name for g in kept}
    return replace(
        figure,
        groups=tuple(replace(g, title=at_quick[g.name] or g.title) for g in kept),
        stated=tuple(s for s in figure.stated if s.group in names),
        orderings=tuple(o for o in figure.orderings if o.group in names),
        marks=tuple(m for m in figure.marks if m.group in names and not at_quick[m.group]),
    )


def _points(value: Any, scale: str) -> Points | None:
    """Return the points at the scale in force, or None for a figure without points."""
    if value is None:
        return None
    value = mapping("points", value)
    refuse_unknown("points", value, ("key", "values", "label", "quick", "choices"))
    if value.get("choices") is not None:
        return _choices(value, scale)
    key = checks.text("points.key", value.get("key"))
    if key == "seed" or key.startswith(("runtime.", "figure.")):
        raise ArgumentError(
            "points.key", key, "a key that makes another run (seeds are figure.seeds)"
        )
    values = increasing("points.values", value.get("values"))
    quick = values if value.get("quick") is None else increasing("points.quick", value["quick"])
    return Points(
        key=key,
        values=quick if scale == "quick" else values,
        label=optional_text("points.label", value.get("label")) or key,
    )


def _choices(value: Mapping[str, Any], scale: str) -> Points:
    """Return points that are named choices: name → label and overrides, and the names of the quick scale."""
    for key in ("key", "values"):
        if value.get(key) is not None:
            raise ArgumentError(f"points.{key}", value[key], "absent beside points.choices")
    entries = mapping("points.choices", value["choices"])
    choices = []
    for name, entry in entries.items():
        key = f"points.choices.{name}"
        entry = mapping(key, entry)
        refuse_unknown(key, entry, ("label", "overrides"))
        label = optional_text(f"{key}.label", entry.get("label")) or str(name)
        choices.append((label, texts(f"{key}.overrides", entry.get("overrides") or [])))
    shown: Collection[str] = entries
    if scale == "quick" and value.get("quick") is not None:
        shown = names("points.quick", value["quick"], entries, "choice")
    return Points(
        key="",
        values=tuple(float(index) for index, name in enumerate(entries) if name in shown),
        label=checks.text("points.label", value.get("label")),
        choices=tuple(choices),
    )


def _refuse_other_points(
    groups: Sequence[CurveGroup], values: Sequence[float], points: Points
) -> None:
    """Raise ArgumentError where a curve's points are none of the figure's, or a group has no point.

    Args:
        groups: Groups with their curves.
        values: Points of the paper's scale.
        points: Points of the scale in force.
    """
    for group in groups:
        for curve in group.curves:
            if isinstance(curve.points, tuple) and not set(curve.points) <= set(values):
                allowed = f"true, or some of figure.points.values {listed(values)}"
                raise ArgumentError(f"curves.{curve.name}.points", list(curve.points), allowed)
        chosen = [curve.points for curve in group.curves]
        if not any(isinstance(c, bool) or set(c) & set(points.values) for c in chosen):
            allowed = f"such that a curve of group {group.name} is run at one of them"
            raise ArgumentError("points.quick", list(points.values), allowed)


def _group(
    name: str, groups: dict, chosen: tuple[str, ...], curves: dict, seeds: list[int] | None
) -> CurveGroup:
    """Return a group with its chosen curves; ``seeds`` replace the seeds of the definition."""
    key = f"groups.{name}"
    if name not in groups:
        raise ArgumentError(f"show.{name}", name, f"one of the groups {listed(groups)}")
    value = mapping(key, groups[name])
    refuse_unknown(key, value, ("title", "overrides", "seeds", "quick"))
    given = value.get("seeds") if seeds is None else seeds
    seeds_key = f"{key}.seeds" if seeds is None else "seeds"
    numbers = [
        checks.seed(seeds_key, s) for s in checks.sequence(seeds_key, given, "a list of seeds")
    ]
    if not numbers or len(set(numbers)) != len(numbers):
        raise ArgumentError(seeds_key, given, "one seed or several different ones")
    return CurveGroup(
        name=name,
        title=checks.text(f"{key}.title", value.get("title")),
        overrides=texts(f"{key}.overrides", value.get("overrides") or []),
        seeds=tuple(numbers),
        curves=tuple(_curve(c, curves[c]) for c in chosen),
    )


def _curve(name: str, value: Any) -> Curve:
    key = f"curves.{name}"
    value = mapping(key, value)
    _known_fields(key, value, Curve)
    points, seeds = value.get("points", True), value.get("seeds")
    if not isinstance(points, bool):
        allowed = "true or false, or a list of increasing numbers"
        points = increasing(f"{key}.points", points, allowed)
    return Curve(
        name=name,
        label=checks.text(f"{key}.label", value.get("label")),
        colour=checks.one_of(f"{key}.colour", value.get("colour"), COLOURS),
        overrides=texts(f"{key}.overrides", value.get("overrides") or []),
        quick=texts(f"{key}.quick", value.get("quick") or []),
        minutes={
            group: checks.number(f"{key}.minutes.{group}", number, above=0)
            for group, number in _optional_mapping(f"{key}.minutes", value.get("minutes")).items()
        },
        points=points,
        seeds=None if seeds is None else checks.whole(f"{key}.seeds", seeds, at_least=1),
    )


def _kinds(points: Points | None) -> tuple[str, ...]:
    """Return the kinds of axes that a figure may have, the default first."""
    if points is None:
        return ("lines",)
    return ("map",) if points.choices else ("lines", "map")


def _axes(name: str, value: Any, groups: Mapping[str, Any], points: Points | None) -> Axes:
    """Return axes. The columns that may be drawn depend on ``lines``, and on whether there are points."""
    key = f"axes.{name}"
    value = mapping(key, value)
    _known_fields(key, value, Axes)

    def choice(option: str, default: str, *others: str) -> str:
        return checks.one_of(f"{key}.{option}", value.get(option, default), (default, *others))

    over_points = points is not None
    lines = choice("lines", "curves", *(() if over_points else ("clients",)))
    columns = COLUMNS if lines == "curves" else CLIENT_COLUMNS
    if not over_points:  # metrics.csv has no audits
        columns = {name: column for name, column in columns.items() if name not in AUDIT_COLUMNS}
    if value.get("x") == POINT and not over_points:
        raise ArgumentError(f"{key}.x", POINT, "a column, unless the figure has points")
    return Axes(
        name=name,
        x=checks.one_of(f"{key}.x", value.get("x"), (POINT, SOUND) if over_points else columns),
        y=checks.one_of(f"{key}.y", value.get("y"), columns),
        kind=choice("kind", *_kinds(points)),
        lines=lines,
        band=choice("band", "t", "range", "sd"),
        best=choice("best", "low", "high"),
        x_label=optional_text(f"{key}.x_label", value.get("x_label")),
        y_label=optional_text(f"{key}.y_label", value.get("y_label")),
        x_limits=_limits(f"{key}.x_limits", value["x_limits"]) if "x_limits" in value else None,
        y_limits={
            checks.one_of(f"{key}.y_limits", group, groups): _limits(
                f"{key}.y_limits.{group}", pair
            )
            for group, pair in _optional_mapping(f"{key}.y_limits", value.get("y_limits")).items()
        },
        vacuous_above=_margin(key, value),
        x_scale=choice("x_scale", "linear", "log"),
        y_scale=choice("y_scale", "linear", "log"),
    )


def _margin(key: str, value: Mapping[str, Any]) -> float | None:
    """Return the ε from which the sound ε counts as vacuous, None for axes of another x."""
    given = value.get("vacuous_above")
    if value.get("x") != SOUND:
        if given is not None:
            raise ArgumentError(f"{key}.vacuous_above", given, f"absent unless x is {SOUND}")
        return None
    return checks.number(f"{key}.vacuous_above", 1000.0 if given is None else given, above=0)


def _limits(key: str, value: Any) -> tuple[float, float]:
    pair = [checks.number(key, v) for v in checks.sequence(key, value, "[from, to]")]
    if len(pair) != 2 or pair[0] >= pair[1]:
        raise ArgumentError(key, value, "[from, to] with from < to")
    return pair[0], pair[1]


def _stated(
    key: str, value: dict, curves: Mapping[str, Mapping[str, Curve]], points: Points | None
) -> StatedValue:
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
    key: str, value: dict, curves: Mapping[str, Mapping[str, Curve]], points: Points | None
) -> Ordering:
    _known_fields(key, value, Ordering, named=())
    group = checks.one_of(f"{key}.group", value.get("group"), curves)
    return Ordering(
        group=group,
        column=checks.one_of(f"{key}.column", value.get("column"), STATED_COLUMNS),
        curves=names(f"{key}.curves", value.get("curves"), curves[group], "curve shown"),
        point=_point(f"{key}.point", value, points),
    )


def _mark(key: str, value: dict, groups: Sequence[CurveGroup], axes: Sequence[Axes]) -> Mark:
    """Return a mark. Its column is drawn by some axes, and it fits a logarithmic scale of these axes."""
    _known_fields(key, value, Mark, named=())
    lines = [a for a in axes if a.kind == "lines"]
    columns = dict.fromkeys(a.y for a in lines)
    column = checks.one_of(f"{key}.column", value["column"], columns)
    drawn = [a for a in lines if a.y == column]
    label = checks.text(f"{key}.label", value["label"])
    if any(label in (curve.name, curve.label) for group in groups for curve in group.curves):
        raise ArgumentError(f"{key}.label", label, "another text than that of a curve")

    def number(field: str, scales: Iterable[str]) -> float:
        return checks.number(f"{key}.{field}", value[field], above=0 if "log" in scales else None)

    return Mark(
        group=checks.one_of(f"{key}.group", value["group"], [group.name for group in groups]),
        column=column,
        point=number("point", [a.x_scale for a in drawn]),
        value=number("value", [a.y_scale for a in drawn]),
        label=label,
    )


def _point(key: str, value: Mapping[str, Any], points: Points | None) -> float | None:
    """Return the point that a number or an ordering is about. It need not be a point in force."""
    if points is None:
        if value.get("point") is not None:
            raise ArgumentError(key, value["point"], "absent: the curve is run at no points")
        return None
    if points.choices:
        labels = [label for label, _ in points.choices]
        return float(labels.index(checks.one_of(key, value.get("point"), labels)))
    return checks.number(key, value.get("point"))


def _optional_mapping(key: str, value: Any) -> dict[str, Any]:
    return {} if value is None else mapping(key, value)


def _known_fields(
    key: str, value: Mapping[str, Any], kind: type, named: tuple[str, ...] = ("name",)
) -> None:
    """Refuse keys that are no fields of the dataclass ``kind``, and absent fields without a default.

    ``named`` are the fields that the YAML gives as the key of the section.
    """
    allowed = [f.name for f in fields(kind) if f.name not in named]
    refuse_unknown(key, value, allowed)
    for f in fields(kind):
        required = f.default is MISSING and f.default_factory is MISSING
        if required and f.name in allowed and value.get(f.name) is None:
            raise ArgumentError(f"{key}.{f.name}", None, "given")
