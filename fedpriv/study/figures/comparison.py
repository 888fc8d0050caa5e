"""Comparison of a figure with its publication (comparison.md), and the table of results (ends.csv).

comparison.md has the stated numbers beside ours, orderings, the privacy cost of all runs together, deviations
from the paper's experiment, and how the figure was made. Its text is the template ``comparison.md.jinja``;
this module makes the tables and facts that stand in it.
"""

from __future__ import annotations

import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from jinja2 import Environment, FileSystemLoader

from fedpriv.common.words import counted, digits_up, in_short, round_up
from fedpriv.store.columns import AUDIT_COLUMNS, COLUMNS, STATED_COLUMNS
from fedpriv.store.folder import commit_words, own_commit_words
from fedpriv.store.joint_privacy import choice_warning, joint_privacy
from fedpriv.store.pairs import (
    INTERVALS,
    PAIRED,
    TOGETHER,
    interval_words,
    paired_differences,
    share_noise,
    spread_words,
)
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Table
from fedpriv.study.figures.definition import Curve, CurveGroup, Figure, Stated
from fedpriv.study.figures.series import END, QUANTITIES, FigureRun, ends_of
from fedpriv.tools.report.privacy_paragraph import privacy_paragraph

_HUGE = 1e6  # larger numbers are written in powers of ten
_HEADINGS = {
    "epsilon": "ε enforced", "epsilon_published": "ε published", "epsilon_sound": "ε sound"
}  # fmt: skip
_SHOWN = (
    "test_accuracy", "backdoor_accuracy", "test_loss", "rounds", "noise_multiplier", "noise_decays",
    "epsilon", "epsilon_published", "epsilon_sound", *AUDIT_COLUMNS,
)  # fmt: skip


class Ends:
    """Values at the ends of a figure's runs, in the units shown.

    Args:
        frame: The data frame of the figure's runs.
    """

    def __init__(self, frame: pd.DataFrame):
        self._rows = dict(list(ends_of(frame).groupby(["panel", "curve"], sort=False)))

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
        rows = self._rows.get((group, curve))
        if rows is None:
            return np.array([])
        values = rows.loc[rows["x"].isna() | (rows["x"] == point), END + column]
        return np.array([float(v) for v in values if v is not None]) * QUANTITIES[column].scale


# ---- the text


def compare(
    figure: Figure,
    frame: pd.DataFrame,
    missing: Mapping[str, str],
    caption: str,
    command: str,
    begun: Sequence[StoredRun] = (),
) -> str:
    """Return the text of comparison.md.

    Args:
        figure: The figure.
        frame: The data frame of the finished runs.
        missing: Label of each run that is not finished → reason, empty if the run did not fail.
        caption: Caption of the picture.
        command: Command that made the figure.
        begun: Runs that have not ended, which count in the joint ε.
    """
    runs: list[FigureRun] = [*frame["run"].unique()]
    ends = Ends(frame)
    paired, together = _paired(frame)
    several = any(len(group.seeds) > 1 for group in figure.groups)
    orderings = list(dict.fromkeys([*_stated_orderings(figure), *figure.orderings]))
    infinite: dict[str, dict[str, None]] = {}
    for run in runs:
        if run.without_guarantee:
            reasons = run.stored.statement.get("reasons")
            reason = reasons.get("epsilon_sound") if isinstance(reasons, dict) else None
            infinite.setdefault(str(reason), {})[run.job.curve.label] = None
    joint = joint_privacy([*(run.stored for run in runs), *begun])
    cost = [sentence for one in joint for sentence in one.sentences()]
    if figure.file is not None and (warning := _warning(figure, runs)):
        cost.append(warning)
    failed = dict.fromkeys(filter(None, missing.values()))
    return comparison_text(
        title=figure.title or figure.name,
        origin=_origin(figure),
        caption=caption,
        command=command,
        notes=figure.notes.strip(),
        figure=figure,
        runs=runs,
        spread=f"Means over seeds, ± {INTERVALS}." if several else "",
        stated=_stated(figure, ends) if figure.stated else None,
        orderings=[_ordering(figure, ordering, ends) for ordering in orderings],
        ends=_ends(figure, ends),
        paired=paired,
        together=together,
        marks=_published(figure) if figure.marks else None,
        infinite=infinite,
        diverged=[run.job.label for run in runs if run.diverged],
        missing=missing,
        reasons={why: [label for label, r in missing.items() if r == why] for why in failed},
        cost=cost,
        departures=_departures(figure),
        deviations=[*figure.deviations.values()],
        made=_made(runs) if runs else None,
    )


