"""Verifications of few rounds, in this process."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fedpriv.common.config import compose
from fedpriv.tools.verify import files
from fedpriv.tools.verify.checks import all_checks
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
