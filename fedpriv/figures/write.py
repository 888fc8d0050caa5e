"""The files of a figure: figure.csv (what is drawn), ends.csv, figure.png, figure.pdf, comparison.md."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pandas as pd

from fedpriv.common.files import write_text
from fedpriv.figures.comparison import compare, ends_table
from fedpriv.figures.definition import Axes, Curve, Figure, Group
from fedpriv.figures.series import Run, over_seeds, per_client
from fedpriv.results.colours import COLOURS
from fedpriv.results.columns import CLIENT_COLUMNS, COLUMNS
from fedpriv.results.plots import CYCLE, Line, Panel, draw_panels

_SIDE_BY_SIDE = 3


def write_figure(
    figure: Figure, runs: Sequence[Run], missing: Sequence[str], folder: Path, command: str
) -> None:
    """Write the figure's files into ``folder``.

    Args:
        runs: The finished runs.
        missing: Labels of the jobs that are not finished; said on the picture and in the text.
        command: What made the figure.
    """
    folder.mkdir(parents=True, exist_ok=True)
    table = figure_table(figure, runs)
    write_text(folder / "figure.csv", table.to_csv(index=False, float_format="%.6g"))
    caption = caption_of(figure, runs, missing)
    draw_panels(
        [folder / "figure.png", folder / "figure.pdf"],
        _panels(figure, table, runs),
        f"{figure.work} · {figure.title}",
        caption,
        stamp=_stamp(figure, missing),
    )
    write_text(folder / "ends.csv", ends_table(figure, runs).to_csv(index=False))
    write_text(folder / "comparison.md", compare(figure, runs, missing, caption, command))


def figure_table(figure: Figure, runs: Sequence[Run]) -> pd.DataFrame:
    """Every point drawn: group, axes, curve, client (if a line each), x, mean, low, high, n."""
    tables = []
    for group in figure.groups:
        for axes in figure.axes:
            for curve in group.curves:
                own = runs_of(runs, group, curve)
                if not own:
                    continue
                drawn = (
                    over_seeds(own, axes) if axes.lines == "curves" else per_client(own[0], axes)
                )
                drawn.insert(0, "curve", curve.name)
                drawn.insert(0, "axes", axes.name)
                drawn.insert(0, "group", group.name)
                tables.append(drawn)
    columns = ["group", "axes", "curve", "x", "mean", "low", "high", "n"]
    return pd.concat(tables, ignore_index=True) if tables else pd.DataFrame(columns=columns)


def runs_of(runs: Sequence[Run], group: Group, curve: Curve) -> list[Run]:
    """The finished runs of a curve in a group, by seed."""
    return [r for r in runs if (r.job.group.name, r.job.curve.name) == (group.name, curve.name)]


def _panels(figure: Figure, table: pd.DataFrame, runs: Sequence[Run]) -> list[list[Panel]]:
    """A row for each group, a column for each axes; with one axes the groups stand side by side, up to
    three of them, more in pairs."""
    rows = [
        [_panel(figure, group, axes, table, runs) for axes in figure.axes]
        for group in figure.groups
    ]
    if len(figure.axes) > 1:
        return rows
    panels = [row[0] for row in rows]
    width = len(panels) if len(panels) <= _SIDE_BY_SIDE else 2
    return [panels[i : i + width] for i in range(0, len(panels), width)]


def _panel(
    figure: Figure, group: Group, axes: Axes, table: pd.DataFrame, runs: Sequence[Run]
) -> Panel:
    columns = COLUMNS if axes.lines == "curves" else CLIENT_COLUMNS
    rows = table[(table["group"] == group.name) & (table["axes"] == axes.name)]
    lines = _curve_lines(group, rows, runs) if axes.lines == "curves" else _client_lines(rows)
    return Panel(
        title=group.title,
        x_label=axes.x_label or columns[axes.x].label,
        y_label=axes.y_label or columns[axes.y].label,
        lines=tuple(lines),
        x_limits=None if figure.altered else axes.x_limits,
        y_limits=None if figure.altered else axes.y_limits.get(group.name),
        y_from_zero=columns[axes.y].from_zero,
        y_log=axes.y_scale == "log",
    )


def _curve_lines(group: Group, rows: pd.DataFrame, runs: Sequence[Run]) -> Iterator[Line]:
    for curve in group.curves:
        own = rows[rows["curve"] == curve.name]
        if len(own):
            band = own["n"].max() > 1
            yield Line(
                label=curve.label,
                colour=COLOURS[curve.colour],
                x=own["x"],
                y=own["mean"],
                low=own["low"] if band else None,
                high=own["high"] if band else None,
                dotted=any(run.without_guarantee for run in runs_of(runs, group, curve)),
                thin=len(group.curves) > 5,
            )


def _client_lines(rows: pd.DataFrame) -> Iterator[Line]:
    if not len(rows):
        return
    for (client, own), colour in zip(rows.groupby("client"), CYCLE, strict=False):
        yield Line(label=str(int(client)), colour=colour, x=own["x"], y=own["mean"], thin=True)


def _stamp(figure: Figure, missing: Sequence[str]) -> str:
    words = []
    if figure.scale == "quick":
        words.append(f"QUICK ({' '.join(figure.altered)})")
    if missing:
        words.append(f"INCOMPLETE, missing runs: {len(missing)}")
    return "\n".join(words)


def caption_of(figure: Figure, runs: Sequence[Run], missing: Sequence[str]) -> str:
    """What a reader must know to read the picture."""
    seeds = []
    for group in figure.groups:
        counts = sorted({len(runs_of(runs, group, curve)) for curve in group.curves})
        number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
        seeds.append(f"{group.title}: {number} seed{'s' if counts[-1] != 1 else ''}")
    words = []
    if any(axes.lines == "clients" for axes in figure.axes):
        words.append(f"A line for each client of seed {figure.groups[0].seeds[0]}.")
    else:
        several = len({(run.job.group.name, run.job.curve.name) for run in runs}) < len(runs)
        lines = "Lines: mean over seeds" if several else "One run a line"
        bands = "; bands: lowest to highest seed" if several else ""
        words.append(f"{lines} ({'; '.join(seeds)}){bands}.")
        if any(run.without_guarantee for run in runs):
            words.append("Dotted: no sound guarantee, ε as the paper counts it.")
    if figure.altered:
        words.append(f"Changed: {' '.join(figure.altered)}.")
    if missing:
        words.append(f"Missing runs: {len(missing)}.")
    return " ".join(words)
