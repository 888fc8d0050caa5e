"""The page ``docs/speed.md``, from the numbers that were measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedpriv.common.words import counted
from fedpriv.store.table import Column, Table

_IDLE = 1.0
"""Load up to which a machine is called idle: the measurement itself is one process."""
_TEMPLATE = Path(__file__).with_name("speed.md")
_MEASURED = "@MEASURED@"


def page(report: Mapping[str, Any]) -> str:
    """Return the page as Markdown.

    Args:
        report: Content of the JSON file that ``fedpriv bench --peers --json`` writes.
    """
    conditions = report["conditions"]
    parts = [_machine(conditions)]
    for comparison in report["comparisons"]:
        parts.append(f"### {comparison['model'].upper()}, {comparison['work']}")
        parts.append(_table(comparison).markdown())
        parts.append(_goal(comparison["goal"]))
    measured = "\n\n".join(part.strip() for part in parts)
    return _TEMPLATE.read_text("utf-8").replace(_MEASURED, measured)


def _machine(conditions: Mapping[str, Any]) -> str:
    loads = [conditions["load at the beginning"], conditions["load at the end"]]
    words = (
        f"{conditions['date']}, {conditions['processor']}, {conditions['cores']} cores, "
        f"{counted(conditions['threads'], 'thread')}, {conditions['system']}, "
        f"Python {conditions['python']}, torch {conditions['torch']}; fedpriv: {conditions['fedpriv']}."
    )
    if None in loads:
        return words
    first, last = loads
    if first > _IDLE:
        words += (
            f" **The machine had other work**: {first:g} processes wanted a processor in the minute before "
            f"({last:g} at the end). Ratios of pairs bear that better than times do, but rows that need all "
            "cores at once suffer more than others."
        )
    else:
        words += f" Load before: {first:g}; at the end, with the measurement: {last:g}."
    return words


def _table(comparison: Mapping[str, Any]) -> Table:
    ways = comparison["ours"]
    names = (*(f"fedpriv, {way}" for way in ways), "library", "fedpriv is faster by")
    right = (Column(name, right=True) for name in names)
    table = Table("", ("library", *right, "pairs"))
    for row in comparison["rows"]:
        if "failure" in row:
            table.add(row["row"], *("" for _ in ways), "", f"not measured: {row['failure']}", "")
            continue
        low, high = row["quartiles"]
        versions = ", ".join(
            f"{name} {version}" for name, version in row["versions"].items() if name != "torch"
        )
        table.add(
            f"{row['row']} ({versions})",
            *(f"{row['ours'][way]:.1f} ms" for way in ways),
            f"{row['theirs_ms']:.1f} ms",
            f"{row['times_faster']:.2f} × ({low:.2f} to {high:.2f})",
            str(row["pairs"]),
        )
    return table


def _goal(goal: Mapping[str, Any]) -> str:
    rows = goal["rows"]
    against = rows[0] if len(rows) == 1 else f"the faster of {' and '.join(rows)}"
    if goal["reached"] is None:
        return f"Goal: {goal['times_faster']:g} × {against}. Not measured."
    verdict = "met" if goal["met"] else "not met"
    return (
        f"Goal: {goal['times_faster']:g} × {against}. Measured: {goal['reached']:.2f} ×, {verdict}."
    )
