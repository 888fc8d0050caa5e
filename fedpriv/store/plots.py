"""Pictures of panels.

Only this module and :mod:`fedpriv.store.drawing` use matplotlib. A caller describes panels as plain values
(:class:`Panel`, :class:`HeatMap`, :class:`StackedBars`) and passes them to one of three functions.
:func:`draw_panels` makes a picture of print size, as for a paper; its caption is text beside the picture.
:func:`draw_plot` quickly makes a picture for the screen, with panels above one another. :func:`draw_beside`
puts the panels side by side.
"""

from __future__ import annotations

import itertools
import math
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.legend import Legend
from matplotlib.text import Text

from fedpriv.store.colours import COLOURS
from fedpriv.store.drawing import (
    draw_bars,
    draw_map,
    draw_panel,
    from_zero,
    save_picture,
    tick_measured,
)
from fedpriv.store.panels import (
    CYCLE,
    MARKERS,
    PANEL_WIDTH,
    WIDTHS,
    HeatMap,
    Line,
    Look,
    Panel,
    StackedBars,
)

__all__ = [
    "CYCLE", "MARKERS", "WIDTHS", "HeatMap", "Line", "Look", "Panel", "StackedBars", "draw_beside",
    "draw_panels", "draw_plot", "from_zero", "save_picture", "spread_apart",
]  # fmt: skip
TITLE_SIZE = 9.0  # points, on the screen
DPI, SCREEN_DPI = 200, 150
SCREEN_WIDTH = 5.2  # inches
_END_WIDTH, _BESIDE_WIDTH = 1.15, 2.4  # inches of labels at the ends of curves, and beside a panel
_LEADER = 0.16  # inches from the axes to a label at the end of a curve
_STAMP: dict[str, Any] = {
    "color": COLOURS["red"], "weight": "bold",
    "bbox": {"boxstyle": "square,pad=0.25", "facecolor": "#FDEDE3", "edgecolor": COLOURS["red"]},
}  # fmt: skip


def draw_panels(
    files: Sequence[Path],
    rows: Sequence[Sequence[Panel | HeatMap]],
    title: str = "",
    note: str = "",
    stamp: str = "",
    creator: str = "",
    look: Look | None = None,
) -> None:
    """Draw a grid of panels of print size.

    Curves are labelled at their ends, to the right of the last panel of each row, where there is room. Else
    one legend names the lines of all panels, in reading order: below the panels, or beside a single panel if
    it would be too high below it. Title and stamp stand above the panels, where they cover nothing.

    Args:
        files: Files to write; the ending of each decides on its format.
        rows: Panels by row; a row may be shorter than the others.
        title: Title of the picture.
        note: Short text below the panels that a picture without its caption needs.
        stamp: Text above the panels that a reader must not overlook.
        creator: Command that may later write over the files; see :func:`save_picture`.
        look: Width and font size; None: as in the reference figures.

    Raises:
        WriteError: A file cannot be written.
    """
    look = look or Look()
    with matplotlib.rc_context(_style(look.font_size)):
        figure = _grid(rows, title, note, stamp, look)
        for path in files:
            save_picture(figure, path, DPI, creator)


def _style(font_size: float) -> dict[Any, Any]:
    return {
        "font.size": font_size, "axes.titlesize": font_size + 0.5, "figure.titlesize": font_size + 1,
        "legend.fontsize": font_size - 1, "pdf.fonttype": 42, "svg.hashsalt": "fedpriv",
    }  # fmt: skip


