"""Numbers published elsewhere (``marks``), as they are drawn and kept beside a figure's curves."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from fedpriv.store.colours import COLOURS
from fedpriv.store.plots import Line
from fedpriv.study.figures.definition import Axes, CurveGroup, Figure, Mark

_SHAPES = "P>dx+8"  # none of them is a curve's
_COLOURS = ("black", "grey")


def marks_on(figure: Figure, group: CurveGroup, axes: Axes) -> list[Mark]:
    """The marks of a group that are drawn on an axes: those of its y."""
    if axes.kind != "lines":
        return []
    return [mark for mark in figure.marks if (mark.group, mark.column) == (group.name, axes.y)]


def mark_rows(figure: Figure, group: CurveGroup, axes: Axes) -> Iterator[pd.DataFrame]:
    """Rows of figure.csv: of no run, so ``n`` is 0."""
    for mark in marks_on(figure, group, axes):
        value = mark.value
        row = {"group": group.name, "axes": axes.name, "curve": mark.label, "x": mark.point}
        yield pd.DataFrame([row | {"mean": value, "low": value, "high": value, "n": 0}])


def mark_lines(figure: Figure, group: CurveGroup, axes: Axes) -> Iterator[Line]:
    """A shape without a line for each label, the same in every panel."""
    labels = list(dict.fromkeys(mark.label for mark in figure.marks))
    own = marks_on(figure, group, axes)
    for place, label in enumerate(labels):
        there = [mark for mark in own if mark.label == label]
        round_, shape = divmod(place, len(_SHAPES))
        if there:
            yield Line(
                label=label,
                colour=COLOURS[_COLOURS[round_ % len(_COLOURS)]],
                x=[mark.point for mark in there],
                y=[mark.value for mark in there],
                marker=_SHAPES[shape],
                joined=False,
            )


_SPARE = 0.03  # of an axis, beside a mark that is not inside its limits


def including(
    limits: tuple[float, float] | None, values: Sequence[float], log: bool
) -> tuple[float, float] | None:
    """The limits of an axis, widened so that they hold the whole symbols of marks."""
    if limits is None or not values:
        return limits
    low, high = min(limits[0], *values), max(limits[1], *values)
    spare = 0.0 if log else _SPARE * (high - low)
    return (
        low - spare if low in values else limits[0],
        high + spare if high in values else limits[1],
    )
