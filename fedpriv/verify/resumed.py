"""A run that is interrupted and resumed: it goes on as it would have, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator
from io import BytesIO

import torch

from fedpriv.experiment.checkpoint import plain
from fedpriv.verify.subject import Stops, Subject
from fedpriv.verify.table import Check
from fedpriv.verify.taps import Recording, Tap

NAME = "an interrupted run, resumed"


def check(subject: Subject, reference: Recording) -> Iterator[Check]:
    """Run half of the reference's rounds, save, go on with new objects, and compare what is seen."""
    half = reference.rounds // 2
    if not half or reference.broke is not None:
        return
    before = _run(subject, half)
    after, broke = None, None
    try:
        file = BytesIO()
        torch.save(plain(before.loop.state_dict(), "the state"), file)
        file.seek(0)
        after = _run(subject, reference.rounds, torch.load(file, weights_only=True))
    except Exception as error:  # of a part that does not take its state back
        broke = f"{type(error).__name__}: {' '.join(str(error).split())}"
    differing = [] if after is None else _differing(reference, half, after)
    forgotten = before.loop.state_dict().get("own", {}).get("forgotten", {})
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


def _run(subject: Subject, rounds: int, state: dict | None = None) -> Tap:
    """Run on to so many rounds, from a saved state or from the beginning."""
    loop = subject.loop()
    loop.problem.streams = subject.streams(subject.sampling_name, "A")
    if state is not None:
        loop.load_state_dict(state)
    tap = Tap(loop)
    loop.run([tap], Stops(loop, rounds))
    return tap


def _differing(reference: Recording, half: int, after: Tap) -> list[str]:
    """Return the names of what differs in any round after the checkpoint."""
    resumed, found = after.recording, set()
    rounds = zip(reference.states[half:], resumed.states, strict=False)
    for one, other in rounds:
        found |= {name for name in {*one, *other} if one.get(name) != other.get(name)}
    if len(resumed.states) != reference.rounds - half:
        found.add("the number of rounds")
    weights = (run.weights[-1:] for run in (reference, resumed))
    if any(not torch.equal(a, b) for a, b in zip(*weights, strict=True)):
        found.add("the weights")
    return sorted(found)
