"""Drawing of one panel with matplotlib: lines, maps and bars on coordinate systems, ticks, and files."""

from __future__ import annotations

import io
import math
from pathlib import Path
from typing import Any, cast

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backend_bases import RendererBase
from matplotlib.figure import Figure
from matplotlib.font_manager import FontProperties
from matplotlib.patches import Rectangle
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter
from numpy.typing import ArrayLike

from fedpriv.common.files import write_atomically
from fedpriv.store.colours import COLOURS
from fedpriv.store.panels import CYCLE, HeatMap, Line, Panel, StackedBars

# A matplotlibrc in the working directory must not change the pictures.
matplotlib.rcdefaults()

_MARKED = 24  # points of a line that has a marker at each of them; longer lines have some markers
_MOST_TICKS = 12


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
    dates = {".pdf": "CreationDate", ".svg": "Date"}
    metadata: dict[str, str | None] = {dates[path.suffix]: None} if path.suffix in dates else {}
    if creator:
        metadata["Software" if path.suffix == ".png" else "Creator"] = creator
    content = io.BytesIO()  # writing directly, matplotlib would leave half a file on a full disk
    figure.savefig(content, dpi=dpi, metadata=metadata, format=path.suffix[1:])
    write_atomically(path, lambda file: file.write(content.getbuffer()), "wb")


def draw_panel(axis: Axes, panel: Panel) -> None:
    """Draw the lines of a panel, its labels and limits, and its own legend if it has one."""
    for index, line in enumerate(panel.lines):
        _draw_line(axis, line, index)
    _limit_bands(axis, panel)
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
    if panel.vacuous_above is not None:
        _mark_vacuous(axis, panel, panel.vacuous_above)
    if panel.y_log:
        _log_y(axis)
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


def _draw_line(axis: Axes, line: Line, index: int) -> None:
    """Draw the line of this index in its panel, and its interval: a band, or bars at single symbols."""
    count = np.size(line.x)
    lone_point = "o" if count == 1 else None
    # Sparse markers begin elsewhere on each line, so that those of close lines do not cover.
    step = max(1, count // 7)
    every = (step * (index % 5) // 5, step) if line.sparse and count > _MARKED else None
    height: dict[str, Any] = {}
    if line.at_bottom:
        height = {"transform": axis.get_xaxis_transform(), "clip_on": False}
    axis.plot(
        line.x, np.full(count, 0.03) if line.at_bottom else line.y, label=line.label,
        color=line.colour, linestyle=_line_style(line), markevery=every,
        linewidth=line.width or (0.9 if line.thin else 1.4), marker=line.marker or lone_point,
        markersize=line.marker_size or (3 if line.joined else 5), **height,
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
    lines = [line for line in panel.lines if line.low is not None and not line.at_bottom]
    if not lines:
        return
    to = np.log10 if panel.y_log else np.asarray
    with np.errstate(divide="ignore", invalid="ignore"):
        curves = to(
            np.concatenate([np.asarray(one.y, float) for one in panel.lines if not one.at_bottom])
        )
        bands = to(
            np.concatenate([np.asarray(b, float) for one in lines for b in (one.low, one.high)])
        )
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
    if low == high:  # matplotlib widens a flat axis by itself
        return
    margin = 0.05 * (high - low)
    limits = low - margin, high + margin
    axis.set_ylim(*(10.0**limit for limit in limits) if panel.y_log else limits)


def tick_measured(figure: Figure, axis: Axes, panel: Panel, renderer: RendererBase) -> None:
    """Put the ticks of the x axis at the measured values, if the panel has few points, each with a marker.

    Values whose numbers would touch are left out, but not the first and the last.
    """
    points = [
        line
        for line in panel.lines
        if line.marker and line.joined and not line.sparse and np.size(line.x)
    ]
    values = sorted({float(x) for line in points for x in np.asarray(line.x, dtype=float)})
    curves = [line for line in panel.lines if line.joined and line.marker]
    low, high = sorted(axis.get_xlim())
    values = [value for value in values if low <= value <= high]
    measured = len(points) == len(curves) and panel.vacuous_above is None
    if panel.x_powers or not measured or not 1 < len(values) <= _MOST_TICKS:
        return
    figure.draw_without_rendering()
    font = FontProperties(size=axis.xaxis.get_majorticklabels()[0].get_fontsize())
    places = axis.transData.transform([(value, 0) for value in values])[:, 0]
    half_widths = [
        0.62 * renderer.get_text_width_height_descent(_tick(value, 0), font, False)[0]
        for value in values
    ]
    kept, last = [0], len(values) - 1
    for index in range(1, last):
        before = places[kept[-1]] + half_widths[kept[-1]] <= places[index] - half_widths[index]
        if before and places[index] + half_widths[index] <= places[last] - half_widths[last]:
            kept.append(index)
    axis.xaxis.set_major_locator(FixedLocator([values[index] for index in [*kept, last]]))
    axis.xaxis.set_major_formatter(FuncFormatter(_tick))
    axis.xaxis.set_minor_locator(FixedLocator([v for i, v in enumerate(values) if i not in kept]))
    axis.xaxis.set_minor_formatter(NullFormatter())


def _tick(value: float, _: object) -> str:
    """Return a measured value for a tick: whole numbers in full, others with three digits."""
    return f"{value:.0f}" if value == round(value) and abs(value) < 1e6 else f"{value:.3g}"


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


def _mark_vacuous(axis: Axes, panel: Panel, limit: float) -> None:
    """Put ticks at powers of ten up to ``limit``, and one for all points to the right of it."""
    places = np.concatenate(
        [np.asarray(line.x, dtype=float) for line in panel.lines] or [np.zeros(0)]
    )
    vacuous = places[places > limit]
    powers = [10.0**power for power in range(-3, 7) if axis.get_xlim()[0] <= 10.0**power <= limit]
    ticks = dict(zip(powers, map("{:g}".format, powers), strict=True))
    if len(vacuous):
        ticks[float(vacuous.min())] = "vacuous\nor ∞"
        axis.axvline(math.sqrt(limit * vacuous.min()), color="grey", linestyle=":", linewidth=0.8)
    axis.set_xticks(list(ticks), list(ticks.values()))


def _log_y(axis: Axes) -> None:
    """Make the y axis logarithmic, with plain numbers at 1, 2 and 5 where it has less than two decades."""
    axis.set_yscale("log")
    low, high = axis.get_ylim()
    if high / low < 100 and low > 1e-3 and high < 1e4:
        axis.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high / low > 5 else range(1, 10)))
        axis.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:g}"))
        axis.yaxis.set_minor_formatter(NullFormatter())


