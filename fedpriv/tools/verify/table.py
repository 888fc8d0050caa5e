"""The table of what was checked: a row each, its verdict, and how certain the whole is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedpriv.common.console import console
from fedpriv.store.table import Column, Table

FALSE_ALARM = 5e-4
"""Of all statistical checks of one run together: half of what is promised, one in 1,000."""


@dataclass(frozen=True)
class Check:
    """One row.

    Attributes:
        about: The kind of check: noise, independence, sensitivity, sampling, outside, files, charge.
        name: What was checked.
        measured: In numbers.
        expected: In numbers.
        p_value: Of a statistical check, which fails below its level; else None.
        passed: Of another one; None where nothing could be said.
        weight: Its part of the whole level.
        note: What was seen where it fails.
        level: Below which its p-value fails; set by :func:`judged`.
        of: What several rows are about that are shown as one.
    """

    about: str
    name: str
    measured: str
    expected: str
    p_value: float | None = None
    passed: bool | None = None
    weight: float = 1.0
    note: str = ""
    level: float | None = None
    of: str | None = None

    @property
    def verdict(self) -> str:
        return {True: "pass", False: "FAIL", None: "-"}[self.passed]

    def as_json(self) -> dict[str, Any]:
        return {
            "about": self.about,
            "check": self.name,
            "measured": self.measured,
            "expected": self.expected,
            "p_value": self.p_value,
            "level": self.level,
            "passed": self.passed,
            "note": self.note,
        }


def judged(checks: Sequence[Check]) -> list[Check]:
    """Return the checks with verdicts. The level of all is shared out by weight, so that whatever depends on
    what, the chance that a mechanism which does what it says fails any of them is ``FALSE_ALARM`` at most."""
    weights = sum(check.weight for check in checks if check.p_value is not None)
    found = []
    for check in checks:
        if check.p_value is not None:
            level = FALSE_ALARM * check.weight / weights
            passed = check.passed is not False and check.p_value >= level
            check = replace(check, level=level, passed=passed)
        found.append(check)
    return found


def failed(checks: Sequence[Check]) -> list[Check]:
    return [check for check in checks if check.passed is False]


def show(title: str, checks: Sequence[Check]) -> None:
    """Print the table, and a line for each failure."""
    columns = (
        Column("check", wrap=False),
        Column("", least=30),
        "measured",
        "expected",
        Column("p", right=True, shown=_p, wrap=False, least=5),
        Column("verdict", wrap=False, least=7),
    )
    table = Table(title, columns, padding=(0, 1, 0, 0))
    about = None
    for check in condensed(checks):
        first = check.about if check.about != about else ""
        about = check.about
        cells = (check.measured, check.expected, check.p_value, check.verdict)
        table.add(first, check.name, *cells)
    out = console()
    out.print(table)
    for check in failed(checks):
        out.print(
            f"FAIL {check.about}, {check.name}: {check.note or check.measured}", soft_wrap=True
        )


def condensed(checks: Sequence[Check]) -> list[Check]:
    """Show many rows of one kind (``of``) as their worst, with how many there are, where all pass."""
    found: list[Check] = []
    for check in checks:
        same = [
            c for c in checks if c.of is not None and (c.about, c.of) == (check.about, check.of)
        ]
        if len(same) < 2 or any(c.passed is not True for c in same):
            found.append(check)
        elif check is same[0]:
            worst = max(same, key=lambda c: c.measured)
            found.append(
                replace(
                    worst, name=f"{check.of}: {len(same)} ways; {worst.name.rpartition(': ')[2]}"
                )
            )
    return found


def _p(value: float) -> str:
    if value < 1e-300:
        return "0"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"
