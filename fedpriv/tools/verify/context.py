"""The reference run of a verification, and the comparison of other runs with it."""

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
"""Numbers of noise of each query.

At the level of a check in a table of 40 checks, they find noise that is 5 % too low with probability .999.
"""
_COMPARED = 20_000  # most numbers of a release that are compared
_TRIES = 20  # runs that are tried to find one in which a client is sampled


Releases = dict[ReleasePosition, Tensor]


class Context:
    """The reference run, the claims of its ledger, and the variations of the unit.

    Attributes:
        subject: The configuration.
        samples: Numbers of noise of each query.
        reference: The reference run.
        repeats: Repeated releases of small answers.
        draws: Draws of normal noise.
        shares: Sums of shares of whole numbers.
        correlated: The noise that is correlated over rounds; None where rounds are independent.
        claims: The claim of the ledger about each release.
        variations: The replacements of the unit.
    """

    def __init__(self, subject: Subject, samples: int = SAMPLES):
        self.subject, self.samples = subject, samples
        subject.steps.begin("the run that others are held against")
        for attempt in range(_TRIES):
            # The checks change one unit, which must be in a lot or a cohort of this run. Other lots
            # are tried until some unit is.
            subject.sampling_name = f"lots {attempt}"
            streams = subject.streams(subject.sampling_name, "again")
            width = subject.context.model.size
            # Each repetition draws whole vectors of whole numbers, which takes long.
            repeated = samples // 50 if subject.whole_numbers else samples
            self.repeats = RepeatedReleases(streams, repeated, subject.rounds, width)
            self.draws = Draws(streams, samples, subject.rounds_drawn(), subject.layers())
            repeats: list[Repeat] = [self.repeats]
            self.shares = Shares(streams, samples, subject.rounds_drawn())
            # A round whose noise follows from earlier rounds cannot be opened again.
            if subject.parts.mechanism.charged_at_once is None:
                repeats += [self.draws, self.shares]
            self.reference = subject.run(repeats=repeats)
            if subject.choose_unit(self.reference) or self.reference.failure is not None:
                break
        self.correlated = Correlated.of(subject, self.reference)
        self.claims = claims_of(subject, self.reference, self.correlated)
        self.variations = adversarial(subject, self.neighbours)

    @property
    def neighbours(self) -> str:
        """The adjacency of the ledger, or the strongest adjacency where there are several."""
        charged = (release for releases in self.reference.charged for release in releases)
        names = {release.joint.sampling.neighbours for release in charged}
        return next((name for name in (REPLACE_ONE, ADD_OR_REMOVE) if name in names), ZERO_OUT)

    @property
    def adds_or_removes(self) -> bool:
        """True if a neighbour has a unit more or less, or zeros in its place."""
        return self.neighbours != REPLACE_ONE

    @property
    def gaussian(self) -> dict[ReleasePosition, LedgerClaim]:
        """The claims about releases with Gaussian noise."""
        return {p: claim for p, claim in self.claims.items() if claim.family == GAUSSIAN}

    def pinned(
        self,
        lots: str | None = None,
        noise: str = "A",
        variation: Variation = AS_IT_IS,
        **probe: Any,
    ) -> Recording:
        """Run again and replace each release by the reference's.

        Where cohorts are public, they are those of the reference.

        Args:
            lots: Name of the streams of lots and cohorts; None: those of the reference.
            noise: Name of the streams of the noise.
            variation: Change of the unit.
            **probe: Arguments of :class:`~fedpriv.tools.verify.probes.Probe`.
        """
        streams = self.subject.streams(lots or self.subject.sampling_name, noise)
        return self.under(streams, variation, **probe)

    def under(
        self, streams: SecretStreams, variation: Variation = AS_IT_IS, **probe: Any
    ) -> Recording:
        """Run again as in :meth:`pinned`, with given streams.

        Args:
            streams: Streams of lots, cohorts and noise.
            variation: Change of the unit.
            **probe: Arguments of :class:`~fedpriv.tools.verify.probes.Probe`.
        """
        cohorts = None if self.subject.secret_cohort else self.reference.cohorts
        return self.subject.run(streams, variation, cohorts=cohorts, pinned=self.reference, **probe)

    @cached_property
    def own_releases(self) -> Releases:
        """The releases of the reference."""
        return {position: seen.values for position, seen in self.reference.seen.items()}

    @cached_property
    def other_key(self) -> Releases:
        """The releases of the reference under another noise key."""
        return self.releases(self.subject.streams(self.subject.sampling_name, "B1"))[0]

    def releases(
        self, streams: SecretStreams, variation: Variation = AS_IT_IS
    ) -> tuple[Releases, Recording]:
        """Return the releases of a pinned run before they were replaced, and its recording."""
        releases: Releases = {}

        def see(position: ReleasePosition, values: Tensor) -> None:
            releases[position] = values.clone()

        return releases, self.under(streams, variation, see=see, keep=False)

    def differences(self, first: Releases, second: Releases) -> np.ndarray:
        """Return the differences of all Gaussian releases in one vector.

        They are in units of the ledger's standard deviations, and NaN where a release is missing.
        """
        parts = []
        for position, claim in self.gaussian.items():
            a, b = first.get(position), second.get(position)
            if a is None or b is None or a.shape != b.shape:
                parts.append(np.array([math.nan]))
                continue
            # Rows of different clients may have different noise, so each row is divided by its own
            # standard deviation [rows].
            difference = (a.double() - b.double()).cpu().numpy() / claim.std[:, None]
            parts.append(difference.reshape(-1)[:: max(1, difference.size // _COMPARED)])
        if self.correlated is not None:
            parts = self.correlated.white_list(parts)
        return np.concatenate(parts) if parts else np.zeros(0)

    def rounding(self) -> float:
        """Return the largest rounding error of single precision, in units of the noise of a release."""
        errors = []
        for position, claim in self.gaussian.items():
            largest = float(self.reference.seen[position].values.abs().max())
            # Single precision rounds a number by up to 2^-24 of itself. The margin is for a
            # difference of two numbers.
            errors.append(largest * 2.0**-22 / float(np.min(claim.std)))
        return max(errors, default=0.0)


def claims_of(
    subject: Subject, reference: Recording, correlated: Correlated | None = None
) -> dict[ReleasePosition, LedgerClaim]:
    """Return the claim of a run's ledger about each release that is charged.

    Args:
        subject: The configuration.
        reference: The run.
        correlated: The noise that is correlated over rounds; None finds out whether there is such noise.
    """
    correlated = correlated or Correlated.of(subject, reference)
    if correlated is not None:
        return correlated.claims()
    claims = {position: claim_of(reference, position, subject.trust) for position in reference.seen}
    return {position: claim for position, claim in claims.items() if claim is not None}