def draw_map(axis: Axes, panel: HeatMap) -> None:
    """Draw a table as colours with numbers, the best of each row framed."""
    values = np.ma.masked_invalid(np.asarray(panel.values, dtype=float))
    image = axis.imshow(values, cmap="cividis", aspect="auto")
    axis.set(title=panel.title, xlabel=panel.x_label, ylabel=panel.y_label)
    axis.set_xticks(range(len(panel.columns)), panel.columns)
    if panel.slanted:
        axis.tick_params(axis="x", rotation=40)
        for label in axis.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")
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


def draw_bars(axis: Axes, panel: StackedBars) -> None:
    """Draw horizontal bars made of parts."""
    rows, left = np.arange(len(panel.counts)), np.zeros(len(panel.counts))
    for part, counts in enumerate(panel.counts.T):
        colour, right = CYCLE[part % len(CYCLE)], left + counts
        if panel.apart:
            axis.barh(
                rows, counts, left=left, color=colour, label=str(part), edgecolor="white", height=0.8,
                linewidth=0.4,
            )  # fmt: skip
        else:  # one outline for the bands of all rows: a bar for each takes seconds
            axis.stairs(
                right, np.arange(len(rows) + 1) - 0.5, baseline=left, orientation="horizontal",
                fill=True, color=colour, label=str(part), linewidth=0,
            )  # fmt: skip
        left = right
    axis.set(xlabel=panel.x_label, ylabel=panel.y_label, ylim=(len(rows) - 0.5, -0.5))
    if panel.apart:
        axis.set_yticks(rows)
    _finish(axis, panel.legend, panel.legend_title)


def _finish(axis: Axes, legend: str, legend_title: str | None) -> None:
    """Draw a light grid and the panel's own legend, and hide the upper and the right spine."""
    axis.spines[["top", "right"]].set_visible(False)
    axis.grid(alpha=0.25, linewidth=0.6)
    axis.set_axisbelow(True)
    lines, _ = axis.get_legend_handles_labels()
    if not lines:  # of a run that was stopped before its first evaluation
        return
    if legend == "inside":
        # The place that is named is the default. Where it is not named, a slow search for it warns.
        axis.legend(title=legend_title, frameon=False, loc="best")
    elif legend == "beside":
        axis.legend(
            title=legend_title, frameon=False, fontsize=7, title_fontsize=7, loc="center left",
            bbox_to_anchor=(1.0, 0.5),
        )  # fmt: skip


def from_zero(values: ArrayLike) -> tuple[float, float] | None:
    """Return axis limits from zero to a little above the largest value; None if no value is above zero."""
    largest = np.nanmax(np.asarray(values), initial=0.0)
    return (0.0, 1.02 * largest) if np.isfinite(largest) and largest > 0 else None
