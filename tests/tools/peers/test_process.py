"""The process of another library: its answers, and its failures."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from fedpriv.tools.peers import process
from fedpriv.tools.peers.process import PeerFailure, PeerProcess

HEAD = """
import os, time
from serve import serve
count = 0
"""


@pytest.fixture
def program(tmp_path, monkeypatch):
    """(source) → a program with that source, beside the real ``serve``."""
    shutil.copy(Path(process.__file__).with_name("programs") / "serve.py", tmp_path)
    monkeypatch.setattr(process, "_PROGRAMS", tmp_path)

    def write(source: str) -> str:
        (tmp_path / "own_program.py").write_text(HEAD + source)
        return "own"

    return write


def opened(program: str, processes: int = 1, **keys: object) -> PeerProcess:
    return PeerProcess(Path(sys.executable), program, keys, threads=1, processes=processes)


def test_a_timed_step_follows_an_untimed_one(program):
    name = program(
        "times = iter([0, 0.2, 0, 0.2, 0])\n"  # one while it is opened
        "serve(lambda: lambda: time.sleep(next(times)), ('numpy',))\n"
    )
    with opened(name) as peer:
        assert peer.versions.keys() == {"numpy"}
        assert [peer.seconds() < 0.1, peer.seconds() < 0.1] == [True, True]


def test_what_a_library_prints_is_no_answer(program):
    name = program("serve(lambda: lambda: print('hello'), ())\n")
    with opened(name) as peer:
        assert peer.seconds() >= 0


def test_the_keys_reach_the_row(program):
    name = program("serve(lambda wait: lambda: time.sleep(wait), ())\n")
    with opened(name, wait=0.05) as peer:
        assert peer.seconds() >= 0.05


def test_the_slowest_of_several_processes_counts_and_each_knows_its_rank(program):
    name = program(
        "rank = int(os.environ['PFL_WORKER_RANK'])\n"
        "assert len(os.environ['PFL_WORKER_ADDRESSES'].split(',')) == 2\n"
        "serve(lambda: lambda: time.sleep(0.1 * rank), ())\n"
    )
    with opened(name, processes=2) as peer:
        assert peer.seconds() >= 0.1


def test_an_exception_is_told(program):
    name = program("serve(lambda: 1 / 0, ())\n")
    with pytest.raises(PeerFailure, match=r"^ZeroDivisionError: division by zero$"):
        opened(name)


def test_a_process_that_ends_is_told_with_its_last_words(program):
    name = program("raise SystemExit('out of memory')\n")
    with pytest.raises(PeerFailure, match=r"^the process ended: out of memory$"):
        opened(name)


def test_an_interpreter_that_is_not_there_is_told(tmp_path):
    with pytest.raises(PeerFailure, match="cannot be started"):
        PeerProcess(tmp_path / "python", "opacus", {}, threads=1)


@pytest.mark.thorough
def test_a_process_that_does_not_answer_is_ended(program, monkeypatch):
    monkeypatch.setattr(process, "_OPEN", 0.3)
    name = program("serve(lambda: lambda: time.sleep(60), ())\n")
    with pytest.raises(PeerFailure, match=r"^no answer within 0\.3 seconds$"):
        opened(name)
