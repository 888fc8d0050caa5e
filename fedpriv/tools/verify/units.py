"""The sensitivity of other units: the first, the last, the largest, the smallest, and random units.

A mechanism may treat a client differently from the rest. It may clip the client at the norm of a neighbour,
count the client twice, or weight clients by their data. Clients are made unequal for these checks, because
weights by data size are equal where sizes are equal.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from fedpriv.common.errors import FedprivError
from fedpriv.tools.verify import sensitivity, side_channels
from fedpriv.tools.verify.context import Context, claims_of
from fedpriv.tools.verify.interventions import AS_IT_IS
from fedpriv.tools.verify.probes import Recording
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.table import Check
from fedpriv.tools.verify.variations import ABSENT, adversarial

_ROUNDS = 3
_MOST, _FIRST = 32, 5
"""Most units that are tried. The first five are tried in more variations than the rest."""
_MANY = ("huge", "huge, negated", "other tokens", "upload huge", "upload huge, negated", ABSENT)
_FEW = ("huge", "other tokens", "upload huge", ABSENT)


def checks(context: Context) -> Iterator[Check]:
    """Yield the checks of how far each unit moves a release, and that nothing else depends on it."""
    subject, reference = _subject(context)
    claims = claims_of(subject, reference)
    seen = set(np.concatenate(reference.cohorts).tolist()) if reference.cohorts else set()
    chosen = [client for client in subject.clients_to_try(_MOST) if client in seen]
    if subject.per_record:
        chosen = [client for client in chosen if _lots_of_records(subject, reference, client)]
    recordings = []
    for i, client in enumerate(chosen):
        records = subject.context.data.clients[client]
        subject.unit_client, subject.unit_record = client, int(records[-1])
        if subject.per_record:
            lots = _lots_of_records(subject, reference, client)
            ((subject.unit_record, _),) = lots.most_common(1)
        displacements = sensitivity.Displacements(reference, claims, client)
        names = _MANY if i < _FIRST or not context.adds_or_removes else _FEW
        variations = adversarial(subject, context.neighbours)
        for variation in (v for v in variations if v.name in names):
            moves, changed = displacements.begin(variation.name), variation
            cohorts = reference.cohorts
            if variation.absent is not None:
                # The cohorts are given to the run, so an absent client is taken out of them here.
                cohorts = [cohort[cohort != variation.absent] for cohort in cohorts]
                changed = replace(AS_IT_IS, name=variation.name)
            recording = subject.run(
                variation=changed, cohorts=cohorts, pinned=reference, see=displacements.see
            )
            moves.failure = recording.failure
            recordings.append((f"client {client} {variation.name}", recording))
        for check in displacements.checks(context.adds_or_removes):
            name = check.of or "the run"
            yield replace(
                check,
                name=f"{name}: client {client}: {check.name.rpartition(': ')[2]}",
                of=f"{name} by {len(chosen)} clients",
                note=f"client {client} of {subject.clients}, with {len(records)} records: {check.note}",
            )
    yield replace(
        side_channels.check_all(reference, recordings, subject.unit_words),
        name=f"with each of {len(chosen)} {subject.unit_words}s changed",
    )


def _subject(context: Context) -> tuple[Subject, Recording]:
    """Return the configuration with unequal clients, and a run in which the clients to try take part.

    Where the configuration cannot be run with unequal clients, its clients stay as they are.
    """
    original = context.subject
    arguments = (original.config, original.seed, min(_ROUNDS, original.rounds), original.synthetic)
    try:
        subject = Subject(*arguments, unequal=True)
        reference = _reference(subject)
        if reference.failure is None and reference.rounds:
            return subject, reference
    except FedprivError:
        pass
    subject = Subject(*arguments)
    return subject, _reference(subject)


def _reference(subject: Subject) -> Recording:
    """Run with as many of the clients to try in each cohort as there is room for."""
    recording = subject.run()
    if subject.parts.mechanism.charged_at_once is not None or recording.failure is not None:
        return recording
    # Cohorts keep their sizes: clients to try take the places of others.
    clients, cohorts = subject.clients_to_try(_MOST), []
    for cohort in recording.cohorts:
        others = [client for client in cohort.tolist() if client not in clients]
        members = [*clients, *others][: max(1, len(cohort))]
        cohorts.append(np.sort(np.array(members, dtype=np.int64)))
    if all(map(np.array_equal, cohorts, recording.cohorts)):
        return recording
    return subject.run(cohorts=cohorts)


def _lots_of_records(subject: Subject, reference: Recording, client: int) -> Counter[int]:
    """Return the number of lots that each record of a client is in."""
    records = subject.context.data.clients[client]
    read = [indices[np.isin(indices, records)] for reads in reference.reads for indices in reads]
    return Counter(np.concatenate(read).tolist()) if read else Counter()