def _grid(
    rows: Sequence[Sequence[Panel | HeatMap]], title: str, note: str, stamp: str, look: Look
) -> Figure:
    """Return the picture of :func:`draw_panels`, with bands above and below the panels for texts."""
    columns = max(len(row) for row in rows)
    widths = [
        max(row[column].size[0] for row in rows if column < len(row)) for column in range(columns)
    ]
    heights = [max(panel.size[1] for panel in row) for row in rows]
    width, height = sum(widths), sum(heights)
    if look.width is not None:
        shrunk = min(1.0, max(0.75, look.width / width))
        width, height = look.width, shrunk * height
    figure = Figure(figsize=(width, height), layout="constrained")
    canvas = FigureCanvasAgg(figure)
    axes = figure.subplots(
        len(rows), columns, squeeze=False, width_ratios=widths, height_ratios=heights
    )
    for row, row_axes in zip(rows, axes, strict=True):
        for panel, axis in zip(row, row_axes, strict=False):
            if isinstance(panel, HeatMap):
                draw_map(axis, panel)
            else:
                draw_panel(axis, panel)
        for axis in row_axes[len(row) :]:
            axis.set_axis_off()
    last_axes = [row_axes[len(row) - 1] for row, row_axes in zip(rows, axes, strict=True)]
    space = _Space(figure, canvas.get_renderer(), height, look.font_size)
    space.below(note)
    ends = [_ends_of(row) for row in rows]
    if not all(ends) or not space.label_ends(last_axes, ends, look.width is None):
        wide = look.width is None or look.width > 1.5 * PANEL_WIDTH
        space.add_legend(axes.flat, len(rows) == columns == 1 and wide, look.width is None)
    space.above(title, stamp)
    for panel, axis in zip(itertools.chain(*rows), _used(rows, axes), strict=True):
        if isinstance(panel, Panel):
            tick_measured(figure, axis, panel, canvas.get_renderer())
    return figure


def _used(rows: Sequence[Sequence[object]], axes: np.ndarray) -> Iterator[Axes]:
    for row, row_axes in zip(rows, axes, strict=True):
        yield from row_axes[: len(row)]


def _ends_of(row: Sequence[Panel | HeatMap]) -> dict[str, Line]:
    """Return label → line of a row's last panel, or nothing if its ends cannot name all lines of the row."""
    panels = [panel for panel in row if isinstance(panel, Panel)]
    if len(panels) < len(row):
        return {}
    lines = [[line for line in panel.lines if line.label[:1] != "_"] for panel in panels]
    last = {line.label: line for line in lines[-1]}
    plain = all(line.joined and not line.band_label for each in lines for line in each)
    labels = {line.label for each in lines for line in each}
    if not plain or len(last) < len(lines[-1]) or labels != set(last) or panels[-1].y_ticks:
        return {}
    return last


