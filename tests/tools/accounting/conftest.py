from __future__ import annotations

import json

import pytest


@pytest.fixture
def answer(command):
    """What ``fedpriv <arguments> --json`` prints, read."""

    def ask(*arguments: str) -> dict:
        said = command(*arguments, "--json")
        assert said.status == 0, said.err
        return json.loads(said.out)

    return ask
