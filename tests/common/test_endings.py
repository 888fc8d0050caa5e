"""Ctrl-C, a full disk, too little memory, a full standard output: one sentence and the right status."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fedpriv.common import endings
from fedpriv.common.errors import ConfigError, FedprivError, Interrupted
from fedpriv.common.files import write_text


def process(code: str, *arguments: str, **streams) -> subprocess.CompletedProcess:
    """Python code in a process of its own."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], text=True, timeout=120, check=False, **streams
    )


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (MemoryError(), "not enough memory"),
        (RuntimeError("CUDA out of memory. Tried 2 GiB\nmore"), "(CUDA out of memory. Tried 2 GiB)"),
        (OSError(errno.ENOMEM, "Cannot allocate memory"), "not enough memory"),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried ..."), "not enough memory"),
        (ImportError("libx.so: failed to map segment from shared object"), "not enough memory"),
        (OSError(errno.ENOSPC, "No space left on device", "a.csv"), "a.csv cannot be written"),
        (OSError(errno.EFBIG, "File too large"), "a file cannot be written"),
        (KeyboardInterrupt(), "interrupted"),
    ],
    ids=repr,
)  # fmt: skip
def test_what_a_machine_lacks_is_a_sentence(error, words):
    assert words in str(endings.as_sentence(error))


@pytest.mark.parametrize(
    "error", [RuntimeError("x"), OSError(errno.ENOENT, "x"), SystemExit(3), ImportError("y")]
)
def test_a_defect_is_none(error):
    assert endings.as_sentence(error) is None


@pytest.mark.parametrize("error", [ImportError("half a module"), ValueError("x"), ConfigError("x")])
def test_whatever_ctrl_c_became_in_a_library_it_is_an_interruption(error, monkeypatch):
    monkeypatch.setattr(endings, "_heard", True)
    known = endings.as_sentence(error)
    assert isinstance(known, Interrupted)
    assert known.exit_status == 130


def test_a_context_in_which_no_round_is_lost_tells_how_to_go_on(tmp_path):
    for error, words in (
        (KeyboardInterrupt(), "interrupted while drawing (no round is lost); go on"),
        (MemoryError(), "there is not enough memory (no round is lost); go on"),
    ):
        with pytest.raises(FedprivError) as caught, endings.nothing_lost("drawing", "go on"):
            raise error
        assert str(caught.value) == words
    with pytest.raises(FedprivError, match="no round is lost"), endings.nothing_lost("x", "go on"):
        write_text(tmp_path, "a folder is no file")
    with pytest.raises(ZeroDivisionError), endings.nothing_lost("drawing", "go on"):
        _ = 1 / 0


def test_a_full_standard_output_is_a_sentence():
    with open("/dev/full", "w") as full:
        said = process("from fedpriv.__main__ import main; main()", "list", "clipper", stdout=full)
    assert said.returncode == 1
    assert said.stderr == "fedpriv: standard output cannot be written: No space left on device\n"


INTERRUPTED_WHERE = {
    "while the command is imported": """
import builtins
real = builtins.__import__
def planted(name, *rest, **more):
    if name == "fedpriv.cli.listing":
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            raise ImportError("half a module") from None
    return real(name, *rest, **more)
builtins.__import__ = planted
main()
""",
    "in a destructor, which cannot raise": """
class Planted:
    def __del__(self):
        signal.raise_signal(signal.SIGINT)
def list_for_ever(*_):
    Planted()
    while True:
        time.sleep(0.001)
listing.show_groups = list_for_ever
main()
""",
}

INTERRUPTED_WHERE["in a destructor, after which an import fails"] = INTERRUPTED_WHERE[
    "in a destructor, which cannot raise"
].replace(
    "    while True:\n        time.sleep(0.001)\n", "    raise ImportError('half a module')\n"
)


@pytest.mark.parametrize("where", INTERRUPTED_WHERE)
def test_ctrl_c_is_one_sentence(where):
    begin = (
        "import signal, time\nfrom fedpriv.cli import listing\nfrom fedpriv.__main__ import main\n"
    )
    said = process(begin + INTERRUPTED_WHERE[where], "list")
    assert (said.returncode, said.stderr) == (130, "fedpriv: interrupted\n")


@pytest.mark.thorough
def test_ctrl_c_at_the_exit_changes_nothing():
    code = (
        "import atexit, os, signal; from fedpriv.__main__ import main\n"
        "atexit.register(os.kill, os.getpid(), signal.SIGINT); main()"
    )
    said = process(code, "list", "clipper")
    assert (said.returncode, said.stderr) == (0, "")
    assert "constant" in said.stdout


def test_a_second_ctrl_c_ends_the_process_at_once():
    code = (
        "import signal; from fedpriv.common import endings; endings.heed_interrupts()\n"
        "try:\n    signal.raise_signal(signal.SIGINT)\n"
        "except KeyboardInterrupt:\n    print('first', flush=True)\n"
        "signal.raise_signal(signal.SIGINT)\nprint('second')"
    )
    said = process(code)
    assert (said.returncode, said.stdout, said.stderr) == (130, "first\n", "")


def test_a_reader_that_went_away_is_no_failure_of_the_output():
    reader, writer = os.pipe()
    os.close(reader)
    stream = os.fdopen(writer, "w")
    output = endings.Output(stream)
    output.write("x")
    with pytest.raises(BrokenPipeError):
        output.flush()
    assert output.failure is None
    os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    stream.close()


def test_an_import_of_torch_is_not_interrupted_half_way(tmp_path):
    """Its C++ code aborts the process where an exception passes through it."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "import os, signal\nos.kill(os.getpid(), signal.SIGINT)\nfor _ in range(1000): pass\n"
        "print('imported', flush=True)\n"
    )
    program = (
        "import time\nfrom fedpriv.common import endings\nendings.heed_interrupts()\n"
        "try:\n    import torch\n    time.sleep(30)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    path = os.pathsep.join([str(tmp_path), str(Path(endings.__file__).parents[2])])
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.split() == ["imported", "interrupted"]


def test_a_terminated_command_is_interrupted_and_cleans_up():
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), endings.ended_by_signals():
        signal.raise_signal(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) == before
