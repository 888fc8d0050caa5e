"""Demonstrations of rows: measure again what a row states, and compare."""

from __future__ import annotations

import datetime
import json
import math
import platform
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedpriv.common.endings import ended_by_signals
from fedpriv.tools.adapters.claim import read_claim
from fedpriv.tools.adapters.command import TIME_LIMIT, all_checks
from fedpriv.tools.adapters.process import AdapterProcess
from fedpriv.tools.adapters.subject import AdapterSubject
from fedpriv.tools.claims.environment import installed, made, run_script
from fedpriv.tools.claims.epsilon import our_epsilon, second_epsilon
from fedpriv.tools.claims.row import ClaimRow, folder
from fedpriv.tools.verify.table import judged

_AGREES = 2e-3  # relative; rows state ε with four digits


@dataclass(frozen=True)
class DemonstratedNumber:
    """A number of a demonstration beside what its row states.

    Attributes:
        name: Name of the number.
        value: The number measured now.
        low: Smallest value that agrees with the row.
        high: Largest value that agrees with the row.
    """

    name: str
    value: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        """True if the number agrees with the row."""
        return self.low <= self.value <= self.high


def measure_epsilon(row: ClaimRow) -> list[DemonstratedNumber]:
    """Return ε of a row by our accountant and by the second derivation; nothing for a row without ε."""
    if row.epsilon is None:
        return []
    delta = row.epsilon["delta"]
    ours = our_epsilon(row.releases, delta)
    low, high = second_epsilon(row.releases, delta)
    stated_low, stated_high = row.epsilon["second"]
    stated = row.epsilon["ours"]
    return [
        _near("epsilon, our accountant", ours, stated, stated),
        _near("epsilon, second derivation, from below", low, stated_low, stated_low),
        _near("epsilon, second derivation, from above", high, stated_high, stated_high),
        # The two derivations must agree with each other, not only with what the row states.
        DemonstratedNumber("epsilon, our accountant ÷ the second derivation's upper bound",
                 ours / high if math.isfinite(ours) else 1.0, low / high * (1 - _AGREES), 1 + _AGREES),
    ]  # fmt: skip


def _near(name: str, value: float, low: float, high: float) -> DemonstratedNumber:
    margin = _AGREES * max(abs(low), abs(high))
    return DemonstratedNumber(name, value, low - margin, high + margin)


def compare(row: ClaimRow, result: Mapping[str, Mapping[str, float]]) -> list[DemonstratedNumber]:
    """Return the numbers of a script's result beside what the row expects.

    A number that the script did not print is nan and does not agree.
    """
    numbers = []
    control = row.demonstration.get("control") or {}
    for part, expected in (
        ("measured", row.demonstration.get("expect") or {}),
        ("control", control.get("expect") or {}),
    ):
        for name, (low, high) in expected.items():
            value = result[part].get(name, math.nan)
            shown = name if part == "measured" else f"control: {name}"
            numbers.append(DemonstratedNumber(shown, float(value), float(low), float(high)))
    return numbers


def demonstrate(row: ClaimRow) -> tuple[list[DemonstratedNumber], str | None]:
    """Run the demonstration of a row: its script and its adapters.

    Returns:
        All numbers, and the transcript; None for a row with neither.

    Raises:
        EnvironmentFailure: The demonstration cannot be run.
        AdapterError: An adapter cannot be run.
    """
    numbers = measure_epsilon(row)
    if not (row.script or row.adapters):
        return numbers, None
    python = made(row)
    start = time.perf_counter()
    result: dict[str, dict[str, float]] = {"measured": {}, "control": {}}
    if row.script:
        result = run_script(row, python)
    for part, adapter in row.adapters.items():
        result[part].update(verified(adapter, python))
    seconds = time.perf_counter() - start
    return numbers + compare(row, result), transcript(row, result, seconds)


def verified(adapter: str, python: Path) -> dict[str, float]:
    """Return how many checks of ``fedpriv verify --adapter`` an adapter of a row passes and fails.

    Args:
        adapter: File below ``conf/claims`` and the function that makes the adapter.
        python: The interpreter that runs it.
    """
    file, _, make = adapter.partition(":")
    with (
        ended_by_signals(),
        AdapterProcess(folder() / file, make, str(python), TIME_LIMIT) as process,
    ):
        claim = read_claim(process.facts["claim"], process.facts["holds_still"])
        checks = judged(list(all_checks(AdapterSubject(process, claim, seed=0))))
    failed = Counter(check.about for check in checks if check.passed is False)
    return {
        "checks_that_passed": sum(check.passed is True for check in checks),
        "checks_that_failed": failed.total(),
        **{f"failed_checks_of_{about}": count for about, count in sorted(failed.items())},
    }


def transcript(row: ClaimRow, result: Mapping[str, Any], seconds: float) -> str:
    """Return the text that is stored of a demonstration: when, with what, and what it printed."""
    lines = [
        f"claim: {row.name}",
        f"date: {datetime.datetime.now(datetime.UTC):%Y-%m-%d}",
        f"command: fedpriv claims run {row.name}",
        f"python: {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"seconds: {seconds:.0f}",
    ]
    if row.script:
        lines.append(f"script: python {' '.join(row.script)}")
    lines += [f"adapter, {part}: {adapter}" for part, adapter in row.adapters.items()]
    lines += [
        f"package: {package['name']} {package['version']}, wheel sha256 {package['sha256']}"
        for package in row.packages
    ]
    if row.packages:
        lines.append(f"with: {', '.join(installed(row))}")
    return "\n".join([*lines, "result:", json.dumps(result, indent=1)]) + "\n"


def result_of(transcript_text: str) -> dict[str, dict[str, float]]:
    """Return the result that a stored transcript holds."""
    _, _, result = transcript_text.partition("\nresult:\n")
    return dict(json.loads(result))
