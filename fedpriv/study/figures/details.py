"""``fedpriv figure NAME --list``: the runs of one figure and their state."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from fedpriv.store.display import console
from fedpriv.store.table import Column, Table
from fedpriv.study.figures.definition import Figure
from fedpriv.study.figures.jobs import DONE, PARTLY, Job, distinct
from fedpriv.study.figures.loading import compose_safely
from fedpriv.study.figures.overrides import choice_of, for_choice
from fedpriv.study.figures.planning import announcement, plan_figure
from fedpriv.study.figures.reading import is_computed
from fedpriv.study.figures.record import read_failures


def show_details(name: str, arguments: Sequence[str], extra: Path | None = None) -> None:
    """Print the state of a figure's runs.

    Args:
        name: Name of the figure.
        arguments: Overrides of the command line.
        extra: Folder with the user's own YAMLs.

    Raises:
        ConfigError: The figure, or a job of the figure, cannot be composed.
    """
    config = compose_safely([choice_of(name), *for_choice(name, [*arguments])], extra)
    out = console()
    if is_computed(config):
        from fedpriv.study.figures.computed import computed_words

        out.print(computed_words(config, name, arguments))
        return
    figure, jobs = plan_figure(config, name, lambda given: compose_safely(given, extra), arguments)
    again = shlex.join(
        ["fedpriv", "figure", name, *([] if extra is None else ["--config-dir", str(extra)])]
    )
    unfinished = [job for job in distinct(jobs) if job.state != DONE]
    head = "\n".join(filter(None, (figure.work, figure.title)))
    out.print(f"{head}\n{announcement(figure, jobs, unfinished)}")
    out.print(_curve_table(figure, jobs))
    folder = Path(config.runtime.output_dir) / "figures" / figure.folder
    for label, why in read_failures(folder, jobs).items():
        out.print(f"failed: {label}: {why}")
    if (folder / "figure.png").exists():
        out.print(f"figure: {folder / 'figure.png'}")
    out.print(f"{again} runs the missing runs and draws; --dry-run shows the overrides")


def _curve_table(figure: Figure, jobs: Sequence[Job]) -> Table:
    """Return a table with a row for each curve of each group."""
    numbers = (Column(name, right=True) for name in ("done", "partly", "minutes a run"))
    table = Table("", ("group", "curve", "", *numbers), padding=(0, 2, 0, 0))
    for group in figure.groups:
        for curve in group.curves:
            states = [
                j.state for j in jobs if (j.group.name, j.curve.name) == (group.name, curve.name)
            ]
            minutes = curve.minutes.get(group.name) if figure.as_defined else None
            table.add(
                group.name,
                curve.name,
                curve.label,
                f"{states.count(DONE)}/{len(states)}",
                str(states.count(PARTLY) or ""),
                "" if minutes is None else f"{minutes:g}",
            )
    return table
