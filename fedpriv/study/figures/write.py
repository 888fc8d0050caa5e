"""Files of a figure: figure.csv (the drawn values), ends.csv, figure.png, figure.pdf, comparison.md."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd

from fedpriv.common.files import write_csv, write_text
from fedpriv.common.words import span
from fedpriv.store.caveats import SEES_HIDDEN
from fedpriv.store.colours import COLOURS
from fedpriv.store.columns import CLIENT_COLUMNS, COLUMNS, STATED_COLUMNS, Quantity
from fedpriv.store.pairs import BANDS, FEWEST
from fedpriv.store.plots import MARKERS, HeatMap, Line, Panel, distinct, draw_panels
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.comparison import compare, ends_table
from fedpriv.study.figures.definition import POINT, SOUND, Axes, CurveGroup, Figure
from fedpriv.study.figures.series import FigureRun, figure_table, frame_of, marks_on, scale_of

_SIDE_BY_SIDE = 3
_RUNNING = 7  # points of a client's line that are averaged
_DOTTED = "Dotted: no sound guarantee, ε as the paper counts it."
_MARK_SHAPES = "P>dx+8"  # shapes that no curve has
_MARK_COLOURS = ("black", "olive", "grey", "brown", "green", "purple", "red")
_MARK_LEVELS = ("--", "-.", (0, (5, 1, 1, 1, 1, 1)))  # of lines of numbers from elsewhere


def write_figure(
    figure: Figure,
    runs: Sequence[FigureRun],
    missing: Mapping[str, str],
    folder: Path,
    command: str,
    begun: Sequence[StoredRun] = (),
) -> None:
    """Write the figure's files into ``folder``, which is made: all that this module names.

    Args:
        figure: The figure.
        runs: The finished runs.
        missing: Label of each job that is not finished → reason, empty if the job did not fail. The picture
            and the text mention these jobs.
        folder: Folder of the figure.
        command: Command that made the figure.
        begun: Runs that have not ended, but may have released something.

    Raises:
        WriteError: A file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    frame = frame_of(runs)
    table = figure_table(figure, frame)
    write_csv(folder / "figure.csv", table, float_format="%.6g")
    omniscient = any(run.summary.get("omniscient") for run in runs)
    draw_table(figure, table, unsound_curves(runs), folder, len(missing), omniscient)
    write_csv(folder / "ends.csv", ends_table(figure, frame))
    caption = caption_of(figure, frame, missing)
    write_text(folder / "comparison.md", compare(figure, frame, missing, caption, command, begun))


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
    panels = panels_of(figure, table, unsound)
    lines = [one for row in panels for p in row if isinstance(p, Panel) for one in p.lines]
    whose = "" if figure.whose == "paper" else f"Scale: {figure.whose}."
    bands = [BANDS[kind] for kind in BANDS if kind != "none" and kind in set(table.get("band", ()))]
    means = (
        f"Means over up to {table['n'].max()} seeds; bands: {'; '.join(bands)}." if bands else ""
    )
    dotted = _DOTTED if any(line.dotted for line in lines) else ""
    note = "\n".join(filter(None, (dotted, means, whose)))
    heading = "\n".join(filter(None, (figure.work, figure.title)))
    files = [folder / "figure.png", folder / "figure.pdf"]
    draw_panels(files, panels, heading, note=note, stamp="\n".join(stamp))


def unsound_curves(runs: Sequence[FigureRun]) -> set[tuple[str, str]]:
    """Return (group, curve) of the curves with a run of finite published and infinite sound ε."""
    claimed = [r for r in runs if math.isfinite(r.summary.get("epsilon_published") or math.inf)]
    return {(r.job.group.name, r.job.curve.name) for r in claimed if r.without_guarantee}


def written_words(folder: Path) -> str:
    """Return a line for each file that a user looks at."""
    named = (("figure", "figure.png"), ("compare", "comparison.md"), ("report", "report.html"))
    return "\n".join(f"{word}: {folder / name}" for word, name in named)


# ---- the picture


def panels_of(
    figure: Figure, table: pd.DataFrame, unsound: Collection[tuple[str, str]]
) -> list[list[Panel | HeatMap]]:
    """Return the panels, a row for each group and a column for each axes.

    With one axes, up to three groups stand side by side, and more groups in pairs.
    """
    panels: list[list[Panel | HeatMap]] = []
    for group in figure.groups:
        panels.append([])
        for axes in figure.axes:
            shown = table[table["axes"] == axes.name]
            rows = shown[shown["group"] == group.name]
            if axes.x_limits and not figure.altered:  # so that y follows from what is seen
                rows = rows[rows["x"].between(*axes.x_limits)]
            if axes.kind == "map":
                panels[-1].append(_map(figure, group, axes, rows, {*shown["x"]}))
            else:
                lines = (
                    _client_lines(rows)
                    if axes.kind == "clients"
                    else _curves(figure, group, rows, unsound)
                )
                panels[-1].append(
                    _panel(figure, group, axes, [*lines, *_marks(figure, group, axes, rows)])
                )
    if len(figure.axes) > 1:
        return panels
    row = [panel for (panel,) in panels]
    width = len(row) if len(row) <= _SIDE_BY_SIDE else 2
    return [row[i : i + width] for i in range(0, len(row), width)]


