"""Workers that are processes: their start and end, and what a user is told of those that are lost."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from spread_runs import results

from fedpriv.experiment import spread

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


def workers_in(folder: Path) -> dict[int, int]:
    """Rank → number of the process, of workers that were started in a folder and still run."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            environment = dict(
                entry.partition(b"=")[::2] for entry in (path / "environ").read_bytes().split(b"\0")
            )
            here = os.readlink(path / "cwd") == str(folder)
            ended = (path / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if here and not ended and b"FEDPRIV_WORKER" in environment:
            found[json.loads(environment[b"FEDPRIV_WORKER"])["rank"]] = int(path.name)
    return found


def assert_no_workers(folder: Path) -> None:
    """Fail if a worker still runs after some seconds."""
    deadline = time.monotonic() + 10
    while left := workers_in(folder):
        assert time.monotonic() < deadline, left
        time.sleep(0.05)


def listening(pid: int) -> set[str]:
    """Sockets of a process at which anybody on the machine can knock."""
    rows = [
        line.split()
        for name in ("tcp", "tcp6")
        for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]
    ]
    open_files = set()
    for path in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # the one by which this folder is read
            open_files.add(os.readlink(path))
    return open_files & {f"socket:[{row[9]}]" for row in rows if row[3] == "0A"}


@pytest.fixture
def alone(ran):
    """What the run gives in one process."""
    return results(ran(*RUN[1:]).folder)


@pytest.mark.few(1)
@pytest.mark.parametrize("workers", [2, 4])
def test_processes_give_the_bits_of_one(command, alone, tmp_path, workers):
    outcome = command(*RUN, f"runtime.workers={workers}", "runtime.run_dir=run")
    assert (outcome.status, outcome.err) == (0, "")
    assert results(tmp_path / "run") == alone
    assert_no_workers(tmp_path)


@pytest.mark.thorough
def test_a_killed_worker_is_named_with_the_command_that_goes_on(start, tmp_path):
    child = start(*LONG, "runtime.workers=2")
    wait_for_rounds(tmp_path / "run", 1, child)
    os.kill(workers_in(tmp_path)[1], signal.SIGKILL)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "rank 1, a worker on this machine, was killed by SIGKILL" in err
    assert "continue with fedpriv train resume=run" in err
    assert "Traceback" not in err
    assert_no_workers(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nobody_else_can_reach_a_worker_on_this_machine():
    """With a port, whoever answered before rank 0 would be told the run, and could have a worker run code."""
    before = listening(os.getpid())
    worker = spread._Member(1)
    try:
        worker.connect(torch.device("cpu"))
        assert listening(worker.process.pid) == set()
        assert listening(os.getpid()) == before
    finally:
        worker.kill()


@pytest.mark.thorough
def test_a_run_in_one_process_imports_nothing_of_workers(tmp_path):
    script = (
        "import sys, fedpriv\n"
        f"fedpriv.run(fedpriv.compose({list(RUN[1:])}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('fedpriv.workers.')))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.cluster
def test_after_the_kill_of_a_worker_the_run_goes_on_in_one_process(start, process, tmp_path):
    words = (*RUN, "rounds=100")
    assert process(*words, "runtime.run_dir=alone").status == 0
    child = start(
        *words, "runtime.run_dir=run", "runtime.workers=3", "runtime.checkpoint_interval=2"
    )
    wait_for_rounds(tmp_path / "run", 3, child)
    os.kill(workers_in(tmp_path)[1], signal.SIGKILL)
    child.communicate(timeout=60)
    assert child.returncode == 1
    outcome = process("train", "resume=run", "runtime.workers=1")
    assert outcome.status == 0, outcome.err
    assert results(tmp_path / "run") == results(tmp_path / "alone")


@pytest.mark.cluster
def test_a_killed_worker_is_replaced_where_one_may_be_lost(start, process, tmp_path):
    words = (*RUN, "rounds=200", "runtime.checkpoint_interval=2")
    assert process(*words, "runtime.run_dir=alone").status == 0
    child = start(*words, "runtime.run_dir=run", "runtime.workers=2", "runtime.worker_restarts=1",
                  "runtime.progress=lines")  # fmt: skip
    wait_for_rounds(tmp_path / "run", 3, child)
    first = workers_in(tmp_path)[1]
    os.kill(first, signal.SIGKILL)
    out, err = child.communicate(timeout=120)
    assert child.returncode == 0, err
    said = " ".join(out.split())
    assert "rank 1, a worker on this machine, was killed" in said
    assert "its chunk is computed again" in said
    assert results(tmp_path / "run") == results(tmp_path / "alone")
    assert_no_workers(tmp_path)


@pytest.mark.cluster
def test_a_worker_that_hangs_is_named(start, tmp_path):
    child = start(*LONG, "runtime.workers=2", "runtime.worker_timeout=2")
    wait_for_rounds(tmp_path / "run", 3, child)
    os.kill(workers_in(tmp_path)[1], signal.SIGSTOP)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 1
    assert "rank 1, a worker on this machine, is lost: no answer within 2 s" in err
    assert_no_workers(tmp_path)


@pytest.mark.cluster
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_run_between_rounds(start, process, tmp_path, number):
    child = start(*LONG, "runtime.workers=3")
    wait_for_rounds(tmp_path / "run", 2, child)
    for worker in workers_in(tmp_path).values():  # as a terminal does
        os.kill(worker, number)
    child.send_signal(number)
    _, err = child.communicate(timeout=60)
    assert child.returncode == 130
    assert "interrupted after round" in err
    assert_no_workers(tmp_path)


@pytest.mark.cluster
def test_no_worker_outlives_a_killed_run(start, tmp_path):
    child = start(*LONG, "runtime.workers=3")
    wait_for_rounds(tmp_path / "run", 1, child)
    child.kill()
    child.communicate()
    assert_no_workers(tmp_path)


@pytest.mark.cluster
def test_a_published_run_has_workers_on_its_machine(process, tmp_path):
    words = ("publish=true", "epsilon=2", "noise_schedule.noise_multiplier=12")
    outcome = process(*RUN, *words, "runtime.workers=2", "runtime.run_dir=run")
    assert outcome.status == 0, outcome.err
    assert (tmp_path / "run" / "public").is_dir()


@pytest.mark.cluster
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
