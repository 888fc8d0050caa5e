"""Whether anything outside the releases moves with private data: runs pinned to one another's releases.

Where each release of a run is replaced by that of the reference, everything that an observer sees has to be
the same bit for bit, whatever the data, lots, cohorts (where they are secret) and noise are: the weights,
what reaches the server, buffers, the states of optimisers, clippers and schedules, the ledger, the end.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from fedpriv.tools.verify.probes import Recording, first_difference
from fedpriv.tools.verify.table import Check


def check(reference: Recording, other: Recording, what: str) -> Check:
    """That a run which is pinned to the reference and differs in ``what`` looks the same."""
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
    shown = ", ".join(dict.fromkeys(_short(path) for path in paths))
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
    """The same of several, in one row."""
    rows = [check(reference, made, words) for words, made in others]
    wrong = [row for row in rows if not row.passed]
    name = f"with one {unit} changed in {len(rows)} ways"
    if not wrong:
        return replace(rows[0], name=name)
    return replace(wrong[0], name=name, measured=f"{len(wrong)} ways are seen")


def _short(path: str) -> str:
    return re.sub(r"\[\d+\]", "", path)
