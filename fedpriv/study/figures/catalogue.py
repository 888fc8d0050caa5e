"""``fedpriv figure --list``: a line for every figure, or the state of one figure's runs."""

from __future__ import annotations

import itertools
import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml
from rich.cells import cell_len

from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import conf_dir, options
from fedpriv.store.saved import saved_records
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column, Table
from fedpriv.study.figures.command import choice_of, for_choice, names_file
from fedpriv.study.figures.reading import (
    compose_safely,
    is_computed,
    load_section,
    read_figure,
)

_COLUMNS = ("figure", "title", "runs", "done", "reference")  # a column without entries is left out
_WIDTH, _GAP, _LEAST = 100, 2, 12  # of the table, between columns, and of the title, in characters
_HINT = "fedpriv figure NAME makes it, NAME --quick in minutes, NAME --list shows its runs"


def show_figures(arguments: Sequence[str], config_dir: str | None = None, below: str = "") -> None:
    """Print a line for every figure.

    Args:
        arguments: Overrides as for making the figures.
        config_dir: Folder with the user's own YAMLs.
        below: Name of a work, for its figures alone, or of a figure, for the state of its runs.

    Raises:
        ConfigError: There is no such figure or folder, or an override that the list does not show.
    """
    extra = None if config_dir is None else Path(config_dir)
    if extra is not None and not extra.is_dir():
        raise ConfigError("--config-dir", config_dir, "an existing folder")
    folders = (None,) if extra is None else (None, extra)
    names = list(dict.fromkeys(name for f in folders for name, _ in options("figure", f)))
    if below in names or names_file(below):
        return _show_runs(below, arguments, extra)
    folder = below.rstrip("/") + "/" if below else ""

    def in_order(name: str) -> list[object]:  # fig5 before fig14
        return [(part.zfill(9) if part.isdigit() else part) for part in re.split(r"(\d+)", name)]

    chosen = sorted((name for name in names if name.startswith(folder)), key=in_order)
    if not chosen:
        works = sorted({name.partition("/")[0] for name in names})
        allowed = f"a figure, or one of {', '.join(works)}"
        raise ConfigError("fedpriv figure NAME --list", below, allowed)
    outputs, given = Path("outputs"), {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key == "runtime.output_dir":
            outputs = Path(value)
        elif key in ("figure.seeds", "figure.scale"):
            try:
                given[key.removeprefix("figure.")] = yaml.safe_load(value)
            except yaml.YAMLError:
                raise ConfigError(key, value, "a value in YAML") from None
        else:
            raise ConfigError(
                f"the list of figures does not show what {argument} changes; fedpriv figure NAME --list does"
            )
    _print([_line(name, extra, given, outputs) for name in chosen])


def _line(
    name: str, extra: Path | None, given: dict[str, Any], outputs: Path
) -> tuple[str, dict[str, str]]:
    """Return the work of a figure and its cells. A figure with a damaged YAML has the error for a title."""
    kept = conf_dir().parent / "outputs" / "reference" / name / "figure.csv"
    work, title, runs, done = "", "", "", ""
    try:
        section = load_section(name, extra) | given
        if section.get("compute") is not None:
            work, title, runs = str(section.get("work")), str(section.get("title")), "–"
            done = "drawn" if (outputs / "figures" / name / "figure.png").exists() else ""
        else:
            figure = read_figure(section, name)
            work, title, runs = figure.work, figure.title, str(figure.run_count)
            made = [row.get("run") for row in read_record(outputs / "figures" / figure.folder)]
            if len(made) == figure.run_count:  # else it was made when the figure had other runs
                done = f"{sum(bool(run) and _finished(str(run)) for run in made)}/{runs}"
    except ConfigError as error:
        title = f"broken: {error}"
    cells = (name, title, runs, done, "yes" if kept.exists() else "")
    return work, dict(zip(_COLUMNS, cells, strict=True))


def _print(lines: Sequence[tuple[str, dict[str, str]]]) -> None:
    """Print a table for each work, all with the same columns; titles are cut so that a figure is one line."""
    out = console()
    widths = {
        column: max(map(cell_len, (column, *(cells[column] for _, cells in lines))))
        for column in _COLUMNS
        if any(cells[column] for _, cells in lines)
    }
    spare = min(out.width, _WIDTH) - sum(widths.values()) - _GAP * len(widths)
    widths["title"] = max(widths["title"] + min(spare, 0), _LEAST)
    for index, (work, figures) in enumerate(itertools.groupby(lines, key=lambda line: line[0])):
        columns = [
            Column(
                name,
                right=name in ("runs", "done"),
                style="cyan" if name == "figure" else "",
                wrap=False,
                width=width,
            )
            for name, width in widths.items()
        ]
        table = Table(work, columns, header=index == 0, padding=(0, _GAP, 0, 0))
        for _, cells in figures:
            table.add(*(cells[name] for name in widths))
        out.print(table)
        out.print()
    out.print(_HINT)


def _show_runs(name: str, arguments: Sequence[str], extra: Path | None) -> None:
    """Print the state of one figure's runs.

    Raises:
        ConfigError: The figure, or a job of the figure, cannot be composed.
    """
    config = compose_safely([choice_of(name), *for_choice(name, [*arguments])], extra)
    out = console()
    if is_computed(config):
        from fedpriv.study.figures.computed import computed_words

        out.print(computed_words(config, name, arguments))
        return
    from fedpriv.study.figures import jobs as of  # imported late: this imports Hydra

    figure, jobs = of.plan_figure(config, name, lambda o: compose_safely(o, extra), arguments)
    folder = Path(config.runtime.output_dir) / "figures" / figure.folder
    out.print("\n".join(filter(None, (figure.work, figure.title, of.announcement(figure, jobs)))))
    out.print(of.job_table(figure, jobs))
    for label, why in of.read_failures(folder, jobs).items():
        out.print(f"failed: {label}: {why}")
    if (folder / "figure.png").exists():
        out.print(f"figure: {folder / 'figure.png'}")
    given = [] if extra is None else ["--config-dir", str(extra)]
    out.print(f"{shlex.join(['fedpriv', 'figure', name, *given])} runs the missing runs and draws")


def _finished(run: str) -> bool:
    with suppress(ConfigError):  # a damaged summary
        return StoredRun(run).finished
    return False


def read_record(folder: Path) -> list[dict[str, str]]:
    """Return the rows of a figure's runs.csv; none where there is no such file."""
    with suppress(ConfigError):
        return saved_records(folder / "runs.csv")
    return []