def comparison_text(**facts: Any) -> str:
    """Return the text of comparison.md with these facts; those that are absent are left out.

    Args:
        facts: Values of the template: ``title``, ``origin``, ``caption`` and ``command``, and its sections.
    """
    today = f"{datetime.now(UTC):%Y-%m-%d}"
    template = templates().get_template("comparison.md.jinja")
    return template.render(today=today, version=own_commit_words(), **facts)


@cache
def templates() -> Environment:
    """Return the templates of texts about figures, with the filters that they use."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent), trim_blocks=True, lstrip_blocks=True,
        keep_trailing_newline=True,
    )  # fmt: skip
    environment.filters |= {
        "counted": counted,
        "in_short": in_short,
        "json": lambda value: json.dumps(value, ensure_ascii=False),
    }
    return environment


def _origin(figure: Figure) -> str:
    """Return a line about the work, or the user's file, that the figure is of, and its scale."""
    scale = figure.whose
    if figure.scale == "quick":
        nothing = "it shows that everything works, not the figure's shape"
        scale = f"**quick**{figure.altered_words}: {figure.quick_shape.strip() or nothing}"
    elif figure.changed:
        scale = f"**changed** ({' '.join(figure.changed)})"
    if figure.file is None:
        return f"{figure.work}. Scale: {scale}."
    return f"Defined by `{figure.file}`.{'' if figure.as_defined else f' Scale: {scale}.'}"


def _departures(figure: Figure) -> list[str]:
    """Return how the runs that were drawn differ from the figure as it is defined."""
    if figure.as_defined:
        return []
    words = []
    if figure.altered:
        words.append(f"other runs than the figure defines: {' '.join(figure.altered)}")
    if figure.scale == "quick":
        curves = {curve.label: curve.quick for group in figure.groups for curve in group.curves}
        words += [f"{label}: {' '.join(quick)}" for label, quick in curves.items() if quick]
        seeds = sorted({seed for group in figure.groups for seed in group.seeds})
        words.append(f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}")
    return words


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
        column, values = STATED_COLUMNS[s.column], ends.of(s.group, s.curves[0], s.column, s.point)
        difference = f"{values.mean() - s.value:+.{column.decimals}f}" if len(values) else ""
        table.add(
            _title(figure, s.group),
            f"{_label(figure, s.curves[0])}{_at(figure, s.point)}",
            column.label,
            f"{s.value:.{column.decimals}f}",
            mean_words(values, column.decimals, s.column.startswith("epsilon")),
            *[difference] * compared,
        )
    return table


def _stated_orderings(figure: Figure) -> Iterator[Stated]:
    """Yield the orderings that the stated accuracies imply."""
    accuracies: dict[tuple[str, float | None], list[Stated]] = {}
    for s in figure.stated:
        if s.column == "test_accuracy":
            accuracies.setdefault((s.group, s.point), []).append(s)
    for (group, point), stated in accuracies.items():
        if len(stated) > 1:
            ranked = sorted(stated, key=lambda s: -(s.value or 0.0))
            yield Stated(group, "test_accuracy", tuple(s.curves[0] for s in ranked), point)


