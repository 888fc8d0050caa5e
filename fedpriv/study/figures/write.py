"""Files of a figure: figure.csv (the drawn values), ends.csv, figure.png, figure.pdf, comparison.md."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from fedpriv.common.files import write_csv, write_text
from fedpriv.store.caveats import SEES_HIDDEN
from fedpriv.store.colours import COLOURS
from fedpriv.store.columns import CLIENT_COLUMNS, COLUMNS, STATED_COLUMNS, Quantity
from fedpriv.store.plots import CYCLE, MARKERS, HeatMap, Line, Panel, draw_panels
from fedpriv.study.figures.comparison import compare, ends_table
from fedpriv.study.figures.definition import POINT, SOUND, Axes, Curve, CurveGroup, Figure
from fedpriv.study.figures.marks import including, mark_lines, mark_rows, marks_on
from fedpriv.study.figures.series import (
    BANDS,
    FigureRun,
    band_of,
    over_points,
    over_seeds,
    per_client,
)

_SIDE_BY_SIDE = 3
_DOTTED = "Dotted: no sound guarantee, ε as the paper counts it."


def write_figure(
    figure: Figure,
    runs: Sequence[FigureRun],
    missing: Mapping[str, str],
    folder: Path,
    command: str,
) -> None:
    """Write the figure's files into ``folder``, which is made: all that this module names.

    Args:
        figure: The figure.
        runs: The finished runs.
        missing: Label of each job that is not finished → reason, empty if the job did not fail. The picture
            and the text mention these jobs.
        folder: Folder of the figure.
        command: Command that made the figure.

    Raises:
        WriteError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = figure_table(figure, runs)
    write_csv(folder / "figure.csv", table, float_format="%.6g")
    caption = caption_of(figure, runs, missing)
    omniscient = any(run.omniscient for run in runs)
    draw_table(figure, table, unsound_curves(runs), folder, len(missing), omniscient)
    write_csv(folder / "ends.csv", ends_table(figure, runs))
    write_text(folder / "comparison.md", compare(figure, runs, missing, caption, command))


def draw_table(
    figure: Figure,
    table: pd.DataFrame,
    unsound: Collection[tuple[str, str]],
    folder: Path,
    missing: int = 0,
    omniscient: bool = False,
) -> None:
    """Draw figure.png and figure.pdf from the points of figure.csv.

    Args:
        figure: The figure.
        table: The drawn points, as :func:`figure_table` returns them or figure.csv has them.
        unsound: (group, curve) of the curves with a run whose sound ε is infinite, which are dotted.
        folder: Folder of the figure.
        missing: Number of runs that are not finished.
        omniscient: Whether attackers of any run see what the trust model hides.
    """
    stamp = [f"QUICK{figure.altered_words}"] if figure.scale == "quick" else []
    if missing:
        stamp.append(f"INCOMPLETE, missing runs: {missing}")
    if omniscient:
        stamp.append(SEES_HIDDEN)
    panels = _panels(figure, table, unsound)
    dotted = any(
        line.dotted
        for row in panels
        for panel in row
        if isinstance(panel, Panel)
        for line in panel.lines
    )
    draw_panels(
        [folder / "figure.png", folder / "figure.pdf"],
        panels,
        figure.heading,
        note=_DOTTED if dotted else "",
        stamp="\n".join(stamp),
    )


def unsound_curves(runs: Sequence[FigureRun]) -> set[tuple[str, str]]:
    """Return (group, curve) of the curves with a run that claims privacy and has an infinite sound ε."""
    return {(r.job.group.name, r.job.curve.name) for r in runs if r.without_guarantee}


def written_words(folder: Path) -> str:
    """Return a line for each file that a user looks at."""
    named = (("figure", "figure.png"), ("compare", "comparison.md"), ("report", "report.html"))
    return "\n".join(f"{word}: {folder / name}" for word, name in named)


