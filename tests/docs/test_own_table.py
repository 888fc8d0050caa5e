"""docs/guide/own-table.md: the page from a file to a private model, read from top to bottom."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "own-table.md"
SHORT = ("rounds=1", "runtime.progress=none", "runtime.plots=false")
PLANNED = ("dry_run=true",)  # which reads the whole table


@pytest.mark.thorough
def test_the_page_runs_as_it_stands(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    before = ""
    trained = 0
    for text, language, code in re.findall(
        r"(.*?)^```(\w*)\n(.*?)^```$", PAGE.read_text("utf-8"), flags=re.S | re.M
    ):
        before = text
        named = re.findall(r"`([\w/]+\.(?:py|yaml|csv))`", before)
        if language == "python" and not named[-1].endswith(".py"):
            exec(compile(code, PAGE.name, "exec"), {})
            assert Path(named[-1]).exists()
        elif language:
            Path(named[-1]).parent.mkdir(parents=True, exist_ok=True)
            Path(named[-1]).write_text(code, encoding="utf-8")
        for line in code.splitlines() if not language else ():
            how = SHORT if "my.Net" in line else PLANNED
            said = command(*shlex.split(line)[1:], *how)
            assert said.status == 0, said.err
            trained += 1
    assert trained == 4
