"""Rank 0's side: the chunks of a step are handed out to the workers, and rank 0 computes too.

Whoever is free takes the next chunk, the longest first. Answers are given back in the order of the chunks,
whoever computed them and whenever they came.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
import torch

from fedpriv.common.errors import FedprivError, ReleaseError
from fedpriv.common.exact import exact_digest
from fedpriv.workers.link import Link, LostError
from fedpriv.workers.packing import Classes, pack

WINDOW = 16
"""Answers that may wait at rank 0 for one before them, beside one for each process."""
REPEAT_EVERY = 50
"""Rounds after which rank 0 computes one chunk of a worker again, and compares the bits."""

Task = TypeVar("Task")
Answer = TypeVar("Answer")


class Worker(Protocol):
    """A worker as rank 0 knows it.

    Attributes:
        rank: Its number, from 1 on.
        link: The connection; None while there is none.
    """

    rank: int
    link: Link | None

    def lost(self, error: LostError) -> FedprivError:
        """Give the worker up, and return an error that says what became of it."""

    def begin_again(self) -> None:
        """Start another process in the place of a lost one."""

    def kill(self) -> None:
        """End the worker at once."""

    def close(self) -> None:
        """Let the worker end."""


class SharedWork(Protocol):
    """Contents and clients of the tasks that a crew hands out."""

    def round_state(self) -> Mapping[str, object]:
        """Return what all chunks of the present round share; each worker gets it once a round."""

    def sent(self, task: Any) -> Mapping[str, object]:
        """Return what a worker must get of a task beside the state of the round."""

    def clients(self, task: Any) -> np.ndarray:
        """Return the clients of a task."""


@dataclass
class Effort:
    """Work of a run's processes so far.

    Attributes:
        busy: Time that each rank computed [ranks].
        cpu_seconds: Processor time of the workers, without rank 0.
        repeated: Number of chunks that rank 0 computed again and found the same.
    """

    busy: np.ndarray
    cpu_seconds: float = 0.0
    repeated: int = 0


class ChunkCosts:
    """Forecast of how long a chunk takes: by what its clients took before, else by their records.

    Args:
        records: Number of records of each client [K].
    """

    def __init__(self, records: np.ndarray):
        self._records = np.maximum(records, 1).astype(float)
        self._per_record = np.full(len(records), np.nan)  # seconds

    def of(self, clients: np.ndarray) -> float:
        """Return the forecast for a chunk of clients, in seconds once any chunk was measured."""
        rates = self._per_record[clients]
        measured = self._per_record[~np.isnan(self._per_record)]
        rates = np.where(np.isnan(rates), measured.mean() if len(measured) else 1.0, rates)
        return float((rates * self._records[clients]).sum())

    def note(self, clients: np.ndarray, seconds: float) -> None:
        """Take note of how long a chunk of clients took."""
        if len(clients):
            self._per_record[clients] = seconds / self._records[clients].sum()


class _Step(Generic[Answer]):
    """The chunks of one step: which of them are to be computed, and the answers so far.

    Attributes:
        closed: True once no further chunk is handed out.
    """

    def __init__(self, order: list[int], window: int):
        self._waiting, self._window = order, window
        self._answers: dict[int, Answer] = {}
        self._given_back = 0
        self._changed = threading.Condition()
        self._error: Exception | None = None
        self.closed = False

    def _next(self) -> int | None:
        """Return the first chunk of the order whose answer would not have to wait for too many others."""
        last = self._given_back + self._window
        return next((index for index in self._waiting if index < last), None)

    def take(self, wait: bool) -> int | None:
        """Return a chunk to compute; None if there is none (any more, or without ``wait`` for now)."""
        with self._changed:
            while (index := self._next()) is None:
                if not (wait and self._waiting):
                    return None
                self._changed.wait()
            self._waiting.remove(index)
            return index

    def put(self, index: int, answer: Answer) -> None:
        with self._changed:
            self._answers[index] = answer
            self._changed.notify_all()

    def put_back(self, index: int) -> None:
        """Let somebody else compute a chunk, first of all: it is waited for longest."""
        with self._changed:
            self._waiting.insert(0, index)
            self._changed.notify_all()

    def fail(self, error: Exception) -> None:
        """Let the step end with an error."""
        with self._changed:
            self._error = self._error or error
            self._waiting.clear()
            self._changed.notify_all()

    def close(self) -> None:
        """Hand out no further chunk."""
        with self._changed:
            self.closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def answer(self, index: int) -> Answer | None:
        """Return the answer of a chunk and forget it; None if it is not there yet."""
        with self._changed:
            if self._error is not None:
                raise self._error
            answer = self._answers.pop(index, None)
            if answer is not None:
                self._given_back = index + 1
                self._changed.notify_all()
            return answer

    def wait_for(self, index: int) -> None:
        """Wait until the answer of a chunk is there, a chunk may be taken, or a worker has failed."""
        with self._changed:
            while not (self._error or index in self._answers or self._next() is not None):
                self._changed.wait()


class Crew:
    """The workers of a run, as its rank 0 uses them.

    Args:
        workers: The workers, which wait for tasks.
        work: What the tasks are.
        classes: Data classes that messages hold.
        costs: Forecast of the chunks' times.
        timeout: Seconds within which a worker must take a task, and answer it.
        restarts: How many workers may be lost; others take their places.

    Attributes:
        line: Prints a line for the user.
        effort: What was done so far.
    """

    def __init__(
        self,
        workers: Sequence[Worker],
        work: SharedWork,
        classes: Classes,
        costs: ChunkCosts,
        *,
        timeout: float,
        restarts: int = 0,
    ):
        self.workers, self._work, self._classes, self._costs = workers, work, classes, costs
        self._timeout, self._restarts = timeout, restarts
        self.line: Callable[[str], None] = print
        self._threads = ThreadPoolExecutor(len(workers), thread_name_prefix="worker-link")
        self._round: int | None = None
        self._state: torch.Tensor | None = None  # packed, of this round
        self._informed: set[int] = set()  # ranks that have the state of this round
        self._repeat = False
        self.effort = Effort(np.zeros(1 + len(workers)))

    def answers(
        self, tasks: Sequence[Task], compute: Callable[[Task], Answer], round_index: int
    ) -> Iterator[Answer]:
        """Compute the chunks of one step, and yield their answers in the order of the chunks.

        Args:
            tasks: The task of each chunk.
            compute: Computes a task in this process.
            round_index: The round.

        Raises:
            FedprivError: A worker failed, was lost and none may be lost, or computes other bits than rank 0.
        """
        if len(tasks) == 1:
            yield compute(tasks[0])
            return
        self._begin_round(round_index)
        costs = [self._costs.of(self._work.clients(task)) for task in tasks]
        order = sorted(range(len(tasks)), key=lambda index: -costs[index])
        step: _Step[tuple[Answer, int]] = _Step(order, WINDOW + 1 + len(self.workers))
        # Each process has one chunk before anybody takes a second one.
        free = [worker for worker in self.workers if worker.link is not None]
        first = [step.take(wait=False) for _ in free]
        mine = step.take(wait=False)
        # Sent here: a thread would have to wait for Python's lock, which this one needs for its own chunk.
        failures = [
            None if index is None else self._send(worker, tasks[index])
            for worker, index in zip(free, first, strict=True)
        ]
        feeders = [
            self._threads.submit(self._feed, worker, step, tasks, index, failure)
            for worker, index, failure in zip(free, first, failures, strict=True)
        ]
        try:
            for index, task in enumerate(tasks):
                while (computed := step.answer(index)) is None:
                    if mine is not None:
                        started = time.perf_counter()
                        step.put(mine, (compute(tasks[mine]), 0))
                        self._note(0, tasks[mine], time.perf_counter() - started)
                    else:
                        step.wait_for(index)
                    mine = step.take(wait=False)
                answer, rank = computed
                if rank and self._repeat:
                    self._repeat = False
                    self._refuse_other_bits(answer, compute(task), rank)
                yield answer
        except KeyboardInterrupt:  # at once: no answer is waited for
            step.close()
            for worker in self.workers:
                worker.kill()
            wait(feeders)
            feeders.clear()  # what they tell of killed workers is no news
            raise
        finally:
            step.close()
            for feeder in feeders:
                feeder.result()

    @property
    def cpu_seconds(self) -> float:
        """Processor time of the workers in chunks."""
        return self.effort.cpu_seconds

    def close(self) -> None:
        """Let all workers end."""
        self._threads.shutdown()
        for worker in self.workers:
            worker.close()

    def _begin_round(self, round_index: int) -> None:
        """Prepare the state of a round for the workers, and start others in the places of lost ones."""
        if round_index == self._round:
            return
        for worker in self.workers:
            if worker.link is None:
                worker.begin_again()
        self._round, self._informed = round_index, set()
        self._repeat = round_index % REPEAT_EVERY == 0
        self._state = pack({"round": round_index, **self._work.round_state()}, self._classes)

    def _send(self, worker: Worker, task: Any) -> Exception | None:
        """Send a task, after the state of the round if the worker does not have it.

        Returns:
            What went wrong; None: nothing.
        """
        link = worker.link
        assert link is not None
        assert self._state is not None
        try:
            if worker.rank not in self._informed:
                link.send_packed(self._state, self._timeout)
                self._informed.add(worker.rank)
            link.send({"task": self._work.sent(task)}, self._timeout)
        except Exception as error:
            return error
        return None

    def _feed(
        self,
        worker: Worker,
        step: _Step[tuple[Answer, int]],
        tasks: Sequence[Task],
        index: int | None,
        failure: Exception | None,
    ) -> None:
        """Let a worker compute chunks until none is left.

        Args:
            worker: The worker.
            step: The step.
            tasks: All tasks of the step.
            index: The chunk that was sent to it; None: none was left.
            failure: What went wrong when it was sent.
        """
        while index is not None:
            link = worker.link
            assert link is not None
            try:
                if failure is not None:
                    raise failure
                reply = link.receive(self._timeout)
                if "error" in reply:
                    raise raised(worker.rank, reply)
            except LostError as error:
                sentence = worker.lost(error)
                if step.closed:  # by an error or Ctrl-C at rank 0, which is what the user is told
                    return
                if not self._restarts:
                    step.fail(sentence)
                    return
                self._restarts -= 1
                self.line(f"{sentence}; its chunk is computed again")
                step.put_back(index)
                return
            except Exception as error:
                step.fail(error)
                return
            self._note(worker.rank, tasks[index], reply["seconds"])
            self.effort.cpu_seconds += reply["cpu"]
            step.put(index, (reply["answer"], worker.rank))
            index = step.take(wait=True)
            failure = None if index is None else self._send(worker, tasks[index])

    def _note(self, rank: int, task: Any, seconds: float) -> None:
        self.effort.busy[rank] += seconds
        self._costs.note(self._work.clients(task), seconds)

    def _refuse_other_bits(self, answer: Any, again: Any, rank: int) -> None:
        """Raise FedprivError where a worker's answer is not bit for bit what rank 0 computes."""
        self.effort.repeated += 1
        worker_digests, digests = (
            {name: exact_digest(value) for name, value in vars(one).items()}
            for one in (answer, again)
        )
        differing = [name for name in digests if digests[name] != worker_digests[name]]
        if differing:
            raise FedprivError(
                f"rank {rank} computes other bits than rank 0 for the same clients ({', '.join(differing)}): "
                "results would depend on the number of workers; use code whose "
                "result follows from its arguments alone"
            )


def raised(rank: int, reply: Mapping[str, Any]) -> FedprivError:
    """Return the error that a worker reports; what a release refuses is told as rank 0 would tell it."""
    if reply["kind"] == ReleaseError.__name__:
        return ReleaseError(reply["error"])
    return FedprivError(f"rank {rank}: {reply['error']}")