class _Space:
    """The bands around the panels of a picture, which grow with the texts that are put there.

    Args:
        figure: The picture, with a constrained layout.
        renderer: Measures texts.
        height: Height of the panels in inches.
        font_size: Size of the axes' labels in points.
    """

    def __init__(self, figure: Figure, renderer: RendererBase, height: float, font_size: float):
        self.figure, self.renderer = figure, renderer
        self.height, self.font_size = height, font_size
        self.top, self.bottom, self.right = 0.0, 0.0, 0.0  # inches
        self._placed: list[tuple[Artist, str, float]] = []

    def above(self, title: str, stamp: str) -> None:
        """Put title and stamp above the panels, the stamp in a box of its own."""
        texts: tuple[tuple[str, float, dict[str, Any]], ...]
        texts = ((title, self.font_size + 1, {}), (stamp, self.font_size, _STAMP))
        for text, size, more in texts:
            if text:
                room = self.figure.get_figwidth() - 0.3
                wrapped = self._wrapped(text, room, size, more.get("weight", "normal"))
                drawn = self.figure.text(
                    0.5, 1, wrapped, fontsize=size, ha="center", va="top", parse_math=False, **more
                )
                self._placed.append((drawn, "top", self.top + 0.06))
                self.top += drawn.get_window_extent(self.renderer).height / self.figure.dpi + 0.14
        self._fit()

    def below(self, note: str) -> None:
        """Put a note below the panels."""
        if note:
            size = self.font_size - 1
            wrapped = self._wrapped(note, self.figure.get_figwidth() - 0.2, size)
            drawn = self.figure.text(0.5, 0, wrapped, fontsize=size, ha="center", va="bottom")
            self._placed.append((drawn, "bottom", 0.04))
            self.bottom += drawn.get_window_extent(self.renderer).height / self.figure.dpi + 0.08
            self._fit()

    def _wrapped(self, text: str, inches: float, size: float, weight: str = "normal") -> str:
        """Return a text broken into lines that are at most so wide; line breaks are kept."""
        lines = []
        for paragraph in text.split("\n"):
            width, letters = self._width(paragraph, size, weight), max(20, len(paragraph))
            while letters > 20 and width * letters / len(paragraph) > inches:
                letters -= 1
            broken = textwrap.wrap(paragraph, letters) or [""]
            while letters > 20 and self._width("\n".join(broken), size, weight) > inches:
                letters -= 1  # wide letters are together
                broken = textwrap.wrap(paragraph, letters)
            lines += broken
        return "\n".join(lines)

    def _width(self, text: str, size: float, weight: str = "normal") -> float:
        """Return the width of a text in inches, that of its longest line."""
        font = FontProperties(size=size, weight=weight)
        widths = (
            self.renderer.get_text_width_height_descent(line or " ", font, False)[0]
            for line in text.split("\n")
        )
        return max(widths) / self.figure.dpi

    def _fit(self) -> None:
        """Give the panels their height, and place the texts in the bands around them."""
        width, total = self.figure.get_figwidth(), self.top + self.height + self.bottom
        self.figure.set_figheight(total)
        engine = cast("ConstrainedLayoutEngine", self.figure.get_layout_engine())
        engine.set(rect=(0, self.bottom / total, 1 - self.right / width, self.height / total))
        for artist, edge, inches in self._placed:
            y = 1 - inches / total if edge == "top" else inches / total
            if isinstance(artist, Text):
                artist.set_position((0.5, y))
            elif isinstance(artist, Legend):
                beside = 1.0, (self.bottom + inches) / total
                artist.set_bbox_to_anchor(beside if edge == "beside" else (0.5, y))

    def label_ends(
        self, axes: Sequence[Axes], lines: Sequence[Mapping[str, Line]], grow: bool
    ) -> bool:
        """Label the lines at their ends, to the right of their axes.

        Args:
            axes: The last axes of each row.
            lines: Label → line of each of the axes.
            grow: True for a picture that grows by the width of the labels, else the panels shrink.

        Returns:
            False where there is no room. Then the picture is as before.
        """
        size = self.font_size - 1
        width = self.figure.get_figwidth()
        texts = [
            {label: self._wrapped(label, _END_WIDTH, size) for label in each} for each in lines
        ]
        widest = max(self._width(text, size) for each in texts for text in each.values())
        if widest > _END_WIDTH * 1.3 or widest > 0.36 * width:
            return False
        line_height = 1.15 * size / 72
        self.right = widest + _LEADER + 0.05
        self.figure.set_figwidth(width + self.right if grow else width)
        self._fit()
        self.figure.draw_without_rendering()
        places = []
        for axis, each, shown in zip(axes, lines, texts, strict=True):
            box = axis.get_window_extent(self.renderer)
            heights = [line_height * (1 + text.count("\n")) * self.figure.dpi / box.height
                       for text in shown.values()]  # fmt: skip
            ends = [end for line in each.values() if (end := _end(axis, line)) is not None]
            all_end_right = len(ends) == len(each) and min(x for x, _ in ends) >= 0.8
            if sum(heights) > 1.05 or not all_end_right:
                self.right = 0.0
                self.figure.set_figwidth(width)
                self._fit()
                return False
            inches = box.width / self.figure.dpi
            places.append((spread_apart([y for _, y in ends], heights), ends, inches))
        for axis, each, shown, (centres, ends, inches) in zip(
            axes, lines, texts, places, strict=True
        ):
            for line, text, (x, y), centre in zip(
                each.values(), shown.values(), ends, centres, strict=True
            ):
                colour = _dark(line.colour)
                (leader,) = axis.plot(
                    [x, 1 + _LEADER / inches * 0.9], [y, centre], color=colour, linewidth=0.5,
                    transform=axis.transAxes, clip_on=False, label="_leader", zorder=1,
                )  # fmt: skip
                label = axis.text(
                    1 + _LEADER / inches, centre, text, transform=axis.transAxes, fontsize=size,
                    color=colour, va="center", linespacing=1.0, parse_math=False,
                )  # fmt: skip
                leader.set_in_layout(False)  # else the layout would shrink the panels for them
                label.set_in_layout(False)
        return True

    def add_legend(self, axes: Iterable[Axes], alone: bool, grow: bool) -> None:
        """Name each line once: below the panels, or beside a panel that is alone and lower than its legend.

        Args:
            axes: All coordinate systems of the picture.
            alone: True for a picture of one panel that is wide enough for a legend beside it.
            grow: True for a picture that grows by the width of a legend beside the panel.
        """
        handles: dict[str, Artist] = {}
        for axis in axes:
            for handle, label in zip(*axis.get_legend_handles_labels(), strict=True):
                handles.setdefault(label, handle)
        if not handles:
            return
        size, width = self.font_size - 1, self.figure.get_figwidth()
        handle_width = 3.6 * size / 72
        labels = [self._wrapped(label, width - handle_width - 0.1, size) for label in handles]
        entry = handle_width + max(self._width(label, size) for label in labels)
        most = max(1, min(len(labels), int(width / entry)))
        columns = math.ceil(len(labels) / math.ceil(len(labels) / most))
        count = sum(1 + label.count("\n") for label in labels) / columns
        below = 1.35 * size / 72 * count
        artists = list(handles.values())
        if alone and below > 0.4 * self.height:
            labels = [self._wrapped(label, _BESIDE_WIDTH, size) for label in handles]
            self.right = handle_width + max(self._width(label, size) for label in labels) + 0.1
            self.figure.set_figwidth(width + self.right if grow else width)
            count = sum(1 + label.count("\n") for label in labels)
            self.height = max(self.height, 1.35 * size / 72 * count + 0.1)
            legend = self._legend(artists, labels, 1)
            legend.set(loc="center right")
            self._placed.append((legend, "beside", self.height / 2))
            self._fit()
            return
        # matplotlib fills a legend column by column; a reader reads it row by row.
        order = [i for column in range(columns) for i in range(column, len(labels), columns)]
        legend = self._legend([artists[i] for i in order], [labels[i] for i in order], columns)
        legend.set(loc="lower center", bbox_to_anchor=(0.5, 0))
        self._placed.append((legend, "bottom", self.bottom + 0.02))
        self._fit()
        self.bottom += legend.get_window_extent(self.renderer).height / self.figure.dpi + 0.04
        self._fit()

    def _legend(self, handles: Sequence[Artist], labels: Sequence[str], columns: int) -> Legend:
        legend = self.figure.legend(
            handles, labels, ncols=columns, frameon=False, columnspacing=1.2, labelspacing=0.35,
            handlelength=2.4, borderpad=0.1, borderaxespad=0,
        )  # fmt: skip
        for text in legend.get_texts():
            text.set_parse_math(False)
        legend.set_in_layout(False)
        return legend


