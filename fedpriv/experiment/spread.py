"""Rank 0's part of a run over several processes: start the workers, tell them the run, share its chunks.

    team = team_of(settings)          before torch is used: worker processes start, and import it meanwhile
    team.join(running, config)        once data, model and streams are there: workers build the same run
    context.crew                      the trainer's chunks now go through :class:`fedpriv.workers.crew.Crew`

Workers get the configuration, the key of lots and batches, the place in memory of the records, and in every
round what the computation of a chunk reads: the weights and the state of clipper, attackers and the user's
own parts. They get no key of noise, and nothing but sums of one chunk and numbers of its units comes back.
Results cross unencrypted, over sockets that nobody else can reach.
"""

from __future__ import annotations

import hashlib
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from omegaconf import DictConfig

import fedpriv
from fedpriv.algorithms.client_computation import LocalStep, StepState
from fedpriv.algorithms.run_context import RoundWeights
from fedpriv.common import config as configuration
from fedpriv.common.errors import FedprivError, WorkerError, show
from fedpriv.common.words import counted
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.settings import Settings
from fedpriv.experiment.shared_records import SharedRecords
from fedpriv.privacy.clippers.step_clip import ChunkAnswer
from fedpriv.workers.crew import ChunkCosts, Crew
from fedpriv.workers.link import CONNECT_SECONDS, Link, LostError
from fedpriv.workers.processes import LocalWorker

if TYPE_CHECKING:
    from fedpriv.experiment.running import Run

CLASSES = {kind.__name__: kind for kind in (StepState, LocalStep, RoundWeights, ChunkAnswer)}
"""Data classes of tasks and answers."""
MODULE = "fedpriv.experiment.worker"
_SECONDS_TO_CLOSE = 5.0


class _Member:
    """A worker of a team: its process, and rank 0's end of its link.

    Args:
        rank: Its number.
    """

    def __init__(self, rank: int):
        self.rank = rank
        self.link: Link | None = None
        self._setup: Mapping[str, Any] = {}
        self._expected: Mapping[str, Any] = {}
        self._seconds = 0.0
        self._device = torch.device("cpu")
        self.start()

    def start(self) -> None:
        """Start the process. It imports torch, says so, and waits."""
        self.process = LocalWorker(MODULE, self.rank)

    def connect(self, device: torch.device) -> None:
        """Open the link, and wait until the worker has begun. Raises WorkerError where it is lost."""
        self._device = device
        try:
            self._open()
        except LostError as error:
            raise self.lost(error) from None

    def _open(self) -> None:
        self.link = Link(self.process.connection, CLASSES, self._device)
        self.link.receive(CONNECT_SECONDS)

    def lost(self, error: LostError) -> WorkerError:
        """Give the worker up, and return an error that says what became of it."""
        self.link = None
        end, last = self.process.end(0.5), self.process.last_lines()
        self.process.kill()
        sentence = f"rank {self.rank}, a worker on this machine, {end or f'is lost: {error}'}"
        return WorkerError(sentence + (f"; it said last: {' / '.join(last)}" if last else ""))

    def begin_again(self) -> None:
        """Start another process in the place of the lost one, which must build the same run."""
        self.start()
        self.connect(self._device)
        self.set_up(self._setup, self._expected, self._seconds)
        self.check()  # code or data may have been edited since the run began

    def set_up(self, setup: Mapping[str, Any], expected: Mapping[str, Any], seconds: float) -> None:
        """Let the worker build the run; :meth:`check` then hears whether it could.

        Args:
            setup: What the worker is told of the run.
            expected: The facts in which the worker must agree.
            seconds: Time for its answer.

        Raises:
            WorkerError: The worker is gone.
        """
        self._setup, self._expected, self._seconds = setup, expected, seconds
        assert self.link is not None
        try:
            self.link.send({"setup": setup})
        except LostError as error:
            raise self.lost(error) from None

    def check(self) -> None:
        """Compare the run that the worker has built with rank 0's.

        Raises:
            WorkerError: No answer comes in time.
            FedprivError: The worker cannot build the run, or has built another one, or rounds otherwise.
        """
        assert self.link is not None
        try:
            facts = self.link.receive(self._seconds)
        except LostError as error:
            raise self.lost(error) from None
        if "error" in facts:
            raise FedprivError(f"rank {self.rank}: {facts['error']}")
        names = {"run": "data, initial weights or code of your own", "source": "source of fedpriv"}
        differences = "; ".join(
            names.get(key) or f"{key} is {show(facts.get(key))} there and {show(value)} here"
            for key, value in self._expected.items()
            if facts.get(key) != value
        )
        if differences:
            raise FedprivError(
                f"rank {self.rank} differs from rank 0: {differences}; "
                "results would depend on which rank computes which clients"
            )

    def kill(self) -> None:
        """End the worker at once."""
        self.link = None
        self.process.kill()

    def close(self) -> None:
        """Let the worker end."""
        if self.link is not None:
            with suppress(LostError):
                self.link.send({"over": True}, _SECONDS_TO_CLOSE)
            self.process.close()
        else:
            self.process.kill()


