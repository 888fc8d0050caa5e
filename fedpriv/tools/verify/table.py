"""The table of all checks, with a verdict for each and a bound of false alarms for the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from fedpriv.common.console import console
from fedpriv.store.table import Column, Table

FALSE_ALARM = 5e-4
"""Level of all statistical checks of one verification together.

It is half of the promised one in 1,000.
"""


@dataclass(frozen=True)
class Check:
    """One row of the table.

    Attributes:
        about: Kind of the check: noise, independence, sensitivity, sampling, outside, files or charge.
        name: Name of the check.
        measured: Measured value, as text.
        expected: Expected value, as text.
        p_value: p-value of a statistical check, which fails below ``level``; None for other checks.
        passed: Verdict; None where the check could say nothing.
        weight: Weight by which a statistical check shares the level of all checks.
        note: Sentence that is shown where the check fails.
        level: Level of a statistical check, set by :func:`judged`.
        of: Common subject of several rows that the table shows as one row.
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
        """The verdict as the table shows it."""
        return {True: "pass", False: "FAIL", None: "-"}[self.passed]

    def as_json(self) -> dict[str, Any]:
        """Return the row in the layout of the ``--json`` file."""
        return {
            "about": self.about,
            "check": self.name,
            "measured": self.measured,
            "expected": self.expected,
            "p_value": self.p_value,
            "level": self.level,
            "passed": self.passed,
            "note": "" if self.passed else self.note,
        }


def judged(checks: Sequence[Check]) -> list[Check]:
    """Return the checks with their levels and verdicts.

    The checks share the level ``FALSE_ALARM`` in proportion to their weights (Bonferroni). A mechanism that
    does what its ledger says fails any check with that probability at most, however the checks depend on each
    other.
    """
    weights = sum(check.weight for check in checks if check.p_value is not None)
    result = []
    for check in checks:
        if check.p_value is not None:
            level = FALSE_ALARM * check.weight / weights
            passed = check.passed is not False and check.p_value >= level
            check = replace(check, level=level, passed=passed)
        result.append(check)
    return result


def failed(checks: Sequence[Check]) -> list[Check]:
    """Return the checks that failed."""
    return [check for check in checks if check.passed is False]


def show(title: str, checks: Sequence[Check]) -> None:
    """Print the table and a line for each failed check."""
    columns = (
        Column("check", wrap=False),
        Column("", least=24),
        "measured",
        "expected",
        Column("p", right=True, shown=_p, wrap=False, least=5),
        Column("verdict", wrap=False, least=7),
    )
    table = Table(title, columns, padding=(0, 1, 0, 0))
    about = None
    for check in condensed(checks):
        kind = check.about if check.about != about else ""
        about = check.about
        cells = (check.measured, check.expected, check.p_value, check.verdict)
        table.add(kind, check.name, *cells)
    out = console()
    out.print(table)
    for check in failed(checks):
        out.print(
            f"FAIL {check.about}, {check.name}: {check.note or check.measured}", soft_wrap=True
        )


def condensed(checks: Sequence[Check]) -> list[Check]:
    """Return the checks with those of one subject (``of``) joined to their worst, where all pass."""
    result: list[Check] = []
    for check in checks:
        same = [
            c for c in checks if c.of is not None and (c.about, c.of) == (check.about, check.of)
        ]
        if len(same) < 2 or any(c.passed is not True for c in same):
            result.append(check)
        elif check is same[0]:
            # The measured texts of one subject begin with a ratio of one format, so that the
            # largest text is the worst.
            worst = max(same, key=lambda c: c.measured)
            name = f"{check.of}: {len(same)} ways; {worst.name.rpartition(': ')[2]}"
            result.append(replace(worst, name=name))
    return result


def _p(value: float) -> str:
    if value < 1e-300:
        return "0"
    return f"{value:.2f}" if value >= 0.01 else f"{value:.0e}"
