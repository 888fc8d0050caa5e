"""Rank 0's part of a run over several processes: start the workers, tell them the run, share its chunks.

    team = team_of(settings)          before torch is used: worker processes start, and import it meanwhile
    team.join(running, config)        once data, model and streams are there: workers build the same run
    context.crew                      the trainer's chunks now go through :class:`fedpriv.workers.crew.Crew`

Workers get the configuration, the key of lots and batches, the place in memory of the records, and in every
round what the computation of a chunk reads: the weights and the state of clipper, attackers and the user's
own parts. They get no key of noise, and nothing but sums of one chunk and numbers of its units comes back.
Results cross unencrypted, so a published run has workers alone that rank 0 starts, over sockets that nobody
else can reach.
"""

from __future__ import annotations

import atexit
import hashlib
import math
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.distributed as dist
from omegaconf import DictConfig

import fedpriv
from fedpriv.algorithms.client_computation import LocalStep, StepState
from fedpriv.algorithms.run_context import RoundWeights
from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError, FedprivError, WorkerError, show
from fedpriv.common.words import counted
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.settings import Settings
from fedpriv.experiment.shared_records import SharedRecords
from fedpriv.privacy.clippers.step_clip import ChunkAnswer
from fedpriv.workers.crew import ChunkCosts, Crew
from fedpriv.workers.link import CONNECT_SECONDS, Link, LostError, accepted
from fedpriv.workers.places import LOCAL_HOST, Place, place_of
from fedpriv.workers.processes import LocalWorker

if TYPE_CHECKING:
    from fedpriv.experiment.running import Run

CLASSES = {kind.__name__: kind for kind in (StepState, LocalStep, RoundWeights, ChunkAnswer)}
"""Data classes of tasks and answers."""
MODULE = "fedpriv.experiment.worker"
_SECONDS_TO_CLOSE = 5.0


class _Member:
    """A worker of a team: rank 0's end of its link.

    Args:
        rank: Its number.
        store: The store through which both ends find each other; None: rank 0 starts the worker.
        host: Address that rank 0 listens on; None: the one that the machine's name stands for.
    """

    def __init__(self, rank: int, store: dist.Store | None = None, host: str | None = None):
        self.rank = rank
        self.link: Link | None = None
        self._store, self._host, self._gone = store, host, False
        self._expected: Mapping[str, Any] = {}
        self._seconds = CONNECT_SECONDS

    def connect(self, device: torch.device) -> None:
        """Wait for the worker, and open the link.

        Raises:
            WorkerError: The worker did not come, or was lost before.
        """
        if self._gone:
            raise WorkerError(f"rank {self.rank} is lost")
        try:
            self._open(device)
        except LostError as error:
            raise self.lost(error) from None

    def _open(self, device: torch.device) -> None:
        assert self._store is not None
        connection = accepted(self._store, f"rank{self.rank}", self._host)
        self.link = Link(connection, CLASSES, device)

    def lost(self, error: LostError) -> WorkerError:
        """Give the worker up, and return an error that names it."""
        self.link, self._gone = None, True
        return WorkerError(f"rank {self.rank} is lost: {error}")

    def begin_again(self) -> None:
        """Refuse: only the launcher can start the process of a rank again."""
        raise WorkerError(f"rank {self.rank} is lost")

    def tell(self, message: Mapping[str, Any]) -> None:
        """Send a message. Raises WorkerError where the worker is gone."""
        assert self.link is not None
        try:
            self.link.send(message)
        except LostError as error:
            raise self.lost(error) from None

    def hear(self, seconds: float) -> dict[str, Any]:
        """Return the worker's answer. Raises WorkerError where none comes in time, or an error comes."""
        assert self.link is not None
        try:
            answer = self.link.receive(seconds)
        except LostError as error:
            raise self.lost(error) from None
        if "error" in answer:
            raise FedprivError(f"rank {self.rank} ({answer['host']}): {answer['error']}")
        return answer

    def set_up(self, setup: Mapping[str, Any], expected: Mapping[str, Any], seconds: float) -> None:
        """Let the worker build the run; :meth:`check` then hears whether it could.

        Args:
            setup: What the worker is told of the run.
            expected: The facts in which the worker must agree.
            seconds: Time for its answer.
        """
        self._expected, self._seconds = expected, seconds
        self.tell({"setup": setup})

    def check(self) -> None:
        """Compare the run that the worker has built. Raises FedprivError where it differs from rank 0's."""
        _refuse_other_facts(self.rank, self.hear(self._seconds), self._expected)

    def kill(self) -> None:
        """Do nothing: the launcher ends the process when rank 0 has ended."""

    def close(self) -> None:
        """Tell the worker that the run is over. It waits for the next one."""
        if self.link is not None:
            with suppress(LostError):
                self.link.send({"over": "run"}, _SECONDS_TO_CLOSE)

    def dismiss(self) -> None:
        """Tell the worker that no further run comes, also where there was none."""
        if self._gone:
            return
        if self.link is None:
            self.connect(torch.device("cpu"))
        self.tell({"over": "all"})


