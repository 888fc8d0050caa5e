"""A worker: it builds the run that rank 0 describes, and computes the chunks of clients that it is sent.

A worker makes no folder, takes no lock, downloads nothing and draws no noise. It keeps nothing from round to
round: rank 0 sends everything that a chunk's computation reads beside records and settings.

Rank 0 starts it as ``python -m fedpriv.workers``. Under torchrun and Slurm the command of the run
is a worker where its rank is above 0, see :func:`serve_launcher`.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from omegaconf import OmegaConf

from fedpriv.common.endings import as_sentence
from fedpriv.common.errors import FedprivError, ReleaseError, WorkerError
from fedpriv.common.secret_streams import History, SecretStreams
from fedpriv.experiment.spread import CLASSES, facts_of, launched_store
from fedpriv.workers.link import Link, LostError, connected
from fedpriv.workers.places import Place
from fedpriv.workers.processes import end_with_parent, inherited, told

if TYPE_CHECKING:
    from fedpriv.experiment.loop import Loop
    from fedpriv.experiment.shared_records import Machine


class _Chunks:
    """The run as a worker builds it: it computes chunks of clients.

    Args:
        setup: What rank 0 tells of the run.
        local_rank: Number of this process on its machine, which chooses one of several GPUs.
        machine: The workers of this machine, where torchrun or Slurm has started them.

    Attributes:
        facts: Everything in which the processes must agree.
        device: Device of the model and the records.
    """

    def __init__(self, setup: Mapping[str, Any], local_rank: int, machine: Machine | None = None):
        # Imported late: a worker that is never asked imports nothing but torch.
        from fedpriv.engine import tune_allocator
        from fedpriv.experiment.assemble import context_with_canaries
        from fedpriv.experiment.build import build_parts
        from fedpriv.experiment.loop import Loop
        from fedpriv.experiment.machine import numeric_environment
        from fedpriv.experiment.search import with_rounds
        from fedpriv.experiment.secrets import run_digest
        from fedpriv.experiment.shared_records import found_at

        sys.path += [entry for entry in setup["path"] if entry not in sys.path]
        config = OmegaConf.create(setup["config"])
        rounds = setup["rounds"]
        parts = build_parts(config if rounds is None else with_rounds(config, rounds))
        if parts.dataset.to_be_downloaded:
            raise FedprivError(
                f"the data set {parts.dataset.name} is not on this machine, and workers download nothing; "
                "put it where rank 0 has it, or name its folder by dataset.path or FEDPRIV_DATA"
            )
        if machine is None:
            source = found_at(setup["records"])
        else:
            timeout = parts.settings.runtime.worker_timeout
            source = machine.source(setup["records"], timeout)
        torch.set_num_threads(setup["threads"])
        tune_allocator(reading=True)
        device = self.device = _device(setup["device"], local_rank)
        context = context_with_canaries(parts, device, source)
        tune_allocator()
        digest = run_digest(config, parts.settings.rounds, context)
        numerics = numeric_environment(
            device, torch.get_num_threads(), context.engine.name, context.chunk
        )
        self.facts = facts_of(numerics, digest)
        # No key of noise comes here: whoever draws noise here by mistake gets an error.
        streams: Any = SecretStreams(bytes.fromhex(setup["sampling_key"]), noise_key=None)  # type: ignore[arg-type]
        context.streams = replace(streams, history=History() if setup["history"] else None)
        self._loop: Loop = Loop(parts, context, None)
        self._buffers = self._versions()

    def begin_round(self, state: Mapping[str, Any]) -> None:
        """Take over the state with which a round begins."""
        self._loop.load_round_state(state)

    def answer(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Compute a chunk."""
        context = self._loop.context
        if context.streams.history is not None:
            context.streams.history.load_state_dict(task["history"])
        began, cpu = time.perf_counter(), time.process_time()
        state = replace(task["state"], weights=context.model.flat)
        answer = self._loop.trainer.computation.compute(state)
        if self._versions() != self._buffers:
            raise FedprivError(
                "the model changes its buffers while it computes (as batch normalisation does): with several "
                "processes each would have buffers of its own; set runtime.workers=1"
            )
        seconds, cpu = time.perf_counter() - began, time.process_time() - cpu
        return {"answer": answer, "seconds": seconds, "cpu": cpu}

    def _versions(self) -> list[int]:
        """Return numbers that grow whenever a buffer of the model is written to."""
        return [buffer._version for buffer in self._loop.context.model.module.buffers()]


