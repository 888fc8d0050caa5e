"""The process of an adapter: it is started, asked and stopped here, and its failures are sentences.

Nothing is pickled: the other end answers with JSON and raw float64 (:mod:`fedpriv.tools.adapters.server`).
"""

from __future__ import annotations

import fcntl
import json
import os
import selectors
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.common.words import printable

_SERVER = Path(__file__).with_name("server.py")
_LARGEST_HEADER, _LARGEST_ANSWER = 1 << 22, 1 << 31
_MOST_PRINTED = 1 << 20  # bytes that are kept of what the adapter prints
_CUT_EVERY = 1.0  # seconds
_OPEN = 60.0  # least seconds that importing the adapter's packages may take


RoundAnswer = tuple[dict[str, np.ndarray], dict[str, Any]]
"""Values that the observer sees, by name, and the charge of the adapter for the round."""


@dataclass(frozen=True)
class RunRequest:
    """A run of an adapter.

    Attributes:
        seed: Seed of the run.
        data: Data of each round: the array of each client.
        more: Further arguments of ``round``: participants, examples.
    """

    seed: int
    data: Sequence[Sequence[np.ndarray]]
    more: Mapping[str, Any]


class AdapterError(ConfigError):
    """A failure of an adapter: it raised, ended, hung, or gave an answer that cannot be read."""


class RoundRaised(AdapterError):
    """An exception that a round of the adapter raised. The process is still there."""


