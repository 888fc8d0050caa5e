"""Lets the tests below import the suites that stand beside them, e.g. ``accountants.suite``.

pytest's importlib mode puts no test folder on the path.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
pytest.register_assert_rewrite("accountants.suite", "clippers.suite", "schedule_suite")
