"""Comparison of a figure with its publication (comparison.md), and the table of results (ends.csv).

comparison.md has the stated numbers beside ours, orderings, deviations from the paper's experiment, and how
the figure was made.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pandas as pd

from fedpriv.common.words import digits_up, in_short, round_up
from fedpriv.store.columns import AUDIT_COLUMNS, COLUMNS, STATED_COLUMNS
from fedpriv.store.pairs import (
    INTERVALS,
    PAIRED,
    TOGETHER,
    interval_words,
    paired_differences,
    share_noise,
    spread_words,
)
from fedpriv.store.table import Table
from fedpriv.study.figures.definition import Curve, CurveGroup, Figure, Ordering, StatedValue
from fedpriv.study.figures.provenance import joint_words, provenance
from fedpriv.study.figures.series import FigureRun


class Ends:
    """Values at the ends of a figure's runs, in the units shown.

    Args:
        runs: Finished runs of the figure.
    """

    def __init__(self, runs: Sequence[FigureRun]):
        self._runs: dict[tuple[str, str], list[FigureRun]] = {}
        for run in runs:
            self._runs.setdefault((run.job.group.name, run.job.curve.name), []).append(run)

    def of(self, group: str, curve: str, column: str, point: float | None = None) -> np.ndarray:
        """Return the values of a curve at the ends of its runs.

        Args:
            group: Name of the group.
            curve: Name of the curve. A curve that is run at no point has the same values at every point.
            column: A column of summary.json.
            point: Point of the figure, or None without points.

        Returns:
            A value for each finished seed [n]; empty where there is no run, or the column does not apply.
        """
        values = [
            run.summary.get(column)
            for run in self._runs.get((group, curve), ())
            if run.job.point in (point, None)
        ]
        scale = _QUANTITIES[column].scale
        return np.array([float(v) * scale for v in values if v is not None])


def compare(
    figure: Figure,
    runs: Sequence[FigureRun],
    missing: Mapping[str, str],
    caption: str,
    command: str,
) -> str:
    """Return the text of comparison.md.

    Args:
        figure: The figure.
        runs: Finished runs.
        missing: Label of each run that is not finished → reason, empty if the run did not fail.
        caption: Caption of the picture.
        command: Command that made the figure.
    """
    ends = Ends(runs)
    lines = [f"# {figure.title or figure.name}", "", _origin(figure), ""]
    lines += ["![figure](figure.png)", "", f"*{caption}*", ""]
    if figure.notes:
        lines += [figure.notes.strip(), ""]
    spread = [_SPREAD, ""] * any(len(group.seeds) > 1 for group in figure.groups)
    if figure.stated:
        lines += ["## Stated and ours", "", *spread, _stated(figure, ends).markdown(), ""]
    orderings = list(dict.fromkeys([*_stated_orderings(figure), *figure.orderings]))
    if orderings:
        lines += ["## Orderings", "", *(_ordering(figure, o, ends) for o in orderings), ""]
    if not figure.as_defined and (figure.stated or orderings):
        kind = "quick runs" if figure.scale == "quick" else "changed runs"
        lines += [
            f"Without differences and verdicts: {kind}{figure.altered_words} are another experiment than the "
            "one that is stated.",
            "",
        ]
    lines += ["## Ends of the curves", "", *spread, _ends(figure, ends).markdown(), ""]
    if pairs := list(_paired(runs)):
        lines += ["## Paired differences", "", *pairs, ""]
    if figure.marks:
        lines += ["## Numbers from elsewhere", "", *_published(figure), ""]
    if reasons := list(_without_guarantee(runs)):
        lines += ["Why a sound ε is infinite:", "", *reasons, ""]
    diverged = [r.job.label for r in runs if r.diverged]
    if diverged:
        lines += [f"Diverged (a loss was no longer finite): {in_short(diverged)}.", ""]
    if missing:
        lines += [f"Not finished: {in_short(list(missing))}.", "", *_reasons(missing)]
    if cost := joint_words(figure, runs):
        lines += ["## Privacy of all runs together", "", *(f"- {text}" for text in cost), ""]
    if figure.deviations:
        lines += ["## Deviations in force", ""]
        lines += [f"- {text}" for text in figure.deviations.values()] + [""]
    lines += ["## How this was made", "", *provenance(figure, runs, command), ""]
    return "\n".join(lines)


def _reasons(missing: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each reason for which runs failed."""
    for reason in dict.fromkeys(filter(None, missing.values())):
        labels = [label for label, other in missing.items() if other == reason]
        yield f"- {in_short(labels)}: {reason}"
    if any(missing.values()):
        yield ""