def _column(axes: Axes, name: str) -> Quantity:
    if (axes.x, name) == (POINT, "round"):
        return Quantity("rounds", from_zero=True)
    return (CLIENT_COLUMNS if axes.kind == "clients" else COLUMNS)[name]


def _panel(figure: Figure, group: CurveGroup, axes: Axes, lines: Sequence[Line]) -> Panel:
    """Return a panel of lines."""
    # The limits of the definition suit the defined runs alone.
    x_limits, y_limits = (None, None) if figure.altered else (axes.x_limits, axes.y_limits)
    x_label = (figure.points or _column(axes, axes.x)).label
    if axes.x == SOUND:
        x_label = f"{STATED_COLUMNS[SOUND].label}; right of {axes.vacuous_above:g}: vacuous"
    quantity = _column(axes, axes.y)
    return Panel(
        title=group.title,
        x_label=axes.x_label or x_label,
        y_label=axes.y_label or quantity.label,
        lines=tuple(lines),
        x_limits=x_limits,
        y_limits=y_limits,
        x_from_zero=figure.points is None,
        y_from_zero=quantity.from_zero and figure.points is None,
        x_log=axes.x_scale == "log",
        vacuous_above=axes.vacuous_above,
        y_log=axes.y_scale == "log",
    )


def _client_lines(rows: pd.DataFrame) -> Iterator[Line]:
    """Yield a line for each client, its running mean."""
    for index, (client, line) in enumerate(rows.groupby("client") if len(rows) else ()):
        colour, marker, dotted = distinct(index)
        smooth = line["mean"].rolling(_RUNNING, min_periods=1, center=True).mean()
        yield Line(
            f"client {int(client)}", colour, line["x"], smooth, dotted=dotted, thin=True,
            marker=marker, sparse=True,
        )  # fmt: skip


