"""Command ``fedpriv report``; this module imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fedpriv.common.flags import Command, NewFile, PathParam, flag
from fedpriv.tools.report.markup import REPORT, REPORT_MARK

_EXAMPLES = """\b
examples:
  fedpriv report outputs/<run folder>
  fedpriv report outputs/multirun/<sweep>
  fedpriv report outputs/<run folder> outputs/<another> --out both.html
  fedpriv report outputs/figures/adap_dpfl/fig4
"""
_OUT = "a .html; default: report.html in the folder, of several in this one"


@click.command(
    cls=Command,
    short_help="runs, sweeps and figures as one HTML page that opens offline",
    epilog=_EXAMPLES,
)
@click.argument("folders", nargs=-1, required=True, metavar="FOLDER...", type=PathParam())
@flag("--out", "FILE", _OUT, NewFile(".html", mark=REPORT_MARK, of_a_run=(REPORT,)))
def report(folders: Sequence[str], out: Path | None) -> int:
    """Write one HTML file about runs and figures.

    FOLDER is a run folder, a folder that holds run folders, such as a sweep's, or the folder of a figure.
    The page shows the privacy statement, ε over rounds, the ledger, curves with their values, the
    configuration and its differences, audits, the environment, and how to repeat the runs. The page needs
    no other file and no network.
    """
    from fedpriv.tools.report.write import write_report

    file = write_report(folders, out)
    print(f"report: {file} ({file.stat().st_size / 1000:,.0f} kB)")
    return 0
