"""``fedpriv figure --list``: every figure, what is there of it, and what the rest takes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from omegaconf import DictConfig
from rich.table import Table

from fedpriv.common.errors import ConfigError
from fedpriv.config import compose, options
from fedpriv.figures.computed import computed_row
from fedpriv.figures.jobs import DONE, MISSING, Job, distinct
from fedpriv.figures.make import plan_figure
from fedpriv.results.display import console, duration


def show_figures(arguments: Sequence[str], config_dir: str | None = None, below: str = "") -> None:
    """Print the table of all figures (``below``: of a folder of them, or one), those in ``config_dir``
    too; ``arguments`` as for making them (``figure.seeds=…``)."""
    extra = None if config_dir is None else Path(config_dir)
    if extra is not None and not extra.is_dir():
        raise ConfigError("--config-dir", config_dir, "an existing folder")
    composed: dict[tuple[str, ...], DictConfig] = {}

    def once(overrides: Sequence[str]) -> DictConfig:
        """Figures share most of their runs."""
        key = tuple(overrides)
        if key not in composed:
            composed[key] = compose(key, extra)
        return composed[key]

    table = Table(title="Figures", title_justify="left", title_style="bold")
    for column in ("figure", "what", "paper", "state", "runs", "left (one core)"):
        table.add_column(column, overflow="fold", no_wrap=column in ("figure", "state", "runs"))
    named = dict(options("figure")) | dict(options("figure", extra) if extra else ())
    wanted = [name for name in named if _is_below(name, below)]
    if not wanted:
        works = sorted({name.partition("/")[0] for name in named})
        raise ConfigError(
            "fedpriv figure NAME --list", below, f"a figure, or one of {', '.join(works)}"
        )
    for name in wanted:
        words = named[name]
        try:
            config = compose([f"+figure={name}", *arguments], extra)
            if config.figure.get("compute") is not None:
                table.add_row(name, words, *computed_row(config, name))
                continue
            figure, jobs = plan_figure(config, name, once, arguments)
        except ConfigError as error:
            table.add_row(name, str(error), "", "broken", "", "")
            continue
        runs = list(distinct(jobs))
        done = sum(job.state == DONE for job in runs)
        table.add_row(
            name, words, figure.work, _state(runs), f"{done}/{len(runs)}",
            time_left(runs, figure.as_defined),
        )  # fmt: skip
    console().print(table)
    console().print(
        "fedpriv figure <name> runs what is missing and draws; --dry-run shows its runs"
    )


def _is_below(name: str, folder: str) -> bool:
    return not folder or name == folder or name.startswith(folder.rstrip("/") + "/")


def _state(jobs: Sequence[Job]) -> str:
    """``done``, ``partly`` or ``not run``."""
    states = {job.state for job in jobs}
    if states == {DONE}:
        return "done"
    return "not run" if states == {MISSING} else "partly"


def time_left(jobs: Sequence[Job], as_defined: bool) -> str:
    """About how long the unfinished runs take, as far as it was measured: of those defined."""
    left = [job for job in jobs if job.state != DONE]
    known = [job.minutes for job in left if as_defined and job.minutes is not None]
    if not left:
        return "–"
    if not known:
        return "not measured"
    return f"about {duration(60 * sum(known))}" + (" and more" if len(known) < len(left) else "")