class _LocalMember(_Member):
    """A worker that rank 0 starts on its own machine."""

    def __init__(self, rank: int):
        super().__init__(rank)
        self._setup: Mapping[str, Any] = {}
        self._device = torch.device("cpu")
        self.start()

    def start(self) -> None:
        """Start the process. It imports torch, says so, and waits."""
        self.process = LocalWorker(MODULE, self.rank)

    def _open(self, device: torch.device) -> None:
        self._device = device
        self.link = Link(self.process.connection, CLASSES, device)
        self.link.receive(CONNECT_SECONDS)

    def lost(self, error: LostError) -> WorkerError:
        self.link = None
        end, last = self.process.end(0.5), self.process.last_lines()
        self.process.kill()
        sentence = f"rank {self.rank}, a worker on this machine, {end or f'is lost: {error}'}"
        return WorkerError(sentence + (f"; it said last: {' / '.join(last)}" if last else ""))

    def set_up(self, setup: Mapping[str, Any], expected: Mapping[str, Any], seconds: float) -> None:
        self._setup = setup
        super().set_up(setup, expected, seconds)

    def begin_again(self) -> None:
        self.start()
        self.connect(self._device)
        self.set_up(self._setup, self._expected, self._seconds)
        self.check()  # code or data may have been edited since the run began

    def kill(self) -> None:
        self.link = None
        self.process.kill()

    def close(self) -> None:
        if self.link is not None:
            with suppress(LostError):
                self.link.send({"over": "all"}, _SECONDS_TO_CLOSE)
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
            "history": context.streams.history is not None,
            "records": self.records.place(),
            "path": [str(Path(entry).resolve()) for entry in sys.path],
        }
        facts = facts_of(origin.numerics, origin.digest)
        for member in self._members:
            if member.link is None:
                member.connect(device)
            member.set_up(setup, facts, self._settings.runtime.worker_timeout)
        errors: list[FedprivError] = []
        for member in self._members:  # all of them: no answer stays behind for the next run
            try:
                member.check()
            except FedprivError as error:
                errors.append(error)
        if errors:
            raise errors[0]
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
        """Let the workers end, or wait for the next run."""
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
        history = self._loop.context.streams.history
        return {
            # A worker has the weights from the state of the round.
            "state": replace(task, weights=task.weights[:0]),
            "history": None if history is None else history.state_dict(),
        }

    def clients(self, task: StepState) -> np.ndarray:
        return task.local_step.cohort


# ---- the processes of a run


def team_of(settings: Settings) -> Team | None:
    """Return the workers of the run that this process makes, as rank 0; None if it computes alone.

    Raises:
        ConfigError: The keys contradict each other or the environment.
    """
    workers = settings.runtime.workers
    place = place_of(workers)
    if place is not None:
        if settings.publish:
            raise ConfigError(
                "runtime.workers",
                workers,
                "a number with publish=true",
                f"processes that {place.launcher} starts would send private sums over the network in the "
                "clear",
            )
        if settings.runtime.worker_restarts:
            hint = "torchrun --max-restarts=N starts all ranks again"
            raise ConfigError(
                "runtime.worker_restarts", settings.runtime.worker_restarts, "0 here", hint
            )
        return Team(_launched_members(place), settings)
    if not isinstance(workers, int) or workers == 1:
        return None
    return Team([_LocalMember(rank) for rank in range(1, workers)], settings)


@cache
def launched_store(place: Place) -> dist.Store:
    """Return the store of processes that torchrun or Slurm has started.

    Raises:
        WorkerError: The machine of rank 0 cannot be reached, or its port is taken.
    """
    try:
        if place.launcher == "torchrun":  # torchrun has a store of its own
            store, _, _ = next(dist.rendezvous("env://"))
            return store
        return dist.TCPStore(
            place.host,
            place.port,
            is_master=place.rank == 0,
            timeout=timedelta(seconds=CONNECT_SECONDS),
            wait_for_workers=False,
        )
    except (RuntimeError, ValueError) as error:
        reason = str(error).splitlines()[0]
        raise WorkerError(
            f"rank {place.rank}: no connection to {place.host}, port {place.port} ({reason}); set "
            "MASTER_PORT to a free port of that machine"
        ) from None


@cache
def _launched_members(place: Place) -> list[_Member]:
    """Return the workers that torchrun or Slurm has started; they serve all runs of this process."""
    store = launched_store(place)
    host = LOCAL_HOST if place.one_machine else None
    members = [_Member(rank, store, host) for rank in range(1, place.size)]
    atexit.register(dismiss, place)
    return members


@cache
def dismiss(place: Place) -> None:
    """Tell the workers that torchrun or Slurm has started that no further run comes."""
    with suppress(FedprivError):
        for member in _launched_members(place):
            member.dismiss()


def facts_of(numerics: Mapping[str, Any], run: str) -> dict[str, Any]:
    """Return everything in which the processes of a run must agree.

    Args:
        numerics: The numeric environment of the process.
        run: The digest of the run.
    """
    return {"host": socket.gethostname(), "run": run, "source": _source_digest(), **numerics}


def _refuse_other_facts(
    rank: int, worker_facts: Mapping[str, Any], here: Mapping[str, Any]
) -> None:
    """Raise FedprivError where a worker has built another run, or rounds otherwise."""
    differing = [k for k in here if k != "host" and worker_facts.get(k) != here[k]]
    if differing:
        names = {
            "run": "data, initial weights or code of your own",
            "source": "source of fedpriv",
        }
        differences = "; ".join(
            names[key]
            if key in names
            else f"{key} is {show(worker_facts.get(key))} there and {show(here[key])} here"
            for key in differing
        )
        raise FedprivError(
            f"rank {rank} ({worker_facts['host']}) differs from rank 0 ({here['host']}): {differences}; "
            "results would depend on which rank computes which clients"
        )


@cache
def _source_digest() -> str:
    """Return a digest of fedpriv's own modules."""
    package = Path(fedpriv.__file__).parent
    digest = hashlib.blake2b(digest_size=16)
    for path in sorted(package.rglob("*.py")):
        digest.update(str(path.relative_to(package)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()
