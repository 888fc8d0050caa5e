"""What a report says of a figure: its picture, comparison.md, its curves to read, its runs in a table."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.common.words import counted
from fedpriv.store.columns import STATED_COLUMNS
from fedpriv.store.packed import unpack_runs
from fedpriv.store.saved import LARGEST_CONFIG, saved_picture, saved_rows, saved_text
from fedpriv.tools.report import sections
from fedpriv.tools.report.charts import Chart, ChartLine, curve, points_each
from fedpriv.tools.report.gather import ReportedRun
from fedpriv.tools.report.markup import Markup, table, tag
from fedpriv.tools.report.page import Page

_LARGEST_PICTURE = 1 << 21
_MOST_CHARTS, _MOST_CURVES = 24, 400
_IN_TEXT = re.compile(r"^  - (.*): `([^`]+)`$", re.MULTILINE)
_AXES = "Axes as in the picture."
_KEYS = ("point", "seed", "state", "why")


@dataclass
class StoredFigure:
    """A figure as far as its folder tells."""

    folder: Path
    text: str
    picture: bytes | None
    drawn: list[dict[str, str]]
    runs: list[dict[str, str]]
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        first = re.match(r"# +(.+)", self.text)
        return first[1].strip() if first else self.folder.name


def read_figure(folder: Path) -> StoredFigure:
    """What there is of a figure. Raises ConfigError where comparison.md cannot be read."""
    text = saved_text(folder / "comparison.md", LARGEST_CONFIG)
    figure = StoredFigure(
        folder, text, saved_picture(folder / "figure.png", _LARGEST_PICTURE), [], []
    )
    figure.drawn = _records(folder / "figure.csv", figure.notes)
    ends = [row for row in _records(folder / "ends.csv", figure.notes) if row.get("folder")]
    record = _records(folder / "runs.csv", figure.notes)
    figure.runs = record or ends or [{"label": a, "run": b} for a, b in _IN_TEXT.findall(text)]
    return figure


def _records(path: Path, notes: list[str]) -> list[dict[str, str]]:
    if not path.exists():
        return []
    try:
        names, *rows = saved_rows(path) or [[]]
    except ConfigError as error:
        notes.append(str(error))
        return []
    return [dict(zip(names, row, strict=False)) for row in rows]


def add_figure(
    page: Page, figure: StoredFigure, stores: Iterable[Path] = (), named: bool = False
) -> None:
    """The figure's sections; ``stores``: folders that may hold its runs, beside the usual places;
    ``named``: its title is not the page's."""
    before = f"{figure.title}: " if named else ""
    with tempfile.TemporaryDirectory() as unpacked:
        rows = list(_runs(figure, _places(figure, stores, Path(unpacked))))
    shown = (
        tag("p", "The picture (figure.png) is absent or too large to be embedded.", class_="note")
        if figure.picture is None
        else sections.picture(figure.picture, figure.title)
    )
    page.add(f"{before}Picture" if before else "Picture", sections.notes(figure.notes), shown)
    page.add(f"{before}Comparison", tag("div", rendered(figure.text), class_="text"))
    drawn = list(_charts(figure.drawn))
    page.add(f"{before}Curves", page.charts(drawn))
    if rows:
        head = list(dict.fromkeys(key for row in rows for key in row))
        cells = [[row.get(key, "") for key in head] for row in rows]
        page.add(f"{before}Runs", table(counted(len(rows), "run"), head, cells))


@cache
def _markdown() -> Any:
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    reader.disable(["link", "autolink", "reference"])  # the page leads nowhere
    reader.add_render_rule("image", lambda *_: "")  # it is embedded above
    return reader


def rendered(text: str) -> Markup:
    """Markdown as HTML, its headings two levels lower, its tables in boxes; without links and pictures."""
    html = re.sub(r"\A# .*\n", "", text)
    html = _markdown().render(html)
    html = re.sub(r"<(/?)h([1-4])>", lambda m: f"<{m[1]}h{min(6, int(m[2]) + 1)}>", html)
    box = '<div class="box" tabindex="0" role="region" aria-label="table"><table>'
    return Markup(html.replace("<table>", box).replace("</table>", "</table></div>"))


