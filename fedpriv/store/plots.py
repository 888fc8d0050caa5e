"""Drawing: descriptions of panels, and the functions that make pictures of them.

No other module draws with matplotlib. A caller describes panels as plain values (:class:`Panel`,
:class:`HeatMap`, :class:`StackedBars`) and passes them to one of three functions. :func:`draw_panels` makes a
picture of print size with one legend below it, as for a paper. :func:`draw_plot` quickly makes a picture for
the screen, with panels above one another. :func:`draw_beside` puts the panels side by side.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from fedpriv.common.files import write_atomically
from fedpriv.store.colours import COLOURS

# A matplotlibrc in the working directory must not change the pictures.
matplotlib.rcdefaults()

CYCLE = tuple(COLOURS.values())
STYLE: dict[Any, int] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "legend.fontsize": 7,
    "pdf.fonttype": 42,  # TrueType: publishers refuse matplotlib's default, Type 3
}
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 2.5  # inches: a column of a two-column paper
INCHES_PER_LETTER, INCHES_PER_LINE = 0.05, 0.14  # in a legend
HANDLE = 0.5  # inches in front of a label in a legend
LEGEND_LINES = 4  # lines that fit below the panels; for more lines the picture grows
TITLE_SIZE, CAPTION_SIZE = 9.0, 6.5  # points
CELL = (0.36, 0.26)  # width and height in inches of a heat map's cell
DPI, SCREEN_DPI = 200, 150
SCREEN_WIDTH = 5.2  # inches


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
    def size(self) -> tuple[float, float]:
        """Width and height in inches, so that each number fits into its cell."""
        label_width = 1.1 + INCHES_PER_LETTER * max(map(len, self.rows))
        width = label_width + CELL[0] * len(self.columns)
        return max(PANEL_WIDTH, width), max(PANEL_HEIGHT, 0.9 + CELL[1] * len(self.rows))


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


def draw_panels(
    files: Sequence[Path],
    rows: Sequence[Sequence[Panel | HeatMap]],
    title: str,
    caption: str,
    stamp: str = "",
    creator: str = "",
) -> None:
    """Draw a grid of panels with one common legend below them.

    Args:
        files: Files to write; the ending of each decides on its format.
        rows: Panels by row; a row may be shorter than the others.
        title: Title of the picture.
        caption: Text between panels and legend.
        stamp: Text across the picture that a reader must not overlook.
        creator: Command that may later write over the files; see :func:`save_picture`.

    Raises:
        WriteError: A file cannot be written.
    """
    columns = max(len(row) for row in rows)
    widths = [
        max(row[column].size[0] for row in rows if column < len(row)) for column in range(columns)
    ]
    heights = [max(panel.size[1] for panel in row) for row in rows]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(sum(widths), sum(heights) + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(
            len(rows), columns, squeeze=False, width_ratios=widths, height_ratios=heights
        )
        for row, row_axes in zip(rows, axes, strict=True):
            for panel, axis in zip(row, row_axes, strict=False):
                if isinstance(panel, HeatMap):
                    _draw_map(axis, panel)
                else:
                    _draw_panel(axis, panel)
            for axis in row_axes[len(row) :]:
                axis.set_axis_off()
        width = figure.get_figwidth()
        if caption:
            caption = _wrapped(caption, width, CAPTION_SIZE)
        _legend_below(figure, axes.flat, caption, width)
        if title:
            figure.suptitle(_wrapped(title, width, TITLE_SIZE), fontsize=TITLE_SIZE)
        if stamp:
            figure.text(
                0.5, 0.5, stamp, fontsize=min(18.0, 90 * width / max(map(len, stamp.split("\n")))),
                color=COLOURS["red"], alpha=0.4, rotation=12,
                ha="center", va="center", weight="bold",
            )  # fmt: skip
        for path in files:
            save_picture(figure, path, DPI, creator)


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
    right_margin = 0.86 if any(panel.legend == "beside" for panel in panels) else 0.97
    # The margins are fixed. Letting matplotlib measure them would take a third of the drawing time.
    figure.subplots_adjust(0.14, 0.5 / height, right_margin, 1 - 0.5 / height, hspace=0.1)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), 1, sharex=len(panels) > 1, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        if isinstance(panel, StackedBars):
            _draw_bars(axis, panel)
        else:
            _draw_panel(axis, panel)
    figure.suptitle(title, x=0.14, y=1 - 0.06 / height, ha="left", va="top", fontsize=10)
    figure.text(
        0.14, 1 - 0.28 / height, subtitle if len(subtitle) <= 80 else f"{subtitle[:77]}...",
        ha="left", va="top", fontsize=7, color="0.35",
    )  # fmt: skip
    save_picture(figure, path, SCREEN_DPI)


def draw_beside(path: Path, panels: Sequence[Panel], note: str, creator: str) -> None:
    """Draw panels side by side into a PNG for the screen.

    Args:
        path: File to write.
        panels: The panels, from left to right.
        note: Text above the panels that a reader must know; may be empty.
        creator: Command that may later write over the file; see :func:`save_picture`.

    Raises:
        WriteError: The file cannot be written.
    """
    width = SCREEN_WIDTH if len(panels) == 1 else 4.8 * len(panels)
    figure = Figure(figsize=(width, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    if note:
        wrapped = _wrapped(note, width, TITLE_SIZE)
        figure.suptitle(wrapped, fontsize=TITLE_SIZE, color=COLOURS["red"])
    for axis, panel in zip(figure.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        _draw_panel(axis, panel)
    save_picture(figure, path, SCREEN_DPI, creator)


def save_picture(figure: Figure, path: Path, dpi: int, creator: str = "") -> None:
    """Write a picture atomically.

    Args:
        figure: The picture.
        path: File to write; its ending decides on the format.
        dpi: Dots per inch.
        creator: Command that is noted in the file, so that this command alone may write over it.

    Raises:
        WriteError: The file cannot be written.
    """
    # Without a date the same numbers give the same bytes.
    metadata: dict[str, str | None] = {"CreationDate": None} if path.suffix == ".pdf" else {}
    if creator:
        metadata["Software" if path.suffix == ".png" else "Creator"] = creator
    content = io.BytesIO()  # writing directly, matplotlib would leave half a file on a full disk
    figure.savefig(content, dpi=dpi, metadata=metadata, format=path.suffix[1:])
    write_atomically(path, lambda file: file.write(content.getbuffer()), "wb")


def _legend_below(figure: Figure, axes: Iterable[Axes], caption: str, width: float) -> None:
    """Draw the caption and one legend of all panels below them.

    Each label appears once. Long labels are wrapped, and the picture grows with the number of lines.
    """
    handles: dict[str, Artist] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        figure.supxlabel(caption, fontsize=CAPTION_SIZE)
        return
    entry_width = HANDLE + INCHES_PER_LETTER * max(map(len, handles))
    columns = max(1, min(len(handles), int(width / entry_width)))
    letters_per_line = int((width - HANDLE) / INCHES_PER_LETTER)
    labels = ["\n".join(textwrap.wrap(label, letters_per_line)) for label in handles]
    lines = sum(1 + label.count("\n") for label in labels) / columns
    extra_height = INCHES_PER_LINE * max(0.0, lines - LEGEND_LINES)
    figure.set_figheight(figure.get_figheight() + extra_height)
    figure.legend(
        list(handles.values()), labels, title=caption, loc="outside lower center",
        ncols=columns, frameon=False, fontsize=7, title_fontsize=CAPTION_SIZE,
    )  # fmt: skip


def _wrapped(text: str, inches: float, size: float) -> str:
    """Return a text broken into lines that fit. A letter is about half as wide as it is high."""
    return "\n".join(textwrap.wrap(text, max(20, int(inches * 72 / (0.52 * size)))))


def _draw_panel(axis: Axes, panel: Panel) -> None:
    for line in panel.lines:
        lone_point = "o" if np.size(line.x) == 1 else None
        axis.plot(
            line.x, line.y, label=line.label, color=line.colour, linestyle=_line_style(line),
            linewidth=line.width or (0.9 if line.thin else 1.4), marker=line.marker or lone_point,
            markersize=line.marker_size or (3 if line.joined else 5),
        )  # fmt: skip
        if line.low is not None and line.high is not None:
            axis.fill_between(
                line.x, line.low, line.high, color=line.colour, linewidth=0,
                alpha=0.25 if line.band_label else 0.18, label=line.band_label or None,
            )  # fmt: skip
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.x_limits:
        axis.set_xlim(*panel.x_limits)
    elif panel.lines and panel.x_from_zero and not panel.x_log:
        x = np.concatenate([np.asarray(line.x, dtype=float) for line in panel.lines])
        axis.set_xlim(from_zero(x) or axis.get_xlim())
    if panel.x_powers:
        axis.set_xscale("log")
    elif panel.x_log:
        _log_x(axis, panel.x_limits)
    if panel.y_log:
        axis.set_yscale("log")
    if panel.y_ticks:
        axis.set_yticks(range(len(panel.y_ticks)), panel.y_ticks)
        axis.set_ylim(-0.6, len(panel.y_ticks) - 0.4)
    elif panel.y_limits:
        axis.set_ylim(*panel.y_limits)
    elif panel.y_from_zero and panel.lines and not panel.y_log:
        axis.set_ylim(0, 1.05 * max(np.nanmax(line.y) for line in panel.lines) or 1)
    if not panel.lines:
        axis.text(0.5, 0.5, "no finished run", transform=axis.transAxes, ha="center", color="grey")
    _finish(axis, panel.legend, panel.legend_title)


def _line_style(line: Line) -> object:
    if line.style or not line.joined:
        return line.style or "none"
    return (0, (1, 1.2)) if line.dotted else "--" if line.dashed else "-"


def _log_x(axis: Axes, limits: tuple[float | None, float | None] | None) -> None:
    """Make the x axis logarithmic with plain numbers: powers of ten, and 2 and 5 between them if they fit."""
    low, high = limits or (None, None)
    wide = low is not None and high is not None and high / low > 300
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1,) if wide else (1, 2, 5)))
    axis.xaxis.set_major_formatter(FuncFormatter(lambda x, _: f"{x:g}"))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _draw_map(axis: Axes, panel: HeatMap) -> None:
    values = np.ma.masked_invalid(np.asarray(panel.values, dtype=float))
    image = axis.imshow(values, cmap="cividis", aspect="auto")
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axis.set_xticks(range(len(panel.columns)), panel.columns)
    axis.set_yticks(range(len(panel.rows)), panel.rows)
    axis.tick_params(length=0)
    axis.spines[:].set_visible(False)
    if not values.count():
        axis.text(0.5, 0.5, "no finished run", transform=axis.transAxes, ha="center", color="grey")
        return
    axis.figure.colorbar(image, ax=axis, label=panel.label, fraction=0.05, pad=0.02)
    for row, numbers in enumerate(values):
        if not numbers.count():
            continue
        best = numbers.argmin() if panel.best == "low" else numbers.argmax()
        for column in np.flatnonzero(~np.ma.getmaskarray(numbers)).tolist():
            axis.text(
                column, row, f"{numbers[column]:.{panel.decimals}f}", ha="center", va="center",
                fontsize=6, weight="bold" if column == best else "normal",
                color="black" if cast("float", image.norm(numbers[column])) > 0.55 else "white",
            )  # fmt: skip
        frame = Rectangle((best - 0.46, row - 0.44), 0.92, 0.88, fill=False, linewidth=1.6)
        frame.set_edgecolor(COLOURS["red"])
        axis.add_patch(frame)


def _draw_bars(axis: Axes, panel: StackedBars) -> None:
    rows, left = np.arange(len(panel.counts)), np.zeros(len(panel.counts))
    for part, counts in enumerate(panel.counts.T):
        axis.barh(
            rows, counts, left=left, color=CYCLE[part % len(CYCLE)], label=str(part), edgecolor="white",
            height=0.8 if panel.apart else 1.0, linewidth=0.4 if panel.apart else 0,
        )  # fmt: skip
        left += counts
    axis.set(xlabel=panel.x_label, ylabel=panel.y_label, ylim=(len(rows) - 0.5, -0.5))
    if panel.apart:
        axis.set_yticks(rows)
    _finish(axis, panel.legend, panel.legend_title)


def _finish(axis: Axes, legend: str, legend_title: str | None) -> None:
    """Draw a light grid and the panel's own legend, and hide the upper and the right spine."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)
    if legend == "inside":
        axis.legend(title=legend_title, frameon=False)
    elif legend == "beside":
        axis.legend(
            title=legend_title, frameon=False, fontsize=7, title_fontsize=7, loc="center left",
            bbox_to_anchor=(1.0, 0.5),
        )  # fmt: skip


def from_zero(values: np.ndarray) -> tuple[float, float] | None:
    """Return axis limits from zero to a little above the largest value; None if no value is above zero."""
    largest = np.max(values, initial=0.0, where=~np.isnan(values))
    return (0.0, 1.02 * largest) if np.isfinite(largest) and largest > 0 else None
