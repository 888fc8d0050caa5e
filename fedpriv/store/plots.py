"""Pictures of panels; only this module uses matplotlib.

A caller describes panels as plain values (:class:`Panel`, :class:`HeatMap`, :class:`StackedBars`) and passes
them to one of two functions. :func:`draw_panels` makes a picture of print size, as for a paper; its caption
is text beside the picture. :func:`draw_plot` quickly makes a picture for the screen, with panels above one
another.
"""

from __future__ import annotations

import io
import math
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure, SubFigure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, Locator, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from fedpriv.common.files import write_atomically
from fedpriv.store.colours import COLOURS

# A matplotlibrc in the working directory must not change the pictures.
matplotlib.rcdefaults()

CYCLE = tuple(COLOURS.values())
MARKERS = "os^Dv*Xph<"
"""Shapes that tell curves apart in grey, in the order in which curves take them."""
FONT_SIZE = 8.0  # points, of the labels of axes in print; legends are smaller by one
WIDTHS = {"one": 3.4, "two": 7.0}
"""Inches of one column of a two-column paper, and of both columns."""
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 2.5  # inches
INCHES_PER_LETTER = 0.05
CELL = (0.36, 0.26)  # width and height in inches of a heat map's cell
DPI, SCREEN_DPI = 200, 150
SCREEN_WIDTH = 5.2  # inches
_END_WIDTH, _BESIDE_WIDTH = 1.15, 2.4  # inches of labels at the ends of curves, and beside a panel
_LEADER = 0.16  # inches from the axes to a label at the end of a curve
_MARKED = 24  # points of a line that has a marker at each of them; longer lines have some markers
_MOST_TICKS = 12

Numbers = Sequence[float] | np.ndarray


def distinct(index: int) -> tuple[str, str, bool]:
    """Return colour, marker and dottedness of a curve by its number.

    Every curve has a look, however many there are. The first ten times eleven looks differ, and from the
    twelfth curve on lines are dotted.
    """
    return CYCLE[index % len(CYCLE)], MARKERS[index % len(MARKERS)], index >= len(CYCLE)