def figure_table(figure: Figure, runs: Sequence[FigureRun]) -> pd.DataFrame:
    """Return the drawn points, the content of figure.csv.

    Returns:
        Columns group, axes, curve, client (where each client has a line), x, mean, low, high, n and band,
        the kind of low and high: t, range, sd or none, as in :data:`~fedpriv.study.figures.series.BANDS`. A
        mark has n = 0, and ``stated`` where low and high are from its source.
    """
    tables: list[pd.DataFrame] = []
    for group in figure.groups:
        for axes in figure.axes:
            before = len(tables)
            for curve in group.curves:
                finished = runs_of(runs, group, curve)
                if not finished:
                    continue
                if figure.points is not None:
                    drawn = over_points(finished, axes, figure.points)
                elif axes.lines == "curves":
                    drawn = over_seeds(finished, axes)
                else:
                    drawn = per_client(finished[0], axes)
                drawn["band"] = [band_of(axes.band, int(n)) for n in drawn["n"]]
                drawn.insert(0, "curve", curve.name)
                drawn.insert(0, "axes", axes.name)
                drawn.insert(0, "group", group.name)
                tables.append(drawn)
            positions = [x for table in tables[before:] for x in table["x"]]
            tables += mark_rows(figure, group, axes, positions)
    columns = ["group", "axes", "curve", "x", "mean", "low", "high", "n", "band"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def runs_of(runs: Sequence[FigureRun], group: CurveGroup, curve: Curve) -> list[FigureRun]:
    """Return the finished runs of a curve in a group, by seed."""
    return [r for r in runs if (r.job.group.name, r.job.curve.name) == (group.name, curve.name)]


def _panels(
    figure: Figure, table: pd.DataFrame, unsound: Collection[tuple[str, str]]
) -> list[list[Panel | HeatMap]]:
    """Return the panels, a row for each group and a column for each axes.

    With one axes, up to three groups stand side by side, and more groups in pairs.
    """
    rows = [
        [
            (_map if axes.kind == "map" else _panel)(figure, group, axes, table, unsound)
            for axes in figure.axes
        ]
        for group in figure.groups
    ]
    if len(figure.axes) > 1:
        return rows
    panels = [row[0] for row in rows]
    width = len(panels) if len(panels) <= _SIDE_BY_SIDE else 2
    return [panels[i : i + width] for i in range(0, len(panels), width)]


def _panel(
    figure: Figure,
    group: CurveGroup,
    axes: Axes,
    table: pd.DataFrame,
    unsound: Collection[tuple[str, str]],
) -> Panel:
    """Return a panel of lines: the curves of the group, or a line for each client, and the marks."""
    columns = COLUMNS if axes.lines == "curves" else CLIENT_COLUMNS
    rows = table[(table["group"] == group.name) & (table["axes"] == axes.name)]
    lines = (
        _client_lines(rows)
        if axes.lines == "clients"
        else _curve_lines(figure, group, rows, unsound)
    )
    marks = marks_on(figure, group, axes)
    # The limits of the definition suit the defined runs alone.
    x_limits, y_limits = (
        (None, None) if figure.altered else (axes.x_limits, axes.y_limits.get(group.name))
    )
    return Panel(
        title=group.title,
        x_label=_x_label(figure, axes, columns),
        y_label=_y_label(axes, columns),
        lines=(*lines, *mark_lines(figure, group, axes, rows)),
        x_limits=including(
            x_limits, [m.point for m in marks if m.point is not None], axes.x_scale == "log"
        ),
        y_limits=including(y_limits, [mark.value for mark in marks], axes.y_scale == "log"),
        x_from_zero=figure.points is None,
        y_from_zero=columns[axes.y].from_zero and figure.points is None,
        x_log=axes.x_scale == "log",
        vacuous_above=axes.vacuous_above,
        y_log=axes.y_scale == "log",
    )


def _y_label(axes: Axes, columns: Mapping[str, Quantity]) -> str:
    if axes.y_label:
        return axes.y_label
    return "rounds" if (axes.x, axes.y) == (POINT, "round") else columns[axes.y].label


def _x_label(figure: Figure, axes: Axes, columns: Mapping[str, Quantity]) -> str:
    if axes.x_label:
        return axes.x_label
    if axes.x == SOUND:
        return f"{STATED_COLUMNS[SOUND].label}; right of {axes.vacuous_above:g}: vacuous"
    return (figure.points or columns[axes.x]).label


def _map(
    figure: Figure,
    group: CurveGroup,
    axes: Axes,
    table: pd.DataFrame,
    unsound: Collection[tuple[str, str]],
) -> HeatMap:
    """Return a map with a row for each curve, a column for each point, and means over seeds in the cells."""
    assert figure.points is not None  # only figures with points have maps
    rows = table[(table["group"] == group.name) & (table["axes"] == axes.name)]
    means = rows.pivot(index="curve", columns="x", values="mean")
    curves = [curve for curve in group.curves if figure.points_of(curve)]
    names = [curve.name for curve in curves]
    values = list(figure.points.values)
    if figure.points.choices:
        # Choices that have no such value, as attacks without a backdoor have no success, are left out.
        measured = set(table.loc[table["axes"] == axes.name, "x"])
        values = [value for value in values if value in measured] or values
    cells = means.reindex(index=names, columns=values)
    return HeatMap(
        title=group.title,
        x_label=axes.x_label or figure.points.label,
        y_label=axes.y_label or "",
        label=_y_label(replace(axes, y_label=None), COLUMNS),
        rows=tuple(curve.label for curve in curves),
        columns=tuple(map(figure.points.words, cells.columns)),
        values=cells.to_numpy(dtype=float),
        decimals=min(COLUMNS[axes.y].decimals, 2),
        best=axes.best,
    )


def _curve_lines(
    figure: Figure,
    group: CurveGroup,
    rows: pd.DataFrame,
    unsound: Collection[tuple[str, str]],
) -> Iterator[Line]:
    """Yield the line of each curve, dotted without a sound guarantee and dashed without points."""
    shapes: dict[str, str] = {}  # a curve has the same marker in every group
    for curve in (curve for other in figure.groups for curve in other.curves):
        shapes.setdefault(curve.label, MARKERS[len(shapes) % len(MARKERS)])
    for curve in group.curves:
        line = rows[rows["curve"] == curve.name]
        if len(line):
            band = line["n"].max() > 1
            level = figure.points is not None and not curve.points
            yield Line(
                label=curve.label,
                colour=COLOURS[curve.colour],
                x=line["x"],
                y=line["mean"],
                low=line["low"] if band else None,
                high=line["high"] if band else None,
                dotted=(group.name, curve.name) in unsound,
                dashed=level,
                thin=len(group.curves) > 5,
                marker=None if level else shapes[curve.label],
                sparse=figure.points is None,
            )


def _client_lines(rows: pd.DataFrame) -> Iterator[Line]:
    if not len(rows):
        return
    for (client, line), colour, marker in zip(
        rows.groupby("client"), CYCLE, itertools.cycle(MARKERS), strict=False
    ):
        label = f"client {int(client)}"
        yield Line(label, colour, line["x"], line["mean"], thin=True, marker=marker, sparse=True)


def caption_of(figure: Figure, runs: Sequence[FigureRun], missing: Collection[str]) -> str:
    """Return the caption: the text that a reader needs to understand the picture."""
    if any(axes.lines == "clients" for axes in figure.axes):
        sentences = [f"A line for each client of seed {figure.groups[0].seeds[0]}."]
    else:
        sentences = list(_about_lines(figure, runs))
    if figure.altered:
        sentences.append(f"Changed: {' '.join(figure.altered)}.")
    if missing:
        sentences.append(f"Missing runs: {len(missing)}.")
    if diverged := sum(bool(run.diverged) for run in runs):
        sentences.append(f"Diverged runs, drawn to where they did: {diverged}.")
    if labels := list(dict.fromkeys(run.job.curve.label for run in runs if run.omniscient)):
        sentences.append(f"In these curves {SEES_HIDDEN}: {'; '.join(labels)}.")
    versions = sorted({run.stream_version for run in runs})
    if len(versions) > 1:
        sentences.append(f"Random streams of versions {' and '.join(map(str, versions))}.")
    return " ".join(sentences)


def _about_lines(figure: Figure, runs: Sequence[FigureRun]) -> Iterator[str]:
    """Yield sentences about the meaning of lines, bands and cells, and the number of seeds."""
    seeds, most = [], 0
    for group in figure.groups:
        counts = sorted(set(_counts(figure, group, runs)))
        number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        title = f"{group.title}: " if group.title else ""
        seeds.append(f"{title}{number} seed{'s' if counts[-1] != 1 else ''}")
        most = max(most, counts[-1])
    kinds = sorted({axes.kind for axes in figure.axes})
    drawn = " and ".join({"lines": "lines", "map": "cells"}[kind] for kind in kinds)
    each = "line" if figure.points is None else "point"
    begin = f"{drawn.capitalize()}: mean over seeds" if most > 1 else f"One run a {each}"
    bands = "".join(f"; {text}" for text in _about_bands(figure)) if most > 1 else ""
    yield f"{begin} ({'; '.join(seeds)}){bands}."
    if any(run.without_guarantee for run in runs) and "lines" in kinds:
        yield _DOTTED
    if figure.points is not None:
        yield from _about_points(figure)
    if figure.marks:
        yield "Symbols without a line: numbers from elsewhere, see comparison.md."
    for best in sorted({axes.best for axes in figure.axes if axes.kind == "map"}):
        yield f"Framed: the {best}est of each row."


def _about_points(figure: Figure) -> Iterator[str]:
    """Yield sentences about points and level lines, and about curves without a point."""
    assert figure.points is not None
    yield f"Each point is the end of runs with that {figure.points.label}."
    curves = {curve.name: curve for group in figure.groups for curve in group.curves}.values()
    if any(not curve.points for curve in curves):
        yield f"Horizontal: runs that do not depend on {figure.points.label}."
    if omitted := [curve.label for curve in curves if not figure.points_of(curve)]:
        yield f"Left out, run at none of these points: {', '.join(omitted)}."


def _about_bands(figure: Figure) -> Iterator[str]:
    """Yield the meaning of bands, with the names of the axes where axes differ."""
    kinds = {axes.name: axes.band for axes in figure.axes if axes.kind == "lines"}
    for kind in dict.fromkeys(kinds.values()):
        names = [name for name, other in kinds.items() if other == kind]
        of = f" ({', '.join(names)})" if len(names) < len(kinds) else ""
        yield f"bands{of}: {BANDS[kind]}"


def _counts(figure: Figure, group: CurveGroup, runs: Sequence[FigureRun]) -> Iterator[int]:
    """Yield the number of finished runs of each curve of a group at each point."""
    for curve in group.curves:
        counts = Counter(run.job.point for run in runs_of(runs, group, curve))
        yield from (counts[point] for point in figure.points_of(curve))
