"""Writer of a report: of one run, several runs, figures, or a search."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import yaml

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import refuse_foreign, write_text
from fedpriv.common.words import counted
from fedpriv.store.folder import RunFolder
from fedpriv.store.saved import saved_text
from fedpriv.tools.report import sections
from fedpriv.tools.report.curves import MOST_RUNS
from fedpriv.tools.report.figure import add_figure, read_figure
from fedpriv.tools.report.gather import ReportedRun, find, read_runs
from fedpriv.tools.report.markup import REPORT, REPORT_MARK, tag
from fedpriv.tools.report.page import MOST_DETAILS, Page, add_run, add_runs, lead_of
from fedpriv.tools.report.search import add_search, search_of


def write_report(given: Sequence[str], out: Path | None = None) -> Path:
    """Write the report of the folders.

    Args:
        given: Folders of runs, sweeps, searches or figures.
        out: File to write; None: ``report.html`` in the only folder given if that can be written, else in the
            working folder. An earlier report there is replaced.

    Returns:
        The file.

    Raises:
        ConfigError: A folder has neither run nor figure, or a link, no run can be read, or the file is
            another page.
        WriteError: The file cannot be written.
    """
    paths, figure_paths = find(given)
    # Before anything is read: what a link leads to would be shown on the page.
    for path in (*paths, *figure_paths):
        RunFolder(path).refuse_links()
    runs = read_runs(paths, MOST_DETAILS, MOST_RUNS)
    figures = [read_figure(path) for path in figure_paths]
    search = search_of(given)
    if search is not None:
        page = Page(
            _title(given, 0 if search.stopped else len(runs), len(figures)), tag("p", *given)
        )
        add_search(page, search)
        if search.stopped:  # all trials but the best are secret
            for best in runs[:1]:
                page.add("Configuration of the best trial", sections.configuration(best))
        else:
            _add_runs(page, runs, None)
    elif len(runs) == 1 and not figures:
        page = Page(sections.title_of(runs[0]), lead_of(runs[0]))
        add_run(page, runs[0])
    elif len(figures) == 1 and not runs:
        page = Page(figures[0].title, tag("p", f"Figure {_last_two(figures[0].folder)}"))
        add_figure(page, figures[0])
    else:
        page = Page(
            _title(given, len(runs), len(figures)),
            tag("p", ", ".join(folder for folder in given if folder != ".")),
        )
        _add_runs(page, runs, sweep_of(given))
        for figure in figures:
            add_figure(page, figure, named=True)
    file = out or default_file(given)
    refuse_foreign("--out", file, REPORT_MARK, (REPORT,))
    write_text(file, page.html())
    return file


def _add_runs(page: Page, runs: Sequence[ReportedRun], sweep: Sequence[str] | None) -> None:
    if len(runs) == 1:
        add_run(page, runs[0])
    elif runs:
        add_runs(page, runs, sweep)


def write_figure_report(folder: Path) -> None:
    """Write ``report.html`` into the folder of a figure.

    Raises:
        ConfigError: comparison.md cannot be read.
        WriteError: The file cannot be written.
    """
    figure = read_figure(folder)
    page = Page(figure.title, tag("p", f"Figure {_last_two(folder)}"))
    add_figure(page, figure)
    write_text(folder / REPORT, page.html())


def default_file(given: Sequence[str]) -> Path:
    """Return report.html in the only folder given, if it can be written, else in the working folder."""
    writable = len(given) == 1 and os.access(given[0], os.W_OK)
    return (Path(given[0]) if writable else Path()) / REPORT


def sweep_of(given: Sequence[str]) -> list[str] | None:
    """Return the overrides of the sweep that the only folder given holds, else None."""
    path = Path(given[0]) / "multirun.yaml"
    if len(given) != 1 or not path.is_file():
        return None
    try:
        overrides = yaml.safe_load(saved_text(path))["hydra"]["overrides"]["task"]
    except (ConfigError, yaml.YAMLError, RecursionError, ValueError, KeyError, TypeError):
        return None
    valid = isinstance(overrides, list) and all(isinstance(text, str) for text in overrides)
    return overrides if valid else None


def _last_two(folder: Path) -> str:
    return "/".join(folder.absolute().parts[-2:])


def _title(given: Sequence[str], runs: int, figures: int) -> str:
    parts = [counted(n, noun) for n, noun in ((runs, "run"), (figures, "figure")) if n]
    where = f"{Path(given[0]).absolute().name}: " if len(given) == 1 else ""
    return where + (" and ".join(parts) or "search")
