"""The other end of the pipe: it loads an adapter and answers requests, in a process of its own.

This file is run by the Python that ``--python`` names, version 3.8 or newer, where fedpriv is not installed.
It needs the standard library and numpy. A message in either direction is

    8 bytes      length of the header, big-endian
    header       JSON; ``arrays`` lists the shapes of the arrays that follow
    arrays       float64, little-endian, one after the other

What the adapter prints goes to standard error.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import os
import random
import signal
import struct
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

if TYPE_CHECKING:  # Python 3.8 cannot evaluate it
    Reply = tuple[dict[str, Any], list[np.ndarray]]


LARGEST = 1 << 27
"""Most numbers that a round may leave."""


class Adapter:
    """An adapter and the state of its current run.

    Args:
        make: The function that makes the adapter. It is called again for each run.
    """

    def __init__(self, make: Callable[[], Any]):
        self._make = make
        self.subject: Any = None
        self.state: Any = None

    def facts(self) -> Reply:
        """Make the adapter and return its claim and what can be held still."""
        self.subject = self._make()
        missing = [
            name for name in ("claim", "holds_still", "round") if not hasattr(self.subject, name)
        ]
        if missing:
            raise AttributeError("the adapter has no " + " and no ".join(missing))
        if not isinstance(self.subject.holds_still, (list, tuple, set, frozenset)):
            kind = type(self.subject.holds_still).__name__
            raise TypeError(f"holds_still must be a list of words, got {kind}")
        facts = {
            "claim": self.subject.claim,
            "holds_still": list(self.subject.holds_still),
            "python": sys.version.split()[0],
            "numpy": np.__version__,
        }
        return facts, []

    def round(self, run: Mapping[str, Any], arrays: list[np.ndarray], first: bool) -> Reply:
        """Run one round and return what the observer sees, as names and arrays.

        Args:
            run: The run: its seed, and further arguments of the adapter's ``round``.
            arrays: The array of each client.
            first: Whether a new run begins.
        """
        if first:
            self.state, self.subject = None, self._make()
        charged = {}
        if hasattr(self.subject, "charged"):
            charged = self.subject.charged(self.state)
        more = {name: run[name] for name in ("participants", "examples") if name in run}
        answer = self.subject.round(self.state, arrays, run["seed"], **more)
        if not (isinstance(answer, tuple) and len(answer) == 2):
            raise TypeError(
                f"round must return (what the observer sees, state), got {type(answer).__name__}"
            )
        seen, self.state = answer
        if not isinstance(seen, dict):
            seen = {"update": seen}
        if any(value is None for value in seen.values()):
            raise TypeError("what the observer sees must be numbers, got None")
        if any(np.iscomplexobj(value) for value in seen.values()):
            raise TypeError("what the observer sees must be real numbers, got complex ones")
        given = [np.asarray(value) for value in seen.values()]
        count = sum(value.size for value in given)
        if count > LARGEST:  # before a conversion makes them eight times as large
            raise ValueError(
                f"what the observer sees has {count:,} numbers; at most {LARGEST:,} can be tested"
            )
        values = [np.asarray(value, dtype=np.float64) for value in given]
        return {"values": [str(name) for name in seen], "charged": charged}, values


def made(path: str, make: str) -> Any:
    """Return the adapter of a file, which is loaded by the first call.

    Args:
        path: The adapter's file.
        make: Name of the function that makes the adapter; empty: the module itself is the adapter.
    """
    module = sys.modules.get("adapter")
    if module is None:
        spec = importlib.util.spec_from_file_location("adapter", path)
        if spec is None or spec.loader is None:
            raise ImportError("it is no Python file")
        module = sys.modules["adapter"] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    if not make:
        return module
    if not callable(getattr(module, make, None)):
        raise AttributeError(f"it has no function {make}")
    return getattr(module, make)()


def main() -> None:
    """Answer requests until the pipe is closed."""
    if sys.platform == "linux":
        # PR_SET_PDEATHSIG: end with the thread that started this process, even if it is killed.
        with suppress(AttributeError, OSError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    # The adapter may print, even from C. Its standard output becomes standard error, and the pipe gets
    # descriptors that nobody else knows.
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    np.seterr(all="ignore")  # huge and infinite data are fedpriv's: warnings would be no news
    send(answers, {"python": sys.version.split()[0]}, [])
    adapter: Adapter | None = None
    path = ""
    while True:
        message = receive(requests)
        if message is None:
            return
        header, arrays = message
        if header["do"] == "open":
            path = header["path"]
            # The folder of this file holds modules that the adapter must not find.
            sys.path[0] = os.path.dirname(path)
            adapter = Adapter(partial(made, path, header["make"]))
            _answer(answers, path, adapter.facts)
        elif adapter is not None:
            _run_all(answers, path, adapter, header, arrays)


def _run_all(
    answers: BinaryIO,
    path: str,
    adapter: Adapter,
    header: Mapping[str, Any],
    arrays: list[np.ndarray],
) -> None:
    """Run rounds and answer each as soon as it is done. A run ends with its first round that raises."""
    data, first = [], 0
    for clients in header["clients"]:  # of each data set
        data.append(arrays[first : first + clients])
        first += clients
    for run in header["runs"]:
        for t, number in enumerate(run["data"]):
            copies = [array.copy() for array in data[number]]  # a round may change what it gets
            if not _answer(answers, path, partial(adapter.round, run, copies, t == 0)):
                break


def _answer(answers: BinaryIO, path: str, call: Callable[[], Reply]) -> bool:
    """Send what a call returns, or the exception that it raises, and return whether it returned."""
    before, process = _generators(), os.getpid()
    try:
        reply, values = call()
        if os.getpid() != process:
            os._exit(0)  # a copy that the adapter forked: the pipe is not its own
        after = _generators()
        reply["touched"] = [name for name in after if after[name] != before[name]]
        text, good = json.dumps(reply, default=_plain), True
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BaseException as error:  # with SystemExit, which the parent tells
        values, text, good = [], json.dumps(_failure(error, path)), False
    send(answers, json.loads(text), values)
    return good


def _failure(error: BaseException, path: str) -> dict[str, Any]:
    """Return an exception as plain values, with the last line of the adapter's file that led to it."""
    lines: list[int | None] = [
        line
        for name, line, _, _ in traceback.extract_tb(error.__traceback__)
        if os.path.abspath(name) == os.path.abspath(path)
    ]
    if isinstance(error, SyntaxError) and not lines:
        lines = [error.lineno]
    text = " ".join(str(error).split())[:300]
    return {"error": type(error).__name__, "text": text, "line": lines[-1] if lines else None}


