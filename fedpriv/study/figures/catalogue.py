"""``fedpriv figure --list``: a line for every figure, or the state of one figure's runs."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.cells import cell_len

from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import conf_dir, options
from fedpriv.store.table import Column, Table
from fedpriv.study.figures.loading import load_section
from fedpriv.study.figures.overrides import names_file
from fedpriv.study.figures.reading import read_figure
from fedpriv.study.figures.record import finished_words

_COLUMNS = ("figure", "title", "runs", "done", "reference")  # a column without entries is left out
_WIDTH, _GAP, _LEAST = 100, 2, 12  # of the table, between columns, and of the title, in characters
_HINT = "fedpriv figure NAME makes it, NAME --quick in minutes, NAME --list shows its runs"
_COUNTED = ("figure.seeds=", "figure.scale=")  # overrides that change the number of runs
# Overrides that do not change the number of runs.
_SAME = ("figure.reuse=", "figure.draw_only=", "hydra.launcher", "hydra.sweep")


@dataclass(frozen=True)
class _Line:
    """A line of the list, about one figure."""

    figure: str
    work: str
    title: str
    runs: str
    done: str
    reference: str


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
    names = _names(extra)
    if below in names or names_file(below):
        from fedpriv.study.figures.details import show_details

        return show_details(below, arguments, extra)
    folder = below.rstrip("/") + "/" if below else ""
    chosen = sorted((name for name in names if name.startswith(folder)), key=_in_order)
    if not chosen:
        works = sorted({name.partition("/")[0] for name in names})
        raise ConfigError(
            "fedpriv figure NAME --list", below, f"a figure, or one of {', '.join(works)}"
        )
    outputs = Path("outputs")
    for argument in arguments:
        if argument.startswith("runtime.output_dir="):
            outputs = Path(argument.partition("=")[2])
        elif not argument.startswith(_COUNTED):
            raise ConfigError(
                f"the list of figures does not show what {argument} changes; fedpriv figure NAME --list does"
            )
    given = _counted(arguments)
    _print([_line(name, extra, given, outputs) for name in chosen])


def _in_order(name: str) -> list[object]:
    """Return the key that sorts names of figures, with ``fig5`` before ``fig14``."""
    work, _, figure = name.rpartition("/")
    parts = re.split(r"(\d+)", figure)
    return [work, [(part, 0) if i % 2 == 0 else ("", int(part)) for i, part in enumerate(parts)]]


def _counted(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the keys below ``figure`` by which ``arguments`` change the number of runs."""
    given = {}
    for argument in arguments:
        key, _, value = argument.partition("=")
        if argument.startswith(_COUNTED):
            try:
                given[key.removeprefix("figure.")] = yaml.safe_load(value)
            except yaml.YAMLError:
                raise ConfigError(key, value, "a value in YAML") from None
    return given


def _line(name: str, extra: Path | None, given: dict[str, Any], outputs: Path) -> _Line:
    """Return the line of a figure. A figure with a damaged YAML has a line with the error."""
    folder = conf_dir().parent / "outputs" / "reference" / name
    reference = "yes" if (folder / "figure.csv").exists() else ""
    try:
        section = load_section(name, extra)
        if section.get("compute") is not None:
            work, title = (str(section.get(key)) for key in ("work", "title"))
            drawn = (outputs / "figures" / name / "figure.png").exists()
            return _Line(name, work, title, "–", "drawn" if drawn else "", reference)
        figure = read_figure(section | given, name)
    except ConfigError as error:
        return _Line(name, "", f"broken: {error}", "", "", reference)
    done = finished_words(outputs / "figures" / figure.folder, figure.run_count)
    return _Line(name, figure.work, figure.title, str(figure.run_count), done, reference)


def count_runs(name: str, arguments: Sequence[str], config_dir: str | None = None) -> int | None:
    """Return the number of runs of a figure if the number is known without composing the runs.

    Args:
        name: Name of the figure.
        arguments: Overrides of the command line.
        config_dir: Folder with the user's own YAMLs.

    Returns:
        The number, or None where it is not known at once, or where the figure does not exist or has no runs.

    Raises:
        ConfigError: The figure's YAML has a mistake.
    """
    extra = None if config_dir is None else Path(config_dir)
    changed = [a for a in arguments if a.lstrip("+~").startswith(("figure.", "hydra."))]
    if name not in _names(extra) or any(not a.startswith((*_COUNTED, *_SAME)) for a in changed):
        return None
    section = load_section(name, extra)
    if section.get("compute") is not None:
        return None
    return read_figure(section | _counted(arguments), name).run_count


def _names(extra: Path | None) -> list[str]:
    """Return the names of all figures, including the user's in the folder ``extra``."""
    folders = (None,) if extra is None else (None, extra)
    return list(dict.fromkeys(name for folder in folders for name, _ in options("figure", folder)))


def _print(lines: Sequence[_Line]) -> None:
    """Print a table for each work, all with the same columns; titles are cut so that a figure is one line."""
    out = console()
    columns_of_text = {name: [str(getattr(line, name)) for line in lines] for name in _COLUMNS}
    shown = {name: cells for name, cells in columns_of_text.items() if any(cells)}
    widths = {name: max(map(cell_len, (name, *cells))) for name, cells in shown.items()}
    spare = min(out.width, _WIDTH) - sum(widths.values()) - _GAP * len(widths)
    widths["title"] = max(widths["title"] + min(spare, 0), _LEAST)
    for index, (work, figures) in enumerate(itertools.groupby(lines, key=lambda line: line.work)):
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
        for line in figures:
            table.add(*(getattr(line, name) for name in widths))
        out.print(table)
        out.print()
    out.print(_HINT)