class AdapterProcess:
    """A running adapter.

    Args:
        file: The adapter's file.
        make: Name of the function that makes the adapter; empty: the module is the adapter.
        python: The interpreter that runs it.
        time_limit: Seconds that a round may take.

    Attributes:
        facts: What the adapter answered when it was opened: claim, holds_still, versions.
        touched: Names of the global generators that a call seeded or used.
        calls: Number of rounds so far.

    Raises:
        AdapterError: The adapter cannot be opened.
    """

    def __init__(self, file: Path, make: str, python: str, time_limit: float):
        self.file, self.time_limit = file, time_limit
        self.touched: set[str] = set()
        self.calls = 0
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  closed by ``close``
        # The adapter writes at the end, wherever that is once the file was cut.
        fcntl.fcntl(
            self._output, fcntl.F_SETFL, fcntl.fcntl(self._output, fcntl.F_GETFL) | os.O_APPEND
        )
        try:
            self._process = subprocess.Popen(
                [python, str(_SERVER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._output,
                start_new_session=True,  # with all its children, it is ended at once
            )
        except OSError as error:
            self._output.close()
            raise AdapterError(
                f"--python {python} cannot be started: {error.strerror or error}"
            ) from None
        try:
            request = {"do": "open", "path": str(file.absolute()), "make": make}
            self._greet(python)
            self._send(request, [], "opening it")
            self.facts, _ = self._answer("opening it", max(_OPEN, time_limit))
        except BaseException:
            self.close()
            raise

    def _greet(self, python: str) -> None:
        """Wait for the first message, which comes before the adapter is loaded."""
        try:
            self._receive(time.monotonic() + _OPEN)
        except (EOFError, TimeoutError, ValueError, KeyError, TypeError, OverflowError):
            printed = self.printed()
            last = f": {printed[-1][:200]}" if printed else ""
            raise AdapterError(
                f"--python {python} must be Python 3.8 or newer, with numpy; it did not start the "
                f"adapter's process{last}"
            ) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process and whatever it started."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._output):
            with suppress(OSError):
                if stream is not None:
                    stream.close()

    def runs(self, requests: Sequence[RunRequest]) -> list[list[RoundAnswer] | RoundRaised]:
        """Run several runs, one after the other.

        All are sent in one message, so that the two processes need not wait for each other at every round.

        Args:
            requests: The runs.

        Returns:
            The answers of the rounds of each run, or the exception that one of its rounds raised.

        Raises:
            AdapterError: The process ended, hung, or gave an answer that cannot be read.
        """
        data: dict[int, tuple[int, Sequence[np.ndarray]]] = {}
        for clients in (clients for request in requests for clients in request.data):
            data.setdefault(id(clients), (len(data), clients))
        header = {
            "do": "runs",
            "clients": [len(clients) for _, clients in data.values()],
            "runs": [
                {"seed": r.seed, "data": [data[id(c)][0] for c in r.data], **r.more}
                for r in requests
            ],
        }
        arrays = [array for _, clients in data.values() for array in clients]
        self._send(header, arrays, "a round")
        return [self._run(request) for request in requests]

    def _run(self, request: RunRequest) -> list[RoundAnswer] | RoundRaised:
        answers: list[RoundAnswer] = []
        for _ in request.data:
            self.calls += 1
            try:
                header, values = self._answer("a round", self.time_limit)
            except RoundRaised as error:
                return error
            try:
                named = dict(zip(header["values"], values, strict=True))
                answers.append((named, header["charged"]))
            except (KeyError, TypeError, ValueError):
                raise AdapterError(f"{self.file.name}: a round gave an unreadable answer") from None
        return answers

    def printed(self) -> list[str]:
        """Return the lines that the adapter printed so far."""
        self._output.seek(0)
        text = self._output.read(_MOST_PRINTED).decode("utf-8", "replace")
        return [printable(line) for line in text.splitlines() if line.strip()]

    def _send(self, request: Mapping[str, Any], arrays: Sequence[np.ndarray], what: str) -> None:
        text = json.dumps({**request, "arrays": [list(array.shape) for array in arrays]}).encode()
        parts = [struct.pack(">Q", len(text)), text]
        parts += [np.ascontiguousarray(array, dtype="<f8").tobytes() for array in arrays]
        try:
            assert self._process.stdin is not None
            self._process.stdin.write(b"".join(parts))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise AdapterError(self._ended(what)) from None

    def _answer(self, what: str, limit: float) -> tuple[dict[str, Any], list[np.ndarray]]:
        try:
            reply, values = self._receive(time.monotonic() + limit)
        except TimeoutError:
            above = f" above {limit:g}" if limit > self.time_limit else ""
            raise AdapterError(
                f"{self.file.name}: {what} took more than {limit:g} seconds; --time-limit{above} allows more"
            ) from None
        except EOFError:
            raise AdapterError(self._ended(what)) from None
        except (ValueError, KeyError, TypeError, OverflowError):
            raise AdapterError(f"{self.file.name}: {what} gave an unreadable answer") from None
        self.touched.update(map(str, reply.get("touched", ())))
        if "error" in reply:
            line = f" (line {reply['line']})" if reply.get("line") else ""
            ended = f"called sys.exit{line}"
            raised = f"raised {reply['error']}: {reply['text']}{line}"
            how = ended if reply["error"] == "SystemExit" else raised
            kind = RoundRaised if what == "a round" else AdapterError
            raise kind(printable(f"{self.file.name}: {what} {how}"))
        return reply, values

    def _ended(self, what: str) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(5)
        printed = self.printed()
        last = f": {printed[-1][:200]}" if printed else ""
        return f"{self.file.name}: {what} ended the process (status {self._process.poll()}){last}"

    def _receive(self, deadline: float) -> tuple[dict[str, Any], list[np.ndarray]]:
        size = struct.unpack(">Q", self._read(8, deadline))[0]
        if size > _LARGEST_HEADER:
            raise ValueError("header")
        header = json.loads(self._read(size, deadline))
        values = []
        for shape in header["arrays"]:
            count = int(np.prod(shape, dtype=object))
            if not 0 <= 8 * count <= _LARGEST_ANSWER:
                raise ValueError("array")
            values.append(np.frombuffer(self._read(8 * count, deadline), "<f8").reshape(shape))
        return header, values

    def _cut_output(self) -> None:
        """Keep what an adapter prints from filling the disk."""
        if os.fstat(self._output.fileno()).st_size > _MOST_PRINTED:
            os.ftruncate(self._output.fileno(), _MOST_PRINTED)

    def _read(self, size: int, deadline: float) -> bytes:
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        parts, missing = [], size
        with selectors.DefaultSelector() as selector:
            selector.register(descriptor, selectors.EVENT_READ)
            while missing:
                self._cut_output()
                left = max(0.0, deadline - time.monotonic())
                if not selector.select(min(left, _CUT_EVERY)):
                    if left > 0:
                        continue
                    raise TimeoutError
                part = os.read(descriptor, min(missing, 1 << 20))
                if not part:
                    raise EOFError
                parts.append(part)
                missing -= len(part)
        return b"".join(parts)
