"""The commands ``fedpriv claims``, ``claims show`` and ``claims run``."""

from __future__ import annotations

import json as json_module
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from fedpriv.common.errors import ConfigError
from fedpriv.common.files import write_text
from fedpriv.common.notices import complain
from fedpriv.data.storage import cache_folder
from fedpriv.store.display import console
from fedpriv.store.table import Column, Table
from fedpriv.tools.claims.demonstrate import DemonstratedNumber, demonstrate
from fedpriv.tools.claims.environment import ready
from fedpriv.tools.claims.page import facts, page, table
from fedpriv.tools.claims.row import REPORT, ClaimRow, read_rows, row_named


def show_all(json: bool, write: Path | None) -> int:
    """Print or write all rows, and return the exit status."""
    rows = read_rows()
    if write is not None:
        write_text(write, page(rows))
        console().print(f"written: {write}")
    elif json:
        print(json_module.dumps([_plain(row) for row in rows], indent=1, default=str))
    else:
        console().print(table(rows))
        complain(REPORT, command="fedpriv claims")
    return 0


def show_one(name: str, json: bool) -> int:
    """Print one row and its stored transcript, and return the exit status."""
    row = row_named(name)
    if json:
        print(json_module.dumps(_plain(row), indent=1, default=str))
        return 0
    out = console()
    out.print(f"{row.name}: {row.title}, {row.version}", markup=False)
    out.print(row.source, markup=False)
    for key, text in facts(row):
        out.print(f"{key.strip('*')}: {text}", markup=False)
    out.print(REPORT, markup=False)
    if row.transcript is not None:
        out.print(f"\n{row.transcript}", markup=False)
    return 0


def run_one(name: str, yes: bool, json: bool, transcript: Path | None) -> int:
    """Run the demonstration of a row, and return 1 if a number differs from the row.

    Raises:
        ConfigError: The row has no demonstration, or running its packages was not agreed to.
        EnvironmentFailure: The demonstration cannot be run.
    """
    row = row_named(name)
    if row.demonstration["kind"] == "none" and row.epsilon is None:
        raise ConfigError(
            f"{name} has no demonstration: {row.judgement}; see fedpriv claims show {name}"
        )
    if ready(row) is None:
        _announce(row, yes)
    numbers, text = demonstrate(row)
    if transcript is not None and text is not None:
        write_text(transcript, text)
    differ = [number for number in numbers if not number.agrees]
    if json:
        result = {"claim": name, "agrees": not differ, "numbers": [asdict(n) for n in numbers]}
        print(json_module.dumps(result, indent=1))
    else:
        _show(row, numbers)
        console().print(
            f"{len(numbers)} numbers, all as the row states"
            if not differ
            else f"{len(differ)} of {len(numbers)} numbers differ from the row"
        )
    return 1 if differ else 0


def _announce(row: ClaimRow, yes: bool) -> None:
    """Say what will be downloaded and run, and ask unless ``yes``."""
    packages = ", ".join(f"{p['name']} {p['version']}" for p in row.packages)
    told = row.demonstration
    size, disk = told.get("download_mb", "?"), told.get("disk_mb", "?")
    complain(
        f"{packages} from the package index, about {size} MB with dependencies ({disk} MB on the disk), into "
        f"{cache_folder() / 'claims'}, which takes a minute or more; then about {told.get('seconds', '?')} "
        "seconds of code of these packages",
        command="fedpriv claims",
    )
    if yes:
        return
    if not sys.stdin.isatty():
        raise ConfigError(f"fedpriv claims run {row.name} downloads and runs packages: add --yes")
    if not click.confirm("download and run?", err=True):
        raise ConfigError(f"fedpriv claims run {row.name}: nothing was downloaded or run")


def _show(row: ClaimRow, numbers: list[DemonstratedNumber]) -> None:
    shown = Table(
        f"{row.name}: {row.judgement}",
        (Column("number"), Column("measured", right=True), Column("the row", right=True), "agrees"),
    )
    for number in numbers:
        span = f"{number.low:.4g} to {number.high:.4g}"
        shown.add(number.name, f"{number.value:.4g}", span, "yes" if number.agrees else "no")
    console().print(shown)


def _plain(row: ClaimRow) -> dict[str, Any]:
    """Return a row as plain values."""
    return {**asdict(row), "judgement": row.judgement}
