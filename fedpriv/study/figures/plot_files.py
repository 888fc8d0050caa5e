"""Files of ``fedpriv plot``: the pictures, and beside them the drawn values (.csv) and the caption (.txt)."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping, Sequence
from types import SimpleNamespace

import pandas as pd

from fedpriv.common.errors import ConfigError, did_you_mean
from fedpriv.common.files import write_csv, write_text
from fedpriv.common.words import in_short, printable
from fedpriv.store.caveats import SEES_HIDDEN
from fedpriv.store.columns import COLUMNS
from fedpriv.store.display import console
from fedpriv.store.plots import CYCLE, MARKERS, WIDTHS, Line, Look, Panel, draw_panels
from fedpriv.store.stored_run import StoredRun
from fedpriv.study.figures.series import BANDS

MOST_LINES = 100  # of a picture: nobody can tell more apart, and the legend would exceed a page
_FAILED = "×: a run failed or is not finished."


def write_plot(
    options: SimpleNamespace,
    lines: Mapping[str, pd.DataFrame],
    x_label: str,
    counted_runs: str,
    caption: str,
    *,
    points: bool = False,
    warnings: Sequence[str] = (),
) -> None:
    """Write the pictures, their values and their caption, and print where they are.

    Args:
        options: Flags of the command.
        lines: Label → x, mean, low, high and n of each line; a row without a mean is a failed cell.
        x_label: Label of the x axis, unless the options name another.
        counted_runs: The number of runs and of lines in words.
        caption: What a line is.
        points: True for lines that join measured points, each with a marker.
        warnings: Sentences that belong on the face of the picture.

    Raises:
        ConfigError: A label to be renamed is not there.
    """
    lines = renamed(ordered(lines, options.order), options.label)
    first = options.out[0]
    table = pd.concat(lines.values(), keys=lines.keys(), names=["label", None]).reset_index(0)
    write_csv(first.with_suffix(".csv"), table)
    warnings = [*first_lines(lines), *warnings]
    if (table["n"] == 0).any():
        warnings.append(_FAILED)
    most = int(table["n"].max())
    seeds = f"{most}" if table["n"].nunique() == 1 else f"up to {most}"
    sentences = [caption]
    if most > 1:
        sentences.append(f"Mean over {seeds} seeds; bands: {BANDS[options.band]}.")
    text = " ".join([*sentences, *warnings])
    write_text(first.with_suffix(".txt"), f"{options.command}\n\n{text}\n")
    panel = _panel(options, lines, x_label, points)
    look = Look(WIDTHS.get(options.width), options.font_size)
    draw_panels(
        options.out,
        [[panel]],
        options.title or "",
        note=" ".join(warnings),
        creator="fedpriv plot",
        look=look,
    )
    written = [*options.out, first.with_suffix(".csv"), first.with_suffix(".txt")]
    console().print(f"{counted_runs}: {', '.join(map(str, written))}")
    for sentence in first_lines(lines):
        console().print(f"{sentence} {first.with_suffix('.csv')} has all.")


def hidden_words(runs: Iterable[StoredRun]) -> list[str]:
    """Return a sentence for a picture of runs whose attackers see what the trust model hides, else nothing.

    Args:
        runs: The runs in the picture. One without a summary counts if its configuration allows it.
    """
    hidden = [
        run.path.name
        for run in runs
        if (run.summary if run.finished else run.values).get(
            "omniscient" if run.finished else "attack.omniscient"
        )
    ]
    return [f"In these runs {SEES_HIDDEN}: {in_short(hidden)}."] if hidden else []


def first_lines(lines: Mapping[str, object]) -> list[str]:
    """Return a sentence for a picture that does not show all lines, else nothing."""
    if len(lines) <= MOST_LINES:
        return []
    return [f"Drawn are the first {MOST_LINES} of {len(lines)} lines."]


def ordered(lines: Mapping[str, pd.DataFrame], by: str) -> dict[str, pd.DataFrame]:
    """Return the lines ordered by the numbers in their labels (``setting``), or from the highest ``end``."""
    if by == "end":
        ends = {label: line["mean"].dropna().iloc[-1:].max() for label, line in lines.items()}
        return {label: lines[label] for label in sorted(lines, key=lambda one: -ends[one])}
    return {label: lines[label] for label in sorted(lines, key=_natural)}


def _natural(label: str) -> list[tuple[int, float, str]]:
    """Return a sort key by which ``σ=2`` comes before ``σ=10``."""
    parts = re.split(r"(-?\d+(?:\.\d+)?(?:e[-+]?\d+)?)", label)
    return [
        (0, float(part), "") if index % 2 else (1, 0.0, part) for index, part in enumerate(parts)
    ]


def renamed(lines: Mapping[str, pd.DataFrame], names: Sequence[str]) -> dict[str, pd.DataFrame]:
    """Return the lines under the labels that ``OLD:NEW`` texts give them.

    Raises:
        ConfigError: A text has no colon or names no label, or two lines would have one label.
    """
    new = {label: label for label in lines}
    for name in names:
        olds = [label for label in lines if name.startswith(f"{label}:")]
        if not olds:
            old = name.partition(":")[0]
            allowed = f"OLD:NEW, OLD being one of {'; '.join(lines)}"
            raise ConfigError("--label", name, allowed, did_you_mean(old, lines))
        old = max(olds, key=len)
        new[old] = name[len(old) + 1 :].strip()
    if len(set(new.values())) < len(new):
        raise ConfigError("--label", ", ".join(names), "a different label for each line")
    return {new[label]: line for label, line in lines.items()}


def axis_label(column: str) -> str:
    """Return the label of an axis for a column: words and a unit where the column is known."""
    return COLUMNS[column].label if column in COLUMNS else column


def _panel(
    options: SimpleNamespace, lines: Mapping[str, pd.DataFrame], x_label: str, points: bool
) -> Panel:
    """Return a panel with a line for each label, with a band where the line is a mean over seeds."""
    drawn = []
    shapes = itertools.cycle(MARKERS)
    for index, (label, line) in enumerate(list(lines.items())[:MOST_LINES]):
        colour, marker = CYCLE[index % len(CYCLE)], next(shapes)
        measured = line[line["n"] > 0]
        band = len(measured) > 0 and measured["n"].max() > 1 and options.band != "none"
        drawn.append(
            Line(
                label="_all" if label == "all" and len(lines) == 1 else printable(label),
                colour=colour,
                x=measured["x"],
                y=measured["mean"],
                low=measured["low"] if band else None,
                high=measured["high"] if band else None,
                dotted=index >= len(CYCLE),
                marker=marker if points or len(lines) > 1 else None,
                sparse=not points,
            )
        )
        failed = line[line["n"] == 0]
        if len(failed):
            drawn.append(
                Line(
                    "_failed",
                    colour,
                    failed["x"],
                    failed["x"],
                    marker="x",
                    joined=False,
                    at_bottom=True,
                )
            )
    y = options.y
    from_zero = not points and not options.x.startswith("epsilon")
    return Panel(
        title="",
        x_label=options.x_label or x_label,
        y_label=options.y_label or axis_label(y),
        lines=tuple(drawn),
        x_from_zero=from_zero,
        y_from_zero=y in COLUMNS and COLUMNS[y].from_zero,
        x_log="x" in (options.log or ""),
        y_log="y" in (options.log or ""),
    )
