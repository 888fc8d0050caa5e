"""The command ``fedpriv runs`` and its flags. This module imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from fedpriv.common.errors import ConfigError
from fedpriv.common.flags import (
    Command,
    Names,
    NewFile,
    OneOf,
    PathParam,
    flag,
    switch,
    table_flag,
)
from fedpriv.tools.run_choice import SHOWN

_EXAMPLES = """\b
examples:
  fedpriv runs
  fedpriv runs outputs/multirun --filter dataset=digits --filter 'test_accuracy>0.9' --sort -test_accuracy
  fedpriv runs outputs/multirun/<sweep> --means --best test_accuracy --table latex
  fedpriv runs accuracy --means --table latex       of the figure outputs/figures/accuracy
  fedpriv runs --columns run,seed,epsilon_sound,clipper.clip_norm --csv runs.csv
  fedpriv runs diff outputs/runs/A outputs/runs/B
"""
_RESULTS = ("test_accuracy", "backdoor_accuracy", "epsilon_sound")
_FILTER = "KEY=VALUE, !=, >, >=, <, <= (quote the last four); may be given again"


class _TableFile(NewFile):
    """The path of a CSV file, or ``-`` for standard output."""

    def convert(self, value: str | Path, param: Any, ctx: Any) -> Path:
        return Path("-") if str(value) == "-" else super().convert(value, param, ctx)


@click.command(
    cls=Command, short_help="a table of finished and other runs: fedpriv runs outputs", epilog=_EXAMPLES
)  # fmt: skip
@click.argument("folders", nargs=-1, metavar="[FOLDER]... | diff A B", type=PathParam())
@flag("--filter filters", "KEY=VALUE", _FILTER, multiple=True)
@flag("--sort", "KEY[,KEY...]", "-KEY for descending", Names(SHOWN))
@switch("--reverse", "the last row first")
@flag("--columns", "KEY[,KEY...]", "instead of those shown; any key", Names(SHOWN))
@click.option(
    "--csv", metavar="[FILE]", is_flag=False, flag_value="-", type=_TableFile(".csv"), default=None,
    help="as CSV, printed or into a file (.csv).",
)  # fmt: skip
@switch("--json", "print JSON instead of a table")
@switch(
    "--means",
    "of one folder, or one figure: means over seeds, a row for each setting, as after a sweep",
)
@flag(
    "--best",
    "COLUMN",
    "with --means: the best cell of the column in bold, for each epsilon asked for; rows without a "
    "finite sound epsilon compete only among themselves",
    OneOf(_RESULTS),
)
@table_flag
def runs(folders: Sequence[str], means: bool, best: str | None, **chosen: Any) -> int:
    """Show the runs below folders (default: outputs), or of a figure, one row each.

    A row has the results, the three epsilons, and the keys of the configuration that differ. A key is one of
    summary.json (test_accuracy), one of config.yaml (clipper.clip_norm; config.epsilon where summary.json
    has that name too), a group (clipper), run or state. --means shows means over seeds instead.

    fedpriv runs diff A B shows the keys in which two runs differ, and how both ended.
    """
    given = [name for name, value in chosen.items() if value]
    if folders[:1] == ("diff",):
        if len(folders) != 3 or given or means or best:
            raise ConfigError("fedpriv runs diff takes two run folders and no flags")
        from fedpriv.tools.run_diff import show_difference

        show_difference(*folders[1:])
        return 0
    if means:
        if unfit := [name.replace("filters", "filter") for name in given if name != "columns"]:
            raise ConfigError(
                f"fedpriv runs --means takes --best and --columns only: leave out --{', --'.join(unfit)}"
            )
        if len(folders) != 1:
            raise ConfigError("fedpriv runs --means: name one folder, or one figure")
        from fedpriv.store.sweep import show_means

        show_means(Path(folders[0]), best, chosen["columns"])
        return 0
    if best is not None:
        raise ConfigError("--best", best, "given together with --means")
    from fedpriv.tools.run_table import show_runs

    show_runs(
        folders or ("outputs",), chosen["filters"], chosen["sort"], chosen["reverse"],
        chosen["columns"], chosen["csv"], chosen["json"],
    )  # fmt: skip
    return 0
