"""The page of all entries, with a table for each data set."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from itertools import groupby

from fedpriv.common.words import round_up
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.table import Column, Table
from fedpriv.tools.leaderboard.entry import LeaderboardEntry

MARK = "<!-- written by fedpriv leaderboard write; what is below is written anew -->"
END = "<!-- end of the tables; what is below is kept -->"
_STEPS = (0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100)
"""Limits of the ε intervals. Entries in the same interval are ranked by their accuracy."""
_COLUMNS = (
    Column("ε", right=True), "trust", "unit", Column("accuracy", right=True), Column("seeds", right=True),
    Column("CPU minutes", right=True), Column("configuration", code=True), Column("commit", code=True),
    "checked",
)  # fmt: skip
_ROUNDING = 1e-6


def page(old_page: str, entries: Iterable[LeaderboardEntry]) -> str:
    """Return the page: its tables written anew, the text above :data:`MARK` and below :data:`END` kept.

    A table is in intervals of ε, the smallest first. Within an interval the highest accuracy comes first.

    Args:
        old_page: The page as it is; empty if there is none.
        entries: The entries, in any order.
    """
    head, _, below = old_page.partition(MARK)
    _, end, tail = below.partition(END)
    by_dataset = groupby(sorted(entries, key=_rank), key=lambda entry: entry.dataset)
    tables = [f"## {dataset}\n\n{table(list(group)).markdown()}" for dataset, group in by_dataset]
    parts = (
        head.rstrip() or "# Leaderboard",
        MARK,
        *(tables or ["There is no entry yet."]),
        end,
        tail.strip(),
    )
    return "\n\n".join(part for part in parts if part) + "\n"


def table(entries: Sequence[LeaderboardEntry]) -> Table:
    """Return the table of the entries of a data set, in the given order."""
    result = Table("", _COLUMNS)
    for entry in entries:
        result.add(*_row(entry))
    return result


def _rank(entry: LeaderboardEntry) -> tuple[object, ...]:
    step = next((step for step in _STEPS if entry.epsilon <= step * (1 + _ROUNDING)), math.inf)
    return entry.dataset, step, -entry.mean, entry.epsilon, entry.command, entry.commit


def _row(entry: LeaderboardEntry) -> Sequence[str]:
    last_check = max((check.date for check in entry.checks), default="not yet")
    mean = f"{100 * entry.mean:.2f}"
    adjacency = RELATION_WORDS[entry.neighbours].removesuffix(" adjacency")
    return (
        f"{round_up(entry.epsilon)} (δ = {entry.delta:g})".replace("e-0", "e-"),  # 1e-5, not 1e-05
        entry.trust,
        f"{entry.unit}, {adjacency}",
        f"{mean} %" if entry.sd is None else f"{mean} ± {100 * entry.sd:.2f} %",
        str(len(entry.runs)),
        f"{entry.cpu_minutes:.2g}",
        entry.command,
        entry.commit[:12],
        last_check if len(entry.checks) < 2 else f"{last_check}, {len(entry.checks)} runs",
    )
