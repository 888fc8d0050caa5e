"""Writes a report: of one run, of several, of figures."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import yaml

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import refuse_foreign, write_text
from fedpriv.common.words import counted
from fedpriv.store.folder import RunFolder
from fedpriv.store.saved import yaml_text
from fedpriv.store.searches import StoredSearch
from fedpriv.tools.report import sections
from fedpriv.tools.report.curves import MOST_RUNS
from fedpriv.tools.report.figure import add_figure, read_figure
from fedpriv.tools.report.gather import ReportedRun, find, read_run
from fedpriv.tools.report.markup import REPORT, REPORT_MARK, tag
from fedpriv.tools.report.page import MOST_DETAILS, Page, add_run, add_runs, lead_of
from fedpriv.tools.report.search import add_search, search_of


def write_report(given: Sequence[str], out: Path | None = None) -> Path:
    """Write the report of the folders and return its file; ``out``: not where it usually goes.

    Raises ConfigError for folders without runs and figures, WriteError.
    """
    paths, figure_paths = find(given)
    for path in (*paths, *figure_paths):
        RunFolder(path).refuse_links()  # they may lead anywhere
    runs = [
        read_run(path, in_full=place < MOST_DETAILS, curves=place < MOST_RUNS)
        for place, path in enumerate(paths)
    ]
    figures = [read_figure(path) for path in figure_paths]
    search = search_of(given)
    if search is not None:
        page = Page(
            _title(given, 0 if search.stopped else len(runs), len(figures)), tag("p", *given)
        )
        add_search(page, search)
        _add_trials(page, search, runs)
    elif len(runs) == 1 and not figures:
        page = Page(sections.title_of(runs[0]), lead_of(runs[0]))
        add_run(page, runs[0])
    elif len(figures) == 1 and not runs:
        page = Page(figures[0].title, tag("p", f"Figure {_last_two(figures[0].folder)}"))
        add_figure(page, figures[0])
    else:
        page = Page(
            _title(given, len(runs), len(figures)),
            tag("p", ", ".join(one for one in given if one != ".")),
        )
        if len(runs) == 1:
            add_run(page, runs[0])
        elif runs:
            add_runs(page, runs, sweep_of(given))
        for figure in figures:
            add_figure(page, figure, named=True)
    file = out or default_file(given)
    refuse_foreign("--out", file, REPORT_MARK, (REPORT,))
    write_text(file, page.html())
    return file


def _add_trials(page: Page, search: StoredSearch, runs: Sequence[ReportedRun]) -> None:
    """The trials as runs; where all but the best are secret, its configuration."""
    if search.stopped:
        for best in runs[:1]:
            page.add("Configuration of the best trial", sections.configuration(best))
    elif len(runs) == 1:
        add_run(page, runs[0])
    elif runs:
        add_runs(page, runs, None)


def write_figure_report(folder: Path, stores: Iterable[Path] = ()) -> None:
    """Write ``report.html`` into the folder of a figure; ``stores``: folders that hold its runs."""
    figure = read_figure(folder)
    page = Page(figure.title, tag("p", f"Figure {_last_two(folder)}"))
    add_figure(page, figure, stores)
    write_text(folder / REPORT, page.html())


def default_file(given: Sequence[str]) -> Path:
    """In the folder, where there is one that can be written; else where one works."""
    one = len(given) == 1 and os.access(given[0], os.W_OK)
    return (Path(given[0]) if one else Path()) / REPORT


def sweep_of(given: Sequence[str]) -> list[str] | None:
    """The overrides of the sweep that a folder holds; None where it holds none."""
    path = Path(given[0]) / "multirun.yaml"
    if len(given) != 1 or not path.is_file():
        return None
    try:
        found = yaml.safe_load(yaml_text(path))["hydra"]["overrides"]["task"]
    except (ConfigError, yaml.YAMLError, RecursionError, ValueError, KeyError, TypeError):
        return None
    known = isinstance(found, list) and all(isinstance(one, str) for one in found)
    return found if known else None


def _last_two(folder: Path) -> str:
    return "/".join(folder.absolute().parts[-2:])


def _title(given: Sequence[str], runs: int, figures: int) -> str:
    parts = [counted(n, noun) for n, noun in ((runs, "run"), (figures, "figure")) if n]
    where = f"{Path(given[0]).absolute().name}: " if len(given) == 1 else ""
    return where + (" and ".join(parts) or "search")
