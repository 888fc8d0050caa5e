"""Ctrl-C at many moments of a command, from its first import to its exit: a sentence, nothing lost."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

SMALL = ("algorithm=dp_fl", "epsilon=null", "rounds=2", "evaluation_interval=1")
COMMANDS = {
    "list": ("list",),
    "runs": ("runs", "run"),
    "plot": ("plot", "run"),
    "report": ("report", "run"),
    "train": ("train", *SMALL, "runtime.run_dir=new", "runtime.progress=none"),
}
MOMENTS = 40
BEGIN = "import fedpriv; from fedpriv.__main__ import main; print(flush=True); main()"  # has begun


@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
def test_ctrl_c_at_any_moment_is_one_sentence(name, ran, tmp_path, command):
    shutil.copytree(ran(*SMALL).folder, tmp_path / "run")
    whole = seconds_of(COMMANDS[name], tmp_path)
    for moment in range(MOMENTS):
        shutil.rmtree(tmp_path / "new", ignore_errors=True)
        status, said = interrupted(COMMANDS[name], tmp_path, 0.03 + whole * moment / MOMENTS)
        # Python ends a process by the signal where C code ran the line that was interrupted
        assert status in (0, 130, -signal.SIGINT), said
        assert len(said) == (status != 0), said
        assert all(line.startswith("fedpriv: interrupted") for line in said)
        assert not list(tmp_path.rglob("*.tmp"))
        if name == "train" and any("resume=" in line for line in said):
            assert command("train", "resume=new", "runtime.progress=none").status == 0
            for file in ("ledger.csv", "participation.csv"):
                assert (tmp_path / "new" / file).read_text() == (
                    tmp_path / "run" / file
                ).read_text()


def begun(arguments: tuple[str, ...], folder: Path) -> subprocess.Popen:
    pipe = subprocess.PIPE
    line = [sys.executable, "-c", BEGIN, *arguments]
    made = subprocess.Popen(line, cwd=folder, stdout=pipe, stderr=pipe, text=True)
    assert made.stdout.readline() == "\n"
    return made


def seconds_of(arguments: tuple[str, ...], folder: Path) -> float:
    made, began = begun(arguments, folder), time.perf_counter()
    assert made.communicate()[1] == ""
    return time.perf_counter() - began


def interrupted(arguments: tuple[str, ...], folder: Path, seconds: float) -> tuple[int, list[str]]:
    """The status of the command and the lines of its standard error."""
    made = begun(arguments, folder)
    try:
        made.wait(seconds)
    except subprocess.TimeoutExpired:
        made.send_signal(signal.SIGINT)
    _, said = made.communicate()
    return made.returncode, said.splitlines()
