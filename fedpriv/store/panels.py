"""Descriptions of panels as plain values: what a picture shows, without matplotlib."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fedpriv.store.colours import COLOURS

CYCLE = tuple(COLOURS.values())
MARKERS = "os^Dv*Xph<"
"""Shapes that tell curves apart in grey, in the order in which curves take them."""
FONT_SIZE = 8.0  # points, of the labels of axes in print; legends are smaller by one
WIDTHS = {"one": 3.4, "two": 7.0}
"""Inches of one column of a two-column paper, and of both columns."""
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 2.5  # inches
INCHES_PER_LETTER = 0.05
CELL = (0.36, 0.26)  # width and height in inches of a heat map's cell


Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Line:
    """One line of a panel, with a band from ``low`` to ``high`` if both are given.

    Attributes:
        label: Label in the legend.
        colour: Colour as matplotlib reads it.
        x: Horizontal positions [n].
        y: Vertical positions [n].
        low: Lower ends of the band [n].
        high: Upper ends of the band [n].
        dotted: True for a dotted line.
        dashed: True for a dashed line.
        thin: True for a thinner line.
        marker: matplotlib's name of a symbol at each point.
        joined: False for symbols without a line between them.
        style: matplotlib's name of a line style; it replaces ``dotted`` and ``dashed``.
        width: Width in points; None: that of a printed figure.
        marker_size: Size of the symbols in points; None: that of a printed figure.
        band_label: Label of the band in the legend; a labelled band is darker.
        sparse: True for markers at some points only where the line has many.
        at_bottom: True for symbols at the bottom of the axes, whatever ``y`` is.
    """

    label: str
    colour: str
    x: Numbers
    y: Numbers
    low: Numbers | None = None
    high: Numbers | None = None
    dotted: bool = False
    dashed: bool = False
    thin: bool = False
    marker: str | None = None
    joined: bool = True
    style: str | tuple[int, tuple[float, ...]] = ""
    width: float | None = None
    marker_size: float | None = None
    band_label: str = ""
    sparse: bool = False
    at_bottom: bool = False


@dataclass(frozen=True)
class Look:
    """Size of a picture of print size.

    Attributes:
        width: Width of the picture in inches, or None: a column for each panel.
        font_size: Size of the axes' labels in points; legends are one smaller, the title one larger.
    """

    width: float | None = None
    font_size: float = FONT_SIZE


@dataclass(frozen=True)
class Panel:
    """One coordinate system of a picture, with lines.

    Attributes:
        title: Title above the axes.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        lines: The lines, in the order of the legend.
        x_limits: Ends of the x axis; an end that is None follows from the data.
        y_limits: Ends of the y axis; an end that is None follows from the data.
        x_from_zero: True if an x axis without limits begins at zero.
        y_from_zero: True if a y axis without limits begins at zero.
        x_log: True for a logarithmic x axis with plain numbers.
        y_log: True for a logarithmic y axis.
        x_powers: True for a logarithmic x axis with powers of ten.
        vacuous_above: Largest ε of the x axis that is not vacuous; everything to the right of it is drawn at
            one place, whose tick says so. None: x is no ε, or has no such place.
        y_ticks: Names of the rows at y = 0, 1, 2, …
        legend: ``inside`` or ``beside`` the axes; empty: the panel has no legend of its own.
        legend_title: Heading of the panel's own legend.
    """

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x_limits: tuple[float | None, float | None] | None = None
    y_limits: tuple[float | None, float | None] | None = None
    x_from_zero: bool = True
    y_from_zero: bool = False
    x_log: bool = False
    y_log: bool = False
    x_powers: bool = False
    vacuous_above: float | None = None
    y_ticks: tuple[str, ...] = ()
    legend: str = ""
    legend_title: str | None = None

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches, with room for the names of rows."""
        if not self.y_ticks:
            return PANEL_WIDTH, PANEL_HEIGHT
        label_width = INCHES_PER_LETTER * max(map(len, self.y_ticks))
        return PANEL_WIDTH + label_width, max(PANEL_HEIGHT, 0.9 + CELL[1] * len(self.y_ticks))


@dataclass(frozen=True)
class HeatMap:
    """A table shown as colours, with each number in its cell.

    Attributes:
        title: Title above the axes.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        label: Label of the colour bar.
        rows: Labels of the rows [r].
        columns: Labels of the columns [c].
        values: The numbers [r, c]; NaN leaves a cell empty.
        decimals: Number of decimals in a cell.
        best: ``low`` or ``high``: the cell of each row that is framed.
    """

    title: str
    x_label: str
    y_label: str
    label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: np.ndarray
    decimals: int = 2
    best: str = "low"

    @property
    def slanted(self) -> bool:
        """True where the labels of the columns are words, wider than a cell."""
        return max(map(len, self.columns), default=0) > 5

    @property
    def size(self) -> tuple[float, float]:
        """Width and height in inches, so that each number fits into its cell."""
        label_width = 1.1 + INCHES_PER_LETTER * max(map(len, self.rows))
        width = label_width + CELL[0] * len(self.columns)
        below = 0.9
        if self.slanted:
            below += 0.6 * INCHES_PER_LETTER * max(map(len, self.columns))
        return max(PANEL_WIDTH, width), max(PANEL_HEIGHT, below + CELL[1] * len(self.rows))


@dataclass(frozen=True)
class StackedBars:
    """A horizontal bar for each row of counts, made of coloured parts.

    Attributes:
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        counts: Lengths of the parts [rows, parts].
        apart: True for bars with gaps and numbers; False for many bars, which then form bands.
        legend_title: Heading of the legend, in which the parts are numbered.
        legend: Place of the legend.
    """

    x_label: str
    y_label: str
    counts: np.ndarray
    apart: bool
    legend_title: str
    legend = "beside"
