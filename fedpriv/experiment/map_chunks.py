"""The chunks of a step, computed by several processes of this machine or by the nodes of a Ray cluster.

    SharedChunks(runtime).join(running)   # of a run with runtime.workers > 1 or runtime.cluster=ray
    context.map_chunks(compute, tasks)    # computes elsewhere from now on

Each process gets a copy of everything that computes a chunk: records, model, engine, clipper, attackers, and
the user's own parts. The copy travels once. Before each step it gets the weights, and the state of clipper,
attackers and own parts. With a chunk travel its clients and all that was drawn for them: lots, orders, words
of augmentation, buckets. No key travels, neither of noise nor of sampling, and no configuration. The answer
is a pure function of all this. Answers are taken in the order of the chunks, so the number of processes
changes no bit.
"""

from __future__ import annotations

import io
import math
import os
import pickle
import re
import signal
import sys
import time
import traceback
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from multiprocessing import current_process
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import torch
from torch import Tensor, nn

from fedpriv.algorithms.client_computation import ClientComputation, StepState
from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.common.endings import as_sentence
from fedpriv.common.errors import ConfigError, FedprivError, ReleaseError, WorkerError
from fedpriv.common.exact import exact_digest
from fedpriv.common.notices import notice
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.common.words import counted
from fedpriv.common.workers import job_of_a_worker
from fedpriv.data.federated import FederatedData
from fedpriv.data.records import ReadRecords
from fedpriv.engine import tune_allocator
from fedpriv.experiment.loop import Loop, load_states_of, states_of
from fedpriv.experiment.machine import resolve_device
from fedpriv.experiment.settings import RAY, Runtime, Settings
from fedpriv.privacy.clippers.step_clip import ChunkAnswer
from fedpriv.privacy.core.sampling import ChunkDraws
from fedpriv.privacy.mechanisms.mechanism import Mechanism

if TYPE_CHECKING:
    from fedpriv.experiment.running import Run

REPEAT_EVERY = 50
"""Rounds after which one chunk is computed in this process too, and the bits are compared."""


# ---- what travels


class _Pickler(cloudpickle.Pickler):
    """Pickler that leaves keys, noise and everything else behind that computes no chunk."""

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, Tensor) and value.dtype != torch.bfloat16:
            trains = value.requires_grad if isinstance(value, nn.Parameter) else None
            return _tensor, (value.detach().cpu().numpy(), value.device.type != "cpu", trains)
        if isinstance(value, (SecretStreams, Mechanism, ServerStep, Settings, SharedChunks)):
            return _nothing, ()
        if isinstance(value, FederatedData):
            state: Mapping[str, Any] = {**vars(value), "test": None, "validation": None}
            return object.__new__, (type(value),), state
        if isinstance(value, RunContext):
            return object.__new__, (RunContext,), {**vars(value), "seed": None, "original": None}
        return super().reducer_override(value)


_device = torch.device("cpu")  # of tensors that were on an accelerator where they come from


def _tensor(values: np.ndarray, accelerated: bool, trains: bool | None) -> Tensor:
    tensor = torch.from_numpy(values).to(_device if accelerated else "cpu")
    return tensor if trains is None else nn.Parameter(tensor, requires_grad=trains)


def _nothing() -> None:
    return None


def _packed(value: object) -> bytes:
    with io.BytesIO() as file:
        _Pickler(file, protocol=pickle.HIGHEST_PROTOCOL).dump(value)
        return file.getvalue()


