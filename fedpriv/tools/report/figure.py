"""Sections of a report about a figure: the picture, comparison.md, curves with values, a table of runs."""

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
from fedpriv.store.saved import saved_picture, saved_records, saved_text
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
    """A figure, read from its folder.

    Attributes:
        folder: Folder of the figure.
        text: Content of comparison.md.
        picture: Content of figure.png, or None where it is absent or too large.
        drawn: Rows of figure.csv.
        runs: Row by row the runs of the figure, as runs.csv, ends.csv or comparison.md list them.
    """

    folder: Path
    text: str
    picture: bytes | None
    drawn: list[dict[str, str]]
    runs: list[dict[str, str]]
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Heading of comparison.md, or the folder's name without a heading."""
        first = re.match(r"# +(.+)", self.text)
        return first[1].strip() if first else self.folder.name


def read_figure(folder: Path) -> StoredFigure:
    """Read a figure from its folder. A table that is absent counts as empty.

    Raises:
        ConfigError: A file cannot be read.
    """
    text = saved_text(folder / "comparison.md")
    picture = saved_picture(folder / "figure.png", _LARGEST_PICTURE)
    drawn = _records(folder / "figure.csv")
    ends = [row for row in _records(folder / "ends.csv") if row.get("folder")]
    record = _records(folder / "runs.csv")
    # The newest kind of record first: figures of earlier versions list their runs in ends.csv or in the
    # text alone.
    runs = record or ends or [{"label": a, "run": b} for a, b in _IN_TEXT.findall(text)]
    return StoredFigure(folder, text, picture, drawn, runs)


def _records(path: Path) -> list[dict[str, str]]:
    return saved_records(path) if path.exists() else []


def add_figure(
    page: Page, figure: StoredFigure, stores: Iterable[Path] = (), named: bool = False
) -> None:
    """Add the sections of a figure.

    Args:
        page: Page that the sections are added to.
        figure: The figure.
        stores: Folders that may hold the runs of the figure, besides the usual folders.
        named: True where headings have the figure's title, as on a page about several figures.
    """
    before = f"{figure.title}: " if named else ""
    with tempfile.TemporaryDirectory() as unpacked:
        # The runs are read while the archive is unpacked.
        rows = list(_runs(figure, _stores(figure, stores, Path(unpacked))))
    shown = (
        tag("p", "The picture (figure.png) is absent or too large to be embedded.", class_="note")
        if figure.picture is None
        else sections.picture(figure.picture, figure.title)
    )
    page.add(f"{before}Picture", shown)
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
    reader.disable(["link", "autolink", "reference"])  # an untrusted text must not lead anywhere
    reader.add_render_rule("image", lambda *_: "")  # the picture is embedded above the text
    return reader


def rendered(text: str) -> Markup:
    """Return Markdown as HTML without links and pictures, with tables in boxes.

    The first heading is left out, as the page has it, and the others are one level lower. HTML in the text is
    shown as text.
    """
    html = re.sub(r"\A# .*\n", "", text)
    html = _markdown().render(html)
    html = re.sub(r"<(/?)h([1-4])>", lambda m: f"<{m[1]}h{min(6, int(m[2]) + 1)}>", html)
    box = '<div class="box" tabindex="0" role="region" aria-label="table"><table>'
    return Markup(html.replace("<table>", box).replace("</table>", "</table></div>"))


def _charts(rows: Sequence[dict[str, str]]) -> Iterator[Chart]:
    """Yield a chart for each group and axes of figure.csv, or for each panel of a computed figure."""
    panels: dict[tuple[str, str], dict[tuple[str, str], list[dict[str, str]]]] = {}
    for row in rows:
        panel = row.get("group", row.get("panel", "")), row.get("axes", "")
        # A figure of runs has group, axes and curve; a computed figure has panel and line.
        name = row.get("curve", row.get("line", "")), row.get("client", "")
        panels.setdefault(panel, {}).setdefault(name, []).append(row)
    each = points_each(sum(map(len, panels.values())))
    for (group, axes), curves in list(panels.items())[:_MOST_CHARTS]:
        lines = []
        for style, (name, points) in enumerate(curves.items()):
            # Numbers published elsewhere (n = 0) are not joined by a line.
            marks = all(point.get("n") == "0" for point in points)
            # Each such number is a curve of one point, which has a symbol and no line.
            parts = [[point] for point in points] if marks else [points]
            lines += [_curve(name, part, style, each) for part in parts]
        drawn = tuple(line for line in lines[:_MOST_CURVES] if line is not None)
        if drawn:
            title = " · ".join(part for part in (group, axes) if part) or "figure"
            yield Chart(title, "x", axes, drawn, False, False, _AXES)


def _curve(
    name: tuple[str, str], rows: Sequence[dict[str, str]], style: int, most: int
) -> ChartLine | None:
    """Return the curve of a name (curve, client), of at most ``most`` points."""
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


def _stores(figure: StoredFigure, stores: Iterable[Path], unpacked: Path) -> list[Path]:
    """Return the folders that may hold runs of a figure.

    These are the folders given, and folders ``runs`` beside the figure, its work and all works. An archive
    runs.zip beside the figure is unpacked where a run is in none of these folders.
    """
    folder = figure.folder.resolve()
    beside = [parent / "runs" for parent in (folder.parent, *folder.parent.parents[:2])]
    all_stores = list(dict.fromkeys([*stores, *beside]))
    archive = folder.parent / "runs.zip"
    # Unpacking takes seconds, so it is left until a run is missing.
    if archive.is_file() and not all(_run_folder(row, all_stores) for row in figure.runs):
        all_stores.append(unpack_runs(archive, unpacked))
    return all_stores


def _name(row: dict[str, str]) -> str:
    """Return the name of a run's folder, without any path, which might lead anywhere."""
    return Path(row.get("run") or row.get("folder") or "").name


def _run_folder(row: dict[str, str], stores: Sequence[Path]) -> Path | None:
    """Return the first folder of that run with a summary, or None."""
    name = _name(row)
    folders = (store / name for store in stores if name)
    return next((folder for folder in folders if (folder / "summary.json").is_file()), None)


def _runs(figure: StoredFigure, stores: Sequence[Path]) -> Iterator[dict[str, object]]:
    """Yield a row for each run: the entries of the figure's files, and the run's results.

    The results come from the run's folder where it is found, else from the row of ends.csv.
    """
    for row in figure.runs:
        cells: dict[str, object] = {"run": _name(row)}
        if "label" in row:
            cells["label"] = row["label"]
        cells |= {key: row[key] for key in ("group", "curve", *_KEYS) if row.get(key)}
        folder = _run_folder(row, stores)
        if folder is None:
            cells |= {c.label: row[key] for key, c in STATED_COLUMNS.items() if row.get(key)}
        else:
            cells |= _ends(folder)
        yield cells


def _ends(folder: Path) -> dict[str, object]:
    """Return the results of a stored run, or the reason why it cannot be read."""
    run = ReportedRun(folder)
    try:
        ends: dict[str, object] = {
            "rounds": sections.rounds_words(run),
            "test accuracy": sections.percent(run.end("test_accuracy")),
        }
        ends |= {f"ε {word}": sections.epsilon_words(run.end(k)) for k, word in sections.EPSILONS}
    except ConfigError as error:
        return {"why": str(error)}
    return ends
