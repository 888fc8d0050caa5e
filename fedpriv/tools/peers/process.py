"""The process of another library: it is started, asked for one step at a time, and stopped here."""

from __future__ import annotations

import json
import os
import selectors
import signal
import socket
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from fedpriv.common.errors import FedprivError

_PROGRAMS = Path(__file__).with_name("programs")
_OPEN, _STEP = 300.0, 300.0  # seconds that an answer may take
_ALLOCATOR = {  # as fedpriv sets it for itself: the libraries gain by it as well
    "MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "-1", "MALLOC_TOP_PAD_": "268435456",
}  # fmt: skip


class PeerFailure(FedprivError):
    """Another library raised, ended, or did not answer."""


class PeerProcess:
    """One or more processes of another library that do a step together.

    Args:
        python: The interpreter that has the library.
        program: Name of the program below ``programs/``.
        keys: Keys of the row to open.
        threads: Threads of each process.
        processes: Number of processes; pfl-research shares the users of a round among several.

    Attributes:
        versions: Versions of the packages that take part.

    Raises:
        PeerFailure: The row cannot be opened.
    """

    def __init__(
        self, python: Path, program: str, keys: Mapping[str, Any], threads: int, processes: int = 1
    ):
        self._home = tempfile.TemporaryDirectory()
        self._members: list[subprocess.Popen[str]] = []
        self._errors = [tempfile.TemporaryFile("w+") for _ in range(processes)]  # noqa: SIM115
        addresses = ",".join(f"127.0.0.1:{_free_port()}" for _ in range(processes))
        try:
            for rank in range(processes):
                environment = {
                    **os.environ, **_ALLOCATOR, "OMP_NUM_THREADS": str(threads),
                    "MKL_NUM_THREADS": str(threads), "PYTHONHASHSEED": "0",
                    "HOME": self._home.name, "FLWR_HOME": self._home.name,
                    "FLWR_TELEMETRY_ENABLED": "0", "RAY_USAGE_STATS_ENABLED": "0",
                    "RAY_worker_niceness": "0",  # its workers would yield to everything else
                }  # fmt: skip
                environment.pop("PYTHONPATH", None)
                if threads * processes < (os.cpu_count() or 1) and hasattr(os, "sched_setaffinity"):
                    environment["PEER_CORES"] = str(threads * processes)
                if processes > 1:
                    environment |= {"PFL_WORKER_ADDRESSES": addresses, "PFL_WORKER_RANK": str(rank)}
                # No session of its own: Linux shares the cores among sessions first, so that on a loaded
                # machine the library would get more of them than fedpriv.
                member = subprocess.Popen(
                    [str(python), str(_PROGRAMS / f"{program}_program.py")],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors[rank],
                    text=True, env=environment, cwd=self._home.name, process_group=0,
                )  # fmt: skip
                self._members.append(member)
            answers = self._ask(json.dumps(keys), _OPEN)
            self.versions: dict[str, str] = answers[0]["versions"]
        except OSError as error:
            self.close()
            raise PeerFailure(f"{python} cannot be started: {error.strerror or error}") from None
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def seconds(self) -> float:
        """Do a step and then a timed one, and return the time of the slowest process.

        Raises:
            PeerFailure: A process raised, ended, or did not answer.
        """
        return max(float(answer["seconds"]) for answer in self._ask("{}", _STEP))

    def close(self) -> None:
        """End the processes and whatever they started."""
        for member in self._members:
            with suppress(OSError):
                assert member.stdin is not None
                member.stdin.close()
        for member in self._members:
            with suppress(subprocess.TimeoutExpired):
                member.wait(timeout=15)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(member.pid, signal.SIGKILL)
            member.wait()
            assert member.stdout is not None
            member.stdout.close()
        self._members = []
        for stream in self._errors:
            stream.close()
        with suppress(OSError):
            self._home.cleanup()

    def _ask(self, line: str, limit: float) -> list[dict[str, Any]]:
        for member in self._members:
            try:
                assert member.stdin is not None
                member.stdin.write(f"{line}\n")
                member.stdin.flush()
            except OSError:
                pass  # what it says last is told by _answer
        return [self._answer(rank, limit) for rank in range(len(self._members))]

    def _answer(self, rank: int, limit: float) -> dict[str, Any]:
        output = self._members[rank].stdout
        assert output is not None
        with selectors.DefaultSelector() as selector:
            selector.register(output, selectors.EVENT_READ)
            if not selector.select(limit):
                raise PeerFailure(f"no answer within {limit:g} seconds")
        line = output.readline()
        if not line:
            raise PeerFailure(f"the process ended: {self._last_words(rank)}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerFailure(answer["error"])
        return answer

    def _last_words(self, rank: int) -> str:
        self._errors[rank].seek(0)
        lines = self._errors[rank].read().strip().splitlines()
        return lines[-1][:300] if lines else "no message"


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