def _end(axis: Axes, line: Line) -> tuple[float, float] | None:
    """Return the last finite point of a line in coordinates of the axes; None without a point inside."""
    x, y = np.asarray(line.x, dtype=float), np.asarray(line.y, dtype=float)
    points = axis.transAxes.inverted().transform(axis.transData.transform(np.column_stack([x, y])))
    inside = points[(np.isfinite(points)).all(axis=1) & (points[:, 0] <= 1.001)]
    if not len(inside):
        return None
    last_x, last_y = inside[-1]
    return float(last_x), float(np.clip(last_y, 0, 1))


def _dark(colour: str) -> tuple[float, float, float]:
    """Return a colour dark enough for text on white."""
    red, green, blue = to_rgb(colour)
    brightness = 0.299 * red + 0.587 * green + 0.114 * blue
    factor = min(1.0, 0.5 / brightness) if brightness else 1.0
    return red * factor, green * factor, blue * factor


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
            draw_bars(axis, panel)
        else:
            draw_panel(axis, panel)
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
        draw_panel(axis, panel)
    save_picture(figure, path, SCREEN_DPI, creator)


def _wrapped(text: str, inches: float, size: float) -> str:
    """Return a text broken into lines that fit. A letter is about half as wide as it is high."""
    return "\n".join(textwrap.wrap(text, max(20, int(inches * 72 / (0.52 * size)))))


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
    order = sorted(range(len(centres)), key=lambda i: centres[i])
    groups: list[list[int]] = []

    def bottom(group: list[int]) -> float:
        total = sum(heights[i] for i in group)
        middle = sum(centres[i] for i in group) / len(group)
        return max(0.0, min(1.0 - total, middle - total / 2)) if total < 1 else (1 - total) / 2

    for index in order:
        groups.append([index])
        while len(groups) > 1:
            top = bottom(groups[-2]) + sum(heights[i] for i in groups[-2])
            if top <= bottom(groups[-1]) + 1e-9:
                break
            groups[-2:] = [groups[-2] + groups[-1]]
    places = [0.0] * len(centres)
    for group in groups:
        at = bottom(group)
        for index in group:
            places[index] = at + heights[index] / 2
            at += heights[index]
    return places
