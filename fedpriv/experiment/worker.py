"""A worker: it builds the run that rank 0 describes, and computes the chunks of clients that it is sent.

A worker makes no folder, takes no lock, downloads nothing and draws no noise. It keeps nothing from round to
round: rank 0 sends everything that a chunk's computation reads beside records and settings.

Rank 0 starts it as ``python -m fedpriv.workers``.
"""

from __future__ import annotations

import signal
import sys
import time
import traceback
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from omegaconf import OmegaConf

from fedpriv.common.endings import as_sentence
from fedpriv.common.errors import FedprivError, ReleaseError
from fedpriv.common.secret_streams import SecretStreams
from fedpriv.experiment.spread import CLASSES, facts_of
from fedpriv.workers.link import Link, LostError
from fedpriv.workers.processes import inherited, told

if TYPE_CHECKING:
    from fedpriv.experiment.loop import Loop


class _Chunks:
    """The run as a worker builds it: it computes chunks of clients.

    Args:
        setup: What rank 0 tells of the run.
        rank: Number of this worker, which chooses one of several GPUs.

    Attributes:
        facts: Everything in which the processes must agree.
        device: Device of the model and the records.
    """

    def __init__(self, setup: Mapping[str, Any], rank: int):
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
        tune_allocator(reading=True)
        device = self.device = _device(setup["device"], rank)
        records, threads = found_at(setup["records"]), setup["threads"]
        context = context_with_canaries(parts, device, records, threads)
        digest = run_digest(config, parts.settings.rounds, context)
        numerics = numeric_environment(
            device, torch.get_num_threads(), context.engine.name, context.chunk
        )
        self.facts = facts_of(numerics, digest)
        # No key of noise comes here: whoever draws noise here by mistake gets an error.
        streams: Any = SecretStreams(bytes.fromhex(setup["sampling_key"]), noise_key=None)  # type: ignore[arg-type]
        context.streams = streams
        self._loop: Loop = Loop(parts, context, None)
        self._buffers = self._versions()

    def begin_round(self, state: Mapping[str, Any]) -> None:
        """Take over the state with which a round begins."""
        self._loop.load_round_state(state)

    def answer(self, task: Mapping[str, Any]) -> dict[str, Any]:
        """Compute a chunk."""
        context = self._loop.context
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


def _device(name: str, rank: int) -> torch.device:
    """Return a worker's device: the GPUs of the machine are dealt out to the ranks."""
    from fedpriv.experiment.machine import resolve_device

    if name == "cpu" or ":" in name:
        return resolve_device(name)
    return resolve_device(f"cuda:{rank % max(1, torch.cuda.device_count())}")


def serve(link: Link, rank: int) -> None:
    """Answer rank 0 until it says that the work is over, or is gone.

    Args:
        link: The connection to rank 0.
        rank: Number of this worker.
    """
    chunks: _Chunks | None = None
    failure: Exception | None = None  # to take over the state of the round
    while "over" not in (message := link.receive()):
        try:
            if "setup" in message:
                chunks = _Chunks(message["setup"], rank)
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
    return {
        "error": message,
        "kind": "ReleaseError" if isinstance(error, ReleaseError) else "FedprivError",
    }


def main() -> None:
    """Serve the rank 0 that started this process."""
    facts = told()
    # Rank 0 ends at the boundary of a round, and says so.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    link = Link(inherited(facts["socket"]), CLASSES)
    try:
        link.send({"begun": True})
        serve(link, facts["rank"])
    except LostError:
        sys.exit(1)  # rank 0 is gone, and nobody is there to tell