class Team:
    """The workers of rank 0, from their start to the end of the run.

    Args:
        members: The workers.
        settings: The root keys.

    Attributes:
        records: The records of the run, which workers on this machine share.
    """

    def __init__(self, members: Sequence[_Member], settings: Settings):
        self._members, self._settings = members, settings
        self.records = SharedRecords()
        self._crew: Crew | None = None

    def join(self, running: Run, config: DictConfig, rounds: int | None) -> Crew:
        """Let the workers build the same run, compare theirs with this one, and share its chunks from now on.

        Args:
            running: The run, whose data are read.
            config: The configuration that it was made of.
            rounds: T, where a search has found it; None: as in the configuration.

        Returns:
            What hands out the chunks.

        Raises:
            WorkerError: A worker is lost.
            FedprivError: A worker cannot build the run, or builds another one.
        """
        loop, context = running.loop, running.loop.context
        device, origin = context.model.device, running.origin
        setup = {
            "config": {**configuration.as_tree(config), "tracker": None},
            "rounds": rounds,
            "threads": origin.numerics["threads"],
            "device": device.type if device.type == "cpu" else str(self._settings.runtime.device),
            "sampling_key": context.streams.sampling_key.hex(),
            "records": self.records.place(),
            "path": [str(Path(entry).resolve()) for entry in sys.path],
        }
        facts = facts_of(origin.numerics, origin.digest)
        for member in self._members:
            member.connect(device)
            member.set_up(setup, facts, self._settings.runtime.worker_timeout)
        for member in self._members:
            member.check()
        crew = Crew(
            self._members,
            _Shared(loop),
            CLASSES,
            ChunkCosts(np.asarray(context.data.records_per_client)),
            timeout=self._settings.runtime.worker_timeout,
            restarts=self._settings.runtime.worker_restarts,
        )
        context.crew = self._crew = crew
        processes, chunks = len(self._members) + 1, _chunks_of(loop)
        threads = torch.get_num_threads()
        running.notes.append(
            f"{processes} processes of {counted(threads, 'thread')} each; one process gives the same bits "
            f"with runtime.threads={threads}"
        )
        if chunks < processes:
            running.notes.append(
                f"note: a round has {counted(chunks, 'chunk')} of clients, so {processes - chunks} of the "
                f"{processes} processes have nothing to do (chunk=N makes chunks of N clients)"
            )
        return crew

    def close(self) -> None:
        """Let the workers end."""
        if self._crew is not None:
            self._crew.close()
        else:
            for member in self._members:
                member.close()
        self.records.close()

    def __enter__(self) -> Team:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is not None and not issubclass(kind, FedprivError):
            for member in self._members:
                member.kill()
        self.close()


def _chunks_of(loop: Loop) -> int:
    """Return the number of chunks of an expected cohort."""
    context = loop.context
    cohort = loop.parts.algorithm.expected_cohort(context.data.client_count)
    if context.chunk is None or cohort is None:
        return 1
    return max(1, math.ceil(cohort / context.chunk))


class _Shared:
    """Messages to workers: the state of a round, and the tasks."""

    def __init__(self, loop: Loop):
        self._loop = loop

    def round_state(self) -> Mapping[str, object]:
        return self._loop.round_state()

    def sent(self, task: StepState) -> Mapping[str, object]:
        # A worker has the weights from the state of the round.
        return {"state": replace(task, weights=task.weights[:0])}

    def clients(self, task: StepState) -> np.ndarray:
        return task.local_step.cohort


def team_of(settings: Settings) -> Team | None:
    """Start the workers of the run that this process makes, as rank 0; None if it computes alone."""
    workers = settings.runtime.workers
    if workers == 1:
        return None
    return Team([_Member(rank) for rank in range(1, workers)], settings)


def facts_of(numerics: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Return everything in which the processes of a run must agree.

    Args:
        numerics: The numeric environment of the process.
        run: The digest of the run.
    """
    return {"run": run, "source": _source_digest(), **numerics}


@cache
def _source_digest() -> str:
    """Return a digest of fedpriv's own modules."""
    package = Path(fedpriv.__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