def _origin(figure: Figure) -> str:
    """Return a line about the work, or the user's file, that the figure is of, and its scale."""
    if figure.file is None:
        return f"{figure.work}. Scale: {_scale(figure)}."
    as_defined = "" if figure.as_defined else f" Scale: {_scale(figure)}."
    return f"Defined by `{figure.file}`.{as_defined}"


def _scale(figure: Figure) -> str:
    if figure.scale == "quick":
        return f"**quick**{figure.altered_words}: {figure.quick_words}"
    if figure.changed:
        return f"**changed** ({' '.join(figure.changed)})"
    fewer_rounds = figure.deviations.get("rounds")
    return "paper" if fewer_rounds is None else f"**reduced**, rounds: {fewer_rounds}"


def _is_epsilon(column: str) -> bool:
    return column.startswith("epsilon")


_SPREAD = f"Means over seeds, ± {INTERVALS}."
_HUGE = 1e6  # larger numbers are written in powers of ten


def mean_words(values: np.ndarray, decimals: int, upwards: bool = False) -> str:
    """Return mean and interval over seeds, such as ``92.10 ± 0.35 (n = 3)``; see ``spread_words``.

    A mean below 1 has at least three significant digits, unless ``decimals`` is 0. If a value is not finite,
    the text says infinite.

    Args:
        values: The values [n].
        decimals: Number of decimals.
        upwards: Round up, as an ε must not be understated.
    """
    if not len(values):
        return "no finished run"
    if not np.isfinite(values).all():
        return f"infinite (n = {len(values)})"
    mean = values.mean()
    if decimals and 0 < abs(mean) < 1:
        decimals = max(decimals, 2 - math.floor(math.log10(abs(mean))))
    alike = np.ptp(values) <= 1e-9 * abs(mean)  # equal values, of which the mean is rounded
    spread = spread_words(
        np.full_like(values, mean) if alike else values,
        lambda value: _rounded(value, decimals, upwards),
    )
    return f"{_rounded(mean, decimals, upwards)}{spread} (n = {len(values)})"


def _rounded(value: float, decimals: int, upwards: bool) -> str:
    """Return a number with so many decimals, or a huge number in powers of ten."""
    if upwards:
        return round_up(value, decimals) if value < _HUGE else digits_up(value, 2)
    return f"{value:.{decimals}f}" if abs(value) < _HUGE else f"{value:.1e}"


def _stated(figure: Figure, ends: Ends) -> Table:
    """Return a table of the stated numbers, ours, and the differences where both are comparable."""
    compared = figure.as_defined
    columns = ("", "curve", "quantity at the end", "stated", "ours", *["difference"] * compared)
    table = Table("", columns)
    for s in figure.stated:
        column, values = STATED_COLUMNS[s.column], ends.of(s.group, s.curve, s.column, s.point)
        difference = "" if not len(values) else f"{values.mean() - s.value:+.{column.decimals}f}"
        table.add(
            _title(figure, s.group),
            f"{_label(figure, s.curve)}{_at(figure, s.point)}",
            column.label,
            f"{s.value:.{column.decimals}f}",
            mean_words(values, column.decimals, _is_epsilon(s.column)),
            *[difference] * compared,
        )
    return table


def _stated_orderings(figure: Figure) -> Iterator[Ordering]:
    """Yield the orderings that the stated accuracies imply."""
    accuracies: dict[tuple[str, float | None], list[StatedValue]] = {}
    for s in figure.stated:
        if s.column == "test_accuracy":
            accuracies.setdefault((s.group, s.point), []).append(s)
    for (group, point), stated in accuracies.items():
        if len(stated) > 1:
            ranked = sorted(stated, key=lambda s: -s.value)
            yield Ordering(group, "test_accuracy", tuple(s.curve for s in ranked), point)


