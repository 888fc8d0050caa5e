"""mypy reports wrong calls: its configuration says something."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CALLS = Path(__file__).with_name("wrong_calls.py")


@pytest.mark.slow  # half a minute where nothing is cached
@pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed")
def test_each_wrong_call_is_reported_and_nothing_else():
    lines = CALLS.read_text(encoding="utf-8").splitlines()
    wrong = {number for number, line in enumerate(lines, start=1) if "# wrong" in line}
    said = subprocess.run(
        [sys.executable, "-m", "mypy", "--no-error-summary", CALLS.relative_to(ROOT).as_posix()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout
    reported = {int(number) for number in re.findall(r"wrong_calls\.py:(\d+): error:", said)}
    assert len(wrong) == 5
    assert reported == wrong, said
    assert said.count(" error: ") == 5, said
