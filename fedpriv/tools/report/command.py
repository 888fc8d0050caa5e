"""Command ``fedpriv report``; this module imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fedpriv.common.errors import ConfigError
from fedpriv.common.flags import Command, NewFile, PathParam, flag, switch
from fedpriv.tools.report.markup import REPORT, REPORT_MARK

_EXAMPLES = """\b
examples:
  fedpriv report outputs/<run folder>
  fedpriv report outputs/multirun/<sweep>
  fedpriv report outputs/<run folder> outputs/<another> --out both.html
  fedpriv report outputs/figures/adap_dpfl/fig4
  fedpriv report outputs/multirun/<sweep> --latex
"""
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
