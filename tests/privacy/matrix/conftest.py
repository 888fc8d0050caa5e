"""Every strategy by its name."""

from __future__ import annotations

import pytest
from small_strategies import NAMES


@pytest.fixture(params=NAMES)
def name(request) -> str:
    return request.param
