"""Marks: numbers published elsewhere, drawn and stored beside a figure's curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from fedpriv.store.colours import COLOURS
from fedpriv.store.plots import Line
from fedpriv.study.figures.definition import Axes, CurveGroup, Figure, Mark

_SHAPES = "P>dx+8"  # shapes that no curve has
_COLOURS = ("black", "grey")
_LEVEL = ("--", "-.", (0, (5, 1, 1, 1, 1, 1)))  # of lines of numbers from elsewhere


def marks_on(figure: Figure, group: CurveGroup, axes: Axes) -> list[Mark]:
    """Return the marks of a group about the quantity y of the axes. A map has no marks."""
    if axes.kind != "lines":
        return []
    return [mark for mark in figure.marks if (mark.group, mark.column) == (group.name, axes.y)]


def mark_rows(
    figure: Figure, group: CurveGroup, axes: Axes, drawn: Sequence[float]
) -> Iterator[pd.DataFrame]:
    """Yield the rows of figure.csv for the marks. A mark is of no run, so ``n`` is 0.

    Args:
        figure: The figure.
        group: A group of the figure.
        axes: Axes of the figure.
        drawn: The x of the group's curves on these axes; a level line goes from the first to the last.
    """
    for mark in marks_on(figure, group, axes):
        value = mark.value
        low = value if mark.low is None else mark.low
        high = value if mark.high is None else mark.high
        band = "none" if mark.low is None else "stated"
        row = {"group": group.name, "axes": axes.name, "curve": mark.label}
        numbers = {"mean": value, "low": low, "high": high, "n": 0, "band": band}
        for x in _positions(figure, mark, drawn):
            yield pd.DataFrame([row | {"x": x} | numbers])


def _positions(figure: Figure, mark: Mark, drawn: Sequence[float]) -> list[float]:
    """Return the x of a mark, or both ends of its level line."""
    if mark.point is not None:
        return [mark.point]
    ends = figure.points.values if figure.points is not None else (drawn or (0.0, 1.0))
    return list(dict.fromkeys((min(ends), max(ends))))


def mark_lines(figure: Figure, group: CurveGroup, axes: Axes, rows: pd.DataFrame) -> Iterator[Line]:
    """Yield the symbols, or the line, of each label; a label looks the same in every panel.

    Args:
        figure: The figure.
        group: A group of the figure.
        axes: Axes of the figure.
        rows: The content of figure.csv.
    """
    drawn = marks_on(figure, group, axes)
    rows = rows[(rows["group"] == group.name) & (rows["axes"] == axes.name)]
    for index, label in enumerate(dict.fromkeys(mark.label for mark in figure.marks)):
        marks = [mark for mark in drawn if mark.label == label]
        cycle, shape = divmod(index, len(_SHAPES))
        if marks:
            points = rows[(rows["curve"] == label) & (rows["n"] == 0)]
            ranged = any(mark.low is not None for mark in marks)
            yield Line(
                label=label,
                colour=COLOURS[_COLOURS[cycle % len(_COLOURS)]],
                x=points["x"].tolist(),
                y=points["mean"].tolist(),
                low=points["low"].tolist() if ranged else None,
                high=points["high"].tolist() if ranged else None,
                marker=None if marks[0].point is None else _SHAPES[shape],
                joined=marks[0].joined,
                style=_LEVEL[index % len(_LEVEL)] if marks[0].joined else "",
            )


_SPARE = 0.03  # share of an axis left beside a mark on its border


def including(
    limits: tuple[float, float] | None, values: Sequence[float], log: bool
) -> tuple[float, float] | None:
    """Return the limits of an axis, widened so that the symbols of all marks are inside.

    Args:
        limits: Limits of the definition; None stays None, as the axis then follows from the data.
        values: Positions of the marks.
        log: True for a logarithmic axis, which gets no spare room.
    """
    if limits is None or not values:
        return limits
    low, high = min(limits[0], *values), max(limits[1], *values)
    spare = 0.0 if log else _SPARE * (high - low)
    return (
        low - spare if low in values else limits[0],
        high + spare if high in values else limits[1],
    )
