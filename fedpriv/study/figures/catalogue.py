"""``fedpriv figure --list``: a line for every figure, or the state of one figure's runs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import conf_dir, options
from fedpriv.store.saved import YamlLoader, saved_text
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column, Table
from fedpriv.study.figures.definition import choice_of, for_choice, names_file

_WIDTH = 100  # of the table in characters
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
    folders = [None, *([] if extra is None else [extra])]
    names = list(dict.fromkeys(name for f in folders for name, _ in options("figure", f)))
    if below in names or names_file(below):
        return _show_runs(below, arguments, extra)
    from fedpriv.study.figures.jobs import read_record  # imported late: this imports Hydra

    outputs = Path("outputs")
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key != "runtime.output_dir":
            raise ConfigError(
                f"the list of figures does not show what {argument} changes; fedpriv figure NAME --list does"
            )
        outputs = Path(value)
    folder = below.rstrip("/") + "/" if below else ""

    def in_order(name: str) -> list[object]:  # fig5 before fig14
        return [(part.zfill(9) if part.isdigit() else part) for part in re.split(r"(\d+)", name)]

    chosen = sorted((name for name in names if name.startswith(folder)), key=in_order)
    if not chosen:
        works = sorted({name.partition("/")[0] for name in names})
        allowed = f"a figure, or one of {', '.join(works)}"
        raise ConfigError("fedpriv figure NAME --list", below, allowed)
    out, last = console(), ""
    widths = {"figure": max(map(len, chosen)), "title": 0, "done": 9, "reference": 9}
    widths["title"] = min(out.width, _WIDTH) - sum(widths.values()) - 2 * len(widths)
    table = Table("", ())
    for name in chosen:
        work, title = _headings(name, [conf_dir(), *([] if extra is None else [extra])])
        if work != last or name == chosen[0]:
            if last:
                out.print(table, "")
            columns = [
                Column(n, style="cyan" if n == "figure" else "", wrap=False, width=width)
                for n, width in widths.items()
            ]
            table, last = Table(work, columns, header=not last, padding=(0, 2, 0, 0)), work
        made = outputs / "figures" / name
        runs = [row.get("run") for row in read_record(made)]
        done = "drawn" if (made / "figure.png").exists() else ""
        if runs:
            done = f"{sum(bool(run) and _finished(str(run)) for run in runs)}/{len(runs)}"
        kept = conf_dir().parent / "outputs" / "reference" / name / "figure.csv"
        table.add(name, title, done, "yes" if kept.exists() else "")
    out.print(table, "")
    out.print(_HINT)


def _headings(name: str, folders: Sequence[Path]) -> tuple[str, str]:
    """Return work and title of a figure from its YAML and its work's: for all, Hydra takes seconds."""

    def read(path: str) -> dict[str, Any]:
        files = [file for folder in folders if (file := folder / f"{path}.yaml").exists()]
        return dict(yaml.load(saved_text(files[0]), YamlLoader))

    try:
        values = read(f"figure/{name}")
        works = [read(f"work/{w['/work']}") for w in values.get("defaults", []) if "/work" in w]
        known = {**dict(*works[:1]), **dict(values.get("figure") or {})}
        return str(known.get("work", "")), str(known["title"])
    except (ConfigError, KeyError, LookupError, TypeError, ValueError, yaml.YAMLError):
        return "", f"broken: fedpriv figure {name} tells why"


def _show_runs(name: str, arguments: Sequence[str], extra: Path | None) -> None:
    """Print the state of one figure's runs.

    Raises:
        ConfigError: The figure, or a job of the figure, cannot be composed.
    """
    from fedpriv.study.figures import jobs as of  # imported late: these import Hydra
    from fedpriv.study.figures.reading import compose_safely, is_computed

    config = compose_safely([choice_of(name), *for_choice(name, [*arguments])], extra)
    out = console()
    if is_computed(config):
        from fedpriv.study.figures.computed import computed_words

        out.print(computed_words(config, name, arguments))
        return
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
    with suppress(ConfigError):  # a summary that cannot be read
        return StoredRun(run).finished
    return False
