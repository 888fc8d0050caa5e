"""The test that nothing outside the releases moves with private data: runs pinned to one another's releases.

Where each release of a run is replaced by that of the reference, everything that an observer sees has to be
the same bit for bit, whatever the data, lots, cohorts (where they are secret) and noise are: the weights,
what reaches the server, buffers, the states of optimisers, clippers and schedules, the ledger, the end.

And a run that is interrupted and resumed has to go on as it would have, bit for bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO
from typing import Any

import torch

from fedpriv.common.errors import FedprivError
from fedpriv.experiment.checkpoint import plain
from fedpriv.tools.verify.probes import Probe, Recording, first_difference
from fedpriv.tools.verify.subject import Stops, Subject
from fedpriv.tools.verify.table import Check

_RESUMED = "an interrupted run, resumed"
_ROUNDS, _BEFORE = 4, 2
"""Rounds of a run that is resumed, from the first, and how many of them are before its checkpoint."""


def check(reference: Recording, other: Recording, what: str) -> Check:
    """Test that a run which is pinned to the reference and differs in ``what`` looks the same."""
    name, compared = f"with {what}", len(reference.states[0]) if reference.states else 0
    expected = "0 differ"
    if other.broke is not None:
        return Check(
            "outside",
            name,
            "the run stopped",
            expected,
            passed=False,
            note=f"with {what} the run ends otherwise, though it releases the same: {other.broke}",
        )
    found = first_difference(reference, other)
    measured = f"{compared} values after {reference.rounds} rounds"
    if found is None:
        return Check("outside", name, measured, expected, passed=True)
    after, paths = found
    shown = ", ".join(dict.fromkeys(re.sub(r"\[\d+\]", "", path) for path in paths))
    return Check(
        "outside",
        name,
        f"{len(paths)} of {compared} differ",
        expected,
        passed=False,
        note=f"with {what} other values are seen after round {after}, though every release is the same: "
        f"{shown[:300]}",
    )


def check_all(reference: Recording, others: Sequence[tuple[str, Recording]], unit: str) -> Check:
    """Test several such runs, in one row."""
    rows = [check(reference, made, words) for words, made in others]
    wrong = [row for row in rows if not row.passed]
    name = f"with one {unit} changed in {len(rows)} ways"
    if not wrong:
        return replace(rows[0], name=name)
    return replace(wrong[0], name=name, measured=f"{len(wrong)} ways are seen")


# ---- resumed


def resumed(subject: Subject) -> Iterator[Check]:
    """Run some rounds without a break; run half of them, save, go on with new objects; compare what is seen.
    Nothing is said of a run that has no round after the checkpoint."""
    try:
        whole, before = _run(subject, _ROUNDS), _run(subject, _BEFORE)
    except FedprivError as error:
        yield Check("outside", _RESUMED, "it stops", "runs", passed=False, note=str(error))
        return
    if whole.recording.rounds <= _BEFORE:
        return
    after, broke = None, None
    try:
        file = BytesIO()
        torch.save(plain(before.loop.state_dict(), "the state"), file)
        file.seek(0)
        after = _run(subject, _ROUNDS, torch.load(file, weights_only=True))
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
        _RESUMED,
        f"{len(differing)} values differ" if broke is None else "it stops",
        "0 values differ",
        passed=broke is None and not differing,
        note=f"{why}{hint}: a part keeps what it does not save, or saves what it does not take back",
    )


def _run(subject: Subject, rounds: int, state: dict | None = None) -> Probe:
    """Run on to so many rounds, from a saved state or from the beginning."""
    loop = subject.loop()
    loop.context.streams = subject.streams(subject.sampling_name, "A")
    if state is not None:
        loop.load_state_dict(state)
    probe = Probe(loop)
    loop.run([probe], Stops(probe.recording, rounds - loop.rounds_done))
    return probe


def _differing(whole: Probe, after: Probe) -> list[str]:
    """Return the names of what differs in any round after the checkpoint."""
    found: set[str] = set()
    unbroken, second = whole.recording, after.recording
    for one, other in zip(unbroken.states[_BEFORE:], second.states, strict=False):
        found |= {name for name in {*one, *other} if one.get(name) != other.get(name)}
    if len(second.states) != unbroken.rounds - _BEFORE:
        found.add("the number of rounds")
    elif not torch.equal(unbroken.weights[-1], second.weights[-1]):
        found.add("the weights")
    return sorted(found)