class ChunkWork:
    """Everything that computes the chunks of a run.

    Args:
        loop: The run.
    """

    def __init__(self, loop: Loop):
        self.context = loop.context
        compute: Any = loop.trainer.computation.compute
        self.computation: ClientComputation = compute.__self__  # not who watches it for canaries
        self._statistics, self._own = loop.statistics, loop.own
        self._canaries: Any = loop.context.canaries

    def state(self) -> dict[str, object]:
        """Return everything that a step reads and that changes over rounds."""
        attack, statistics = self.context.attack, self._statistics
        return {
            "weights": self.context.model.flat,
            "clipper": self.context.clipper.state_dict(),
            "attack": None if attack is None else attack.state_dict(),
            "own": states_of(self._own),
            "statistics": None if statistics is None else statistics.state_dict(),
            "silent": self._canaries is not None and self._canaries.silent,
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take over what :meth:`state` returned in another process."""
        self.context.model.set(state["weights"])
        if state["clipper"]:
            self.context.clipper.load_state_dict(state["clipper"])
        if state["attack"] and self.context.attack is not None:
            self.context.attack.load_state_dict(state["attack"])
        load_states_of(self._own, state["own"])
        if self._statistics is not None:
            self._statistics.load_state_dict(state["statistics"])
        if self._canaries is not None:
            self._canaries.silent = state["silent"]

    def drawn(self, task: StepState) -> dict[tuple[Any, ...], Any]:
        """Return all draws of a chunk."""
        streams, notes = self.context.streams, {}  # type: ignore[var-annotated]
        self.context.streams = ChunkDraws(streams, notes)  # type: ignore[assignment]
        try:
            self.computation.draw(task.local_step)
        finally:
            self.context.streams = streams
        return notes

    def compute(
        self, task: StepState, notes: dict[tuple[Any, ...], Any]
    ) -> tuple[ChunkAnswer, list[np.ndarray] | None]:
        """Compute a chunk from its draws: (the answer, the records that were read if they are noted)."""
        train, buffers = self.context.data.train, list(self.context.model.module.buffers())
        log: list[np.ndarray] | None = None
        if isinstance(train, ReadRecords):
            vars(train)["log"] = log = []
        self.context.streams = ChunkDraws(None, notes)  # type: ignore[assignment]
        versions = [buffer._version for buffer in buffers]
        answer = self.computation.compute(replace(task, weights=self.context.model.flat))
        if versions != [buffer._version for buffer in buffers]:
            raise FedprivError(
                "the model changes its buffers while it computes (as batch normalisation does): with several "
                "processes each would have buffers of its own; set runtime.workers=1"
            )
        return answer, log


# ---- a process that computes


class _Held:
    """The run of a process that computes chunks, and the number of the last step whose state it took over."""

    run: tuple[Any, ...] = ()
    name: object = None
    work: ChunkWork
    step = -1


def _begin(*run: Any) -> None:
    """Note the run of a new process of the pool, which ends with the process that started it."""
    from joblib.externals.loky import process_executor

    # loky ends a process whose memory grew, as a leak. Here the process has met a larger cohort.
    process_executor._USE_PSUTIL = False
    _Held.run = run
    with job_of_a_worker():
        pass


def _answer(run: tuple[Any, ...], step: int, state: Any, chunk: bytes) -> bytes:
    """Compute a chunk: (the answer, the records that were read, seconds of a processor), packed.

    Args:
        run: The run; empty for the one that the process began with.
        step: Number of the step in the run.
        state: The state with which the step begins.
        chunk: The task and its draws.

    Returns:
        In the place of the answer the error, and in the place of the records the traceback of a defect.
    """
    try:
        began = time.process_time()
        with job_of_a_worker():
            _hold(*(run or _Held.run))
            if _Held.step != step:
                _Held.work.load(pickle.loads(_read(state)))
                _Held.step = step
            answer, read = _Held.work.compute(*pickle.loads(chunk))
        return _packed((answer, read, time.process_time() - began))
    except Exception as error:
        known = as_sentence(error)
        kind = ReleaseError if isinstance(error, ReleaseError) else FedprivError
        words = f"a worker failed: {type(error).__name__}: {error}" if known is None else str(known)
        return _packed((kind(words), traceback.format_exc() if known is None else "", 0.0))


def _hold(name: object, path: Sequence[str], threads: int, device: str, work: Any) -> None:
    """Build what computes the chunks of a run, unless this process has it."""
    global _device
    if _Held.name == name:
        return
    sys.path += [entry for entry in path if entry not in sys.path]
    torch.set_num_threads(threads)
    if device == "cuda":  # the processes share the GPUs that they see
        number = int(re.sub(r"\D", "", current_process().name) or 0)
        device = f"cuda:{number % max(1, torch.cuda.device_count())}"
    _device = resolve_device(device)
    tune_allocator()
    _Held.work, _Held.step = pickle.loads(_read(work)), -1
    _Held.name = name


def _read(value: Any) -> bytes:
    if isinstance(value, bytes):
        return value
    import ray

    return ray.get(value[0])  # Ray fetches no place inside a list by itself


# ---- the engines: processes of this machine, nodes of a cluster


class _Pool:
    """Processes of this machine: loky's executor, whose processes are commands of their own.

    Attributes:
        lost: Errors that say that a process is gone.
        size: Number of processes; twice as many chunks are under way.
        may_differ: Whether the processes may run on other processors.
    """

    may_differ = False

    def __init__(self, runtime: Runtime):
        from joblib.externals.loky import process_executor

        self.size = runtime.workers
        self._make, self._pool = process_executor.ProcessPoolExecutor, None  # type: Any, Any
        self.lost = (process_executor.BrokenProcessPool, TimeoutError)

    def begin(self, run: tuple[Any, ...], threads: int, device: torch.device) -> str:
        """Note the run that the processes compute, and return a line for the user."""
        self._run = run
        return (
            f"{self.size} processes of {counted(threads, 'thread')} each; one process gives the "
            f"same bits with runtime.threads={threads}"
        )

    def restart(self) -> None:
        """Have other processes compute what comes."""
        self.close()

    def place(self, value: bytes) -> Any:
        """Return a value as chunks take it along."""
        return value

    def submit(self, *job: Any) -> Any:
        """Let a process compute a chunk; the arguments are those of :func:`_answer` after the first."""
        # A process inherits the mask: Ctrl-C is for this process alone, which ends the others.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            if self._pool is None:
                self._pool = self._make(self.size, initializer=_begin, initargs=self._run)
            return self._pool.submit(_answer, (), *job)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def result(self, job: Any, seconds: float) -> bytes:
        """Wait for the answer of a chunk."""
        return job.result(seconds)

    def ended(self, error: BaseException) -> str:
        """Describe the end of a process, for an error of ``lost``."""
        end = (re.findall(r"\w+\(-?\d+\)", str(error)) or ["itself"])[0]
        memory = " (the system does so when memory runs out)" if "SIGKILL" in end else ""
        return f"a worker on this machine was ended by {end}{memory}"

    def close(self) -> None:
        """End all processes at once."""
        if self._pool is not None:
            self._pool.shutdown(kill_workers=True)
            self._pool = None


class _Cluster:
    """The nodes of a Ray cluster, each of which has fedpriv installed. One chunk is one task.

    The attributes and methods are those of :class:`_Pool`.

    Raises:
        ConfigError: There is no such cluster, or anybody in its network can read it or run code there.
    """

    may_differ = True

    def __init__(self, runtime: Runtime):
        # Read when Ray is imported: it would upload the working directory, with the keys of runs in it.
        os.environ["RAY_ENABLE_UV_RUN_RUNTIME_ENV"] = os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        try:
            import ray
        except ImportError:
            raise ConfigError(
                "runtime.cluster", RAY, "null without pip install 'fedpriv[ray]'"
            ) from None

        self._ray, self._own = ray, not ray.is_initialized()
        address = runtime.cluster_address or os.environ.get("RAY_ADDRESS", "auto")
        if self._own:
            try:
                ray.init(address, log_to_driver=False, logging_level="ERROR")
            except (ConnectionError, ray.exceptions.RayError, RuntimeError, ValueError) as error:
                raise ConfigError(
                    "runtime.cluster_address", address, "the address of a Ray cluster", str(error)
                ) from None
        try:
            self._refuse_open(runtime)
        except ConfigError:
            self.close()
            raise
        self.lost = (ray.exceptions.RayError, TimeoutError)

    def _refuse_open(self, runtime: Runtime) -> None:
        """Raise ConfigError for a cluster that strangers can use, or that gets the working directory."""
        ray = self._ray
        if ray.get_runtime_context().runtime_env.get("working_dir"):
            why = "keys of runs lie there"
            raise ConfigError("runtime.cluster", RAY, "null in a Ray job with a working_dir", why)
        # A node's own variables count: this process may ask for more than the cluster does.
        names = ("RAY_AUTH_MODE", "RAY_USE_TLS")
        ask = ray.remote(num_cpus=0)(lambda: [os.environ.get(name, "").lower() for name in names])
        mode, encrypted = ray.get(ask.remote())
        missing = []
        if mode != "token":
            missing.append(
                "RAY_AUTH_MODE=token, without which anybody in its network can run code there"
            )
        if encrypted not in ("1", "true"):
            missing.append("RAY_USE_TLS=1, without which records cross its network unencrypted")
        if missing and not runtime.trusted_network:
            raise ConfigError(
                "runtime.trusted_network",
                runtime.trusted_network,
                f"true for a Ray cluster without {' and without '.join(missing)}",
            )

    @property
    def size(self) -> int:
        """Number of processors of the cluster at present."""
        return max(1, int(self._ray.cluster_resources().get("CPU", 1)))

    def begin(self, run: tuple[Any, ...], threads: int, device: torch.device) -> str:
        needs = {"num_cpus": threads, "num_gpus": int(device.type == "cuda"), "max_retries": 0}
        self._task = self._ray.remote(**needs)(_answer)
        self._run = (*run[:-1], self.place(run[-1]))
        return (
            f"chunks are computed by the Ray cluster of {counted(len(self._ray.nodes()), 'node')}"
        )

    def restart(self) -> None:
        """Do nothing: Ray starts its processes itself."""

    def place(self, value: bytes) -> Any:
        return [self._ray.put(value)]

    def submit(self, *job: Any) -> Any:
        return self._task.remote(self._run, *job)

    def result(self, job: Any, seconds: float) -> bytes:
        return self._ray.get(job, timeout=seconds)

    def ended(self, error: BaseException) -> str:
        reason = (str(error).strip() or type(error).__name__).splitlines()[-1]
        return f"a worker of the Ray cluster is lost ({reason})"

    def close(self) -> None:
        if self._own:
            self._ray.shutdown()


# ---- the process that has the run


class SharedChunks:
    """The chunks of one run, computed elsewhere.

    Args:
        runtime: Number of processes, or address of the cluster.

    Attributes:
        line: Prints a line for the user.
        cpu_seconds: Processor time of the other processes in chunks.
        repeated: Number of chunks that were computed here too and compared.
    """

    def __init__(self, runtime: Runtime):
        self._runtime, self._restarts = runtime, runtime.worker_restarts
        self._engine = _Pool(runtime) if runtime.cluster is None else _Cluster(runtime)
        self.line: Callable[[str], None] = print
        self.cpu_seconds, self.repeated, self._step = 0.0, 0, 0

    def join(self, running: Run) -> None:
        """Have the chunks of a run computed elsewhere from now on."""
        global _device
        self._work, context = ChunkWork(running.loop), running.loop.context
        _device = device = context.model.device
        threads = torch.get_num_threads()
        path = [str(Path(entry).resolve()) for entry in sys.path]
        # A worker may take any GPU, unless the configuration names one.
        name = self._runtime.device if ":" in self._runtime.device else device.type
        run = (time.time_ns(), path, threads, name, _packed(self._work))
        running.notes.append(self._engine.begin(run, threads, device))
        cohort = running.loop.parts.algorithm.expected_cohort(context.data.client_count) or 1.0
        chunks, most = max(1, math.ceil(cohort / (context.chunk or cohort))), self._engine.size
        if chunks < most:
            note = f"note: {counted(chunks, 'chunk')} a round for {most} processes (chunk=N: of N clients)"
            running.notes.append(note)
        context.shares = self

    def map(
        self, compute: Callable[[StepState], ChunkAnswer], tasks: Sequence[StepState]
    ) -> Iterator[ChunkAnswer]:
        """Compute the chunks of one step, and yield their answers in the order of the chunks.

        Args:
            compute: Computes a chunk in this process.
            tasks: The task of each chunk.

        Raises:
            WorkerError: A process is lost and none may be lost any more, or does not answer in time.
            FedprivError: A chunk cannot be computed, or has other bits elsewhere than here.
        """
        if len(tasks) == 1:
            yield compute(tasks[0])
            return
        engine, waiting = self._engine, iter(tasks)
        self._step += 1
        state = engine.place(_packed(self._work.state()))
        under_way: deque[list[Any]] = deque()  # [chunk, its job; None: it is not submitted]
        for task in tasks:
            for further in islice(waiting, 2 * engine.size - len(under_way)):
                sent = replace(further, weights=further.weights[:0])  # the state has the weights
                under_way.append([_packed((sent, self._work.drawn(further))), None])
            reply = None
            while reply is None:
                try:
                    for place in under_way:
                        place[1] = place[1] or engine.submit(self._step, state, place[0])
                    reply = engine.result(under_way[0][1], self._runtime.worker_timeout)
                except engine.lost as error:
                    self._begin_again(error)
                    for place in under_way:
                        place[1] = None
            under_way.popleft()
            answer, read, seconds = pickle.loads(reply)
            if isinstance(answer, FedprivError):
                sys.stderr.write(read)
                raise answer
            if read is not None:
                vars(self._work.context.data.train)["log"].extend(read)
            self.cpu_seconds += seconds
            if task is tasks[0] and task.local_step.round_index % REPEAT_EVERY == 0:
                self._compare(answer, compute(task))
            yield answer

    def _begin_again(self, error: BaseException) -> None:
        """Have lost processes replaced, or raise WorkerError where none may be lost."""
        sentence = self._engine.ended(error)
        if isinstance(error, TimeoutError):
            sentence = f"a worker gave no answer within {self._runtime.worker_timeout:g} s"
        if not self._restarts:
            raise WorkerError(sentence) from None
        self._restarts -= 1
        self._engine.restart()
        self.line(f"{sentence}; its chunks are computed again")

    def _compare(self, answer: ChunkAnswer, again: ChunkAnswer) -> None:
        """Refuse other bits of a chunk, or warn of them where nodes of other kinds may be the reason."""
        self.repeated += 1
        there = {name: exact_digest(value) for name, value in vars(answer).items()}
        differing = [
            name for name, here in vars(again).items() if exact_digest(here) != there[name]
        ]
        if not differing:
            return
        sentence = (
            f"a worker computes other bits than this process for the same clients ({', '.join(differing)}): "
            "results depend on who computes what"
        )
        if not self._engine.may_differ:
            raise FedprivError(
                f"{sentence}; use code whose result follows from its arguments alone"
            )
        notice(f"warning: {sentence}; take nodes of one kind", kind="nodes")

    def close(self) -> None:
        """End the processes."""
        self._engine.close()
