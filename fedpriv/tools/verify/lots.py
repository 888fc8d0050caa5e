"""The lots and cohorts of a run, as they were seen, against the ledger's event."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedpriv.common.errors import FedprivError
from fedpriv.privacy.core.sampling import sample_lot
from fedpriv.tools.verify import sampling
from fedpriv.tools.verify.context import Context
from fedpriv.tools.verify.probes import Recording
from fedpriv.tools.verify.table import Check

OTHER_LOTS = "other lots"
_COHORTS, _LOTS, _CLIENTS = 400, 200, 8


def checks(context: Context) -> Iterator[Check]:
    """Check the sampling: from a run whose lots were not chosen."""
    subject = context.subject
    made = subject.run(subject.streams(OTHER_LOTS, "A"))
    if subject.per_record:
        yield from _of_lots(context, made)
    if context.correlated is None:
        yield from _of_cohorts(context, made)
    else:
        yield context.correlated.attendance(context.reference, "first lots")
        yield context.correlated.attendance(made, OTHER_LOTS)
        yield from context.correlated.rates()
    if any(made.asked):
        yield _of_uploads(made)


def _of_uploads(made: Recording) -> Check:
    """Test that the upload of each member was computed, once, and no other."""
    rounds = zip(made.cohorts, made.asked, strict=False)
    wrong = [
        t
        for t, (cohort, asked) in enumerate(rounds)
        if any(len(np.unique(c)) < len(c) or not np.isin(c, cohort).all() for c in asked)
    ]
    return Check(
        "sampling",
        "cohorts: uploads",
        f"{len(wrong)} rounds with others",
        "0",
        passed=not wrong,
        note="uploads are computed of clients that were not sampled, or twice of one",
    )


def _of_lots(context: Context, made: Recording) -> Iterator[Check]:
    lots = seen_lots(context, made)
    if not lots:
        yield Check(
            "sampling",
            "lots",
            "no record is seen to be read",
            "read",
            passed=False,
            note="which records a round reads could not be seen: they are read by Records.subset",
        )
        return
    laws = _laws(made)
    if any(lot.who not in laws for lot in lots):
        yield Check("sampling", "lots", "the event charged says nothing of them", "-")
        return
    yield from sampling.checks("lots", lots, laws, context.subject.seed)
    if drawn := _drawn(context, laws):
        yield sampling.members("lots drawn alone", drawn, laws)


def _drawn(context: Context, laws: dict[int, sampling.Law]) -> list[sampling.Lot]:
    """Many lots of a few clients by the algorithm's sampling alone: a run has too few to show that one record
    is in all of them."""
    subject = context.subject
    streams, found = subject.streams("lots drawn alone", ""), []
    for client, own in list(enumerate(subject.context.data.clients))[:_CLIENTS]:
        if client not in laws or laws[client].whole or not len(own):
            continue
        how, everyone = subject.parts.algorithm.sampling_of(len(own)), np.arange(len(own))
        for t in range(_LOTS):
            members = sample_lot(streams, how, everyone, t, 0, client)
            found.append(sampling.Lot(client, t, len(own), members))
    return found


def seen_lots(context: Context, made: Recording) -> list[sampling.Lot]:
    """Return the records that rounds read, as places among those of their client."""
    data = context.subject.context.data
    owner, place = np.full(len(data.train), -1), np.zeros(len(data.train), dtype=int)
    for client, own in enumerate(data.clients):
        owner[own], place[own] = client, np.arange(len(own))
    steps = max(1, max((len(reads) for reads in made.reads), default=1))
    lots = []
    for t, reads in enumerate(made.reads):
        for step, indices in enumerate(reads):
            whose = owner[indices]
            for client in made.cohorts[t]:
                members = np.sort(place[indices[whose == client]])
                count = len(data.clients[client])
                lots.append(sampling.Lot(int(client), t * steps + step, count, members))
    return lots


def _laws(made: Recording) -> dict[int, sampling.Law]:
    """Return how the ledger says that each client's lots are sampled."""
    found: dict[int, sampling.Law] = {}
    for release in (r for charged in made.charged for r in charged):
        law = sampling.law_of(release.joint.event())
        if law is not None and (release.count == 1 or not law.whole):
            for client in map(int, release.clients):
                if client not in found or found[client].whole:
                    found[client] = law
    return found


def _of_cohorts(context: Context, made: Recording) -> Iterator[Check]:
    subject, algorithm = context.subject, context.subject.parts.algorithm
    events = {r.joint.event() for charged in context.reference.charged for r in charged}
    laws = {sampling.law_of(event) for event in events}
    if not subject.secret_cohort:
        if not subject.per_record and any(law is not None and not law.whole for law in laws):
            yield Check(
                "sampling",
                "cohorts",
                "charged as sampled",
                "as seen",
                passed=False,
                note="the ledger charges sampled clients, and its observer sees who takes part",
            )
        laws = {sampling.law_of(algorithm.client_sampling(subject.clients).event(1.0))}
    law = next(iter(laws), None)
    if law is None or len(laws) != 1:
        yield Check("sampling", "cohorts", "the event charged says nothing of them", "-")
        return
    streams, everyone = subject.streams("cohorts", ""), np.ones(subject.clients, dtype=bool)
    started = subject.loop().parts.algorithm  # a cohort may need what a run sets when it starts
    try:
        drawn = [started.cohort(streams, t, everyone) for t in range(_COHORTS)]
    except Exception as error:
        if isinstance(error, FedprivError):
            raise
        yield Check(
            "sampling",
            "cohorts",
            "cannot be drawn",
            f"{_COHORTS} drawn",
            passed=False,
            note=f"{type(started).__name__}.cohort(streams, round_index, eligible) fails outside a round "
            f"({type(error).__name__}: {error}): it needs state that only a round sets, so that who takes "
            "part is no function of the run's streams and the round; set that state in start",
        )
        return
    first = 16 * (1 + len(made.cohorts) // 16)  # those of the run pair among themselves
    when = [*range(len(made.cohorts)), *range(first, first + _COHORTS)]
    seen = zip(when, [*made.cohorts, *drawn], strict=True)
    lots = [sampling.Lot(0, t, subject.clients, np.sort(members)) for t, members in seen]
    yield from sampling.checks("cohorts", lots, {0: law}, subject.seed + 1)


def unmoved(context: Context, runs: list[tuple[str, Recording]]) -> Check:
    """Test that lots and cohorts are those of the streams, whatever the records hold."""
    reference = context.reference
    moved = [words for words, made in runs if made.broke is None and not _same(reference, made)]
    return Check(
        "sampling",
        f"the same with other records ({len(runs)} ways)",
        f"{len(moved)} move them",
        "0",
        passed=not moved,
        note=f"who is sampled depends on what records hold: with {', '.join(moved)} others are",
    )


def _same(one: Recording, other: Recording) -> bool:
    of_rounds = zip((*one.reads, one.cohorts), (*other.reads, other.cohorts), strict=False)
    return all(len(a) == len(b) and all(map(np.array_equal, a, b)) for a, b in of_rounds) and len(
        one.reads
    ) == len(other.reads)
