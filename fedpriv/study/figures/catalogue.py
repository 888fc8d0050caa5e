"""``fedpriv figure --list``: a line for every figure; with a figure's name, what there is of its runs."""

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
from fedpriv.study.figures.reading import read_figure
from fedpriv.study.figures.record import finished_words

_COLUMNS = ("figure", "title", "runs", "done", "reference")  # one that is empty is left out
_WIDTH, _GAP, _LEAST = 100, 2, 12
_HINT = "fedpriv figure NAME makes it, NAME --quick in minutes, NAME --list shows its runs"
_COUNTED = ("figure.seeds=", "figure.scale=")
_SAME = ("figure.reuse=", "figure.draw_only=", "hydra.launcher", "hydra.sweep")


@dataclass(frozen=True)
class _Line:
    """What the list says of a figure."""

    figure: str
    work: str
    title: str
    runs: str
    done: str
    reference: str


def show_figures(arguments: Sequence[str], config_dir: str | None = None, below: str = "") -> None:
    """Print a line for every figure, those in ``config_dir`` too; ``below``: those of a folder, or the runs
    of one figure. ``arguments`` as for making them. Raises ConfigError."""
    extra = None if config_dir is None else Path(config_dir)
    if extra is not None and not extra.is_dir():
        raise ConfigError("--config-dir", config_dir, "an existing folder")
    names = _names(extra)
    if below in names:
        from fedpriv.study.figures.details import show_details

        return show_details(below, arguments, extra)
    folder = below.rstrip("/") + "/" if below else ""
    wanted = sorted((name for name in names if name.startswith(folder)), key=_in_order)
    if not wanted:
        works = sorted({name.partition("/")[0] for name in names})
        raise ConfigError(
            "fedpriv figure NAME --list", below, f"a figure, or one of {', '.join(works)}"
        )
    given, outputs = _given(arguments)
    _print([_line(name, extra, given, outputs) for name in wanted])


def _in_order(name: str) -> list[object]:
    """``fig5`` comes before ``fig14``."""
    work, _, own = name.rpartition("/")
    parts = re.split(r"(\d+)", own)
    return [work, [(part, 0) if i % 2 == 0 else ("", int(part)) for i, part in enumerate(parts)]]


def _given(arguments: Sequence[str]) -> tuple[dict[str, Any], Path]:
    """What is set for all figures, and where their files are. Raises ConfigError for what no list shows."""
    outputs = Path("outputs")
    for argument in arguments:
        if argument.startswith("runtime.output_dir="):
            outputs = Path(argument.partition("=")[2])
        elif not argument.startswith(_COUNTED):
            raise ConfigError(
                f"the list of figures does not show what {argument} changes; fedpriv figure NAME --list does"
            )
    return _counted(arguments), outputs


def _counted(arguments: Sequence[str]) -> dict[str, Any]:
    """Keys below ``figure`` that change the number of runs, as set by ``arguments``. Raises ConfigError."""
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
    reference = conf_dir().parent / "outputs" / "reference" / name
    kept = "yes" if (reference / "figure.csv").exists() else ""
    try:
        section = load_section(name, extra)
        if section.get("compute") is not None:
            work, title = (str(section.get(key)) for key in ("work", "title"))
            drawn = (outputs / "figures" / name / "figure.png").exists()
            return _Line(name, work, title, "–", "drawn" if drawn else "", kept)
        figure = read_figure(section | given, name)
    except ConfigError as error:
        return _Line(name, "", f"broken: {error}", "", "", kept)
    done = finished_words(outputs / "figures" / figure.folder, figure.run_count)
    return _Line(name, figure.work, figure.title, str(figure.run_count), done, kept)


def count_runs(name: str, arguments: Sequence[str], config_dir: str | None = None) -> int | None:
    """How many runs a figure has, found at once; None where that takes longer, or there is no such figure.
    Raises ConfigError for what is wrong in its YAML."""
    extra = None if config_dir is None else Path(config_dir)
    changed = [a for a in arguments if a.lstrip("+~").startswith(("figure.", "hydra."))]
    if name not in _names(extra) or any(not a.startswith((*_COUNTED, *_SAME)) for a in changed):
        return None
    section = load_section(name, extra)
    if section.get("compute") is not None:
        return None
    return read_figure(section | _counted(arguments), name).run_count


def _names(extra: Path | None) -> list[str]:
    """Every figure, those in ``extra`` too."""
    folders = (None,) if extra is None else (None, extra)
    return list(dict.fromkeys(name for folder in folders for name, _ in options("figure", folder)))


def _print(lines: Sequence[_Line]) -> None:
    """A table for each work, all with the same columns; titles are cut so that a figure is one line."""
    out = console()
    named = {name: [str(getattr(line, name)) for line in lines] for name in _COLUMNS}
    shown = {name: cells for name, cells in named.items() if any(cells)}
    widths = {name: max(map(cell_len, (name, *cells))) for name, cells in shown.items()}
    spare = min(out.width, _WIDTH) - sum(widths.values()) - _GAP * len(widths)
    widths["title"] = max(widths["title"] + min(spare, 0), _LEAST)
    for place, (work, own) in enumerate(itertools.groupby(lines, key=lambda line: line.work)):
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
        table = Table(work, columns, header=place == 0, padding=(0, _GAP, 0, 0))
        for line in own:
            table.add(*(getattr(line, name) for name in widths))
        out.print(table)
        out.print()
    out.print(_HINT)
