"""Tests that nothing outside the releases depends on private data, by runs with equal releases.

Each release of a run is replaced by the release of the reference. Then everything that an observer sees has
to be equal bit for bit, whatever the data, the lots, the secret cohorts and the noise are. This covers the
weights, the uploads that reach the server, buffers, the states of optimisers, clippers and schedules, the
ledger, and the end of the run.

Besides, a run that is interrupted and resumed has to go on bit for bit as an uninterrupted run.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from io import BytesIO

import torch

from fedpriv.common.errors import FedprivError
from fedpriv.experiment.checkpoint import plain
from fedpriv.tools.verify.probes import Probe, Recording, first_difference
from fedpriv.tools.verify.subject import Stops, Subject
from fedpriv.tools.verify.table import Check

_RESUMED = "an interrupted run, resumed"
_ROUNDS, _BEFORE = 4, 2
"""Number of rounds of the resumed run, and of its rounds before the checkpoint."""


def check(reference: Recording, other: Recording, change: str) -> Check:
    """Test that a pinned run with another ``change`` looks like the reference."""
    name, compared = f"with {change}", len(reference.states[0]) if reference.states else 0
    expected = "0 differ"
    if other.failure is not None:
        return Check(
            "outside",
            name,
            "the run stopped",
            expected,
            passed=False,
            note=f"with {change} the run fails, although every release is the same: {other.failure}",
        )
    difference = first_difference(reference, other)
    measured = f"{compared} values after {reference.rounds} rounds"
    if difference is None:
        return Check("outside", name, measured, expected, passed=True)
    after, paths = difference
    names = ", ".join(dict.fromkeys(re.sub(r"\[\d+\]", "", path) for path in paths))
    return Check(
        "outside",
        name,
        f"{len(paths)} of {compared} differ",
        expected,
        passed=False,
        note=f"with {change} other values are seen after round {after}, although every release is the same: "
        f"{names[:300]}",
    )


def check_all(reference: Recording, others: Sequence[tuple[str, Recording]], unit: str) -> Check:
    """Test several pinned runs in one row."""
    rows = [check(reference, recording, label) for label, recording in others]
    failures = [row for row in rows if not row.passed]
    name = f"with one {unit} changed in {len(rows)} ways"
    if not failures:
        return replace(rows[0], name=name)
    return replace(failures[0], name=name, measured=f"{len(failures)} ways are seen")


# ---- resumed


def resumed(subject: Subject) -> Iterator[Check]:
    """Compare an uninterrupted run with a run that is saved after half of its rounds and resumed.

    The resumed run starts with new objects. There is no check where no round follows the checkpoint.
    """
    try:
        whole, before = _run(subject, _ROUNDS), _run(subject, _BEFORE)
    except FedprivError as error:
        yield Check("outside", _RESUMED, "it stops", "runs", passed=False, note=str(error))
        return
    if whole.recording.rounds <= _BEFORE:
        return
    after, failure = None, None
    try:
        file = BytesIO()
        # The state goes through a file as a checkpoint does: an object in memory could keep what a
        # file does not hold.
        torch.save(plain(before.loop.state_dict(), "the state"), file)
        file.seek(0)
        after = _run(subject, _ROUNDS, torch.load(file, weights_only=True))
    except Exception as error:  # a part may raise anything when it does not take its state back
        failure = f"{type(error).__name__}: {' '.join(str(error).split())}"
    differing = [] if after is None else _differing(whole.recording, after.recording)
    reason = failure or f"{', '.join(differing[:3])} differ after the checkpoint"
    yield Check(
        "outside",
        _RESUMED,
        f"{len(differing)} values differ" if failure is None else "it stops",
        "0 values differ",
        passed=failure is None and not differing,
        note=f"{reason}: a part does not save all of its state, or does not load what it saved",
    )


def _run(subject: Subject, rounds: int, state: dict | None = None) -> Probe:
    """Run until ``rounds`` rounds are done in all, and return the probe that observed it.

    Args:
        subject: The run that is verified; it gives a new loop and the same streams every time.
        rounds: Number of rounds, those before the saved state included.
        state: State of a loop to go on from; None: the beginning.

    Returns:
        The probe, with the loop, and with the recording of the rounds that were run here.
    """
    loop = subject.loop()
    loop.context.streams = subject.streams(subject.sampling_name, "A")
    if state is not None:
        loop.load_state_dict(state)
    probe = Probe(loop)
    loop.run([probe], Stops(probe.recording, rounds - loop.rounds_done))
    return probe


def _differing(whole: Recording, resumed_part: Recording) -> list[str]:
    """Return the names of the values that differ in any round after the checkpoint."""
    names: set[str] = set()
    for first, other in zip(whole.states[_BEFORE:], resumed_part.states, strict=False):
        names |= {name for name in {*first, *other} if first.get(name) != other.get(name)}
    if resumed_part.rounds != whole.rounds - _BEFORE:
        names.add("the number of rounds")
    elif not torch.equal(whole.weights[-1], resumed_part.weights[-1]):
        names.add("the weights")
    return sorted(names)