def _ordering(figure: Figure, ordering: Ordering, ends: Ends) -> str:
    """Tell whether our means are ordered as stated, and which gaps are smaller than the seeds' spread."""
    column = STATED_COLUMNS[ordering.column]
    values = {
        c: ends.of(ordering.group, c, ordering.column, ordering.point) for c in ordering.curves
    }
    begin = (
        f"- {_title(figure, ordering.group)}{_at(figure, ordering.point)}, {column.label}, stated from "
        f"best to worst: {' > '.join(_label(figure, c) for c in ordering.curves)}."
    )
    if not figure.as_defined:
        return begin
    if not all(len(v) for v in values.values()):
        return f"{begin} Not all of them have a finished run."
    sign = 1 if ordering.column == "test_accuracy" else -1
    # The sort is stable, so curves with equal means stay in the stated order.
    ours = sorted(values, key=lambda c: -sign * values[c].mean())
    ties = [values[a].mean() == values[b].mean() for a, b in itertools.pairwise(ours)]
    holds = tuple(ours) == ordering.curves and not any(ties)
    ranked = _label(figure, ours[0]) + "".join(
        f" {'=' if tie else '>'} {_label(figure, c)}" for c, tie in zip(ours[1:], ties, strict=True)
    )
    verdict = "**Holds.**" if holds else f"**Does not hold**; ours: {ranked}."
    counts = {len(v) for v in values.values()}
    if len(counts) > 1:
        verdict += f" (of {min(counts)} to {max(counts)} seeds)"
    close = [
        f"{_label(figure, a)} and {_label(figure, b)}"
        for a, b in itertools.pairwise(ordering.curves)
        if abs(values[a].mean() - values[b].mean()) < max(np.ptp(values[a]), np.ptp(values[b]))
    ]
    note = f" Closer than the seeds of one of them lie apart: {'; '.join(close)}." if close else ""
    return f"{begin} {verdict}{note}"


_QUANTITIES = {**STATED_COLUMNS, "epsilon": COLUMNS["epsilon"]}
_HEADINGS = {
    "epsilon": "ε enforced", "epsilon_published": "ε published", "epsilon_sound": "ε sound"
}  # fmt: skip
_SHOWN = (
    "test_accuracy", "backdoor_accuracy", "test_loss", "rounds", "noise_multiplier", "noise_decays",
    "epsilon", "epsilon_published", "epsilon_sound", *AUDIT_COLUMNS,
)  # fmt: skip


def ends_table(figure: Figure, runs: Sequence[FigureRun]) -> pd.DataFrame:
    """Return the table of ends.csv, in the units shown.

    Without points, a row is a quantity of a curve: group, curve, quantity, mean, sd (of a sample) and n. With
    points, a row is a run: group, curve, point, seed, folder and the quantities.
    """
    ends = Ends(runs)
    quantities = _shown(figure, ends)
    if figure.points is None:
        means = []
        for group, curve, _ in _places(figure):
            for name in quantities:
                values = ends.of(group.name, curve.name, name)
                finite = len(values) > 1 and np.isfinite(values).all()
                sd = float(values.std(ddof=1)) if finite else math.nan
                if len(values):
                    means.append((group.name, curve.name, name, values.mean(), sd, len(values)))
        names = ["group", "curve", "quantity", "mean", "sd", "n"]
        return pd.DataFrame(means, columns=names).round(6)
    rows = [
        {
            "group": run.job.group.name,
            "curve": run.job.curve.name,
            "point": run.job.at if figure.points.choices else run.job.point,
            "seed": run.job.seed,
            "folder": run.job.folder.path.name,
            **{q: run.summary.get(q) for q in quantities},
        }
        for run in runs
    ]
    table = pd.DataFrame(rows, columns=["group", "curve", "point", "seed", "folder", *quantities])
    for q in quantities:
        table[q] = table[q].astype(float) * _QUANTITIES[q].scale
    return table.sort_values(["group", "curve", "point", "seed"]).round(6)


def _shown(figure: Figure, ends: Ends) -> list[str]:
    """Return the quantities of which at least one curve has a value other than 0.

    The enforced ε is one of them in figures of the user's own.
    """
    places = list(_places(figure))
    return [
        name
        for name in _SHOWN
        if (name != "epsilon" or figure.file is not None)
        and any(ends.of(group.name, curve.name, name, at).any() for group, curve, at in places)
    ]


def _places(figure: Figure) -> Iterator[tuple[CurveGroup, Curve, float | None]]:
    """Yield each curve of each group, at each point at which the curve is run."""
    for group in figure.groups:
        for curve in group.curves:
            for point in figure.points_of(curve):
                yield group, curve, point


