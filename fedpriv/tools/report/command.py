"""Commands ``fedpriv report`` and ``fedpriv plot``; this module imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import refuse_present
from fedpriv.common.flags import Command, NewFile, OneOf, PathParam, flag, switch
from fedpriv.tools.report.markup import REPORT, REPORT_MARK

_EXAMPLES = """\b
examples:
  fedpriv report outputs/<run folder>
  fedpriv report outputs/multirun/<sweep>
  fedpriv report outputs/<run folder> outputs/<another> --out both.html
  fedpriv report outputs/figures/adap_dpfl/fig4
  fedpriv report outputs/multirun/<sweep> --latex
"""
_BAND, _PICTURE = OneOf(("t", "sd", "range", "none")), NewFile(".png", ".pdf", ".svg")
_OUT = "a .html; default: report.html in the folder, of several in this one"


@click.command(
    cls=Command,
    short_help="runs, sweeps and figures as one HTML page that opens offline",
    epilog=_EXAMPLES,
)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PathParam())
@flag("--out", "FILE", _OUT, NewFile(".html", mark=REPORT_MARK, of_a_run=(REPORT,)))
@switch("--latex", "instead: print the paragraph of a paper about the privacy of these runs")
def report(folders: Sequence[str], out: Path | None, latex: bool) -> int:
    """Write one HTML file about runs and figures.

    FOLDER is a run folder, a folder that holds run folders, such as a sweep's, or the folder of a figure.
    The page shows the privacy statement, ε over rounds, the ledger, curves with their values, the
    configuration and its differences, audits, the environment, and how to repeat the runs. The page needs
    no other file and no network.

    --latex prints a paragraph in LaTeX instead: unit, neighbours, δ, ε, accountant, and the joint cost of all
    the runs, so name those that were tried beside those that the paper reports.
    """
    if latex:
        if out is not None:
            raise ConfigError("--out", str(out), "left out with --latex, which prints")
        from fedpriv.tools.report.privacy_paragraph import paragraph_of_folders

        print(paragraph_of_folders(folders), end="")
        return 0
    from fedpriv.tools.report.write import write_report

    file = write_report(folders, out)
    print(f"report: {file} ({file.stat().st_size / 1000:,.0f} kB)")
    return 0


@click.command(
    cls=Command, short_help="overlay finished runs, any column against any: fedpriv plot --help"
)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PathParam())
@flag("--x", "COLUMN", "default: round; clients: all clients at the end, sorted by --y")
@flag("--y", "COLUMN", "default: test_accuracy", default="test_accuracy")
@flag("--points", "KEY", "the ends of the runs against a setting, or spent, or epsilon_sound")
@switch("--each", "a line for every run")
@flag("--band", "KIND", "t (95 %), sd, range or none; default: t", _BAND, default="t")
@flag("--title", "TEXT", "above the picture")
@flag("--x-label", "TEXT", "of the x axis")
@flag("--y-label", "TEXT", "of the y axis")
@flag("--label", "OLD:NEW", "another name of a line; may be repeated", multiple=True)
@flag("--log", "AXES", "logarithmic axes: x, y or xy", OneOf(("x", "y", "xy")))
@flag("--width", "COLUMNS", "one or two columns of a paper", OneOf(("one", "two")))
@flag("--font-size", "POINTS", "of the labels; default: 8", click.FloatRange(4, 24), default=8.0)
@flag("--out", "FILE", "may be repeated", _PICTURE, multiple=True, default=("plot.png",))
@switch("--force", "write over files that are there")
def plot(**flags: Any) -> int:
    """Overlay runs in one picture, any column of metrics.csv against any other.

    FOLDER is a run folder, or a folder that holds run folders. Runs that differ only in their seeds become
    one line, their mean, with Student's 95 % interval as band. --points draws the ends of the runs of a sweep
    against a setting or a result: a curve for each combination of the other settings. --x clients draws who
    benefits: the sorted accuracies of clients.csv, or another column of it. The command writes the picture
    (.png, .pdf or .svg) and, beside it, the drawn values (.csv).
    """
    refuse_present([*flags["out"], flags["out"][0].with_suffix(".csv")], flags["force"])
    if flags["points"] is not None and (flags["x"] is not None or flags["each"]):
        raise ConfigError("fedpriv plot takes --points without --x and --each")
    from fedpriv.tools.report.plot import run

    return run(SimpleNamespace(**{**flags, "x": flags["x"] or "round"}))
