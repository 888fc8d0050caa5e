"""``fedpriv leaderboard`` and its flags; imports nothing heavy."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from fedpriv.common.flags import CommandGroup, NewFile, PathParam, Whole, flag, switch

ENTRIES = "outputs/reference/leaderboard/entries"
PAGE = "docs/leaderboard.md"
RUNS = "outputs/leaderboard"
_EXAMPLES = """\b
examples:
  fedpriv train -m algorithm=dp_fl seed=0,1,2
  fedpriv leaderboard add outputs/multirun/<sweep>/*/
  fedpriv leaderboard check outputs/reference/leaderboard/entries/<entry>.json
  fedpriv leaderboard write
"""
_entries = flag("--entries", "DIR", f"the entries; default {ENTRIES}", PathParam(), default=ENTRIES)


@click.group(
    cls=CommandGroup,
    no_args_is_help=False,
    short_help="accuracy within a sound epsilon, run again by whoever doubts it",
    epilog=_EXAMPLES,
)
def leaderboard() -> None:
    """The best accuracy within a sound ε: entries made of runs, accepted by running them again."""


@leaderboard.command(short_help="make an entry of runs that differ in their seeds")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PathParam())
@_entries
@switch("--replace", "in the place of the entry that this configuration has already")
def add(runs: Sequence[str], entries: str, replace: bool) -> int:
    """Makes an entry of finished runs of one configuration, which differ in seed or noise_seed only. ε is
    computed again from their ledgers. The entry has the seeds: enter public data alone."""
    from fedpriv.tools.leaderboard.command import add_entry

    return add_entry(runs, Path(entries), replace)


@leaderboard.command(short_help="run an entry again with fresh noise; exit status 1: not accepted")
@click.argument("entry", type=PathParam())
@flag("--runs", "N", "run it so many times; default 1", Whole(), default=1)
@flag("--out", "DIR", f"where the runs go; default {RUNS}", PathParam(), default=RUNS)
def check(entry: str, runs: int, out: str) -> int:
    """Runs an entry's configuration again, with the code of its commit and a noise_seed from the operating
    system. It is accepted, and its file says so, if every accuracy is within 3 sd of the entry's mean and ε,
    from the new ledger, is not above the entry's (by more than 1 %). Exit status 1: it is not accepted."""
    from fedpriv.tools.leaderboard.command import check_entry

    return check_entry(Path(entry), runs, Path(out))


@leaderboard.command(short_help="write the page of all entries")
@_entries
@flag("--page", "FILE", f"default {PAGE}", NewFile(".md"), default=PAGE)
def write(entries: str, page: Path) -> int:
    """Writes the tables of all entries into the page, below its words: the same entries, the same page."""
    from fedpriv.tools.leaderboard.command import write_page

    return write_page(Path(entries), page)