def _ordering(figure: Figure, ordering: Stated, ends: Ends) -> str:
    """Tell whether our means are ordered as stated, and which gaps are smaller than the seeds' spread."""
    group, column, point = ordering.group, ordering.column, ordering.point
    values = {c: ends.of(group, c, column, point) for c in ordering.curves}
    begin = (
        f"{_title(figure, group)}{_at(figure, point)}, {STATED_COLUMNS[column].label}, stated from "
        f"best to worst: {' > '.join(_label(figure, c) for c in ordering.curves)}."
    )
    if not figure.as_defined:
        return begin
    if not all(len(v) for v in values.values()):
        return f"{begin} Not all of them have a finished run."
    sign = 1 if column == "test_accuracy" else -1
    # The sort is stable, so curves with equal means stay in the stated order.
    ours = sorted(values, key=lambda c: -sign * values[c].mean())
    ties = [values[a].mean() == values[b].mean() for a, b in itertools.pairwise(ours)]
    verdict = "**Holds.**"
    if tuple(ours) != ordering.curves or any(ties):
        ranked = _label(figure, ours[0])
        for curve, tie in zip(ours[1:], ties, strict=True):
            ranked += f" {'=' if tie else '>'} {_label(figure, curve)}"
        verdict = f"**Does not hold**; ours: {ranked}."
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


# ---- the ends of the runs


def ends_table(figure: Figure, frame: pd.DataFrame) -> pd.DataFrame:
    """Return the table of ends.csv, in the units shown.

    Without points, a row is a quantity of a curve: group, curve, quantity, mean, sd (of a sample) and n. With
    points, a row is a run: group, curve, point, seed, folder and the quantities.
    """
    ends = Ends(frame)
    quantities = _shown(figure, ends)
    if figure.points is None:
        means = []
        for (group, curve, _), name in itertools.product(_places(figure), quantities):
            values = pd.Series(ends.of(group.name, curve.name, name))
            if len(values):
                sd = values.replace(math.inf, math.nan).std(skipna=False)
                mean = values.mean(skipna=False)
                means.append((group.name, curve.name, name, mean, sd, len(values)))
        names = ["group", "curve", "quantity", "mean", "sd", "n"]
        return pd.DataFrame(means, columns=names).round(6)
    last = ends_of(frame)
    table = pd.DataFrame({"group": last["panel"], "curve": last["curve"]})
    table["point"] = [r.job.at for r in last["run"]] if figure.points.choices else last["x"]
    table["seed"] = last["seed"]
    table["folder"] = [run.job.folder.path.name for run in last["run"]]
    for name in quantities:
        table[name] = last[END + name].astype(float) * QUANTITIES[name].scale
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
        "", ("", "curve", *point, *(_HEADINGS.get(c, QUANTITIES[c].label) for c in shown))
    )
    for group, curve, at in _places(figure):
        cells = []
        if figure.points is not None:
            cells = ["–" if at is None else figure.points.words(at)]
        for name in shown:
            values = ends.of(group.name, curve.name, name, at)
            decimals = QUANTITIES[name].decimals
            words = mean_words(values, decimals, name.startswith("epsilon")).partition(" (n")[0]
            cells.append(words if len(values) else "–")
        table.add(group.title, curve.label, *cells)
    return table


def _paired(frame: pd.DataFrame) -> tuple[Table | None, str]:
    """Return the differences of paired runs to the first curve of a group, and a note on their joint ε."""
    columns = ("test_accuracy", "test_loss", "backdoor_accuracy")
    names = ("epsilon_sound", PAIRED, *columns)
    rows = ends_of(frame).reindex(columns=["run", "seed", *(END + name for name in names)])
    rows = rows.set_axis(["run", "seed", *names], axis=1).dropna(subset=PAIRED)
    if rows.empty:
        return None, ""
    jobs = [run.job for run in rows["run"]]
    rows["group"] = [job.group.title for job in jobs]
    rows["point"] = [job.at or "–" for job in jobs]
    rows["curve"] = [job.curve.label for job in jobs]
    table = Table("", ("", "point", "curve", "quantity", "pairs", "difference", "interval"))
    for (group, point), paired in rows.groupby(["group", "point"], sort=False):
        shown = [name for name in columns if paired[name].notna().any()]
        for row in paired_differences(paired, ["curve"], shown).itertuples():
            label, scale = STATED_COLUMNS[row.column].label, STATED_COLUMNS[row.column].scale

            def words(value: float, scale: float = scale) -> str:
                return f"{scale * value:+.3g}"

            mean = "–" if math.isnan(row.mean) else words(row.mean)
            table.add(group, point, row.curve, label, row.pairs, mean, interval_words(row, words))
    return table, TOGETHER if share_noise(rows) else ""


