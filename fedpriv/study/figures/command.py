"""Commands ``fedpriv figure`` and ``fedpriv plot``; this module imports nothing heavy.

The flags of ``fedpriv figure`` become overrides of ``fedpriv train -m +figure=<name>``.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import refuse_foreign
from fedpriv.common.flags import (
    Command,
    Names,
    NewFile,
    PathParam,
    Whole,
    flag,
    switch,
    written,
)
from fedpriv.common.groups import options as options_of
from fedpriv.common.words import counted
from fedpriv.study.figures.overrides import choice_of, for_choice, overrides_of

_FIGURES = Names(lambda: (name for name, _ in options_of("figure")))
_TABLE = rb"\Alabel,x,mean,low,high,n\r?\n"  # the header of what plot writes
_LIST = "every figure (or those below a name, such as wei) in a line; of one figure its runs"


@click.command(
    cls=Command, short_help="a figure of a published work by one command: fedpriv figure --list"
)
@click.argument("words", nargs=-1, metavar="[NAME] [KEY=VALUE]...", type=_FIGURES)
@switch("--list", _LIST)
@switch("--dry-run", "show the runs, start none")
@switch("--draw", "run nothing, draw what is there")
@switch("--quick", "a few rounds of seed 0, to see that everything works")
@flag("--seeds", "0,1,2", "instead of the figure's own")
@flag("--jobs", "N", "so many runs at a time, each in a process", Whole())
@flag(
    "--reuse", "DIR", "a further folder, or runs.zip, of finished runs", PathParam(), multiple=True
)
@flag("--config-dir", "DIR", "a folder with YAMLs of your own", PathParam(folder=True))
def figure(words: Sequence[str], **flags: object) -> int:
    """Run the missing runs of a figure of a published work, and draw the figure.

    NAME is a figure, such as adap_dpfl/fig4. Several runs go in parallel with --jobs. The command writes
    figure.csv, figure.png, figure.pdf, comparison.md and report.html to outputs/figures/<name>. Overrides of
    any key (KEY=VALUE) apply to all runs of the figure.
    """
    names = [word for word in words if "=" not in word]
    if names[1:]:
        raise ConfigError(f"fedpriv figure takes one name, got {' and '.join(names)}")
    options = SimpleNamespace(name=names[0] if names else None, **flags)
    return run(options, [word for word in words if "=" in word])


class _Picture(NewFile):
    """Parameter for a new picture, beside which a CSV of the same name is written."""

    def convert(self, value: str | Path, param: Any, ctx: Any) -> Path:
        path = super().convert(value, param, ctx)
        refuse_foreign(f"{written(param)}: its table", path.with_suffix(".csv"), _TABLE)
        return path


@click.command(
    cls=Command, short_help="overlay finished runs, any column against any: fedpriv plot --help"
)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PathParam())
@flag("--x", "COLUMN", "default: round")
@flag("--y", "COLUMN", "default: test_accuracy", default="test_accuracy")
@flag("--points", "KEY", "instead: the ends of the runs against a key, such as epsilon")
@switch("--each", "a line for every run")
@flag(
    "--out",
    "FILE",
    "a .png, .pdf or .svg; default: plot.png",
    _Picture(".png", ".pdf", ".svg", mark=rb"fedpriv plot"),
    default="plot.png",
)
def plot(**flags: object) -> int:
    """Overlay runs in one picture, any column of metrics.csv against any other.

    FOLDER is a run folder, or a folder that holds run folders. Runs that differ only in their seeds become
    one line, their mean, with a band from the lowest to the highest. --points draws the ends of the runs of a
    sweep against a key of config.yaml: mean and standard deviation over seeds, a curve for each combination
    of the other keys. The command writes the picture and, beside it, the drawn values as CSV.
    """
    if flags["points"] is not None:
        if flags["x"] is not None or flags["each"]:
            raise ConfigError("fedpriv plot takes --points without --x and --each")
        from fedpriv.study.figures.final_points import run as draw_final_points

        return draw_final_points(SimpleNamespace(**flags))
    from fedpriv.study.figures.overlay import run

    return run(SimpleNamespace(**{**flags, "x": flags["x"] or "round"}))


def run(options: SimpleNamespace, overrides: Sequence[str]) -> int:
    """Make or list figures.

    Args:
        options: Flags of the command, and ``name``, the figure's name or None.
        overrides: Overrides of the command line.

    Raises:
        ConfigError: A flag is not allowed, or the name is missing.
    """
    settings = [*overrides_of(options), *overrides]
    if options.list:
        from fedpriv.study.figures.catalogue import show_figures

        show_figures(settings, options.config_dir, options.name or "")
        return 0
    if not options.name:
        raise ConfigError("fedpriv figure needs a name, such as adap_dpfl/fig4, or --list")
    from fedpriv.study.figures.catalogue import count_runs

    # Printed first, since importing everything and composing each curve takes a while.
    runs = count_runs(options.name, settings, options.config_dir)
    if runs is not None:
        print(f"{options.name}: composing {counted(runs, 'run')}", flush=True)
    from fedpriv.train import main as train

    folder = ["--config-dir", options.config_dir] if options.config_dir else []
    launcher = (
        []
        if options.jobs is None
        else ["hydra/launcher=joblib", f"hydra.launcher.n_jobs={options.jobs}"]
    )
    chosen = [choice_of(options.name), *for_choice(options.name, settings)]
    train(["-m", *folder, *chosen, *launcher])
    return 0
