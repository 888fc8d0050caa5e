"""What a figure is: the YAML of ``conf/figure/<work>/<figure>.yaml``, checked.

    groups    panels' rows: a title, overrides and seeds (such as a data set)
    curves    name → overrides, label, colour; a curve of one name is the same runs in every figure
    show      which curves of which group the figure has
    axes      panels' columns: what is drawn against what
    stated    the numbers the paper states; orderings: the curves from best to worst where it says so

A panel is a group seen through an axes; a job is a curve of a group with one seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any

from omegaconf import DictConfig, OmegaConf

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError, nearest
from fedpriv.results.colours import COLOURS
from fedpriv.results.columns import CLIENT_COLUMNS, COLUMNS, STATED_COLUMNS

SCALES = ("paper", "quick")


@dataclass(frozen=True)
class Curve:
    """A named list of overrides.

    Attributes:
        label: In the legend.
        colour: One of the palette's names.
        overrides: As after ``fedpriv train``.
        minutes: Group → minutes of one run at the paper's scale on one core, where measured.
    """

    name: str
    label: str
    colour: str
    overrides: tuple[str, ...]
    minutes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Group:
    """Curves that share overrides and seeds, such as those on one data set."""

    name: str
    title: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class Axes:
    """What is drawn against what.

    Attributes:
        x, y: Columns of ``metrics.csv``, or of ``clients.csv`` when ``lines`` is ``clients``.
        lines: ``curves``: a line for the mean over seeds; ``clients``: one for each client of the
            first seed.
        x_limits: In the units shown; None: from zero to the largest value.
        y_limits: Group → limits in the units shown; absent: from the data.
        y_scale: ``linear`` or ``log``.
    """

    name: str
    x: str
    y: str
    lines: str = "curves"
    x_label: str | None = None
    y_label: str | None = None
    x_limits: tuple[float, float] | None = None
    y_limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    y_scale: str = "linear"


@dataclass(frozen=True)
class Stated:
    """A number the paper states about the end of a curve, in the units shown (accuracy in %)."""

    group: str
    curve: str
    column: str
    value: float


@dataclass(frozen=True)
class Ordering:
    """Curves of a group from best to worst by the column at their end."""

    group: str
    column: str
    curves: tuple[str, ...]


@dataclass(frozen=True)
class Figure:
    """A figure of a published work, or a variant of one of ours."""

    name: str
    work: str
    title: str
    groups: tuple[Group, ...]
    axes: tuple[Axes, ...]
    stated: tuple[Stated, ...]
    orderings: tuple[Ordering, ...]
    deviations: Mapping[str, str]
    scale: str
    quick: tuple[str, ...]
    notes: str
    reuse: tuple[str, ...]
    draw_only: bool
    changed: tuple[str, ...] = ()

    @property
    def folder(self) -> str:
        """Where it goes, below ``<output_dir>/figures``."""
        quick = "_quick" if self.scale == "quick" else ""
        return f"{self.name}{quick}{'_changed' if self.changed else ''}"

    @property
    def altered(self) -> tuple[str, ...]:
        """The overrides that make it another figure than the one defined: quick scale, the user's."""
        own = {o.partition("=")[0] for o in self.changed}
        quick = self.quick if self.scale == "quick" else ()
        return (*(q for q in quick if q.partition("=")[0] not in own), *self.changed)


def read_figure(node: DictConfig, name: str) -> Figure:
    """The figure defined by the config's ``figure`` section. Raises ConfigError naming the key."""
    values = OmegaConf.to_container(node, resolve=True)
    try:
        return _figure(values, name)
    except ArgumentError as error:
        raise error.within("figure") from None


_KEYS = (
    "work", "title", "groups", "curves", "show", "axes", "stated", "orderings", "deviations",
    "quick", "notes", "scale", "seeds", "reuse", "draw_only",
)  # fmt: skip


def _figure(values: dict[str, Any], name: str) -> Figure:
    _known("", values, _KEYS)
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
    by_name = {group.name: [c.name for c in group.curves] for group in shown}
    axes = _mapping("axes", values.get("axes"))
    return Figure(
        name=name,
        work=checks.text("work", values.get("work")),
        title=checks.text("title", values.get("title")),
        groups=shown,
        axes=tuple(_axes(key, value, by_name) for key, value in axes.items()),
        stated=tuple(_stated(i, s, by_name) for i, s in _listed(values, "stated")),
        orderings=tuple(_ordering(i, o, by_name) for i, o in _listed(values, "orderings")),
        deviations={k: str(v) for k, v in deviations.items() if v},
        scale=scale,
        quick=_texts("quick", values.get("quick") or []),
        notes=str(values.get("notes") or ""),
        reuse=_texts("reuse", values.get("reuse") or []),
        draw_only=checks.boolean("draw_only", values.get("draw_only", False)),
    )


