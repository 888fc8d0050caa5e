"""A run that is interrupted and resumed: it goes on as it would have, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO
from typing import Any

import torch

from fedpriv.common.errors import FedprivError
from fedpriv.experiment.checkpoint import plain
from fedpriv.experiment.loop import Loop
from fedpriv.tools.verify.probes import Probe
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check

NAME = "an interrupted run, resumed"
ROUNDS, BEFORE = 4, 2
"""Rounds of the run from the first, and how many of them are before its checkpoint."""


class _After:
    """Interrupts a loop once it has run so many rounds."""

    def __init__(self, loop: Loop, rounds: int):
        self._loop, self._rounds = loop, rounds

    @property
    def requested(self) -> bool:
        return self._loop.rounds_done >= self._rounds


def check(subject: Subject) -> Iterator[Check]:
    """Run some rounds without a break; run half of them, save, go on with new objects; compare what is seen.
    Nothing is said of a run that has no round after the checkpoint."""
    try:
        whole, before = _run(subject, ROUNDS), _run(subject, BEFORE)
    except FedprivError as error:
        yield Check("outside", NAME, "it stops", "runs", passed=False, note=str(error))
        return
    if whole.recording.rounds <= BEFORE:
        return
    after, broke = None, None
    try:
        file = BytesIO()
        torch.save(plain(before.loop.state_dict(), "the state"), file)
        file.seek(0)
        after = _run(subject, ROUNDS, torch.load(file, weights_only=True))
    except Exception as error:  # of a part that does not take its state back
        broke = f"{type(error).__name__}: {' '.join(str(error).split())}"
    differing = [] if after is None else _differing(whole, after)
    own: Any = before.loop.state_dict().get("own", {})
    forgotten = own.get("forgotten", {})
    named = "; ".join(f"{part}: {', '.join(names)}" for part, names in forgotten.items())
    why = broke or f"{', '.join(differing[:3])} differ after the checkpoint"
    hint = f" ({named} changed and are in no state_dict)" if named else ""
    yield Check(
        "outside",
        NAME,
        f"{len(differing)} values differ" if broke is None else "it stops",
        "0 values differ",
        passed=broke is None and not differing,
        note=f"{why}{hint}: a part keeps what it does not save, or saves what it does not take back",
    )


def _run(subject: Subject, rounds: int, state: dict | None = None) -> Probe:
    """Run on to so many rounds, from a saved state or from the beginning."""
    loop = subject.loop()
    loop.problem.streams = subject.streams(subject.sampling_name, "A")
    if state is not None:
        loop.load_state_dict(state)
    probe = Probe(loop)
    loop.run([probe], _After(loop, rounds))
    return probe


def _differing(whole: Probe, after: Probe) -> list[str]:
    """Return the names of what differs in any round after the checkpoint."""
    found: set[str] = set()
    unbroken, resumed = whole.recording, after.recording
    for one, other in zip(unbroken.states[BEFORE:], resumed.states, strict=False):
        found |= {name for name in {*one, *other} if one.get(name) != other.get(name)}
    if len(resumed.states) != unbroken.rounds - BEFORE:
        found.add("the number of rounds")
    elif not torch.equal(unbroken.weights[-1], resumed.weights[-1]):
        found.add("the weights")
    return sorted(found)
