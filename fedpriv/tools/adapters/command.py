"""``fedpriv verify --adapter FILE[:make]``: all checks of an adapter, their table, and a badge."""

from __future__ import annotations

import datetime
import hashlib
import math
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from fedpriv.common import checks as arguments
from fedpriv.common.console import console
from fedpriv.common.endings import ended_by_signals
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.files import write_json
from fedpriv.common.notices import notice
from fedpriv.tools.adapters import charge, distributions, members, noise, sensitivity
from fedpriv.tools.adapters.claim import AdapterClaim, read_claim
from fedpriv.tools.adapters.process import AdapterProcess
from fedpriv.tools.adapters.subject import AdapterSubject
from fedpriv.tools.verify.table import FALSE_ALARM, Check, failed, judged, show

TIME_LIMIT = 60.0
"""Seconds that a round of an adapter may take."""


def run(options: SimpleNamespace) -> int:
    """Verify an adapter, print the table, and return the exit status, which is 1 if a check failed.

    Args:
        options: The arguments of the command: adapter, python, seed, time_limit and json.

    Raises:
        ConfigError: The adapter or its claim cannot be used.
    """
    try:
        text = options.seed
        seed = arguments.seed("--seed", int(text) if text.isdigit() else text)
    except ArgumentError as error:
        raise error.within("") from None
    limit = _seconds(options.time_limit)
    file, make = _adapter(options.adapter)
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    python = options.python or sys.executable
    # What is not finite fails its checks. Warnings of numpy would only repeat it.
    with (
        ended_by_signals(),
        np.errstate(all="ignore"),
        AdapterProcess(file, make, python, limit) as process,
    ):
        claim = read_claim(process.facts["claim"], process.facts["holds_still"])
        subject = AdapterSubject(process, claim, seed)
        checks = judged(list(all_checks(subject)))
        _tell(process)
        versions = {name: process.facts[name] for name in ("python", "numpy")}
    _refuse_other_noise(claim, checks)
    show(f"{file.name}: {claim.stated}", checks)
    failures = failed(checks)
    out = console()
    for check in checks:
        if failures and check.passed is None and check.note:
            out.print(f"likely cause: {check.note}", soft_wrap=True)
    badge = badge_of(checks, claim, digest)
    out.print(badge, soft_wrap=True)
    if options.json is not None:
        facts: dict[str, Any] = {
            "adapter": file.name,
            "make": make,
            "sha256": digest,
            "claim": process.facts["claim"],
            "holds_still": process.facts["holds_still"],
            "seed": seed,
            "calls": process.calls,
            "versions": versions,
            "false_alarm": FALSE_ALARM + charge.SIGNIFICANCE,
            "passed": not failures,
            "not_possible": [check.name for check in not_possible(checks)],
            "badge": badge,
            "checks": [check.as_json() for check in checks],
        }
        write_json(options.json, facts)
        out.print(f"written: {options.json}")
    return 1 if failures else 0


def all_checks(subject: AdapterSubject, runs: int = noise.RUNS) -> Iterator[Check]:
    """Yield every check that applies, in the order of the table.

    Args:
        subject: The adapter.
        runs: Number of runs that the noise is taken from.
    """
    yield _repeatable(subject)
    noise_runs = noise.NoiseRuns(subject, runs)
    if (not_finite := noise.finite(noise_runs)) is not None:
        yield not_finite  # numbers that are none would fail all other checks, too
        return
    yield from noise.checks(noise_runs)
    if subject.can_repeat:
        fingerprints = members.Fingerprints(noise_runs)
        yield from members.checks(fingerprints)
        yield from sensitivity.checks(noise_runs, fingerprints)
    else:
        yield from distributions.checks(noise_runs)
    yield from charge.checks(noise_runs)
    yield from charge.audit(noise_runs)


def _repeatable(subject: AdapterSubject) -> Check:
    """Find out whether a run with the same seed can be repeated, and note it on the subject."""
    if not subject.can_repeat:
        return Check("noise", "the seed", "cannot be held still: averages are tested", "-")
    seed, data = subject.new_seed(), [subject.ordinary()] * subject.rounds
    first, second = subject.run(seed, data), subject.run(seed, data)
    same = all(
        a.values.keys() == b.values.keys()
        and all(a.values[name].tobytes() == b.values[name].tobytes() for name in a.values)
        for a, b in zip(first, second, strict=True)
    )
    subject.can_repeat = same
    return Check(
        "noise", "the same run with the same seed", "the same" if same else "differs", "the same",
        passed=same,
        note="holds_still names the seed, and two runs with the same seed and data differ; averages are "
        "tested instead",
    )  # fmt: skip


def _refuse_other_noise(claim: AdapterClaim, checks: list[Check]) -> None:
    """Raise if ε alone is claimed, and noise that is not Gaussian is all that is wrong with it."""
    failures = failed(checks)
    shapes = [c for c in failures if c.about == "noise" and c.name.endswith(": shape")]
    # Values of a coarse grid agree by chance.
    coarse = any(c.name.endswith(": distinct values") for c in failures)
    agree = "the same noise again" if coarse else ""
    others = [c for c in failures if (c.about != "noise" or c.p_value is None) and c.name != agree]
    if claim.least and shapes and not others:
        name = shapes[0].name.removesuffix(": shape")
        raise ConfigError(
            f"the noise of {name} is not Gaussian ({shapes[0].measured}), and verify --adapter can only "
            "judge Gaussian noise: whether it gives the claimed epsilon was not found out"
        )


def badge_of(checks: list[Check], claim: AdapterClaim, digest: str) -> str:
    """Return the line that may be shown with the adapter: what was checked, with what, when."""
    told = [check for check in checks if check.passed is not None]
    passed = sum(check.passed is True for check in told)
    try:
        name = f"fedpriv {version('fedpriv')}"
    except PackageNotFoundError:
        name = "fedpriv"
    today = datetime.date.today().isoformat()
    skipped = not_possible(checks)
    left = f", {len(skipped)} not possible: {', '.join(c.name for c in skipped)}" if skipped else ""
    return (
        f"{passed} of {len(told)} checks passed{left}, {claim.stated}, {name}, {today}, "
        f"sha256 {digest[:16]}; not a proof of DP"
    )


def not_possible(checks: list[Check]) -> list[Check]:
    """Return the checks that could not be made."""
    return [c for c in checks if c.passed is None and c.measured.startswith("skipped")]


def _tell(process: AdapterProcess) -> None:
    """Leave notices of what the adapter did beside its rounds."""
    if printed := process.printed():
        more = f", and {len(printed) - 1} more lines" if len(printed) > 1 else ""
        notice(f"{process.file.name} printed: {printed[0][:120]}{more}", "adapter printed")
    if process.touched:
        names = " and ".join(
            {"numpy": "numpy.random", "random": "random"}[name] for name in sorted(process.touched)
        )
        notice(
            f"{process.file.name} seeds or uses the global generator of {names}, which any other code in its "
            "process may seed, too",
            "adapter touched",
        )


def _adapter(text: str) -> tuple[Path, str]:
    """Return the file and the name of the function of ``FILE[:make]``."""
    file, colon, make = text.rpartition(":")
    path, make = (Path(file), make) if colon and make.isidentifier() else (Path(text), "")
    if not path.is_file():
        raise ConfigError("--adapter", text, "FILE or FILE:make, with an existing Python file")
    return path, make


def _seconds(text: str | None) -> float:
    if text is None:
        return TIME_LIMIT
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds <= 86_400:
        raise ConfigError("--time-limit", text, "a number of seconds > 0 and <= 86400")
    return seconds