def _curves(
    figure: Figure, group: CurveGroup, rows: pd.DataFrame, unsound: Collection[tuple[str, str]]
) -> Iterator[Line]:
    """Yield the curves of a panel.

    A curve is dotted without a sound guarantee, and dashed where it is run at no point; it has the same
    marker in every group. The only curve of a panel that is named like the figure has no label.
    """
    labels = dict.fromkeys(curve.label for other in figure.groups for curve in other.curves)
    shapes = {label: MARKERS[i % len(MARKERS)] for i, label in enumerate(labels)}
    for curve in group.curves:
        line = rows[rows["curve"] == curve.name]
        if not len(line):
            continue
        band, level = line["n"].max() > 1, figure.points is not None and not curve.points
        alone = curve.label == figure.title and rows["curve"].nunique() == 1
        yield Line(
            label="_" if alone else curve.label,
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


def _marks(figure: Figure, group: CurveGroup, axes: Axes, rows: pd.DataFrame) -> Iterator[Line]:
    """Yield the numbers from elsewhere in a panel; those of a label look the same in every panel."""
    on_axes = marks_on(figure, group, axes)
    for index, label in enumerate(dict.fromkeys(mark.label for mark in figure.marks)):
        marks = [mark for mark in on_axes if mark.label == label]
        if not marks:
            continue
        shape = index % len(_MARK_SHAPES)
        points = rows[(rows["curve"] == label) & (rows["n"] == 0)]
        ranged = any(mark.low is not None for mark in marks)
        yield Line(
            label=label,
            colour=COLOURS[_MARK_COLOURS[index % len(_MARK_COLOURS)]],
            x=points["x"].tolist(),
            y=points["mean"].tolist(),
            low=points["low"].tolist() if ranged else None,
            high=points["high"].tolist() if ranged else None,
            marker=None if marks[0].point is None else _MARK_SHAPES[shape],
            joined=marks[0].joined,
            style=_MARK_LEVELS[index % len(_MARK_LEVELS)] if marks[0].joined else "",
        )


def _map(
    figure: Figure, group: CurveGroup, axes: Axes, rows: pd.DataFrame, measured: Collection[float]
) -> HeatMap:
    """Return a map with a row for each curve, a column for each point, and means over seeds in the cells."""
    assert figure.points is not None  # only figures with points have maps
    curves = [curve for curve in group.curves if figure.points_of(curve)]
    values = list(figure.points.values)
    if figure.points.choices:
        # Choices that have no such value, as attacks without a backdoor have no success, are left out.
        values = [value for value in values if value in measured] or values
    means = rows.pivot(index="curve", columns="x", values="mean")
    cells = means.reindex(index=[curve.name for curve in curves], columns=values)
    return HeatMap(
        title=group.title,
        x_label=axes.x_label or figure.points.label,
        y_label=axes.y_label or "",
        label=_column(axes, axes.y).label,
        rows=tuple(curve.label for curve in curves),
        columns=tuple(map(figure.points.words, cells.columns)),
        values=cells.to_numpy(dtype=float),
        decimals=min(COLUMNS[axes.y].decimals, 2),
        best=axes.best,
    )


# ---- its caption


def caption_of(figure: Figure, frame: pd.DataFrame, missing: Collection[str]) -> str:
    """Return the caption: the text that a reader needs to understand the picture."""
    runs: list[FigureRun] = [*frame["run"].unique()]
    if figure.axes[0].kind == "clients":
        seed = figure.groups[0].seeds[0]
        sentences = [f"A line for each client of seed {seed}, a running mean of {_RUNNING} points."]
    else:
        sentences = list(_about_lines(figure, runs))
    if figure.altered:
        sentences.append(f"Changed: {' '.join(figure.altered)}.")
    if missing:
        sentences.append(f"Missing runs: {len(missing)}.")
    if diverged := sum(bool(run.diverged) for run in runs):
        sentences.append(f"Diverged runs, drawn to where they did: {diverged}.")
    if labels := list(
        dict.fromkeys(run.job.curve.label for run in runs if run.summary.get("omniscient"))
    ):
        sentences.append(f"In these curves {SEES_HIDDEN}: {'; '.join(labels)}.")
    versions = sorted({run.stream_version for run in runs})
    if len(versions) > 1:
        sentences.append(f"Random streams of versions {' and '.join(map(str, versions))}.")
    return " ".join(sentences)


def _about_lines(figure: Figure, runs: Sequence[FigureRun]) -> Iterator[str]:
    """Yield sentences about the meaning of lines, bands, cells and points, and the number of seeds."""
    finished = Counter((run.job.group.name, run.job.curve.name, run.job.point) for run in runs)
    seeds, most = [], 0
    for group in figure.groups:
        counts = sorted(
            finished[group.name, curve.name, point]
            for curve in group.curves
            for point in figure.points_of(curve)
        )
        title = f"{group.title}: " if group.title else ""
        seeds.append(f"{title}{span(counts[0], counts[-1])} seed{'s' if counts[-1] != 1 else ''}")
        most = max(most, counts[-1])
    kinds = sorted({axes.kind for axes in figure.axes})
    drawn = " and ".join({"lines": "lines", "map": "cells"}[kind] for kind in kinds)
    bands = ""
    if most > 1:
        of_axes = {axes.name: axes.band for axes in figure.axes if axes.kind == "lines"}
        for kind in dict.fromkeys(of_axes.values()):
            names = [name for name, other in of_axes.items() if other == kind]
            of = f" ({', '.join(names)})" if len(names) < len(of_axes) else ""
            bands += f"; bands{of}: {BANDS[kind]}"
        drawn_on = {scale_of(axes) for axes in figure.axes if axes.kind == "lines"}
        if most >= FEWEST and drawn_on - {"linear"}:
            bands += ", of logits for percentages and of logarithms on logarithmic axes"
    each = "line" if figure.points is None else "point"
    begin = f"{drawn.capitalize()}: mean over seeds" if most > 1 else f"One run a {each}"
    yield f"{begin} ({'; '.join(seeds)}){bands}."
    if unsound_curves(runs) and "lines" in kinds:
        yield _DOTTED
    if figure.points is not None:
        yield f"Each point is the end of runs with that {figure.points.label}."
        curves = {curve.name: curve for group in figure.groups for curve in group.curves}.values()
        if any(not curve.points for curve in curves):
            yield f"Horizontal: runs that do not depend on {figure.points.label}."
        if omitted := [curve.label for curve in curves if not figure.points_of(curve)]:
            yield f"Left out, run at none of these points: {', '.join(omitted)}."
    if figure.marks:
        yield "Symbols without a line: numbers from elsewhere, see comparison.md."
    for best in sorted({axes.best for axes in figure.axes if axes.kind == "map"}):
        yield f"Framed: the {best}est of each row."