def _ends(figure: Figure, ends: Ends) -> Table:
    """Return a table with a row for each curve and point, and a column for each quantity."""
    shown = _shown(figure, ends)
    point = [] if figure.points is None else [figure.points.label]
    table = Table(
        "", ("", "curve", *point, *(_HEADINGS.get(c, _QUANTITIES[c].label) for c in shown))
    )
    for group, curve, at in _places(figure):
        cells = []
        if figure.points is not None:
            cells = ["–" if at is None else figure.points.words(at)]
        for name in shown:
            values = ends.of(group.name, curve.name, name, at)
            decimals = _QUANTITIES[name].decimals
            words = mean_words(values, decimals, _is_epsilon(name)).partition(" (n")[0]
            cells.append(words if len(values) else "–")
        table.add(group.title, curve.label, *cells)
    return table


def _paired(runs: Sequence[FigureRun]) -> Iterator[str]:
    """Yield the differences of paired runs to the first curve of their group, with intervals over seeds."""
    columns = ("test_accuracy", "test_loss", "backdoor_accuracy")
    rows = [
        {
            "group": run.job.group.title,
            "point": run.job.at or "–",
            "curve": run.job.curve.label,
            "seed": run.job.seed,
            PAIRED: run.summary[PAIRED],
            **{name: run.summary.get(name) for name in ("epsilon_sound", *columns)},
        }
        for run in runs
        if PAIRED in run.summary
    ]
    if not rows:
        return
    yield "Runs of one seed have the same lots, cohorts and noise: bands and deviations of single curves say"
    yield "nothing about their differences. 95 % intervals over seeds, to the first curve:"
    yield ""
    if share_noise(pd.DataFrame(rows)):
        yield TOGETHER
        yield ""
    table = Table("", ("", "point", "curve", "quantity", "pairs", "difference", "interval"))
    for (group, point), paired in pd.DataFrame(rows).groupby(["group", "point"], sort=False):
        shown = [name for name in columns if paired[name].notna().any()]
        for row in paired_differences(paired, ["curve"], shown).itertuples():
            label, scale = STATED_COLUMNS[row.column].label, STATED_COLUMNS[row.column].scale
            mean = "–" if math.isnan(row.mean) else f"{scale * row.mean:+.3g}"

            def shown_value(value: float, scale: float = scale) -> str:
                return f"{scale * value:+.3g}"

            interval = interval_words(row, shown_value)
            table.add(group, point, row.curve, label, row.pairs, mean, interval)
    yield table.markdown()


def _published(figure: Figure) -> Iterator[str]:
    """Yield a table of the marks, as their sources state the numbers."""
    yield "From publications and other figures, under settings that are not those of the runs; symbols."
    yield ""
    x = figure.axes[0].x if figure.points is None else figure.points.label
    ranged = any(mark.low is not None for mark in figure.marks)
    sourced = any(mark.source for mark in figure.marks)
    more = (*["low to high"] * ranged, *["source"] * sourced)
    table = Table("", ("", "from", x, "quantity", "value", *more))
    for m in figure.marks:
        cells = [_title(figure, m.group), m.label, "all" if m.point is None else f"{m.point:g}"]
        cells += [COLUMNS[m.column].label, f"{m.value:g}"]
        if ranged:
            cells.append("–" if m.low is None else f"{m.low:g} to {m.high:g}")
        table.add(*cells, *[m.source] * sourced)
    yield table.markdown()


def _without_guarantee(runs: Sequence[FigureRun]) -> Iterator[str]:
    """Yield a line for each reason of an infinite sound ε, with the curves that it applies to."""
    labels: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.without_guarantee:
            reasons = run.stored.statement.get("reasons")
            reason = reasons.get("epsilon_sound") if isinstance(reasons, dict) else None
            labels.setdefault(str(reason), {})[run.job.curve.label] = None
    for reason, curves in labels.items():
        yield f"- {'; '.join(curves)}: {reason}"


def _title(figure: Figure, group: str) -> str:
    return next(g.title for g in figure.groups if g.name == group)


def _at(figure: Figure, point: float | None) -> str:
    if point is None or figure.points is None:
        return ""
    return f", {figure.points.label} = {figure.points.words(point)}"


def _label(figure: Figure, curve: str) -> str:
    return next(c.label for g in figure.groups for c in g.curves if c.name == curve)
