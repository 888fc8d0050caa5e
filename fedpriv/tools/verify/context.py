"""The reference run of a verification, and how others are held against it."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import numpy as np
from torch import Tensor

from fedpriv.common.secret_streams import SecretStreams
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE, ZERO_OUT
from fedpriv.tools.verify.correlated import Correlated
from fedpriv.tools.verify.draws import Draws
from fedpriv.tools.verify.interventions import AS_IT_IS, Variation
from fedpriv.tools.verify.ledger_claims import GAUSSIAN, LedgerClaim, claim_of
from fedpriv.tools.verify.probes import Recording, ReleasePosition, Repeat
from fedpriv.tools.verify.repeat_runs import RepeatedReleases
from fedpriv.tools.verify.shares import Shares
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.variations import adversarial

SAMPLES = 10_400
"""Numbers of noise for each query: at the level that a table with 40 checks leaves it, noise 5 % too low is
found with probability .999."""
_COMPARED = 20_000
_TRIES = 20
"""Runs that are looked at for one in which anybody is sampled."""


Releases = dict[ReleasePosition, Tensor]


class Context:
    """The reference run, what its ledger states, and the ways in which the unit is replaced."""

    def __init__(self, subject: Subject, samples: int = SAMPLES):
        self.subject, self.samples = subject, samples
        subject.steps.begin("the run that others are held against")
        for tried in range(_TRIES):
            subject.sampling_name = f"lots {tried}"
            streams = subject.streams(subject.sampling_name, "again")
            width = subject.context.model.size
            # each repetition draws whole vectors of whole numbers, which takes long
            repeated = samples // 50 if subject.whole_numbers else samples
            self.repeats = RepeatedReleases(streams, repeated, subject.rounds, width)
            self.draws = Draws(streams, samples, subject.rounds_drawn(), subject.layers())
            repeats: list[Repeat] = [self.repeats]
            self.shares = Shares(streams, samples, subject.rounds_drawn())
            # a round whose noise follows from earlier rounds cannot be opened again
            if subject.parts.mechanism.charged_at_once is None:
                repeats += [self.draws, self.shares]
            self.reference = subject.run(repeats=repeats)
            if subject.choose_unit(self.reference) or self.reference.broke is not None:
                break
        self.correlated = Correlated.of(subject, self.reference)
        self.said: dict[ReleasePosition, LedgerClaim] = statements(
            subject, self.reference, self.correlated
        )
        self.variations = adversarial(subject, self.neighbours)

    @property
    def neighbours(self) -> str:
        """The ledger's adjacency; the strongest where there are several."""
        charged = (release for of in self.reference.charged for release in of)
        found = {release.joint.sampling.neighbours for release in charged}
        return next((name for name in (REPLACE_ONE, ADD_OR_REMOVE) if name in found), ZERO_OUT)

    @property
    def adds_or_removes(self) -> bool:
        """Return whether neighbours have a unit more or less, or zeros in its place."""
        return self.neighbours != REPLACE_ONE

    @property
    def gaussian(self) -> dict[ReleasePosition, LedgerClaim]:
        return {place: said for place, said in self.said.items() if said.family == GAUSSIAN}

    def pinned(
        self,
        lots: str | None = None,
        noise: str = "A",
        variation: Variation = AS_IT_IS,
        **probe: Any,
    ) -> Recording:
        """Run with the reference's releases in place of its own. Where who takes part is public, they are the
        same clients whatever the lots."""
        streams = self.subject.streams(lots or self.subject.sampling_name, noise)
        return self.under(streams, variation, **probe)

    def under(
        self, streams: SecretStreams, variation: Variation = AS_IT_IS, **probe: Any
    ) -> Recording:
        """Do the same with streams of another origin."""
        cohorts = None if self.subject.secret_cohort else self.reference.cohorts
        return self.subject.run(streams, variation, cohorts=cohorts, pinned=self.reference, **probe)

    @cached_property
    def own(self) -> Releases:
        """The reference's releases."""
        return {place: seen.values for place, seen in self.reference.seen.items()}

    @cached_property
    def other_key(self) -> Releases:
        """The reference's releases under another noise key."""
        return self.releases(self.subject.streams(self.subject.sampling_name, "B1"))[0]

    def releases(
        self, streams: SecretStreams, variation: Variation = AS_IT_IS
    ) -> tuple[Releases, Recording]:
        """Return what a pinned run would have released, and its recording."""
        kept: Releases = {}

        def see(place: ReleasePosition, values: Tensor) -> None:
            kept[place] = values.clone()

        return kept, self.under(streams, variation, see=see, keep=False)

    def differences(self, one: Releases, other: Releases) -> np.ndarray:
        """Return differences of all Gaussian releases in one vector, in the ledger's standard deviations."""
        found = []
        for place, said in self.gaussian.items():
            a, b = one.get(place), other.get(place)
            if a is None or b is None or a.shape != b.shape:
                found.append(np.array([math.nan]))
                continue
            apart = (a.double() - b.double()).cpu().numpy() / said.std[:, None]
            found.append(apart.reshape(-1)[:: max(1, apart.size // _COMPARED)])
        if self.correlated is not None:
            found = self.correlated.white_list(found)
        return np.concatenate(found) if found else np.zeros(0)

    def rounding(self) -> float:
        """Return what single precision leaves undecided of a release, in units of its noise."""
        found = [
            float(self.reference.seen[place].values.abs().max())
            * 2.0**-22
            / float(np.min(said.std))
            for place, said in self.gaussian.items()
        ]
        return max(found, default=0.0)


def statements(
    subject: Subject, reference: Recording, correlated: Correlated | None = None
) -> dict[ReleasePosition, LedgerClaim]:
    """Return what the ledger of a run says of each of its releases."""
    correlated = correlated or Correlated.of(subject, reference)
    if correlated is not None:
        return correlated.claims()
    found = {place: claim_of(reference, place, subject.trust) for place in reference.seen}
    return {place: said for place, said in found.items() if said is not None}
