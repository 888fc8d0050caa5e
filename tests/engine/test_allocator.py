from __future__ import annotations

import subprocess
import sys

import pytest

from fedpriv.engine import allocator


def glibc() -> bool:
    import ctypes

    return sys.platform.startswith("linux") and hasattr(ctypes.CDLL(None), "gnu_get_libc_version")


AFTER_A_RUN = """
import runpy, sys
import numpy as np
tune_allocator = runpy.run_path(sys.argv[1])["tune_allocator"]
def resident():
    pages = int(open("/proc/self/statm").read().split()[1])
    return pages * 4096
for run in range(2):
    assert tune_allocator(*map(bool, sys.argv[2:]))
    data = np.ones(40_000_000)
    assert tune_allocator()
    kept = np.ones(100_000)  # above the data on the heap
    full = resident()
    del data
print(full - resident())
"""


def freed_after_a_run(*reading: str) -> int:
    """Bytes that are given back when a run's data are freed."""
    command = [sys.executable, "-c", AFTER_A_RUN, allocator.__file__, *reading]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@pytest.mark.thorough
@pytest.mark.skipif(not glibc(), reason="the settings are those of glibc")
def test_the_data_of_a_run_are_given_back_before_the_next_run_reads_its_own():
    assert freed_after_a_run("reading") > 300_000_000 > freed_after_a_run()


def test_other_systems_are_left_alone(monkeypatch):
    monkeypatch.setattr(allocator.sys, "platform", "darwin")
    assert allocator.tune_allocator() is False
