"""Workers that are processes: what they know, how they end, and what is said of those that are lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from pools import results

import fedpriv
from fedpriv.experiment import map_chunks

UNTRIED = pytest.mark.skipif(
    "FEDPRIV_TEST_PROCESSES" not in os.environ, reason="one of these failed on a busy machine"
)

EXACT = True  # processes count as users' do
RUN = (
    "train", "algorithm=dp_fl", "partition=dirichlet", "partition.alpha=0.5", "partition.clients=9",
    "chunk=2", "epsilon=null", "rounds=3", "runtime.threads=1", "runtime.plots=false",
    "runtime.progress=none",
)  # fmt: skip
LONG = (*RUN, "rounds=100000", "runtime.checkpoint_interval=1", "runtime.run_dir=run")


def rows(folder: Path) -> int:
    """The rounds that a run has noted."""
    path = folder / "metrics.csv"
    return len(path.read_bytes().splitlines()) - 1 if path.exists() else 0


def wait_for_rounds(folder: Path, count: int, process: subprocess.Popen) -> None:
    """Wait until a run has noted so many rounds."""
    while rows(folder) < count:
        assert process.poll() is None, process.communicate()
        time.sleep(0.05)


def workers_in(folder: Path) -> list[int]:
    """The workers that were started in a folder and still run."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            here = os.readlink(path / "cwd") == str(folder)
            ended = (path / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
            words = (path / "cmdline").read_bytes()
        except OSError:
            continue
        if here and not ended and b"popen_loky" in words:
            found.append(int(path.name))
    return sorted(found)


def assert_no_workers(folder: Path) -> None:
    """Fail if a worker still runs after some seconds."""
    deadline = time.monotonic() + 30
    while left := workers_in(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def memory_of(process: int) -> bytes:
    """Everything that a process has in memory of its own."""
    parts = []
    with open(f"/proc/{process}/mem", "rb") as memory:
        for line in Path(f"/proc/{process}/maps").read_text().splitlines():
            area, rights, *_ = line.split()
            start, end = (int(bound, 16) for bound in area.split("-"))
            if not rights.startswith("rw") or "[v" in line:
                continue
            try:
                memory.seek(start)
                parts.append(memory.read(end - start))
            except (OSError, ValueError, OverflowError):
                continue
    return b"".join(parts)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_processes_give_the_bits_of_one_and_their_memory_holds_no_key(
    train, ran, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    made, memories = [], []
    join = map_chunks.SharedChunks.join
    monkeypatch.setattr(
        map_chunks.SharedChunks, "join", lambda self, run: (made.append(run), join(self, run))[1]
    )

    def look(row):
        if row["round"] == 3:
            memories.extend(map(memory_of, workers_in(tmp_path)))

    words = [*RUN[1:], "runtime.workers=2", f"runtime.run_dir={tmp_path / 'run'}"]
    fedpriv.run(fedpriv.compose(words), on_round=look)
    assert_no_workers(tmp_path)
    assert results(tmp_path / "run") == results(ran(*RUN[1:]).folder)
    context = made[0].loop.context
    assert len(memories) == 2
    for memory in memories:
        assert context.data.train.inputs[5].numpy().tobytes() in memory  # the search would find it
        for key in (context.streams.sampling_key, context.streams.noise_key):
            assert key not in memory
            assert key.hex().encode() not in memory


@pytest.mark.thorough
def test_a_killed_worker_is_named_with_the_command_that_goes_on(start, tmp_path):
    child = start(*LONG, "runtime.workers=2")
    wait_for_rounds(tmp_path / "run", 1, child)
    os.kill(workers_in(tmp_path)[0], signal.SIGKILL)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 1
    assert "a worker on this machine was ended by SIGKILL" in err
    assert "continue with fedpriv train resume=run" in err
    assert "Traceback" not in err
    assert_no_workers(tmp_path)


@pytest.mark.thorough
def test_a_run_in_one_process_imports_nothing_of_workers(tmp_path):
    script = (
        "import sys, fedpriv\n"
        f"fedpriv.run(fedpriv.compose({list(RUN[1:])}))\n"
        "print([name for name in ('cloudpickle', 'ray', 'fedpriv.experiment.map_chunks') "
        "if name in sys.modules])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.cluster
@UNTRIED
def test_a_killed_worker_is_replaced_where_one_may_be_lost(start, process, tmp_path):
    words = (*RUN, "rounds=200", "runtime.checkpoint_interval=2")
    assert process(*words, "runtime.run_dir=alone").status == 0
    child = start(*words, "runtime.run_dir=run", "runtime.workers=2", "runtime.worker_restarts=1",
                  "runtime.progress=lines")  # fmt: skip
    wait_for_rounds(tmp_path / "run", 3, child)
    os.kill(workers_in(tmp_path)[0], signal.SIGKILL)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    said = " ".join(out.split())
    assert "a worker on this machine was ended by SIGKILL" in said
    assert "its chunks are computed again" in said
    assert results(tmp_path / "run") == results(tmp_path / "alone")
    assert_no_workers(tmp_path)


@pytest.mark.cluster
@UNTRIED
def test_a_worker_that_hangs_is_named(start, tmp_path):
    child = start(*LONG, "runtime.workers=2", "runtime.worker_timeout=2")
    wait_for_rounds(tmp_path / "run", 3, child)
    for worker in workers_in(tmp_path):
        os.kill(worker, signal.SIGSTOP)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 1
    assert "a worker gave no answer within 2 s" in err
    assert_no_workers(tmp_path)


@pytest.mark.cluster
@UNTRIED
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_between_rounds(start, process, tmp_path, number):
    child = start(*LONG, "runtime.workers=3")
    wait_for_rounds(tmp_path / "run", 2, child)
    for worker in workers_in(tmp_path):  # as a terminal does
        os.kill(worker, number)
    child.send_signal(number)
    _, err = child.communicate(timeout=120)
    assert child.returncode == 130
    assert "interrupted after round" in err
    assert "Traceback" not in err
    assert_no_workers(tmp_path)


@pytest.mark.cluster
@UNTRIED
def test_no_worker_outlives_a_killed_run(start, tmp_path):
    child = start(*LONG, "runtime.workers=3")
    wait_for_rounds(tmp_path / "run", 1, child)
    child.kill()
    child.communicate()
    assert_no_workers(tmp_path)


@pytest.mark.cluster
@UNTRIED
def test_code_of_the_user_s_own_beside_the_command_is_found(process, tmp_path):
    (tmp_path / "my_clip.py").write_text(
        "from fedpriv.privacy.clippers import ConstantClipper\n"
        "class Half(ConstantClipper):\n"
        "    def factors(self, norms, limits):\n"
        "        return super().factors(norms, limits) / 2\n"
    )
    own = (*RUN, "clipper._target_=my_clip.Half", "rounds=2")
    assert process(*own, "runtime.run_dir=alone").status == 0
    outcome = process(*own, "runtime.workers=2", "runtime.run_dir=run")
    assert outcome.status == 0, outcome.err
    assert results(tmp_path / "run") == results(tmp_path / "alone")


@pytest.mark.cluster
@UNTRIED
def test_a_script_without_a_guard_has_workers(tmp_path):
    (tmp_path / "script.py").write_text(
        f"import fedpriv\nprint(fedpriv.run(fedpriv.compose({[*RUN[1:], 'runtime.workers=2']})))\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.count("RunResult") == 1