def _generators() -> dict[str, Any]:
    """Return the states of the global generators, to see whether an adapter seeds or uses them."""
    state = np.random.get_state(legacy=False)
    inner = state["state"]
    numbers = inner["key"].tobytes(), inner["pos"], state["has_gauss"], state["gauss"]
    return {"numpy": numbers, "random": random.getstate()}


def _plain(value: Any) -> Any:
    if isinstance(value, (np.integer, np.floating, np.bool_)):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise TypeError(f"the claim must hold plain values, got {type(value).__name__}")


def send(stream: BinaryIO, header: Mapping[str, Any], arrays: Sequence[np.ndarray]) -> None:
    """Write one message."""
    header = dict(header, arrays=[list(array.shape) for array in arrays])
    text = json.dumps(header).encode("utf-8")
    stream.write(struct.pack(">Q", len(text)) + text)
    for array in arrays:
        stream.write(np.ascontiguousarray(array, dtype="<f8").tobytes())
    stream.flush()


def receive(stream: BinaryIO) -> tuple[dict[str, Any], list[np.ndarray]] | None:
    """Return the header and the arrays of the next message; None at the end of the stream."""
    size = stream.read(8)
    if len(size) < 8:
        return None
    header = json.loads(stream.read(struct.unpack(">Q", size)[0]).decode("utf-8"))
    arrays = []
    for shape in header["arrays"]:
        count = 1
        for length in shape:
            count *= length
        raw = stream.read(8 * count)
        arrays.append(np.frombuffer(raw, dtype="<f8").astype(np.float64).reshape(shape))
    return header, arrays


if __name__ == "__main__":
    main()
