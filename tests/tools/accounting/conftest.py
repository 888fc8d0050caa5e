"""``fedpriv account --json``, and histories of releases in a folder."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import torch

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests

from histories import DELTA


@pytest.fixture
def answer(command):
    """What ``fedpriv <arguments> --json`` prints, read."""

    def ask(*arguments: str) -> dict:
        said = command(*arguments, "--json")
        assert said.status == 0, said.err
        return json.loads(said.out)

    return ask


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def history(answer, place):
    """What is said of a file with this content."""

    def ask(name: str, content: object, *flags: str, delta: tuple[str, ...] = DELTA) -> dict:
        if name.endswith(".pt"):
            torch.save(content, place / name)
        else:
            text = content if isinstance(content, str) else json.dumps(content)
            (place / name).write_text(text)
        return answer("account", "--history", name, *delta, *flags)

    return ask


@pytest.fixture
def refused(command, place):
    """The sentence with which a file is refused."""

    def ask(name: str, content: object, *flags: str) -> str:
        if isinstance(content, bytes):
            (place / name).write_bytes(content)
        elif name.endswith(".pt"):
            torch.save(content, place / name)
        else:
            (place / name).write_text(content if isinstance(content, str) else json.dumps(content))
        said = command("account", "--history", name, *DELTA, *flags)
        assert said.status == 2, said.out
        assert len(said.err.strip().splitlines()) == 1
        assert "Traceback" not in said.err
        return said.err

    return ask
