"""The commands of ``fedpriv leaderboard`` and their flags. This module imports nothing heavy."""

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
  fedpriv leaderboard attack outputs/reference/leaderboard/entries/<entry>.json
  fedpriv leaderboard check outputs/reference/leaderboard/entries/<entry>.json
  fedpriv leaderboard write --plot docs/leaderboard.png
"""
_PICTURE = NewFile(".png", ".pdf", ".svg", mark=rb"fedpriv leaderboard")
_out = flag("--out", "DIR", f"where the runs go; default {RUNS}", PathParam(), default=RUNS)
_entries = flag("--entries", "DIR", f"the entries; default {ENTRIES}", PathParam(), default=ENTRIES)


@click.group(
    cls=CommandGroup,
    no_args_is_help=False,
    short_help="accuracy within a sound epsilon, which anyone can reproduce",
    epilog=_EXAMPLES,
)
def leaderboard() -> None:
    """Keep the best accuracy within a sound ε: entries are made of runs and accepted by rerunning them."""


@leaderboard.command(short_help="make an entry of runs that differ in their seeds")
@click.argument("runs", nargs=-1, required=True, metavar="RUN...", type=PathParam())
@_entries
@switch("--replace", "in the place of the entry that this configuration has already")
def add(runs: Sequence[str], entries: str, replace: bool) -> int:
    """Make an entry of finished runs of one configuration.

    The runs differ in seed or noise_seed only. ε is computed again from their ledgers. The entry states the
    seeds, so enter runs on public data only.
    """
    from fedpriv.tools.leaderboard.command import add_entry

    return add_entry(runs, Path(entries), replace)


@leaderboard.command(short_help="measure an entry's worst case under a set of attacks")
@click.argument("entry", type=PathParam())
@flag("--seeds", "N", "seeds under each attack, 3 or more; default: all of the entry", Whole())
@flag("--set attack_set", "VERSION", "version of the attack set; default: the latest", Whole())
@_out
@switch("--replace", "in the place of the worst case that the entry has already")
def attack(entry: str, seeds: int | None, attack_set: int | None, out: str, replace: bool) -> int:
    """Run the configuration of an entry under every attack of a set, and note the accuracies in its file.

    The runs use the code of the entry's commit and the seeds of its runs. One fifth of the clients attack,
    and know what the trust model shows. Attacks that do not go with the configuration are left out and named.
    """
    from fedpriv.tools.leaderboard.attack_sets import LATEST
    from fedpriv.tools.leaderboard.command import attack_entry

    return attack_entry(Path(entry), attack_set or LATEST, seeds, Path(out), replace)


@leaderboard.command(short_help="run an entry again with fresh noise; exit status 1: not accepted")
@click.argument("entry", type=PathParam())
@flag("--runs", "N", "run it so many times; default 1", Whole(), default=1)
@_out
def check(entry: str, runs: int, out: str) -> int:
    """Run the configuration of an entry again.

    The run uses the code of the entry's commit and a noise_seed from the operating system. The entry is
    accepted, and its file says so, if every accuracy is within 3 sd of the entry's mean and no ε, from the
    new ledger, is above the entry's ε by more than 1 %. Where the entry has a worst case, every attack of its
    set is run too, and none may be worse. Exit status 1: it is not accepted.
    """
    from fedpriv.tools.leaderboard.command import check_entry

    return check_entry(Path(entry), runs, Path(out))


@leaderboard.command(short_help="write the page of all entries")
@_entries
@flag("--page", "FILE", f"default {PAGE}", NewFile(".md"), default=PAGE)
@flag("--plot", "FILE", "also draw accuracy against ε: .png, .pdf, .svg", _PICTURE)
def write(entries: str, page: Path, plot: Path | None) -> int:
    """Write the tables of all entries into the page, whose text stays. Equal entries give an equal page."""
    from fedpriv.tools.leaderboard.command import write_page

    return write_page(Path(entries), page, plot)