@dataclass(frozen=True)
class Line:
    """One line of a panel, with a band from ``low`` to ``high`` if both are given.

    Attributes:
        label: Label in the legend; one that begins with an underscore is not shown.
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
        """Width and height in inches; named rows need space for their labels."""
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
        left = 1.1 + INCHES_PER_LETTER * max(map(len, self.rows))
        letters = max(map(len, self.columns)) if self.slanted else 0
        below = 0.9 + 0.6 * INCHES_PER_LETTER * letters
        width, height = left + CELL[0] * len(self.columns), below + CELL[1] * len(self.rows)
        return max(PANEL_WIDTH, width), max(PANEL_HEIGHT, height)


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


# ---- pictures


def draw_panels(
    files: Sequence[Path],
    rows: Sequence[Sequence[Panel | HeatMap]],
    title: str = "",
    note: str = "",
    stamp: str = "",
    width: float | None = None,
    font_size: float = FONT_SIZE,
) -> None:
    """Draw a grid of panels of print size.

    Curves are labelled at their ends, to the right of the last panel of each row, where there is room. Else
    one legend names the lines of all panels, in reading order: below the panels, or beside a single panel if
    it would be too high below it. Title and stamp stand above the panels, where they cover nothing. Panels
    keep their height, whatever stands around them.

    Args:
        files: Files to write; the ending of each decides on its format.
        rows: Panels by row; a row may be shorter than the others.
        title: Title of the picture.
        note: Short text below the panels that a picture without its caption needs.
        stamp: Text above the panels that a reader must not overlook.
        width: Width of the picture in inches; None: that of the panels and what stands beside them.
        font_size: Size of the axes' labels in points; legends are one smaller, the title one larger.

    Raises:
        WriteError: A file cannot be written.
    """
    style = {
        "font.size": font_size, "axes.titlesize": font_size + 0.5, "legend.fontsize": font_size - 1,
        "pdf.fonttype": 42, "svg.hashsalt": "fedpriv",
    }  # fmt: skip
    stamped: dict[str, Any] = {
        "color": COLOURS["red"], "weight": "bold",
        "bbox": {"boxstyle": "square,pad=0.25", "facecolor": "#FDEDE3", "edgecolor": COLOURS["red"]},
    }  # fmt: skip
    columns = max(map(len, rows))
    widths = [max(row[c].size[0] for row in rows if c < len(row)) for c in range(columns)]
    heights = [max(panel.size[1] for panel in row) for row in rows]
    height = sum(heights) * (1 if width is None else min(1.0, max(0.75, width / sum(widths))))
    with matplotlib.rc_context(cast("Any", style)):
        figure = Figure(figsize=(width or sum(widths), height), layout="constrained")
        FigureCanvasAgg(figure)
        # Panels, legend and stamp; title and note stand around these.
        inner = cast("SubFigure", figure.subfigures())
        grid = inner.subplots(
            len(rows), columns, squeeze=False, width_ratios=widths, height_ratios=heights
        )
        for axis in grid.flat:
            axis.set_axis_off()
        drawn = [
            pair
            for row, axes in zip(rows, grid, strict=True)
            for pair in zip(row, axes, strict=False)
        ]
        for panel, axis in drawn:
            axis.set_axis_on()
            (draw_map if isinstance(panel, HeatMap) else draw_panel)(axis, cast("Any", panel))
        ends = [(axes[len(row) - 1], row) for row, axes in zip(rows, grid, strict=True)]
        around: list[Artist] = []
        if not _label_ends(figure, ends, width is None, font_size - 1):
            roomy = columns == len(rows) == 1 and (width is None or width > 1.5 * PANEL_WIDTH)
            around += _legend(inner, height, roomy, width is None, font_size - 1)
        for place, words, size, look in (
            (figure.suptitle, title, font_size + 1, {}),
            (inner.suptitle, stamp, font_size, stamped),
            (figure.supxlabel, note, font_size - 1, {}),
        ):
            if words:
                room = figure.get_figwidth() - 0.3
                text = _wrapped(figure, words, room, size, look.get("weight", "normal"))
                around.append(place(text, fontsize=size, parse_math=False, **look))
        pads = 2 * figure.get_layout_engine().get()["h_pad"]  # type: ignore[union-attr]
        figure.draw_without_rendering()
        for panel, axis in drawn:
            across, up = axis.bbox.size / figure.dpi
            axis.set_title(_wrapped(figure, panel.title, across, font_size + 0.5))
            axis.set_ylabel(_wrapped(figure, panel.y_label, up, font_size))
        more = sum(artist.get_window_extent().height / figure.dpi + pads for artist in around)
        figure.set_figheight(height + more)
        for panel, axis in drawn:
            if isinstance(panel, Panel):
                _tick_measured(figure, axis, panel)
        for path in files:
            save_picture(figure, path, DPI)


def _width(figure: Figure, text: str, size: float, weight: str = "normal") -> float:
    """Return the width of a text in inches, that of its longest line."""
    font = FontProperties(size=size, weight=weight)
    measure = cast("FigureCanvasAgg", figure.canvas).get_renderer().get_text_width_height_descent
    return max(measure(line or " ", font, False)[0] for line in text.split("\n")) / figure.dpi


def _wrapped(figure: Figure, text: str, inches: float, size: float, weight: str = "normal") -> str:
    """Return a text broken into lines that are at most so wide; line breaks are kept."""
    lines = []
    for paragraph in text.split("\n"):
        width = _width(figure, paragraph, size, weight)
        letters = max(20, int(len(paragraph) * min(1, inches / width)))
        broken = textwrap.wrap(paragraph, letters) or [""]
        while letters > 20 and _width(figure, "\n".join(broken), size, weight) > inches:
            letters -= 1  # wide letters are together
            broken = textwrap.wrap(paragraph, letters)
        lines += broken
    return "\n".join(lines)


def _label_ends(
    figure: Figure,
    rows: Sequence[tuple[Axes, Sequence[Panel | HeatMap]]],
    grow: bool,
    size: float,
) -> bool:
    """Label the curves of each row at their ends, to the right of its last panel.

    Args:
        figure: The picture.
        rows: Last axes and panels of each row.
        grow: True for a picture that grows by the width of the labels, else the panels shrink.
        size: Size of the labels in points.

    Returns:
        False where there is no room, or a row has a line that the ends of its last panel cannot name.
    """
    named: list[tuple[Axes, list[Line], list[str]]] = []
    for axis, row in rows:
        shown = [[x for x in p.lines if x.label[:1] != "_"] for p in row if isinstance(p, Panel)]
        if len(shown) < len(row) or cast("Panel", row[-1]).y_ticks:
            return False
        plain = all(line.joined and not line.band_label for lines in shown for line in lines)
        labels = [line.label for line in shown[-1]]
        everywhere = {line.label for lines in shown for line in lines}
        if not plain or len({*labels}) < len(labels) or everywhere != {*labels} or not labels:
            return False
        named.append((axis, shown[-1], [_wrapped(figure, x, _END_WIDTH, size) for x in labels]))
    widest = max(_width(figure, text, size) for _, _, texts in named for text in texts)
    width = figure.get_figwidth()
    if widest > _END_WIDTH * 1.3 or widest > 0.36 * width:
        return False
    figure.set_figwidth(width + (widest + _LEADER + 0.05) * grow)
    figure.draw_without_rendering()
    placed = []
    for axis, curves, texts in named:
        ends = [_end(axis, curve) for curve in curves]
        line_height = 1.15 * size / 72 * figure.dpi / axis.bbox.height
        heights = [line_height * (1 + text.count("\n")) for text in texts]
        if sum(heights) > 1.05 or min(x for x, _ in ends) < 0.8:
            figure.set_figwidth(width)
            return False
        centres = spread_apart([y for _, y in ends], heights)
        placed.append((axis, zip(curves, texts, ends, centres, strict=True)))
    for axis, ends_of_lines in placed:
        inch = figure.dpi / axis.bbox.width
        for line, text, (x, y), centre in ends_of_lines:
            rgb: np.ndarray = np.array(to_rgb(line.colour))
            # Text on white must be dark enough to read.
            brightness = float(rgb @ (0.299, 0.587, 0.114))
            colour = to_rgb((rgb * min(1.0, 0.5 / max(brightness, 0.5))).tolist())
            (leader,) = axis.plot(
                [x, 1 + 0.9 * _LEADER * inch], [y, centre], color=colour, linewidth=0.5,
                transform=axis.transAxes, clip_on=False, label="_leader", zorder=1,
            )  # fmt: skip
            leader.set_in_layout(False)
            axis.text(
                1 + _LEADER * inch, centre, text, transform=axis.transAxes, fontsize=size,
                color=colour, va="center", linespacing=1.0, parse_math=False,
            )  # fmt: skip
    return True


def _end(axis: Axes, line: Line) -> tuple[float, float]:
    """Return the last finite point of a line in coordinates of the axes; (-inf, 0) without a point inside."""
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    points = axis.transAxes.inverted().transform(axis.transData.transform(np.column_stack([x, y])))
    inside = points[np.isfinite(points).all(axis=1) & (points[:, 0] <= 1.001)]
    x_end, y_end = inside[-1] if len(inside) else (-math.inf, 0.0)
    return float(x_end), float(np.clip(y_end, 0, 1))


def _legend(inner: SubFigure, height: float, roomy: bool, grow: bool, size: float) -> list[Artist]:
    """Name each line once: below the panels, or beside a panel that is alone and lower than its legend.

    Args:
        inner: The panels.
        height: Height of the panels in inches.
        roomy: True for a picture of one panel that is wide enough for a legend beside it.
        grow: True for a picture that grows by the width of a legend beside the panel.
        size: Size of the labels in points.

    Returns:
        The legend if it stands below the panels.
    """
    handles: dict[str, Artist] = {}
    for axis in inner.axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        return []
    figure = inner.figure
    width, line_height, handle_width = figure.get_figwidth(), 1.35 * size / 72, 3.6 * size / 72
    labels = [_wrapped(figure, label, width - handle_width - 0.1, size) for label in handles]
    entry = handle_width + max(_width(figure, label, size) for label in labels)
    most = max(1, min(len(labels), int(width / entry)))
    columns = math.ceil(len(labels) / math.ceil(len(labels) / most))
    lines = sum(1 + label.count("\n") for label in labels)
    beside = roomy and line_height * lines / columns > 0.4 * height
    if beside:
        labels = [_wrapped(figure, label, _BESIDE_WIDTH, size) for label in handles]
        right = handle_width + max(_width(figure, label, size) for label in labels) + 0.1
        figure.set_figwidth(width + right * grow)
        columns = 1
    # matplotlib fills a legend column by column; a reader reads it row by row.
    order = [i for column in range(columns) for i in range(column, len(labels), columns)]
    artists = [*handles.values()]
    legend = inner.legend(
        [artists[i] for i in order], [labels[i] for i in order], ncols=columns,
        loc="outside right center" if beside else "outside lower center", frameon=False,
        columnspacing=1.2, labelspacing=0.35, handlelength=2.4, borderpad=0.1, borderaxespad=0,
    )  # fmt: skip
    for text in legend.get_texts():
        text.set_parse_math(False)
    return [] if beside else [legend]


def draw_plot(path: Path, panels: Sequence[Panel | StackedBars], title: str, subtitle: str) -> None:
    """Draw panels one below the other, with a common x axis, into a PNG for the screen.

    Args:
        path: File to write.
        panels: One or two panels.
        title: Title of the picture.
        subtitle: Line below the title, shortened to 80 characters.

    Raises:
        WriteError: The file cannot be written.
    """
    height = 3.8 if len(panels) == 1 else 5.0
    figure = Figure(figsize=(SCREEN_WIDTH, height))
    right = 0.86 if any(panel.legend == "beside" for panel in panels) else 0.97
    # The margins are fixed. Letting matplotlib measure them would take a third of the drawing time.
    figure.subplots_adjust(0.14, 0.5 / height, right, 1 - 0.5 / height, hspace=0.1)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), 1, sharex=len(panels) > 1, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        (draw_bars if isinstance(panel, StackedBars) else draw_panel)(axis, cast("Any", panel))
    figure.suptitle(title, x=0.14, y=1 - 0.06 / height, ha="left", va="top", fontsize=10)
    below = subtitle if len(subtitle) <= 80 else f"{subtitle[:77]}..."
    figure.text(0.14, 1 - 0.28 / height, below, ha="left", va="top", fontsize=7, color="0.35")
    save_picture(figure, path, SCREEN_DPI)


def spread_apart(centres: Sequence[float], heights: Sequence[float]) -> list[float]:
    """Return places for labels near ``centres`` at which no two labels overlap, in the same order.

    Args:
        centres: Wished centres of the labels, from 0 to 1 [n].
        heights: Heights of the labels [n].

    Returns:
        The centres of the labels [n]. Groups of labels that would overlap stand centred on the mean of their
        wished centres. They stay between 0 and 1 if their heights allow.

    Example:
        >>> spread_apart([0.5, 0.5], [0.1, 0.1])
        [0.45, 0.55]
    """
    # Imported late: plots on a screen have no such labels.
    from scipy.optimize import isotonic_regression

    order = np.argsort(centres, kind="stable")
    sizes = np.asarray(heights, dtype=float)[order]
    # Centres of the labels if they stood on one another, from 0 on.
    inside = np.cumsum(sizes) - sizes / 2
    room = 1.0 - sizes.sum()
    # Labels that would overlap get one common shift; the regression finds which ones those are.
    shifts = isotonic_regression(np.asarray(centres, dtype=float)[order] - inside).x
    places = np.empty(len(order))
    places[order] = inside + (np.clip(shifts, 0, room) if room > 0 else room / 2)
    return places.tolist()


# ---- one panel


def save_picture(figure: Figure, path: Path, dpi: int) -> None:
    """Write a picture atomically; the ending of the path decides on the format.

    Raises:
        WriteError: The file cannot be written.
    """
    # Without a date the same numbers give the same bytes.
    dates = {".pdf": "CreationDate", ".svg": "Date"}
    metadata = {"Software" if path.suffix == ".png" else "Creator": "fedpriv"}
    undated = {dates[path.suffix]: None} if path.suffix in dates else {}
    content = io.BytesIO()  # writing directly, matplotlib would leave half a file on a full disk
    figure.savefig(content, dpi=dpi, metadata=metadata | undated, format=path.suffix[1:])
    write_atomically(path, lambda file: file.write(content.getbuffer()), "wb")


def draw_panel(axis: Axes, panel: Panel) -> None:
    """Draw the lines of a panel, its labels and limits, and its own legend if it has one."""
    for index, line in enumerate(panel.lines):
        _draw_line(axis, line, index)
    _limit_bands(axis, panel)
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    x = np.concatenate([np.asarray(line.x, dtype=float) for line in panel.lines] or [np.zeros(0)])
    if panel.x_limits:
        axis.set_xlim(*panel.x_limits)
    elif panel.lines and panel.x_from_zero and not panel.x_log:
        axis.set_xlim(from_zero(x) or axis.get_xlim())
    _scale(axis, panel, x)
    if panel.y_ticks:
        axis.set_yticks(range(len(panel.y_ticks)), panel.y_ticks)
        axis.set_ylim(-0.6, len(panel.y_ticks) - 0.4)
    elif panel.y_limits:
        axis.set_ylim(*panel.y_limits)
    elif panel.y_from_zero and panel.lines and not panel.y_log:
        axis.set_ylim(0, 1.05 * max(np.nanmax(line.y) for line in panel.lines) or 1)
    if not panel.lines:
        axis.text(0.5, 0.5, "no finished run", transform=axis.transAxes, ha="center", color="grey")
    _finish(axis, panel)


def _scale(axis: Axes, panel: Panel, x: np.ndarray) -> None:
    """Set the scales of a panel whose lines stand at ``x``, with plain numbers where they fit."""
    if panel.x_log or panel.x_powers:
        axis.set_xscale("log")
    if panel.x_log:  # powers of ten, and 2 and 5 between them if they fit
        low, high = panel.x_limits or (None, None)
        wide = (high or np.nanmax(x, initial=1)) > 300 * (low or np.nanmin(x, initial=1))
        _tick(axis.xaxis, LogLocator(subs=(1,) if wide else (1, 2, 5)))
    if panel.vacuous_above is not None:
        # Powers of ten, and a tick for all points to the right of them.
        most, beyond = panel.vacuous_above, x[x > panel.vacuous_above]
        powers = [10.0**power for power in range(-3, 7)]
        ticks = {p: f"{p:g}" for p in powers if axis.get_xlim()[0] <= p <= most}
        if len(beyond):
            ticks[float(beyond.min())] = "vacuous\nor ∞"
            axis.axvline(math.sqrt(most * beyond.min()), color="grey", linestyle=":", linewidth=0.8)
        axis.set_xticks(list(ticks), list(ticks.values()))
    if panel.y_log:
        axis.set_yscale("log")
        low, high = axis.get_ylim()
        if high / low < 100 and low > 1e-3 and high < 1e4:
            _tick(axis.yaxis, LogLocator(subs=(1, 2, 5) if high / low > 5 else range(1, 10)))


def _tick(axis: Axis, locator: Locator, write: str | Callable[..., str] = "{x:g}") -> None:
    """Put the ticks of an axis where the locator says, with plain numbers, and none at minor ticks."""
    axis.set_major_locator(locator)
    axis.set_major_formatter(write)
    axis.set_minor_formatter(NullFormatter())


def _draw_line(axis: Axes, line: Line, index: int) -> None:
    """Draw the line of this index in its panel, and its interval: a band, or bars at single symbols."""
    count = np.size(line.x)
    # Sparse markers begin elsewhere on each line, so that those of close lines do not cover.
    step = max(1, count // 7)
    style: object = (0, (1, 1.2)) if line.dotted else "--" if line.dashed else "-"
    axis.plot(
        line.x, line.y, label=line.label,
        color=line.colour, linestyle=line.style or (style if line.joined else "none"),
        markevery=(step * (index % 5) // 5, step) if line.sparse and count > _MARKED else None,
        linewidth=line.width or (0.9 if line.thin else 1.4),
        marker=line.marker or ("o" if count == 1 else None),
        markersize=line.marker_size or (3 if line.joined else 5),
    )  # fmt: skip
    if line.low is None or line.high is None:
        return
    if line.joined:
        axis.fill_between(
            line.x, line.low, line.high, color=line.colour, linewidth=0,
            alpha=0.25 if line.band_label else 0.18, label=line.band_label or None,
        )  # fmt: skip
    else:
        axis.vlines(line.x, line.low, line.high, color=line.colour, linewidth=0.9)


def _limit_bands(axis: Axes, panel: Panel) -> None:
    """Keep very wide bands from making the curves invisible.

    A band adds at most twice the curves' range above and below, a decade on a logarithmic axis. An axis of
    percent ends at 0 and 100.
    """
    bounds: list[Any] = [
        b for one in panel.lines if one.low is not None for b in (one.low, one.high)
    ]
    if not bounds:
        return
    to = np.log10 if panel.y_log else np.asarray
    with np.errstate(divide="ignore", invalid="ignore"):
        curves, bands = to(np.hstack([one.y for one in panel.lines])), to(np.hstack(bounds))
    curves = curves[np.isfinite(curves)]
    if not curves.size:
        return
    low, high = float(curves.min()), float(curves.max())
    spare = 1.0 if panel.y_log else 2 * (high - low) or 0.05 * abs(high) or 0.05
    least, most = low - spare, high + spare
    if panel.y_label.endswith("(%)") and not panel.y_log:
        least, most = min(low, 0.0), max(high, 100.0)
    bands = np.clip(np.where(np.isnan(bands), least, bands), least, most)
    low, high = min(low, float(bands.min())), max(high, float(bands.max()))
    if low < high:  # matplotlib widens a flat axis by itself
        margin = 0.05 * (high - low)
        limits = low - margin, high + margin
        axis.set_ylim(*(10.0**limit for limit in limits) if panel.y_log else limits)


def _tick_measured(figure: Figure, axis: Axes, panel: Panel) -> None:
    """Put the ticks of the x axis at the measured values, if the panel has few points, each with a marker.

    Values whose numbers would touch are left out, but not the first and the last. Where there is room, ticks
    stand at values that only single points have.
    """
    curves = [line for line in panel.lines if line.joined and line.marker]
    special = panel.x_powers or panel.vacuous_above is not None
    if special or not curves or any(line.sparse or not len(line.x) for line in curves):
        return
    low, high = sorted(axis.get_xlim())
    own = np.unique(np.hstack([line.x for line in curves]).astype(float))
    own = own[(low <= own) & (own <= high)]
    if not 1 < len(own) <= _MOST_TICKS:
        return
    more = np.unique(np.hstack([own, *(line.x for line in panel.lines if line.marker)]))
    more = np.setdiff1d(more[(low <= more) & (more <= high)], own)
    values = np.hstack([own[[0, -1]], own[1:-1], more])

    def write(value: float, _: object = None) -> str:
        return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"

    figure.draw_without_rendering()
    size = float(axis.xaxis.label.get_fontsize())  # an axis may have no tick so far
    places = axis.transData.transform([(value, 0) for value in values])[:, 0]
    widths = np.array([0.55 * figure.dpi * _width(figure, write(value), size) for value in values])
    for shrink in (1.0, 0.8):  # smaller, where not all have room
        half, kept = shrink * widths, list[int]()
        left, right = places - half, places + half
        for i in range(len(values)):
            if i < 2 or all(right[i] <= left[k] or right[k] <= left[i] for k in kept):
                kept.append(i)
        axis.tick_params(axis="x", labelsize=shrink * size)
        if len(kept) == len(values):
            break
    _tick(axis.xaxis, FixedLocator(sorted(values[kept])), write)
    axis.xaxis.set_minor_locator(FixedLocator(np.delete(values, kept).tolist()))


def draw_map(axis: Axes, panel: HeatMap) -> None:
    """Draw a table as colours with numbers, the best of each row framed."""
    values = np.asarray(panel.values, dtype=float)
    finite = np.isfinite(values)
    image = axis.imshow(values, cmap="cividis", aspect="auto")
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    slant: dict[str, Any] = {}
    if panel.slanted:
        slant = {"rotation": 40, "ha": "right", "rotation_mode": "anchor"}
    axis.set_xticks(range(len(panel.columns)), panel.columns, **slant)
    axis.set_yticks(range(len(panel.rows)), panel.rows)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if not finite.any():
        axis.text(0.5, 0.5, "no finished run", transform=axis.transAxes, ha="center", color="grey")
        return
    axis.figure.colorbar(image, ax=axis, label=panel.label, fraction=0.05, pad=0.02)
    best = np.where(finite, values if panel.best == "low" else -values, np.inf).argmin(axis=1)
    for row, column in np.argwhere(finite).tolist():
        value, framed = values[row, column], column == best[row]
        axis.text(
            column, row, f"{value:.{panel.decimals}f}", ha="center", va="center", fontsize=6,
            weight="bold" if framed else "normal",
            color="black" if cast("float", image.norm(value)) > 0.55 else "white",
        )  # fmt: skip
        if framed:
            corner, red = (column - 0.46, row - 0.44), COLOURS["red"]
            axis.add_patch(Rectangle(corner, 0.92, 0.88, fill=False, linewidth=1.6, edgecolor=red))


def draw_bars(axis: Axes, panel: StackedBars) -> None:
    """Draw horizontal bars made of parts."""
    rows, left = np.arange(len(panel.counts)), np.zeros(len(panel.counts))
    edges = np.arange(len(rows) + 1) - 0.5
    for part, counts in enumerate(panel.counts.T):
        look: dict[str, Any] = {"color": CYCLE[part % len(CYCLE)], "label": str(part)}
        if panel.apart:
            axis.barh(rows, counts, 0.8, left, edgecolor="white", linewidth=0.4, **look)
        else:  # one outline for the bands of all rows: a bar for each takes seconds
            look |= {"orientation": "horizontal", "fill": True, "linewidth": 0}
            axis.stairs(left + counts, edges, baseline=left, **look)
        left = left + counts
    axis.set(xlabel=panel.x_label, ylabel=panel.y_label, ylim=(len(rows) - 0.5, -0.5))
    if panel.apart:
        axis.set_yticks(rows)
    _finish(axis, panel)


def _finish(axis: Axes, panel: Panel | StackedBars) -> None:
    """Draw a light grid and the panel's own legend, and hide the upper and the right spine."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)
    # A run that was stopped before its first evaluation has no line.
    if not axis.get_legend_handles_labels()[0]:
        return
    if panel.legend == "beside":
        axis.legend(
            title=panel.legend_title, frameon=False, fontsize=7, title_fontsize=7, loc="center left",
            bbox_to_anchor=(1.0, 0.5),
        )  # fmt: skip
    elif panel.legend:
        # The place that is named is the default. Where it is not named, a slow search for it warns.
        axis.legend(title=panel.legend_title, frameon=False, loc="best")


def from_zero(values: ArrayLike) -> tuple[float, float] | None:
    """Return axis limits from zero to a little above the largest value; None if no value is above zero."""
    largest = np.nanmax(np.asarray(values), initial=0.0)
    return (0.0, 1.02 * largest) if np.isfinite(largest) and largest > 0 else None
