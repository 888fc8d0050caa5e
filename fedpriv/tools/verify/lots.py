"""Tests of the lots and cohorts that a run used, against the event that is charged."""

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
_COHORTS, _LOTS, _CLIENTS = (
    400,
    200,
    8,
)  # drawn cohorts, and drawn lots of a client, of so many clients


def checks(context: Context) -> Iterator[Check]:
    """Check the sampling, in a run with other lots than the reference, which was chosen by its lots."""
    subject = context.subject
    run = subject.run(subject.streams(OTHER_LOTS, "A"))
    if subject.per_record:
        yield from _of_lots(context, run)
    if context.correlated is None:
        # Where rounds are correlated, a participation pattern is charged, and no sampling of cohorts.
        yield from _of_cohorts(context, run)
    else:
        yield context.correlated.attendance(context.reference, "first lots")
        yield context.correlated.attendance(run, OTHER_LOTS)
        yield from context.correlated.rates()
    if any(run.upload_clients):
        wrong = sum(
            any(len(np.unique(c)) < len(c) or not np.isin(c, cohort).all() for c in computed)
            for cohort, computed in zip(run.cohorts, run.upload_clients, strict=False)
        )
        yield Check(
            "sampling",
            "cohorts: uploads",
            f"{wrong} rounds with others",
            "0",
            passed=wrong == 0,
            note="uploads are computed for clients that were not sampled, or twice for a client",
        )


def _of_lots(context: Context, run: Recording) -> Iterator[Check]:
    """Check the lots of records."""
    lots = seen_lots(context, run)
    if not lots:
        yield Check(
            "sampling",
            "lots",
            "no record is seen to be read",
            "read",
            passed=False,
            note="no record was read by Records.subset, so the lots of the rounds are unknown",
        )
        return
    laws = _laws(run)
    if any(lot.who not in laws for lot in lots):
        yield Check("sampling", "lots", "the event charged says nothing of them", "-")
        return
    yield from sampling.checks("lots", lots, laws, context.subject.seed)
    # A run has too few lots to show that a record is in all of them, so many lots of a few clients are
    # drawn by the algorithm's sampling alone.
    subject = context.subject
    streams, drawn = subject.streams("lots drawn alone", ""), []
    for client, indices in enumerate(subject.context.data.clients[:_CLIENTS]):
        if client not in laws or laws[client].whole or not len(indices):
            continue
        count = len(indices)
        lot_sampling = subject.parts.algorithm.sampling_of(count)
        for t in range(_LOTS):
            members = sample_lot(streams, lot_sampling, np.arange(count), t, 0, client)
            drawn.append(sampling.Lot(client, t, count, members))
    if drawn:
        yield sampling.members("lots drawn alone", drawn, laws)


def seen_lots(context: Context, run: Recording) -> list[sampling.Lot]:
    """Return the lots that a run read, one for each client, round and local step.

    Members are places among the records of the client.
    """
    data = context.subject.context.data
    owner, place = np.full(len(data.train), -1), np.zeros(len(data.train), dtype=int)
    clients = data.clients
    owner[clients.indices] = clients.owners
    place[clients.indices] = np.arange(len(clients.indices)) - clients.offsets[clients.owners]
    steps = max(1, max((len(reads) for reads in run.reads), default=1))
    lots = []
    for t, reads in enumerate(run.reads):
        for step, indices in enumerate(reads):
            owners = owner[indices]
            for client in run.cohorts[t]:
                members = np.sort(place[indices[owners == client]])
                count = len(data.clients[client])
                lots.append(sampling.Lot(int(client), t * steps + step, count, members))
    return lots


def _laws(run: Recording) -> dict[int, sampling.Law]:
    """Return the sampling of each client's lots, as the ledger charges it."""
    laws: dict[int, sampling.Law] = {}
    for release in (r for charged in run.charged for r in charged):
        law = sampling.law_of(release.joint.event())
        if law is not None and (release.count == 1 or not law.whole):
            for client in map(int, release.clients):
                if client not in laws or laws[client].whole:
                    laws[client] = law
    return laws


def _of_cohorts(context: Context, run: Recording) -> Iterator[Check]:
    """Check the cohorts of the run together with cohorts that are drawn alone."""
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
                note="the ledger charges sampled clients, but an observer sees which clients take part",
            )
        laws = {sampling.law_of(algorithm.client_sampling(subject.clients).event(1.0))}
    law = next(iter(laws), None)
    if law is None or len(laws) != 1:
        yield Check("sampling", "cohorts", "the event charged says nothing of them", "-")
        return
    streams, all_clients = subject.streams("cohorts", ""), np.ones(subject.clients, dtype=bool)
    started = subject.loop().parts.algorithm  # sampling may need what ``start`` sets
    try:
        drawn = [started.cohort(streams, t, all_clients) for t in range(_COHORTS)]
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
            f"({type(error).__name__}: {error}): it needs state that only a round sets, so the cohort is no "
            "function of the run's streams and the round; set that state in start",
        )
        return
    # Lots are compared in pairs of near rounds. The gap keeps cohorts of the run from pairing with others.
    first = 16 * (1 + len(run.cohorts) // 16)
    when = [*range(len(run.cohorts)), *range(first, first + _COHORTS)]
    cohorts = zip(when, [*run.cohorts, *drawn], strict=True)
    lots = [sampling.Lot(0, t, subject.clients, np.sort(members)) for t, members in cohorts]
    yield from sampling.checks("cohorts", lots, {0: law}, subject.seed + 1)


def unmoved(context: Context, runs: list[tuple[str, Recording]]) -> Check:
    """Test that lots and cohorts do not depend on the content of records."""
    reference = context.reference
    # A run that fails has no lots to compare; its failure is a finding of another check.
    moved = [
        variation for variation, run in runs if run.failure is None and not _same(reference, run)
    ]
    return Check(
        "sampling",
        f"the same with other records ({len(runs)} ways)",
        f"{len(moved)} move them",
        "0",
        passed=not moved,
        note=f"lots or cohorts depend on the content of records: {', '.join(moved)} changes them",
    )


def _same(first: Recording, second: Recording) -> bool:
    if len(first.reads) != len(second.reads):
        return False
    pairs = zip((*first.reads, first.cohorts), (*second.reads, second.cohorts), strict=True)
    return all(len(a) == len(b) and all(map(np.array_equal, a, b)) for a, b in pairs)