def _published(figure: Figure) -> Table:
    """Return a table of the marks, as their sources state the numbers."""
    x = figure.axes[0].x if figure.points is None else figure.points.label
    table = Table("", ("", "from", x, "quantity", "value", "low to high", "source"))
    for m in figure.marks:
        point = "all" if m.point is None else f"{m.point:g}"
        interval = "" if m.low is None else f"{m.low:g} to {m.high:g}"
        quantity = COLUMNS[m.column].label
        table.add(
            _title(figure, m.group), m.label, point, quantity, f"{m.value:g}", interval, m.source
        )
    return table


def _title(figure: Figure, group: str) -> str:
    return next(g.title for g in figure.groups if g.name == group)


def _at(figure: Figure, point: float | None) -> str:
    if point is None or figure.points is None:
        return ""
    return f", {figure.points.label} = {figure.points.words(point)}"


def _label(figure: Figure, curve: str) -> str:
    return next(c.label for g in figure.groups for c in g.curves if c.name == curve)


# ---- cost and provenance


def paragraph(figure: Figure, runs: Sequence[FigureRun], begun: Sequence[StoredRun]) -> str:
    """Return the LaTeX paragraph about the privacy of a figure's runs.

    Raises:
        ConfigError: A stored run cannot be read.
    """
    stored = [*(run.stored for run in runs), *begun]
    return privacy_paragraph(stored, _warning(figure, runs))


def _warning(figure: Figure, runs: Sequence[FigureRun]) -> str:
    """Return a warning where the best of the values in which the private runs differ was chosen."""
    private = [run.job.overrides for run in runs if run.summary.get("epsilon_sound") is not None]
    given = [dict(o.lstrip("+~").split("=", 1) for o in overrides) for overrides in private]
    keys = dict.fromkeys(key for settings in given for key in settings)
    varied = [key for key in keys if len({settings.get(key) for settings in given}) > 1]
    return choice_warning(varied, [axes.y for axes in figure.axes])


def _made(runs: Sequence[FigureRun]) -> dict[str, Any]:
    """Return the facts about how the runs were made: commits, machine, time and versions."""
    environments = [run.stored.environment for run in runs]
    installed = [run.stored.versions for run in runs]
    hours = math.fsum(run.summary["seconds"] or 0.0 for run in runs) / 3600
    packages = sorted({name for versions in installed for name in versions})
    versions_of = {name: [versions.get(name) for versions in installed] for name in packages}
    return {
        "number": len(runs),
        "by": _distinct(
            commit_words(facts.get("commit"), versions.get("fedpriv"))
            for facts, versions in zip(environments, installed, strict=True)
        ),
        "time": f"{hours:.2f} hours" if hours >= 1 else f"{60 * hours:.1f} minutes",
        "facts": {
            name: _distinct(facts.get(name) for facts in environments)
            for name in ("device", "threads", "python")
        },
        "streams": dict(sorted(Counter(run.stream_version for run in runs).items())),
        "versions": ", ".join(f"{n} {_distinct(v)}" for n, v in versions_of.items() if any(v)),
    }


def _distinct(values: Iterable[object]) -> str:
    return " or ".join(dict.fromkeys(map(str, values)))
