"""The page of all entries: a table for each data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from fedpriv.common.words import round_up
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.table import Column, Table
from fedpriv.tools.leaderboard.entry import LeaderboardEntry

MARK = "<!-- written by fedpriv leaderboard write; what is below is written anew -->"
_STEPS = (0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100)
"""Two entries are compared where their ε lie between the same two of these."""
_COLUMNS = (
    Column("ε", right=True), "trust", "unit", Column("accuracy", right=True), Column("seeds", right=True),
    Column("CPU minutes", right=True), Column("configuration", code=True), Column("commit", code=True),
    "checked",
)  # fmt: skip
_ROUNDING = 1e-6


def page(words: str, entries: Iterable[LeaderboardEntry]) -> str:
    """The page: what ``words``, the page before, has above its mark, and the tables. Only entries count."""
    head = words.partition(MARK)[0].rstrip() or "# Leaderboard"
    tables = [
        f"## {dataset}\n\n{table(list(of_it)).markdown()}"
        for dataset, of_it in groupby(sorted(entries, key=_place), key=lambda entry: entry.dataset)
    ]
    return "\n\n".join((head, MARK, *(tables or ["There is no entry yet."]))) + "\n"


def table(entries: Sequence[LeaderboardEntry]) -> Table:
    """Return the entries of a data set, in this order."""
    made = Table("", _COLUMNS)
    for entry in entries:
        made.add(*_row(entry))
    return made


def _place(entry: LeaderboardEntry) -> tuple[object, ...]:
    step = next((step for step in _STEPS if entry.epsilon <= step * (1 + _ROUNDING)), math.inf)
    return entry.dataset, step, -entry.mean, entry.epsilon, entry.command, entry.commit


def _row(entry: LeaderboardEntry) -> Sequence[str]:
    last = max((check.date for check in entry.checks), default="not yet")
    adjacency = RELATION_WORDS[entry.neighbours].removesuffix(" adjacency")
    return (
        f"{round_up(entry.epsilon)} (δ = {_short(entry.delta)})",
        entry.trust,
        f"{entry.unit}, {adjacency}",
        _accuracy(entry),
        str(len(entry.runs)),
        f"{entry.cpu_minutes:.2g}",
        entry.command,
        entry.commit[:12],
        last if len(entry.checks) < 2 else f"{last}, {len(entry.checks)} runs",
    )


def _accuracy(entry: LeaderboardEntry) -> str:
    mean = f"{100 * entry.mean:.2f}"
    return f"{mean} %" if entry.sd is None else f"{mean} ± {100 * entry.sd:.2f} %"


def _short(delta: float) -> str:
    """``1e-5``, not ``1e-05``."""
    return f"{delta:g}".replace("e-0", "e-")
