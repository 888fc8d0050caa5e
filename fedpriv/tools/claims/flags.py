"""The commands of ``fedpriv claims`` and their flags. This module imports nothing heavy."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import click

from fedpriv.common.flags import CommandGroup, Names, NewFile, flag, switch, table_flag
from fedpriv.common.groups import conf_dir

_EXAMPLES = """\b
examples:
  fedpriv claims
  fedpriv claims --table markdown
  fedpriv claims show flower-fixed
  fedpriv claims run adap-noise
  fedpriv claims run flower-adaptive --yes
"""
_PAGE = NewFile(".md", mark=rb"\A# Published guarantees, looked at again\n")


def _names() -> Iterable[str]:
    return sorted(path.stem for path in (conf_dir() / "claims").glob("*.yaml"))


@click.group(
    cls=CommandGroup,
    invoke_without_command=True,
    short_help="published guarantees looked at again, each with a demonstration",
    epilog=_EXAMPLES,
)
@switch("--json", "print JSON instead of a table")
@flag("--write", "FILE", "write the page of all rows here: docs/claims.md", _PAGE)
@table_flag
@click.pass_context
def claims(context: click.Context, json: bool, write: Path | None) -> int:
    """List published guarantees and features: what is stated, what holds, and under which assumption."""
    if context.invoked_subcommand is not None:
        return 0
    from fedpriv.tools.claims.command import show_all

    return show_all(json, write)


@claims.command(short_help="everything about one row, with its stored transcript")
@click.argument("name", type=Names(_names))
@switch("--json", "print JSON instead of text")
def show(name: str, json: bool) -> int:
    """Print a row: what is stated, what was found, and the stored transcript of its demonstration."""
    from fedpriv.tools.claims.command import show_one

    return show_one(name, json)


@claims.command("run", short_help="measure the numbers of a row again; exit status 1: they differ")
@click.argument("name", type=Names(_names))
@switch("--yes", "do not ask before packages are downloaded and run")
@switch("--json", "print JSON instead of a table")
@flag("--transcript", "FILE", "also write the transcript here", NewFile(".txt", mark=rb"\Aclaim: "))
@table_flag
def run_claim(name: str, yes: bool, json: bool, transcript: Path | None) -> int:
    """Run the demonstration of a row and compare every number with the row.

    A row on software downloads the wheels that it names into an environment in the cache and runs them. It
    asks before. Exit status 1: a number differs from the row.
    """
    from fedpriv.tools.claims.command import run_one

    return run_one(name, yes, json, transcript)
