"""The one plotting module: style, a grid of panels, and small plots; colour-blind safe, in print size.

Every picture of fedpriv is drawn with what is here; :mod:`fedpriv.store.run_plots` draws those of
one run.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Iterable, Mapping, Sequence
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
DPI = 200


Numbers = Sequence[float] | np.ndarray


@dataclass(frozen=True)
class Line:
    """One line of a panel, perhaps with a band from ``low`` to ``high``.

    ``marker``: matplotlib's name of a symbol at each point; ``joined=False``: the symbols alone.
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


@dataclass(frozen=True)
class Panel:
    """What one coordinate system of a picture shows. ``y_ticks``: names of the rows at y = 0, 1, 2, …"""

    title: str
    x_label: str
    y_label: str
    lines: tuple[Line, ...]
    x_limits: tuple[float, float] | None = None
    y_limits: tuple[float, float] | None = None
    x_from_zero: bool = True
    y_from_zero: bool = False
    x_log: bool = False
    y_log: bool = False
    y_ticks: tuple[str, ...] = ()

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
    import matplotlib

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
        alone = "o" if len(line.x) == 1 else None
        axis.plot(
            line.x, line.y, label=line.label, color=line.colour, linestyle=_line_style(line),
            linewidth=0.9 if line.thin else 1.4, marker=line.marker or alone,
            markersize=3 if line.joined else 5,
        )  # fmt: skip
        if line.low is not None and line.high is not None:
            axis.fill_between(
                line.x, line.low, line.high, color=line.colour, alpha=0.18, linewidth=0
            )
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    if panel.x_limits:
        axis.set_xlim(*panel.x_limits)
    elif panel.lines and panel.x_from_zero and not panel.x_log:
        from_zero(axis, np.concatenate([np.asarray(line.x, dtype=float) for line in panel.lines]))
    if panel.x_log:
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
    plain(axis)


def _line_style(line: Line) -> object:
    if not line.joined:
        return "none"
    return (0, (1, 1.2)) if line.dotted else "--" if line.dashed else "-"


def _log_x(axis: Axes, limits: tuple[float, float] | None) -> None:
    """Powers of ten as plain numbers, with 2 and 5 between them where they find room."""
    wide = limits is not None and limits[1] / limits[0] > 300
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
        frame = Rectangle(
            (best - 0.46, row - 0.44),
            0.92,
            0.88,
            fill=False,
            edgecolor=COLOURS["red"],
            linewidth=1.6,
        )
        axis.add_patch(frame)


def plain(axis: Axes) -> None:
    """Two spines and a light grid."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)


def legend_outside(axis: Axes, title: str | None) -> None:
    """A legend to the right of the axis."""
    axis.legend(
        title=title, frameon=False, fontsize=7, title_fontsize=7, loc="center left",
        bbox_to_anchor=(1.0, 0.5),
    )  # fmt: skip


def from_zero(axis: Axes, values: np.ndarray) -> None:
    """Begin the x axis at zero."""
    largest = np.max(values, initial=0.0, where=~np.isnan(values))
    if np.isfinite(largest) and largest > 0:
        axis.set_xlim(0, 1.02 * largest)


_MARKED = 15  # points of a line; those of fewer are marked


def plot_epsilon_by_steps(
    path: Path,
    curves: Mapping[str, tuple[Sequence[int], Sequence[float]]],
    deltas: Sequence[float],
    profiles: Mapping[str, Sequence[float]],
    delta: float,
    note: str = "",
) -> None:
    """ε against steps at ``delta``, a line (steps, ε) for each accountant; with ``profiles`` ε against δ.

    ``note``: what a reader must know, above the panels.
    """
    figure = Figure(figsize=(9.6 if profiles else 5.2, 3.4), layout="constrained")
    if note:
        wrapped = _wrapped(note, figure.get_figwidth(), TITLE_SIZE)
        figure.suptitle(wrapped, fontsize=TITLE_SIZE, color=COLOURS["red"])
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2 if profiles else 1, squeeze=False)[0]
    styles = list(zip(CYCLE, ("-", "--", ":", "-.", (0, (5, 1)), (0, (1, 1))), strict=False))
    for (colour, style), (name, (steps, epsilons)) in zip(styles, curves.items(), strict=False):
        label = name if np.isfinite(epsilons).any() else f"{name}: infinite"
        values = np.where(np.isfinite(epsilons), epsilons, np.nan)
        marker = "o" if len(steps) < _MARKED else ""
        axes[0].plot(
            [0, *steps],
            [0.0, *values],
            color=colour,
            linestyle=style,
            marker=marker,
            markersize=3,
            label=label,
        )
    axes[0].set(xlabel="steps", ylabel=f"ε at δ = {delta:g}", xlim=(0, None), ylim=(0, None))
    for (colour, style), (name, epsilons) in zip(styles, profiles.items(), strict=False):
        ordered = zip(*sorted(zip(deltas, epsilons, strict=True)), strict=True)
        axes[1].plot(*ordered, color=colour, linestyle=style, marker="o", label=name)
    if profiles:
        axes[1].set(xscale="log", xlabel="δ", ylabel=f"ε after {steps[-1]} steps", ylim=(0, None))
    for axis in axes:
        plain(axis)
        axis.legend(frameon=False)
    save_picture(figure, path, 150, "fedpriv account")
