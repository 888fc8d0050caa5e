"""Parts of dp_accounting come without the rest, and the package is what it is once it is asked."""

from __future__ import annotations

import subprocess
import sys

import pytest


def said_by(code: str) -> str:
    """What a fresh Python prints."""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_an_event_comes_without_scipys_signal_processing():
    assert (
        said_by(
            "import sys, fedpriv\n"
            "from dp_accounting import dp_event\n"
            "print(dp_event.GaussianDpEvent(2.0).noise_multiplier, 'scipy.signal' in sys.modules)"
        )
        == "2.0 False"
    )


@pytest.mark.thorough
def test_what_the_package_itself_has_is_there_when_it_is_asked_for():
    use = "import dp_accounting; print(dp_accounting.GaussianDpEvent is E)"
    before = "import fedpriv\nfrom dp_accounting.dp_event import GaussianDpEvent as E\n"
    assert said_by(before + use) == "True"


@pytest.mark.thorough
def test_a_name_that_is_not_there_is_an_error_of_python():
    code = "import fedpriv, dp_accounting\ntry: dp_accounting.nothing\nexcept AttributeError: print('said')"
    assert said_by(code) == "said"


@pytest.mark.thorough
def test_where_it_was_imported_before_nothing_is_done():
    code = "import dp_accounting as one\nimport fedpriv, sys\nprint(sys.modules['dp_accounting'] is one)"
    assert said_by(code) == "True"
