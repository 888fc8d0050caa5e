"""What a figure is: the parts of ``conf/figure/<work>/<figure>.yaml``; :mod:`reading` checks the YAML.

    groups    panels' rows: a title, overrides and seeds (such as a data set)
    curves    name → overrides, label, colour; a curve of one name is the same runs in every figure
    show      which curves of which group the figure has
    points    a setting and its values: every curve is run at each of them, and the end of a run is a
              point, drawn over the setting (axes with ``x: point``)
    axes      panels' columns: what is drawn against what, as lines or as a map
    stated    the numbers the paper states; orderings: the curves from best to worst where it says so
    marks     numbers published elsewhere, about none of the curves: symbols (axes with ``x: point``)

A panel is a group seen through an axes; a job is a curve of a group with one seed, at one point if
there are any. A figure with ``compute`` has no runs: see :mod:`fedpriv.study.figures.computed`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

SCALES = ("paper", "quick")
POINT = "point"
"""The x of an axes that is drawn over the figure's points."""


@dataclass(frozen=True)
class Points:
    """A setting over which the ends of runs are drawn.

    Attributes:
        key: The config key that is set to each value.
        values: Those of the scale in force, increasing.
        label: On the axis.
    """

    key: str
    values: tuple[float, ...]
    label: str


@dataclass(frozen=True)
class Curve:
    """A named list of overrides.

    Attributes:
        label: In the legend.
        colour: One of the palette's names.
        overrides: As after ``fedpriv train``; ``{point}`` in one stands for the point it is run at.
        quick: Overrides of its own at the quick scale.
        minutes: Group → minutes of one run at the paper's scale on one core, where measured.
        points: False: not run at the figure's points but once a seed, for reference: a level line. Numbers:
            run at these of the figure's points alone.
        seeds: It is run with so many of its group's seeds, the first ones; None: with all.
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
    """Curves that share overrides and seeds, such as those on one data set."""

    name: str
    title: str
    overrides: tuple[str, ...]
    seeds: tuple[int, ...]
    curves: tuple[Curve, ...]

    def seeds_of(self, curve: Curve) -> tuple[int, ...]:
        """Those that a curve of it is run with."""
        return self.seeds[: curve.seeds]


@dataclass(frozen=True)
class Axes:
    """What is drawn against what.

    Attributes:
        x: A column of ``metrics.csv`` (of ``clients.csv`` when ``lines`` is ``clients``), or
            ``point``: the values of the figure's points.
        y: A column; with ``x: point`` its value at the end of a run (``round``: the rounds run).
        kind: ``lines``, or ``map`` (only with ``x: point``): a row of cells for each curve, a column
            for each point, the mean over seeds as colour and number.
        lines: ``curves``: a line for the mean over seeds; ``clients``: one for each client of the
            first seed.
        band: Around a mean: ``range``, from the lowest to the highest seed; ``sd``, one sample
            standard deviation to either side.
        best: Which cell of each row of a map is marked: ``low`` or ``high``.
        x_limits: In the units shown; None: from zero to the largest value (points: the data).
        y_limits: Group → limits in the units shown; absent: from the data.
        x_scale, y_scale: ``linear`` or ``log``.
    """

    name: str
    x: str
    y: str
    kind: str = "lines"
    lines: str = "curves"
    band: str = "range"
    best: str = "low"
    x_label: str | None = None
    y_label: str | None = None
    x_limits: tuple[float, float] | None = None
    y_limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    x_scale: str = "linear"
    y_scale: str = "linear"


@dataclass(frozen=True)
class StatedValue:
    """A number the paper states about the end of a curve, in the units shown (accuracy in %)."""

    group: str
    curve: str
    column: str
    value: float
    point: float | None = None


@dataclass(frozen=True)
class Ordering:
    """Curves of a group from best to worst by the column at their end, at one point if it has any."""

    group: str
    column: str
    curves: tuple[str, ...]
    point: float | None = None


@dataclass(frozen=True)
class Mark:
    """A number of a publication that is about none of the figure's curves, in the units shown.

    It is a fact, whatever the runs are: drawn at the quick scale and with changed runs as well.

    Attributes:
        column: What it is of: the y of the axes on which it is drawn.
        point: On the x axis; perhaps not one of the figure's points.
        label: In the legend: what it is and who published it; marks of one label look alike.
    """

    group: str
    column: str
    point: float
    value: float
    label: str


@dataclass(frozen=True)
class Figure:
    """A figure of a published work, or a variant of one of ours."""

    name: str
    work: str
    title: str
    groups: tuple[CurveGroup, ...]
    axes: tuple[Axes, ...]
    stated: tuple[StatedValue, ...]
    orderings: tuple[Ordering, ...]
    deviations: Mapping[str, str]
    scale: str
    quick: tuple[str, ...]
    notes: str
    reuse: tuple[str, ...]
    draw_only: bool
    points: Points | None = None
    marks: tuple[Mark, ...] = ()
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

    @property
    def as_defined(self) -> bool:
        """Whether its runs are those of the definition, so that what a paper states is about them."""
        return self.scale == "paper" and not self.changed

    @property
    def altered_words(self) -> str:
        """`` (rounds=5)``; empty where only seeds and points are fewer."""
        return f" ({' '.join(self.altered)})" if self.altered else ""

    @property
    def run_count(self) -> int:
        """How many jobs it has."""
        return sum(
            len(group.seeds_of(curve)) * len(self.points_of(curve))
            for group in self.groups
            for curve in group.curves
        )

    def points_of(self, curve: Curve) -> tuple[float | None, ...]:
        """The points at which a curve is run; None stands for no point in particular.

        Empty for a curve whose own points are none of those in force, as at the quick scale.
        """
        if self.points is None or curve.points is False:
            return (None,)
        own = self.points.values if curve.points is True else curve.points
        return tuple(value for value in self.points.values if value in own)
