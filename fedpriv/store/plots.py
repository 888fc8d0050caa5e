"""The only place that draws: panels that say what they show, and pictures made of them.

:func:`draw_panels` makes a picture of print size with one legend below it, as for a paper. :func:`draw_plot`
makes one for the screen, quickly: those of a run, and of ``fedpriv account``. Colours are safe for all
common kinds of colour vision.
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

matplotlib.rcdefaults()  # a matplotlibrc in the folder one works in changes no picture

CYCLE = tuple(COLOURS.values())
STYLE: dict[Any, int] = {
    "font.size": 8,
    "axes.titlesize": 9,
    "legend.fontsize": 7,
    "pdf.fonttype": 42,
}
PANEL_WIDTH, PANEL_HEIGHT = 3.4, 2.5  # inches: a column of a two-column paper
INCHES_PER_LETTER, INCHES_PER_LINE = 0.05, 0.14  # of a legend
HANDLE = 0.5  # inches of a legend's entry beside its label
LEGEND_LINES = 4  # so many find room below the panels; for more the picture grows
TITLE_SIZE, CAPTION_SIZE = 9.0, 6.5  # points
CELL = (0.36, 0.26)  # inches, of a map
DPI, SCREEN_DPI = 200, 150
SCREEN_WIDTH = 5.2  # inches


Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Line:
    """One line of a panel, perhaps with a band from ``low`` to ``high``.

    Attributes:
        label: In the legend.
        marker: matplotlib's name of a symbol at each point.
        joined: False: symbols without a line.
        style: matplotlib's name of a line style; empty: the one that ``dotted`` and ``dashed`` tell.
        width, marker_size: In points; None: those of a figure in print.
        band_label: Name of the band in the legend; such a band is darker.
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
    """What one coordinate system of a picture shows.

    Attributes:
        x_limits, y_limits: An end that is None follows from the data.
        x_from_zero, y_from_zero: Whether an axis without limits begins at zero.
        x_log, y_log: Whether an axis is logarithmic; ``x_powers``: its numbers are powers of ten.
        y_ticks: Names of the rows at y = 0, 1, 2, …
        legend: ``inside`` or ``beside`` the axes; empty: none of its own.
        legend_title: Heading of its own legend.
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
        """Width and height in inches: rows with names have room for them."""
        if not self.y_ticks:
            return PANEL_WIDTH, PANEL_HEIGHT
        beside = INCHES_PER_LETTER * max(map(len, self.y_ticks))
        return PANEL_WIDTH + beside, max(PANEL_HEIGHT, 0.9 + CELL[1] * len(self.y_ticks))


@dataclass(frozen=True)
class HeatMap:
    """A table as colours, with each number in its cell.

    Attributes:
        label: What the values are, beside the colour bar.
        rows, columns: The labels of ``values``' rows and columns.
        values: NaN where there is none.
        best: ``low`` or ``high``: which cell of each row is framed.
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
        """Width and height in inches: every cell holds its number."""
        beside = 1.1 + INCHES_PER_LETTER * max(map(len, self.rows))
        width = beside + CELL[0] * len(self.columns)
        return max(PANEL_WIDTH, width), max(PANEL_HEIGHT, 0.9 + CELL[1] * len(self.rows))


