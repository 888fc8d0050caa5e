"""The console, and a table of pairs on it."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text


def console() -> Console:
    """The console of this process's standard output; wide enough for a line when piped. Brackets, as in
    ``key=[a,b]``, are text."""
    probe = Console(highlight=False, markup=False)
    return probe if probe.is_terminal else Console(highlight=False, markup=False, width=110)


def pairs(title: str, lines: object) -> Table:
    """A table of (name, value) rows."""
    table = Table(title=title, show_header=False, title_justify="left", title_style="bold")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, value in lines:
        table.add_row(name, Text(str(value)))
    return table
