from __future__ import annotations

import subprocess
import sys

import pytest

from fedpriv.engine import allocator

FAULTS_PER_STEP = """
import resource, sys, torch
from fedpriv.engine import tune_allocator
torch.set_num_threads(1)
if sys.argv[1] == "tuned":
    assert tune_allocator()
def step():
    torch.ones(9_000_000).add(1.0)
for _ in range(5):
    step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(5):
    step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(mode: str) -> int:
    command = [sys.executable, "-c", FAULTS_PER_STEP, mode]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def glibc() -> bool:
    import ctypes

    return sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


@pytest.mark.slow
@pytest.mark.skipif(not glibc(), reason="the settings are those of glibc")
def test_tuning_ends_the_page_faults_of_repeated_steps():
    assert faults("tuned") * 2 < faults("as it is")  # a machine short of memory adds faults to both


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert allocator.tune_allocator() is False