def _group(
    name: str, groups: dict, chosen: tuple[str, ...], curves: dict, seeds: list[int] | None
) -> Group:
    key = f"groups.{name}"
    if name not in groups:
        raise ArgumentError(f"show.{name}", name, "one of the groups " + ", ".join(groups))
    value = _mapping(key, groups[name])
    _known(key, value, ("title", "overrides", "seeds"))
    wanted = value.get("seeds") if seeds is None else seeds
    where = f"{key}.seeds" if seeds is None else "seeds"
    numbers = [checks.seed(where, s) for s in checks.sequence(where, wanted, "a list of seeds")]
    if not numbers or len(set(numbers)) != len(numbers):
        raise ArgumentError(where, wanted, "one seed or several different ones")
    return Group(
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
        minutes={
            group: checks.number(f"{key}.minutes.{group}", number, above=0)
            for group, number in _optional_mapping(f"{key}.minutes", value.get("minutes")).items()
        },
    )


def _axes(name: str, value: Any, groups: Mapping[str, Any]) -> Axes:
    key = f"axes.{name}"
    value = _mapping(key, value)
    _known_fields(key, value, Axes)
    lines = checks.one_of(f"{key}.lines", value.get("lines", "curves"), ("curves", "clients"))
    columns = COLUMNS if lines == "curves" else CLIENT_COLUMNS
    return Axes(
        name=name,
        x=checks.one_of(f"{key}.x", value.get("x"), columns),
        y=checks.one_of(f"{key}.y", value.get("y"), columns),
        lines=lines,
        x_label=_optional_text(f"{key}.x_label", value.get("x_label")),
        y_label=_optional_text(f"{key}.y_label", value.get("y_label")),
        x_limits=_limits(f"{key}.x_limits", value["x_limits"]) if "x_limits" in value else None,
        y_limits={
            checks.one_of(f"{key}.y_limits", group, groups): _limits(
                f"{key}.y_limits.{group}", pair
            )
            for group, pair in _optional_mapping(f"{key}.y_limits", value.get("y_limits")).items()
        },
        y_scale=checks.one_of(f"{key}.y_scale", value.get("y_scale", "linear"), ("linear", "log")),
    )


def _limits(key: str, value: Any) -> tuple[float, float]:
    pair = [checks.number(key, v) for v in checks.sequence(key, value, "[from, to]")]
    if len(pair) != 2 or pair[0] >= pair[1]:
        raise ArgumentError(key, value, "[from, to] with from < to")
    return pair[0], pair[1]


def _stated(index: int, value: Any, curves: Mapping[str, list[str]]) -> Stated:
    key = f"stated.{index}"
    value = _mapping(key, value)
    _known_fields(key, value, Stated, named=())
    group = checks.one_of(f"{key}.group", value.get("group"), curves)
    return Stated(
        group=group,
        curve=checks.one_of(f"{key}.curve", value.get("curve"), curves[group]),
        column=checks.one_of(f"{key}.column", value.get("column"), STATED_COLUMNS),
        value=checks.number(f"{key}.value", value.get("value")),
    )


def _ordering(index: int, value: Any, curves: Mapping[str, list[str]]) -> Ordering:
    key = f"orderings.{index}"
    value = _mapping(key, value)
    _known_fields(key, value, Ordering, named=())
    group = checks.one_of(f"{key}.group", value.get("group"), curves)
    return Ordering(
        group=group,
        column=checks.one_of(f"{key}.column", value.get("column"), STATED_COLUMNS),
        curves=_names(
            f"{key}.curves", value.get("curves"), dict.fromkeys(curves[group]), "curve shown"
        ),
    )


def _names(key: str, value: Any, known: Mapping[str, Any], what: str) -> tuple[str, ...]:
    names = checks.sequence(key, value, f"a list of {what}s")
    if not names or len(set(names)) != len(names):
        raise ArgumentError(key, value, f"one {what} or several different ones")
    for name in names:
        if name not in known:
            near = nearest(str(name), known)
            hint = f"; did you mean {near}?" if near else ""
            raise ConfigError(f"figure.{key}: no {what} {name}{hint} (known: {', '.join(known)})")
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
    _known(key, value, allowed)
    for f in fields(kind):
        required = f.default is MISSING and f.default_factory is MISSING
        if required and f.name in allowed and value.get(f.name) is None:
            raise ArgumentError(f"{key}.{f.name}", None, "given")


def _known(key: str, value: Mapping[str, Any], allowed: Any) -> None:
    for name in value:
        if name not in allowed:
            near = nearest(str(name), allowed)
            hint = f"; did you mean {near}?" if near else ""
            dotted = ".".join(part for part in ("figure", key, str(name)) if part)
            raise ConfigError(f"unknown key {dotted}{hint} (known: {', '.join(allowed)})")