def _device(name: str, local_rank: int) -> torch.device:
    """Return this worker's device: the GPUs of a machine are dealt out to its ranks."""
    from fedpriv.experiment.machine import resolve_device

    if name == "cpu" or ":" in name:
        return resolve_device(name)
    return resolve_device(f"cuda:{local_rank % max(1, torch.cuda.device_count())}")


def serve(
    link: Link, local_rank: int = 0, runs: int | None = None, machine: Machine | None = None
) -> None:
    """Answer rank 0 until it says that the work is over, or is gone.

    Args:
        link: The connection to rank 0.
        local_rank: Number of this process on its machine.
        runs: Number of runs after which to return; None: rank 0 says when.
        machine: The workers of this machine, where torchrun or Slurm has started them.
    """
    chunks: _Chunks | None = None
    failure: Exception | None = None  # to take over the state of the round
    while True:
        message = link.receive()
        if "over" in message:
            chunks = None  # before the next run reads its data
            if machine is not None:
                machine.close()
            runs = None if runs is None else runs - 1
            if message["over"] == "all" or runs == 0:
                return
            continue
        try:
            if "setup" in message:
                chunks = _Chunks(message["setup"], local_rank, machine)
                link.device = chunks.device
                link.send(chunks.facts)
                continue
            assert chunks is not None
            if "round" in message:
                failure = None
                chunks.begin_round(message)
                continue
            if failure is not None:
                raise failure
            answer = chunks.answer(message["task"])
        except LostError:
            raise
        except Exception as error:
            if "round" in message:  # it has no answer: the next task has
                failure = error
                continue
            answer = _report(error)
        link.send(answer)


def _report(error: Exception) -> dict[str, Any]:
    """Return what rank 0 is told of an error."""
    known = as_sentence(error)
    if known is None:
        traceback.print_exc()
    message = f"{type(error).__name__}: {error}" if known is None else str(known)
    kind = "ReleaseError" if isinstance(error, ReleaseError) else "FedprivError"
    return {"error": message, "kind": kind, "host": os.uname().nodename}


def serve_launcher(place: Place, runs: int | None = None) -> None:
    """Serve rank 0 as a process that torchrun or Slurm has started.

    Args:
        place: The place of this process.
        runs: Number of runs after which to return; None: rank 0 says when.

    Raises:
        WorkerError: Rank 0 cannot be reached, or is gone.
    """
    _ignore_signals()
    if place.launcher == "torchrun":
        end_with_parent()
    store = launched_store(place)
    try:
        serve(_link_of(store, place), place.local_rank, runs, _machine_of(store, place))
    except (LostError, RuntimeError) as error:
        raise WorkerError(f"rank {place.rank}: rank 0 is gone ({error})") from None


_links: dict[Place, Link] = {}


def _link_of(store: dist.Store, place: Place) -> Link:
    """Return the link of this process to rank 0, which serves all runs of the process."""
    if place not in _links:
        _links[place] = Link(connected(store, f"rank{place.rank}"), CLASSES)
    return _links[place]


@cache
def _machine_of(store: dist.Store, place: Place) -> Machine:
    """Return the machine of this process, which serves all runs of the process."""
    from fedpriv.experiment.shared_records import Machine

    return Machine(store, place)


def _ignore_signals() -> None:
    """Leave Ctrl-C and SIGTERM to rank 0, which ends at the boundary of a round and says so."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def main() -> None:
    """Serve the rank 0 that started this process."""
    facts = told()
    _ignore_signals()
    link = Link(inherited(facts["socket"]), CLASSES)
    try:
        link.send({"begun": True})
        serve(link, facts["rank"])
    except LostError:
        sys.exit(1)  # rank 0 is gone, and nobody is there to tell
