"""Each case runs in a process of its own: an import can be tried only once."""

from __future__ import annotations

import subprocess
import sys

import pytest

SHIM = "import fedpriv.common.torchvision_shim as shim\n"


def run(code: str, folder=None) -> str:
    """What ``code`` prints; ``folder`` comes first on the path."""
    first = f"import sys; sys.path.insert(0, {str(folder)!r})\n" if folder else ""
    done = subprocess.run(
        [sys.executable, "-c", first + SHIM + code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.fixture
def fake(tmp_path):
    """Write a package named torchvision."""

    def write(source: str):
        (tmp_path / "torchvision").mkdir()
        (tmp_path / "torchvision" / "__init__.py").write_text(source)
        return tmp_path

    return write


@pytest.mark.thorough
def test_torchvision_imports_whatever_torch_it_was_built_for_also_after_it_failed():
    code = """
try:
    import torchvision
except RuntimeError:
    pass
first = shim.import_torchvision()
from torchvision import transforms
import torchvision
assert first is torchvision is shim.import_torchvision()
print(torchvision.datasets.MNIST.__name__, len(shim._declarations) <= 1)
"""
    assert run(code) == "MNIST True"


def test_nothing_is_declared_where_torchvision_works(fake):
    folder = fake("answer = 42")
    code = "import sys; print(shim.import_torchvision().answer, 'torch' in sys.modules, shim._declarations)"
    assert run(code, folder) == "42 False []"


def test_other_failures_are_passed_on(fake):
    folder = fake("raise RuntimeError('something else')")
    code = """
try:
    shim.import_torchvision()
except RuntimeError as error:
    print(error, shim._declarations)
"""
    assert run(code, folder) == "something else []"
