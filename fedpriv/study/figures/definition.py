"""Parts of a figure, as :mod:`fedpriv.study.figures.reading` reads them from a YAML.

    groups    rows of panels: a title, overrides, seeds and curves (``panels`` of the YAML)
    axes      columns of panels: two quantities drawn against each other, as lines or as a map (``metric``)
    points    a setting and its values, or named choices with overrides: every curve is run at each of
              them, and the end of a run is a point (axes with ``x: point``; choices are drawn as a map)
    stated    numbers that the paper states
    orderings curves from best to worst, where the paper states an order
    marks     numbers from elsewhere, about none of the curves (``baselines``)

A panel shows one group on one axes. A job is a curve of a group with one seed, at one point if the figure
has points. A curve of one name has the same runs in every figure of a work. A figure with ``compute`` has no
runs: see :mod:`fedpriv.study.figures.computed`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from fedpriv.common.words import quoted

SCALES = ("paper", "quick")
POINT = "point"  # the x of axes that are drawn over the figure's points
SOUND = "epsilon_sound"  # the x of axes that are drawn over the sound ε of the runs at each point


@dataclass(frozen=True)
class Points:
    """A setting over which the ends of runs are drawn.

    Attributes:
        key: The config key that is set to each value; empty where the points are named choices.
        values: Increasing values of the setting at the scale in force; of choices their positions.
        label: Label of the x axis.
        choices: All named choices, each a label and its overrides.
    """

    key: str
    values: tuple[float, ...]
    label: str
    choices: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def words(self, value: float) -> str:
        """Return a point for tables, ticks and messages: its number, or the label of the choice."""
        return self.choices[int(value)][0] if self.choices else f"{value:g}"

    def overrides(self, value: float) -> tuple[str, ...]:
        """Return the overrides that make the point of a run."""
        return self.choices[int(value)][1] if self.choices else (f"{self.key}={value}",)


@dataclass(frozen=True)
class Curve:
    """A named list of overrides.

    Attributes:
        name: Name of the curve in the YAML.
        label: Label in the legend.
        colour: Name of a colour of the palette.
        overrides: Overrides as after ``fedpriv train``; ``{point}`` stands for the point of the run.
        quick: Further overrides at the quick scale.
        minutes: Group → minutes of one run at the paper's scale on one core, where measured.
        points: True: the curve is run at all points of the figure. Numbers: only at these points. False: the
            curve is run once a seed, at no point, and drawn as a level line for reference.
        seeds: Number of the group's seeds that the curve is run with, the first ones; None: all seeds.
    """

    name: str
    label: str
    colour: str
    overrides: tuple[str, ...]
    quick: tuple[str, ...] = ()
    minutes: Mapping[str, float] = field(default_factory=dict)
    points: bool | tuple[float, ...] = True
    seeds: int | None = None


@dataclass(frozen=True)
class CurveGroup:
    """Curves that share overrides and seeds, such as the curves on one data set."""

    name: str
    title: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    curves: tuple[Curve, ...]

    def seeds_of(self, curve: Curve) -> tuple[int, ...]:
        """Return the seeds that a curve of this group is run with."""
        return self.seeds[: curve.seeds]


@dataclass(frozen=True)
class Axes:
    """Two quantities drawn against each other.

    Attributes:
        name: Name of the axes in the YAML.
        x: A column of ``metrics.csv`` (of ``clients.csv`` where each client has a line), or ``point``: the
            values of the figure's points; or, over points, ``epsilon_sound``: the sound ε of the runs at each
            point.
        y: A column; with ``x: point`` the column's value at the end of a run (``round``: the rounds run).
        kind: ``lines``: for each curve a line for the mean over seeds; ``clients``: a line for each client
            of the first seed; ``map`` (only with ``x: point``): a row of cells for each curve, a column for
            each point, the mean over seeds as colour and number.
        band: Band around a mean: ``t``, Student's 95 % interval for the mean; ``range``, from the lowest to
            the highest seed; ``sd``, one sample standard deviation to either side.
        best: Cell of each row of a map that is marked: ``low`` or ``high``.
        x_label: Label of the x axis; None: the label of the column.
        y_label: Label of the y axis; None: the label of the column.
        x_limits: Limits in the units shown; None: from zero to the largest value (points: the data).
        y_limits: Limits in the units shown; None: from the data.
        x_scale: ``linear`` or ``log``.
        y_scale: ``linear`` or ``log``.
        vacuous_above: With ``x: epsilon_sound``: every larger ε, infinity too, is drawn at the margin.
    """

    name: str
    x: str
    y: str
    kind: str = "lines"
    band: str = "t"
    best: str = "low"
    x_label: str | None = None
    y_label: str | None = None
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    x_scale: str = "linear"
    y_scale: str = "linear"
    vacuous_above: float | None = None


@dataclass(frozen=True)
class Stated:
    """Statement of the paper about ends: a number about one curve, or the order of several curves.

    Attributes:
        group: Group of the curves.
        column: Quantity at their end.
        curves: The curve of the number, or curves from best to worst.
        point: Point of the figure, if it has points.
        value: The number, in the units shown (accuracy in %); None for an order.
    """

    group: str
    column: str
    curves: tuple[str, ...]
    point: float | None = None
    value: float | None = None


@dataclass(frozen=True)
class Mark:
    """A published number that is about none of the figure's curves, in the units shown.

    A mark does not depend on the runs. It is drawn with changed runs as well, and at the quick scale where
    its group has the same data there.

    Attributes:
        group: Group whose panel shows the mark.
        column: Quantity of the number, the y of the axes on which the mark is drawn.
        point: Position on the x axis, not necessarily one of the figure's points; None: a level line.
        value: The number.
        label: Quantity and source, in the legend; marks of one label look alike.
        low: Lower end of an interval around the number.
        high: Upper end of that interval.
        joined: True where a line joins the marks of the label.
        source: Where the number comes from, if the label does not say so.
    """

    group: str
    column: str
    point: float | None
    value: float
    label: str
    low: float | None = None
    high: float | None = None
    joined: bool = False
    source: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure of a published work, or a variant of such a figure.

    Attributes:
        name: Name of the figure, ``<work>/<figure>``.
        title: Title of the figure.
        groups: Rows of panels, each with its curves.
        axes: Columns of panels.
        work: Citation of the published work.
        stated: Numbers that the paper states.
        orderings: Orders of curves that the paper states.
        deviations: Key → text of a difference from the paper's experiment.
        scale: ``paper`` or ``quick``.
        whose: Whose settings the runs at the scale ``paper`` have, such as ``ours: smaller models``.
        quick: Overrides of all runs at the quick scale.
        notes: Text for comparison.md.
        reuse: Further folders, or archives, of finished runs.
        draw_only: True where missing runs are not started.
        points: Setting over which the ends of runs are drawn, if any.
        marks: Numbers published elsewhere.
        changed: The user's overrides that make other runs than the defined ones.
        file: The user's own file that describes the figure; None for a figure of a published work.
        quick_shape: Sentence about what the quick scale shows of the figure's shape; empty: nothing.
    """

    name: str
    title: str
    groups: tuple[CurveGroup, ...]
    axes: tuple[Axes, ...]
    work: str = ""
    stated: tuple[Stated, ...] = ()
    orderings: tuple[Stated, ...] = ()
    deviations: Mapping[str, str] = field(default_factory=dict)
    scale: str = "paper"
    whose: str = "paper"
    quick: tuple[str, ...] = ()
    notes: str = ""
    reuse: tuple[str, ...] = ()
    draw_only: bool = False
    points: Points | None = None
    marks: tuple[Mark, ...] = ()
    changed: tuple[str, ...] = ()
    quick_shape: str = ""
    file: Path | None = None

    @property
    def folder(self) -> str:
        """Folder of the figure below ``<output_dir>/figures``."""
        quick = "_quick" if self.scale == "quick" else ""
        return f"{self.name}{quick}{'_changed' if self.changed else ''}"

    @property
    def altered(self) -> tuple[str, ...]:
        """Overrides by which the runs differ from the definition: the quick scale's and the user's."""
        changed_keys = {*map(key_of, self.changed)}
        quick = self.quick if self.scale == "quick" else ()
        return (*(q for q in quick if key_of(q) not in changed_keys), *self.changed)

    @property
    def as_defined(self) -> bool:
        """True where the runs are the defined ones, so that the paper's numbers apply to the runs."""
        return self.scale == "paper" and not self.changed

    @property
    def altered_words(self) -> str:
        """Changed overrides such as `` (rounds=5)``; empty where only seeds or points are fewer."""
        return f" ({' '.join(self.altered)})" if self.altered else ""

    def points_of(self, curve: Curve) -> tuple[float | None, ...]:
        """Return the points at which a curve is run; None stands for no point in particular.

        The result is empty for a curve none of whose points are in force, as may be at the quick scale.
        """
        if self.points is None or curve.points is False:
            return (None,)
        curve_points = self.points.values if curve.points is True else curve.points
        return tuple(value for value in self.points.values if value in curve_points)


# ---- overrides, and what a figure is called


def key_of(override: str) -> str:
    """Return the key that an override sets, without the signs of Hydra."""
    return override.lstrip("+~").partition("=")[0]


def names_file(name: str) -> bool:
    """Return whether the name of a figure is that of a user's file."""
    return name.endswith((".yaml", ".yml"))


def choice_of(name: str, settings: Sequence[str] = ()) -> list[str]:
    """Return the overrides that choose a figure, by its name or by its file, with settings of the figure."""
    if not names_file(name):
        return [f"+figure={name}", *settings]
    # The section of a figure that a file describes has no keys yet, so they are added.
    added = [f"++{s}" if s.startswith("figure.") else s for s in settings]
    return [f"+figure.file={quoted(name)}", *added]
