"""Line charts as inline SVG, and the numbers that the page's script reads at the cursor.

Colour alone never tells curves apart: each curve also has a dash and a marker, shown in the legend.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from fedpriv.tools.report.markup import Markup, tag

WIDTH, HEIGHT = 480, 300
LEFT, RIGHT, TOP, BOTTOM = 62, 12, 12, 46
COLOURS, DASHES, MARKERS = 8, 5, 7  # as in page.css; coprime, so that 280 curves look different
_MARKS_OF_A_CURVE, _MANY = 6, 20  # above so many curves, a curve has half as many marks
_MOST_WITHOUT_ALL = 4  # larger legends have the buttons "all" and "none"
_MOST_DESCRIBED = 12  # curves that the description for screen readers names
_LARGEST, _SMALLEST = 1e100, 1e-100  # larger values are not drawn, smaller spans count as 0
_SHAPES = (
    "m-3.5 0a3.5 3.5 0 1 0 7 0a3.5 3.5 0 1 0-7 0z",
    "m-3-3h6v6h-6z",
    "m0-4l4 7h-8z",
    "m0-4.5l4 4.5l-4 4.5l-4-4.5z",
    "m-4-3h8l-4 7z",
    "m-4-1.2h2.8v-2.8h2.4v2.8h2.8v2.4h-2.8v2.8h-2.4v-2.8h-2.8z",
    "m-4.5-1.8h9v3.6h-9z",
)


@dataclass(frozen=True)
class ChartLine:
    """A curve of a chart.

    Attributes:
        key: Text of the legend button that switches the curve; curves of one key look alike.
        label: Text at the cursor.
        x: Positions [n].
        y: Values [n].
        style: Index in the cycle of colours, dashes and markers.
        low: Lower end of a band [n], or None.
        high: Upper end of a band [n], or None.
    """

    key: str
    label: str
    x: np.ndarray
    y: np.ndarray
    style: int = 0
    low: np.ndarray | None = None
    high: np.ndarray | None = None


@dataclass(frozen=True)
class Chart:
    """Curves in one coordinate system.

    Attributes:
        title: Title of the chart.
        x_label: Label of the x axis.
        y_label: Label of the y axis.
        curves: Curves with at least one finite point.
        x_from_zero: True where the x axis begins at 0.
        y_from_zero: True where the y axis begins at 0, unless a value is negative.
        note: Text below the chart.
    """

    title: str
    x_label: str
    y_label: str
    curves: tuple[ChartLine, ...]
    x_from_zero: bool = True
    y_from_zero: bool = True
    note: str = ""


def curve(
    key: str,
    label: str,
    x: np.ndarray,
    y: np.ndarray,
    style: int,
    most: int,
    band: tuple[np.ndarray, np.ndarray] | None = None,
) -> ChartLine | None:
    """Return a curve of evenly spaced finite points, including the last point.

    Args:
        key: Text of the legend button.
        label: Text at the cursor.
        x: Positions [n].
        y: Values [n].
        style: Index in the cycle of colours, dashes and markers.
        most: Largest number of points.
        band: Lower and upper end of a band [n], or None.

    Returns:
        The curve, or None where no point is finite.
    """
    # A comparison with nan is false, so this leaves out nan, too.
    rows = np.flatnonzero((np.abs(x) < _LARGEST) & (np.abs(y) < _LARGEST))
    if not len(rows):
        return None
    if len(rows) > most:
        # Evenly spaced positions always contain the last row, whose values are those that are quoted.
        rows = rows[np.unique(np.linspace(0, len(rows) - 1, most).round().astype(int))]
    x, y = x[rows], y[rows]
    if band is not None:
        # Where an end of the band is not finite, the band has no width.
        low, high = (np.where(np.abs(end[rows]) < _LARGEST, end[rows], y) for end in band)
        if (low < high).any():
            return ChartLine(key, label, x, y, style, low, high)
    return ChartLine(key, label, x, y, style)


_Values = TypeVar("_Values", float, np.ndarray)


class Scale:
    """Linear map from the values ``low`` to ``high`` to the pixels ``begin`` to ``end`` of the picture.

    Args:
        low: Value at ``begin``.
        high: Value at ``end``; another one than ``low``.
        begin: Pixel of ``low``. On the y axis it is larger than ``end``, as pixels are counted from the top.
        end: Pixel of ``high``.
    """

    def __init__(self, low: float, high: float, begin: float, end: float):
        self.low, self.high, self.begin, self.end = low, high, begin, end

    def __call__(self, values: _Values) -> _Values:
        share = (values - self.low) / (self.high - self.low)
        return self.begin + share * (self.end - self.begin)


def draw(chart: Chart, name: str, legend: bool) -> tuple[Markup, dict[str, object]]:
    """Draw a chart with at least one curve.

    Args:
        chart: The chart.
        name: Id of the plot in the page.
        legend: True where the chart has a legend of its own, which is left out if there is one curve alone.

    Returns:
        The chart as a ``<figure>``, and its numbers for the page's script.
    """
    x_values = np.concatenate([c.x for c in chart.curves])
    bands = [end for c in chart.curves for end in (c.low, c.high) if end is not None]
    y_values = np.concatenate([*(c.y for c in chart.curves), *bands])
    # Rounds fill the width, while ε and values have room on both sides of a curve.
    x = Scale(*_extent(x_values, chart.x_from_zero, tight=chart.x_from_zero), LEFT, WIDTH - RIGHT)
    y = Scale(*_extent(y_values, chart.y_from_zero), HEIGHT - BOTTOM, TOP)
    marks = _MARKS_OF_A_CURVE if len(chart.curves) <= _MANY else _MARKS_OF_A_CURVE // 2
    picture = tag(
        "svg",
        # Title and description are for screen readers, which see no curves.
        tag("title", chart.title, id=f"{name}t"),
        tag("desc", _in_words(chart), id=f"{name}d"),
        *_axes(chart, x, y),
        *(_drawn(line, x, y, marks) for line in chart.curves),
        tag("line", class_="cursor", y1=TOP, y2=HEIGHT - BOTTOM, x1=-9, x2=-9),
        viewBox=f"0 0 {WIDTH} {HEIGHT}", role="img", aria_labelledby=f"{name}t {name}d",
    )  # fmt: skip
    plot = tag(
        "div", picture, tag("output", class_="reading", aria_live="polite"),
        class_="plot", id=name, tabindex="0", role="group",
        aria_label=f"{chart.title}: the arrow keys read its values",
    )  # fmt: skip
    below = [legend_of(chart.curves)] if legend and len(chart.curves) > 1 else []
    note = [tag("p", chart.note, class_="note")] if chart.note else []
    heading = tag("figcaption", chart.title)
    figure = tag("figure", heading, plot, *below, *note, class_="chart", data_scope=legend)
    return figure, _numbers(chart, x, y)


def legend_of(curves: Iterable[ChartLine]) -> Markup:
    """Return a legend with a button for each key, which shows the look of its curves and switches them."""
    styles: dict[str, int] = {}
    for line in curves:
        # Runs that differ only in their seeds share a key, and so one button.
        styles.setdefault(line.key, line.style)
    buttons = [
        tag(
            "button", swatch(style), key, type="button", aria_pressed="true", data_switch=key
        )
        for key, style in styles.items()
    ]  # fmt: skip
    both = [
        tag("button", word, type="button", data_all=word)
        for word in ("all", "none")
        if len(styles) > _MOST_WITHOUT_ALL
    ]
    return tag("div", *both, *buttons, class_="legend", role="group", aria_label="curves shown")


def swatch(style: int) -> Markup:
    """Return a piece of a curve of that style, for the legend."""
    line = tag("path", d="M0 6H30", class_="line")
    return tag(
        "svg", tag("g", line, _markers(style, [15], [6]), class_=_classes(style)),
        viewBox="0 0 30 12", width=30, height=12, aria_hidden="true",
    )  # fmt: skip


def _classes(style: int) -> str:
    return f"c{style % COLOURS} d{style % DASHES}"


def _markers(style: int, x: Iterable[float], y: Iterable[float]) -> Markup:
    shape = _SHAPES[style % MARKERS]
    places = "".join(f"M{a:.1f} {b:.1f}{shape}" for a, b in zip(x, y, strict=True))
    return tag("path", d=places, class_="mark")


def _drawn(line: ChartLine, x: Scale, y: Scale, marks: int) -> Markup:
    """Return band, line and at most ``marks`` markers of a curve."""
    x_pixels, y_pixels = x(line.x), y(line.y)
    parts = []
    if line.low is not None and line.high is not None:
        upper, lower = _points(x_pixels, y(line.high)), _points(x_pixels[::-1], y(line.low)[::-1])
        parts.append(tag("path", d=f"M{upper}L{lower}Z", class_="band"))
    if len(x_pixels) > 1:
        parts.append(tag("path", d=f"M{_points(x_pixels, y_pixels)}", class_="line"))
    marked = np.unique(np.linspace(0, len(x_pixels) - 1, marks).round().astype(int))
    parts.append(_markers(line.style, x_pixels[marked], y_pixels[marked]))
    return tag("g", *parts, class_=_classes(line.style), data_curve=line.key)


def _points(x: np.ndarray, y: np.ndarray) -> str:
    return "L".join(f"{a:.1f} {b:.1f}" for a, b in zip(x, y, strict=True))


def _axes(chart: Chart, x: Scale, y: Scale) -> Iterable[Markup]:
    """Yield grid lines, ticks, numbers and labels of both axes."""
    bottom = HEIGHT - BOTTOM
    for value in ticks(y.low, y.high):
        at = f"{y(value):.1f}"
        yield tag("line", class_="grid", x1=LEFT, x2=WIDTH - RIGHT, y1=at, y2=at)
        yield tag("text", number(value), x=LEFT - 6, y=at, dy="0.32em", text_anchor="end")
    for value in ticks(x.low, x.high):
        at = f"{x(value):.1f}"
        yield tag("line", class_="tick", x1=at, x2=at, y1=bottom, y2=bottom + 4)
        yield tag("text", number(value), x=at, y=bottom + 17, text_anchor="middle")
    yield tag("line", class_="axis", x1=LEFT, x2=WIDTH - RIGHT, y1=bottom, y2=bottom)
    middle = (LEFT + WIDTH - RIGHT) / 2
    yield tag("text", chart.x_label, x=middle, y=HEIGHT - 8, text_anchor="middle")
    turn = f"translate(13 {(TOP + bottom) / 2:.0f}) rotate(-90)"
    yield tag("text", chart.y_label, transform=turn, text_anchor="middle")


def _extent(values: np.ndarray, from_zero: bool, tight: bool = False) -> tuple[float, float]:
    """Return the values at which an axis begins and ends, with some space unless ``tight``."""
    low, high = float(values.min()), float(values.max())
    # Spans below this would leave no digits for the ticks.
    if high - low < _SMALLEST:
        high = low
    if from_zero and low >= 0:
        low = 0.0
    if high <= low:
        spare = abs(high) * 0.1 or 1.0
        return (low if from_zero and low >= 0 else low - spare), high + spare
    spare = 0.0 if tight else 0.05 * (high - low)
    return (low if low == 0 and from_zero else low - spare), high + spare


def ticks(low: float, high: float, about: int = 6) -> list[float]:
    """Return round numbers from ``low`` to ``high``, in steps of 1, 2 or 5 times a power of ten.

    Args:
        low: Beginning of the axis.
        high: End of the axis.
        about: Largest number of steps between them.
    """
    rough = (high - low) / about
    if rough < sys.float_info.min:
        return [low]
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(f * power for f in (1, 2, 5, 10) if f * power >= rough * 0.999)
    # The tolerance keeps a tick that rounding would push out of the axis. Adding 0.0 turns -0 into 0.
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return [round(i * step, 12) + 0.0 for i in range(first, last + 1)]


def number(value: float) -> str:
    """Return a number of at most six digits, in powers of ten if very large or small."""
    if value and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.3g}"
    return f"{value:,.0f}" if abs(value) >= 1e4 else f"{value:.6g}"


def _in_words(chart: Chart) -> str:
    """Describe the chart for screen readers."""
    parts = (
        f"{line.label}: from {line.y[0]:.4g} to {line.y[-1]:.4g}, lowest {line.y.min():.4g}, "
        f"highest {line.y.max():.4g}"
        for line in chart.curves[:_MOST_DESCRIBED]
    )
    omitted = len(chart.curves) - _MOST_DESCRIBED
    more = f"; {omitted} curves more" if omitted > 0 else ""
    return f"{chart.y_label} over {chart.x_label}. {'; '.join(parts)}{more}."


def _numbers(chart: Chart, x: Scale, y: Scale) -> dict[str, object]:
    """Return the numbers from which the page's script reads values at the cursor."""
    return {
        "x": [x.low, x.high],
        "y": [y.low, y.high],
        "label": chart.x_label,
        "curves": [
            {
                "key": line.key,
                "label": line.label,
                "style": _classes(line.style),
                "x": _short(line.x),
                "y": _short(line.y),
                **{
                    name: _short(edge)
                    for name, edge in (("low", line.low), ("high", line.high))
                    if edge is not None
                },
            }
            for line in chart.curves
        ],
    }


def _short(values: np.ndarray) -> list[float | int | None]:
    """Return the values with five digits, None for values that are not finite."""
    rounded = (float(f"{v:.5g}") if math.isfinite(v) else None for v in values.tolist())
    return [int(v) if v is not None and v.is_integer() and abs(v) < 1e9 else v for v in rounded]


# Position of the coordinate system in a picture, for the page's script.
FRAME = {
    "width": WIDTH,
    "height": HEIGHT,
    "left": LEFT,
    "right": RIGHT,
    "top": TOP,
    "bottom": BOTTOM,
}


def points_each(curves: int) -> int:
    """Return the number of points that a curve may have, so that a page of ``curves`` curves stays small."""
    return max(20, min(250, 36_000 // max(1, curves)))