def _charts(rows: Sequence[dict[str, str]]) -> Iterator[Chart]:
    """A chart for each group and axes (of a figure without runs: each panel) of figure.csv."""
    places: dict[tuple[str, str], dict[tuple[str, str], list[dict[str, str]]]] = {}
    for row in rows:
        place = row.get("group", row.get("panel", "")), row.get("axes", "")
        name = row.get("curve", row.get("line", "")), row.get("client", "")
        places.setdefault(place, {}).setdefault(name, []).append(row)
    each = points_each(sum(map(len, places.values())))
    for (group, axes), curves in list(places.items())[:_MOST_CHARTS]:
        found = [
            _curve(name, part, i, each)
            for i, (name, own) in enumerate(curves.items())
            for part in _parts(own)
        ]
        kept = tuple(one for one in found[:_MOST_CURVES] if one is not None)
        if kept:
            title = " · ".join(part for part in (group, axes) if part) or "figure"
            yield Chart(title, "x", axes, kept, False, False, _AXES)


def _parts(rows: list[dict[str, str]]) -> list[list[dict[str, str]]]:
    """What is joined by a line: numbers published elsewhere, of no run, are not."""
    return [[row] for row in rows] if all(row.get("n") == "0" for row in rows) else [rows]


def _curve(
    name: tuple[str, str], rows: Sequence[dict[str, str]], style: int, most: int
) -> ChartLine | None:
    label = f"{name[0]}, client {name[1].removesuffix('.0')}" if name[1] else name[0]
    y = _numbers(rows, "mean" if "mean" in rows[0] else "y")
    band = (_numbers(rows, "low"), _numbers(rows, "high")) if "low" in rows[0] else None
    return curve(label, label, _numbers(rows, "x"), y, style, most, band)


def _numbers(rows: Sequence[dict[str, str]], name: str) -> np.ndarray:
    return np.array([_number(row.get(name, "")) for row in rows])


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return float("nan")


def _places(figure: StoredFigure, stores: Iterable[Path], unpacked: Path) -> list[Path]:
    """Where runs of a figure lie: in the stores given, beside its work, where all runs are; packed into
    one file beside it, which is unpacked where they are in none of these."""
    here = figure.folder.resolve()
    beside = [parent / "runs" for parent in (here.parent, *here.parent.parents[:2])]
    places = list(dict.fromkeys([*stores, *beside]))
    archive = here.parent / "runs.zip"
    if archive.is_file() and not all(_found(_name(row), places) for row in figure.runs):
        try:
            places.append(unpack_runs(archive, unpacked))
        except ConfigError as error:
            figure.notes.append(str(error))
    return places


def _name(row: dict[str, str]) -> str:
    """The name of a run's folder; of a path its last part, so that it leads nowhere else."""
    return Path(row.get("run") or row.get("folder") or "").name


def _found(name: str, places: Sequence[Path]) -> Path | None:
    return next((p / name for p in places if name and (p / name / "summary.json").is_file()), None)


def _runs(figure: StoredFigure, places: Sequence[Path]) -> Iterator[dict[str, object]]:
    """A row for each run: what the figure's files say of it, and its ends where its folder is found."""
    for row in figure.runs:
        told: dict[str, object] = {"run": _name(row)}
        if "label" in row:
            told["label"] = row["label"]
        told |= {key: row[key] for key in ("group", "curve", *_KEYS) if row.get(key)}
        found = _found(_name(row), places)
        yield told | (_told(row) if found is None else _ends(found))


def _told(row: dict[str, str]) -> dict[str, object]:
    """The quantities that a row of ends.csv has, in the units shown."""
    return {c.label: row[key] for key, c in STATED_COLUMNS.items() if row.get(key)}


def _ends(found: Path) -> dict[str, object]:
    """Return what a run reached, and what is damaged in it."""
    run = ReportedRun(found)
    ends: dict[str, object] = {}
    if run.summary:
        ends = {
            "rounds": sections.rounds_words(run),
            "test accuracy": sections.percent(run.end("test_accuracy")),
        }
        ends |= {f"ε {word}": sections.epsilon_words(run.end(k)) for k, word in sections.EPSILONS}
    if run.damage:
        ends["why"] = next(iter(run.damage.values()))
    return ends
