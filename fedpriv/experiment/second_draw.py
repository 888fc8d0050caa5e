"""Cohorts and lots of an algorithm of the user's own, drawn a second time and compared.

ε of a sampled release holds only if the clients and records were drawn as the charged event says: by chance
alone. An algorithm that picks clients by their loss, or the hardest records of a lot, would be charged too
little. So cohorts and lots are drawn again, by fedpriv's own samplers of the charged event and from the same
streams. They are compared with those of the algorithm before anything of the round is released.

The second draw is only compared; it replaces nothing. A sampling whose class is the user's own has no second
draw, and the privacy statement says so (``own_sampling``).
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from fedpriv.algorithms.base import Algorithm
from fedpriv.algorithms.run_context import RunContext
from fedpriv.common.attributes import PACKAGE, is_own
from fedpriv.common.errors import ReleaseError
from fedpriv.data.federated import with_train
from fedpriv.data.records import ReadRecords
from fedpriv.experiment.parts import Parts
from fedpriv.privacy.core.sampling import Sampling, sample_lot
from fedpriv.privacy.mechanisms import Announcement, Bounded, OpenRound, Visible


class SecondDraw:
    """The second draws of one run.

    The object is made before the algorithm sees the data: it replaces the training records of the context by
    records that note which of them are read.

    Args:
        parts: The parts of the run.
        context: The context, whose data are replaced.
    """

    def __init__(self, parts: Parts, context: RunContext):
        self._algorithm, self._context = parts.algorithm, context
        self._streams, self._name = context.streams, type(parts.algorithm).__name__
        clients = context.data.client_count
        self._client_sampling = parts.algorithm.client_sampling(clients)
        self._train = ReadRecords.of(context.data.train)
        context.data = with_train(context.data, self._train)

    # ---- who takes part

    def hold_cohort(
        self, announced: Announcement, eligible: np.ndarray, sampled: np.ndarray
    ) -> None:
        """Raise ReleaseError unless fedpriv's sampler draws the same cohort.

        Args:
            announced: What the round will release, with the events that are charged.
            eligible: Mask of the clients that may take part [K].
            sampled: The cohort of the algorithm [c].
        """
        algorithm, t = self._algorithm, announced.round_index
        if algorithm.client_sampling(len(eligible)) != self._client_sampling:
            raise ReleaseError(
                f"round {t + 1}: {self._name}.client_sampling is another one than before the first round; it "
                "must not follow what a run sees. Nothing of this round was released"
            )
        # Where the cohort is secret, sampling clients amplifies privacy, so its rate must be the charged one.
        sampler = drawn_by(algorithm)
        charged = announced.groups[0].upload.joint.sampling if announced.groups else None
        by_event = algorithm.trust.secret_cohort and charged is not None and not charged.whole
        if by_event and not is_own(charged) and self._client_sampling != charged:
            raise ReleaseError(
                f"round {t + 1}: {self._name} draws its cohort by {self._client_sampling} and is charged for "
                f"{charged}; let client_sampling and sampling_of return the same. Nothing of this round was "
                "released"
            )
        # The streams are functions of their names, so the same draw can be made twice.
        drawn = sampler.cohort(algorithm, self._streams, t, eligible.copy())
        if not np.array_equal(np.asarray(sampled), drawn):
            raise ReleaseError(
                f"round {t + 1}: {self._name}.cohort chose other clients than fedpriv's sampler draws of "
                "those who may take part. Whom a run chooses must not follow from their data, for nobody is "
                "charged for that; leave cohort out and let client_sampling say how clients are sampled. "
                "Nothing of this round was released"
            )

    # ---- which records are read

    def watch(self, opened: OpenRound) -> None:
        """Have every release of uploads compare the records that were read with the lots that are charged.

        It replaces ``opened.release``, which then raises ReleaseError before it releases anything. At client
        level, where all records of a client may be read, nothing is compared.

        Args:
            opened: The round that was just opened.
        """
        if self._algorithm.unit != "record":
            return
        release = opened.release
        groups = opened.announcement.groups
        samplings = {
            int(k): group.upload.joint.sampling
            for group in groups
            for k in np.intersect1d(group.clients, opened.cohort)
        }
        log: list[np.ndarray] = []
        object.__setattr__(self._train, "log", log)
        steps = 0

        def released(answers: Mapping[str, Bounded]) -> dict[str, Visible]:
            nonlocal steps
            self._hold_lots(opened, samplings, steps, log)
            steps += 1
            log.clear()
            return release(answers)

        opened.release = released  # type: ignore[method-assign]

    def _hold_lots(
        self,
        opened: OpenRound,
        samplings: Mapping[int, Sampling],
        step: int,
        log: list[np.ndarray],
    ) -> None:
        t, context = opened.round_index, self._context
        cohort = [int(client) for client in opened.cohort]
        if any(is_own(samplings[client]) for client in cohort):
            return  # a sampling of the user's own has no second draw; the statement says so
        lots = [
            sample_lot(
                self._streams, samplings[k], context.records_of(t, k), t, step, opened.cohort[i]
            )
            for i, k in enumerate(cohort)
        ]
        # Which client read a record is not known, so the records of all clients are compared together.
        drawn, read = _distinct(lots), _distinct(log)
        if not np.array_equal(drawn, read):
            more, fewer = len(np.setdiff1d(read, drawn)), len(np.setdiff1d(drawn, read))
            raise ReleaseError(
                f"round {t + 1}, step {step + 1}: {self._name} read {more} records outside the lots that its "
                f"event is charged for and left out {fewer} of those in them; read what sample_lot draws, by "
                "problem.data.train.subset, and all of it. Nothing of this step was released"
            )


def second_draw(parts: Parts, context: RunContext) -> SecondDraw | None:
    """Return the second draw of a run; None where fedpriv's own code samples, or nothing is charged."""
    samples_itself = is_own(parts.algorithm) or is_own(parts.mechanism)
    return SecondDraw(parts, context) if samples_itself and parts.private else None


def drawn_by(algorithm: Algorithm) -> type[Algorithm]:
    """Return the class of fedpriv whose ``cohort`` an algorithm inherits, or overrides."""
    return next(
        kind
        for kind in type(algorithm).__mro__
        if kind.__module__.startswith(PACKAGE) and "cohort" in vars(kind)
    )


def _distinct(indices: list[np.ndarray]) -> np.ndarray:
    """Return the sorted distinct numbers of several arrays."""
    return np.unique(np.concatenate(indices)) if indices else np.zeros(0, dtype=np.int64)
