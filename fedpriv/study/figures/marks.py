"""Marks: numbers published elsewhere, drawn and stored beside a figure's curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from fedpriv.store.colours import COLOURS
from fedpriv.store.plots import Line
from fedpriv.study.figures.definition import Axes, CurveGroup, Figure, Mark

_SHAPES = "P>dx+8"  # shapes that no curve has
_COLOURS = ("black", "grey")


def marks_on(figure: Figure, group: CurveGroup, axes: Axes) -> list[Mark]:
    """Return the marks of a group about the quantity y of the axes. A map has no marks."""
    if axes.kind != "lines":
        return []
    return [mark for mark in figure.marks if (mark.group, mark.column) == (group.name, axes.y)]


def mark_rows(figure: Figure, group: CurveGroup, axes: Axes) -> Iterator[pd.DataFrame]:
    """Yield the rows of figure.csv for the marks. A mark is of no run, so ``n`` is 0."""
    for mark in marks_on(figure, group, axes):
        value = mark.value
        row = {"group": group.name, "axes": axes.name, "curve": mark.label, "x": mark.point}
        yield pd.DataFrame([row | {"mean": value, "low": value, "high": value, "n": 0}])


def mark_lines(figure: Figure, group: CurveGroup, axes: Axes) -> Iterator[Line]:
    """Yield the symbols of each label; a label has the same symbol in every panel."""
    drawn = marks_on(figure, group, axes)
    for index, label in enumerate(dict.fromkeys(mark.label for mark in figure.marks)):
        marks = [mark for mark in drawn if mark.label == label]
        cycle, shape = divmod(index, len(_SHAPES))
        if marks:
            yield Line(
                label=label,
                colour=COLOURS[_COLOURS[cycle % len(_COLOURS)]],
                x=[mark.point for mark in marks],
                y=[mark.value for mark in marks],
                marker=_SHAPES[shape],
                joined=False,
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
