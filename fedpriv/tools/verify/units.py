"""The sensitivity of other units: the first, the last, the largest, the smallest, and others at random.

A mechanism may treat one client differently from the rest: clip it at a neighbour's norm, weigh it twice, or
weigh clients by their data. Clients are made unequal for this, because weights by data size are all the same
where sizes are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedpriv.common.errors import FedprivError
from fedpriv.tools.verify import sensitivity, side_channels
from fedpriv.tools.verify.context import Context, statements
from fedpriv.tools.verify.interventions import AS_IT_IS
from fedpriv.tools.verify.probes import Recording
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check
from fedpriv.tools.verify.variations import ABSENT, adversarial

_ROUNDS = 3
_MOST, _FIVE = 32, 5
"""Units that are tried one by one; all but the first five in two ways."""
_EXTREME = ("huge", "huge, negated", "other tokens", "upload huge", "upload huge, negated", ABSENT)
_SHORT = ("huge", "other tokens", "upload huge", ABSENT)


def checks(context: Context) -> Iterator[Check]:
    """Yield how far each unit moves what leaves, and whether anything else moves."""
    subject, reference = _subject(context)
    said = statements(subject, reference)
    seen = set(np.concatenate(reference.cohorts).tolist()) if reference.cohorts else set()
    chosen = [client for client in subject.told_apart(_MOST) if client in seen]  # the extreme first
    if subject.per_record:
        chosen = [client for client in chosen if _often(subject, reference, client)]
    made = []
    for i, client in enumerate(chosen):
        records = subject.context.data.clients[client]
        subject.unit_client, subject.unit_record = client, int(records[-1])
        if subject.per_record:
            (subject.unit_record, _), *_ = _often(subject, reference, client).most_common(1)
        found = sensitivity.Displacements(reference, said, client)
        ways = adversarial(subject, context.neighbours)
        allowed = _EXTREME if i < _FIVE or not context.adds_or_removes else _SHORT
        for variation in (v for v in ways if v.name in allowed):
            moves, changed, cohorts = found.begin(variation.name), variation, reference.cohorts
            if variation.absent is not None:
                cohorts = [cohort[cohort != variation.absent] for cohort in cohorts]
                changed = replace(AS_IT_IS, name=variation.name)
            recording = subject.run(
                variation=changed, cohorts=cohorts, pinned=reference, see=found.see
            )
            moves.broke = recording.broke
            made.append((f"client {client} {variation.name}", recording))
        for check in found.checks(context.adds_or_removes):
            name = check.of or "the run"
            yield replace(
                check,
                name=f"{name}: client {client}: {check.name.rpartition(': ')[2]}",
                of=f"{name} by {len(chosen)} clients",
                note=f"client {client} of {subject.clients}, with {len(records)} records: {check.note}",
            )
    yield replace(
        side_channels.check_all(reference, made, subject.unit_words),
        name=f"with each of {len(chosen)} {subject.unit_words}s changed",
    )


def _subject(context: Context) -> tuple[Subject, Recording]:
    """Return the configuration with unequal clients, and a run in which all chosen ones take part; the
    configuration as it is where it cannot be run with unequal ones."""
    own = context.subject
    try:
        made = Subject(own.config, own.seed, min(_ROUNDS, own.rounds), own.synthetic, unequal=True)
        reference = _reference(made)
        if reference.broke is None and reference.rounds:
            return made, reference
    except FedprivError:
        pass
    made = Subject(own.config, own.seed, min(_ROUNDS, own.rounds), own.synthetic)
    return made, _reference(made)


def _reference(subject: Subject) -> Recording:
    seen = subject.run()
    if subject.parts.mechanism.charged_at_once is not None or seen.broke is not None:
        return seen
    cohorts = [_with(cohort, subject.told_apart(_MOST)) for cohort in seen.cohorts]
    if all(map(np.array_equal, cohorts, seen.cohorts)):
        return seen
    return subject.run(cohorts=cohorts)


def _with(cohort: np.ndarray, units: list[int]) -> np.ndarray:
    """Return a cohort of the same size with as many of the units as there is room for."""
    others = [client for client in cohort.tolist() if client not in units]
    return np.sort(np.array([*units, *others][: max(1, len(cohort))], dtype=np.int64))


def _often(subject: Subject, reference: Recording, client: int) -> Counter[int]:
    """Return in how many lots each record of a client is."""
    own = subject.context.data.clients[client]
    read = [indices[np.isin(indices, own)] for reads in reference.reads for indices in reads]
    return Counter(np.concatenate(read).tolist()) if read else Counter()