@dataclass(frozen=True)
class StackedBars:
    """A bar for each row of counts [rows, parts], made of its parts, in the colours of the cycle.

    Attributes:
        apart: Whether bars have gaps and numbers; many of them form bands.
        legend_title: What the parts are; they are numbered.
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
    """Draw a grid of panels with one legend below them into every one of ``files``.

    ``stamp`` is written across the picture: something a reader must not overlook. ``creator``: the command
    that may later replace the files.
    """
    columns = max(len(row) for row in rows)
    widths = [max(row[i].size[0] for row in rows if i < len(row)) for i in range(columns)]
    heights = [max(panel.size[1] for panel in row) for row in rows]
    with matplotlib.rc_context(STYLE):
        figure = Figure(figsize=(sum(widths), sum(heights) + 0.9), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.subplots(
            len(rows), columns, squeeze=False, width_ratios=widths, height_ratios=heights
        )
        for row, places in zip(rows, axes, strict=True):
            for panel, axis in zip(row, places, strict=False):
                if isinstance(panel, HeatMap):
                    _draw_map(axis, panel)
                else:
                    _draw_panel(axis, panel)
            for axis in places[len(row) :]:
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
    """Draw panels that share their x axis one below the other into a PNG for the screen."""
    high = 3.8 if len(panels) == 1 else 5.0
    figure = Figure(figsize=(SCREEN_WIDTH, high))
    right = 0.86 if any(panel.legend == "beside" for panel in panels) else 0.97
    # margins that are measured cost a third of the drawing
    figure.subplots_adjust(0.14, 0.5 / high, right, 1 - 0.5 / high, hspace=0.1)
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(panels), 1, sharex=len(panels) > 1, squeeze=False)[:, 0]
    for axis, panel in zip(axes, panels, strict=True):
        if isinstance(panel, StackedBars):
            _draw_bars(axis, panel)
        else:
            _draw_panel(axis, panel)
    figure.suptitle(title, x=0.14, y=1 - 0.06 / high, ha="left", va="top", fontsize=10)
    figure.text(
        0.14, 1 - 0.28 / high, subtitle if len(subtitle) <= 80 else f"{subtitle[:77]}...",
        ha="left", va="top", fontsize=7, color="0.35",
    )  # fmt: skip
    save_picture(figure, path, SCREEN_DPI)


def draw_beside(path: Path, panels: Sequence[Panel], note: str, creator: str) -> None:
    """Draw panels side by side for the screen. ``note``: what a reader must know, above them."""
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
    """Write a picture whose file is whole or not there. Raises WriteError.

    ``creator``: noted in the file, so that its command knows what it may write over.
    """
    # without a date, the same numbers give the same bytes
    metadata: dict[str, str | None] = {"CreationDate": None} if path.suffix == ".pdf" else {}
    if creator:
        metadata["Software" if path.suffix == ".png" else "Creator"] = creator
    content = io.BytesIO()  # matplotlib would leave half a file on a full disk
    figure.savefig(content, dpi=dpi, metadata=metadata, format=path.suffix[1:])
    write_atomically(path, lambda file: file.write(content.getbuffer()), "wb")


def _legend_below(figure: Figure, axes: Iterable[Axes], caption: str, width: float) -> None:
    """The caption and one legend for all panels, below them, each label once; labels too long for one
    line are wrapped, and the picture grows with them."""
    handles: dict[str, Artist] = {}
    for axis in axes:
        for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    if not handles:
        figure.supxlabel(caption, fontsize=CAPTION_SIZE)
        return
    entry = HANDLE + INCHES_PER_LETTER * max(map(len, handles))
    columns = max(1, min(len(handles), int(width / entry)))
    letters = int((width - HANDLE) / INCHES_PER_LETTER)
    labels = ["\n".join(textwrap.wrap(label, letters)) for label in handles]
    lines = sum(1 + label.count("\n") for label in labels) / columns
    more = INCHES_PER_LINE * max(0.0, lines - LEGEND_LINES)
    figure.set_figheight(figure.get_figheight() + more)
    figure.legend(
        list(handles.values()), labels, title=caption, loc="outside lower center",
        ncols=columns, frameon=False, fontsize=7, title_fontsize=CAPTION_SIZE,
    )  # fmt: skip


def _wrapped(text: str, inches: float, size: float) -> str:
    """Broken into lines that fit: a letter is about half as wide as it is high."""
    return "\n".join(textwrap.wrap(text, max(20, int(inches * 72 / (0.52 * size)))))


def _draw_panel(axis: Axes, panel: Panel) -> None:
    for line in panel.lines:
        alone = "o" if np.size(line.x) == 1 else None
        axis.plot(
            line.x, line.y, label=line.label, color=line.colour, linestyle=_line_style(line),
            linewidth=line.width or (0.9 if line.thin else 1.4), marker=line.marker or alone,
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
    """Powers of ten as plain numbers, with 2 and 5 between them where they find room."""
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
    """Two spines, a light grid, and the axis's own legend."""
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
    """Return limits from zero to a little above the largest value; None where no value is above zero."""
    largest = np.max(values, initial=0.0, where=~np.isnan(values))
    return (0.0, 1.02 * largest) if np.isfinite(largest) and largest > 0 else None
