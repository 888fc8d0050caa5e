"""``fedpriv account --json`` and ``fedpriv calibrate --json``."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests


@pytest.fixture
def answer(command):
    """What ``fedpriv <arguments> --json`` prints, read."""

    def ask(*arguments: str) -> dict:
        said = command(*arguments, "--json")
        assert said.status == 0, said.err
        return json.loads(said.out)

    return ask
