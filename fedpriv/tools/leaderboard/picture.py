"""The picture of the leaderboard: accuracy against ε, a panel for each data set."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

from fedpriv.store.panels import CYCLE, MARKERS, Line, Panel
from fedpriv.store.plots import draw_panels
from fedpriv.tools.leaderboard.entry import LeaderboardEntry

TRUSTS = ("distributed", "local", "central")
"""Trust models in the order in which they take colours and markers."""
CREATOR = "fedpriv leaderboard"
_PANELS_IN_A_ROW = 2


def draw_entries(path: Path, entries: Iterable[LeaderboardEntry]) -> None:
    """Draw accuracy against ε.

    Args:
        path: The picture, whose ending decides on the format.
        entries: The entries, in any order.

    Raises:
        WriteError: The picture cannot be written.
    """
    drawn = panels(entries)
    rows = [
        drawn[first : first + _PANELS_IN_A_ROW] for first in range(0, len(drawn), _PANELS_IN_A_ROW)
    ]
    draw_panels([path], rows, title="Accuracy within a sound ε", creator=CREATOR)


def panels(entries: Iterable[LeaderboardEntry]) -> list[Panel]:
    """Return a panel for each data set, with a line for each unit and trust.

    A line joins the best entry at each ε. An entry that a smaller ε surpasses is on the page only.

    Args:
        entries: The entries, in any order.
    """
    ordered = sorted(entries, key=lambda entry: (entry.dataset, entry.epsilon, -entry.mean))
    return [
        _panel(dataset, list(group))
        for dataset, group in groupby(ordered, key=lambda entry: entry.dataset)
    ]


def _panel(dataset: str, entries: list[LeaderboardEntry]) -> Panel:
    lines = []
    for unit in sorted({entry.unit for entry in entries}, reverse=True):  # records before clients
        for place, trust in enumerate(TRUSTS):
            best: list[LeaderboardEntry] = []
            for entry in entries:  # by ε, ascending
                if (entry.unit, entry.trust) == (unit, trust) and (
                    not best or entry.mean > best[-1].mean
                ):
                    best.append(entry)
            if not best:
                continue
            look = place + len(TRUSTS) * (unit == "client")
            means = [100 * entry.mean for entry in best]
            spreads = [100 * (entry.sd or 0.0) for entry in best]
            lines.append(
                Line(
                    label=f"{trust} trust, one {unit}",
                    colour=CYCLE[look],
                    x=[entry.epsilon for entry in best],
                    y=means,
                    low=[mean - sd for mean, sd in zip(means, spreads, strict=True)],
                    high=[mean + sd for mean, sd in zip(means, spreads, strict=True)],
                    marker=MARKERS[look],
                )
            )
    is_one_point = len({x for line in lines for x in line.x}) == 1  # is in the middle of its axis
    return Panel(
        dataset, "sound ε", "test accuracy (%)", tuple(lines), x_from_zero=not is_one_point
    )
