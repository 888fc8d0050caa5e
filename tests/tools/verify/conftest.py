"""Verifications of few rounds, in this process."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedpriv.common.config import compose
from fedpriv.tools.verify import chance, charge, files, lots, side_channels, units
from fedpriv.tools.verify.checks import Verification, all_checks
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check, failed, judged

sys.path.append(str(Path(__file__).parent))  # planted.py holds classes that a _target_ names


@pytest.fixture
def verified():
    """(overrides) → the judged checks, from few samples of noise, one unit and the
    first rounds unless more are asked for."""

    def run(
        *overrides: str,
        rounds: int = 3,
        seed: int = 0,
        samples: int = 2000,
        units: bool = False,
        later: bool = False,
    ) -> list[Check]:
        subject = Subject(compose(overrides), seed, rounds, later=later)
        return judged(all_checks(subject, samples, units))

    return run


@pytest.fixture
def unpublished(monkeypatch):
    """What is about releases needs no files, which take a third of the time."""
    monkeypatch.setattr(files, "publishable", lambda config: (None, "not here"))


@pytest.fixture
def caught(verified):
    """(overrides) → what failed, as texts ``about: name``."""

    def run(*overrides: str, **more: int) -> list[str]:
        return [f"{check.about}: {check.name}" for check in failed(verified(*overrides, **more))]

    return run


def _outside(own: Verification) -> Iterator[Check]:
    own._other_noise = own.context.pinned(noise="B1")
    yield from own._outside()


def _charge(own: Verification) -> Iterator[Check]:
    if own.context.correlated is not None:
        return own.context.correlated.checks()
    return charge.checks(own.reference, own.subject.secret_cohort)


PARTS = {
    "resumed": lambda own: side_channels.resumed(own.subject),
    "noise": lambda own: own._noise(),
    "two runs": lambda own: chance.two_runs(own.context),
    "same noise": lambda own: chance.same_noise(own.context),
    "leaving": lambda own: own._where_it_leaves(),
    "sensitivity": lambda own: own._sensitivity(),
    "units": lambda own: units.checks(own.context),
    "sampling": lambda own: lots.checks(own.context),
    "outside": _outside,
    "charge": _charge,
}
"""Parts of a verification; "outside" looks at replaced units only after "sensitivity"."""


@pytest.fixture
def caught_by(caught, monkeypatch):
    """(parts, overrides) → what failed among the checks of these parts, which a mistake is about."""

    def run(parts: str, *overrides: str, **more: int) -> list[str]:
        checks = [PARTS[part] for part in parts.split(", ")]
        if "noise" not in parts.split(", "):
            more.setdefault("samples", 200)
        monkeypatch.setattr(
            Verification, "run", lambda own, _: (found for part in checks for found in part(own))
        )
        return caught(*overrides, **more)

    return run
