"""The page of all entries, with a table for each data set."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from itertools import groupby

from fedpriv.common.words import round_up
from fedpriv.privacy.core.names import RELATION_WORDS
from fedpriv.store.table import Column, Table
from fedpriv.tools.leaderboard.attack_sets import LATEST
from fedpriv.tools.leaderboard.entry import FEWEST_ORDERED_SEEDS, LeaderboardEntry

MARK = "<!-- written by fedpriv leaderboard write; what is below is written anew -->"
END = "<!-- end of the tables; what is below is kept -->"
_STEPS = (0.1, 0.25, 0.5, 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 50, 100)
"""Limits of the ε intervals. Entries in the same interval are ranked by their accuracy."""
_COLUMNS = (
    Column("accuracy", right=True), Column("worst case", right=True), Column("sound ε", right=True), "trust",
    "unit", Column("seeds", right=True), Column("CPU minutes", right=True),
    Column("configuration", code=True), Column("commit", code=True), "checked",
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
    worst_case = entry.worst_case
    dates = [[check.date for check in entry.checks]]
    if worst_case is not None and worst_case.runs:
        dates.append([check.date for check in worst_case.checks])
    last_check = min(max(days) for days in dates) if all(dates) else "not yet"
    adjacency = RELATION_WORDS[entry.neighbours].removesuffix(" adjacency")
    return (
        _percent(entry.mean, entry.sd),
        _worst_case(entry),
        f"{round_up(entry.epsilon)} (δ = {entry.delta:g})".replace("e-0", "e-"),  # 1e-5, not 1e-05
        entry.trust,
        f"{entry.unit}, {adjacency}",
        str(len(entry.runs)),
        f"{entry.cpu_minutes:.2g}",
        entry.command,
        entry.commit[:12],
        last_check if len(entry.checks) < 2 else f"{last_check}, {len(entry.checks)} runs",
    )


def _worst_case(entry: LeaderboardEntry) -> str:
    """Return the lowest mean accuracy under an attack, with the attack and what else a reader must know."""
    worst_case = entry.worst_case
    if entry.trust == "distributed" or (worst_case is not None and worst_case.attack is None):
        return "–"  # no attack goes with the configuration
    if worst_case is None:
        return "not measured"
    assert worst_case.attack is not None
    accuracies = worst_case.accuracies(worst_case.attack)
    words = [
        f"{_percent(statistics.fmean(accuracies), statistics.stdev(accuracies))} {worst_case.attack}"
    ]
    if worst_case.seeds < FEWEST_ORDERED_SEEDS or worst_case.seeds != len(entry.runs):
        words.append(f"{worst_case.seeds} seeds")
    if worst_case.left_out:
        words.append(f"without {' and '.join(worst_case.left_out)}")
    if worst_case.attack_set != LATEST:
        words.append(f"set {worst_case.attack_set}")
    return ", ".join(words)


def _percent(mean: float, sd: float | None) -> str:
    return f"{100 * mean:.2f} %" if sd is None else f"{100 * mean:.2f} ± {100 * sd:.2f} %"
