"""``fedpriv figure --list``: a line for every figure, or the state of one figure's runs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from fedpriv.common.console import console
from fedpriv.common.errors import ConfigError
from fedpriv.common.groups import options
from fedpriv.store.saved import saved_records
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.table import Column, Table
from fedpriv.study.figures.definition import choice_of, names_file


def show_figures(arguments: Sequence[str], config_dir: str | None = None, below: str = "") -> None:
    """Print a line for every figure: its name, what it shows, and how many of its runs are done.

    Args:
        arguments: Overrides as for making the figures.
        config_dir: Folder with the user's own YAMLs.
        below: Name of a work, for its figures alone, or of a figure, for the state of its runs.

    Raises:
        ConfigError: There is no such figure, or an override that the list does not show.
    """
    extra = None if config_dir is None else Path(config_dir)
    names = dict(options("figure"))
    names |= {} if extra is None else dict(options("figure", extra))
    if below in names or names_file(below):
        return _show_runs(below, arguments, extra)
    outputs = Path("outputs")
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key != "runtime.output_dir":
            raise ConfigError(
                f"the list of figures does not show what {argument} changes; fedpriv figure NAME --list does"
            )
        outputs = Path(value)
    chosen = [name for name in names if name.startswith(f"{below.rstrip('/')}/" if below else "")]
    if not chosen:
        works = sorted({name.partition("/")[0] for name in names})
        allowed = f"a figure, or one of {', '.join(works)}"
        raise ConfigError("fedpriv figure NAME --list", below, allowed)
    table = Table("", (Column("figure", wrap=False), "content", Column("state", wrap=False)))
    # fig5 before fig14
    for name in sorted(chosen, key=lambda name: re.sub(r"\d+", lambda n: n[0].zfill(9), name)):
        folder = outputs / "figures" / name
        state = "drawn" if (folder / "figure.png").exists() else ""
        if (folder / "runs.csv").exists():
            runs = [row.get("run", "") for row in saved_records(folder / "runs.csv")]
            state = f"{sum(StoredRun(run).finished for run in runs)}/{len(runs)}"
        table.add(name, names[name], state)
    console().print(table)
    console().print(
        "fedpriv figure NAME makes it, NAME --quick in minutes, NAME --list shows its runs"
    )


def _show_runs(name: str, arguments: Sequence[str], extra: Path | None) -> None:
    """Print the state of one figure's runs.

    Raises:
        ConfigError: The figure, or a job of the figure, cannot be composed.
    """
    from fedpriv.study.figures import jobs as of  # imported late: these import Hydra
    from fedpriv.study.figures.reading import compose_safely, is_computed

    config = compose_safely(choice_of(name, arguments), extra)
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
