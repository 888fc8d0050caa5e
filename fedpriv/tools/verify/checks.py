"""All checks of one configuration, in their order."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.tools.verify import (
    chance,
    charge,
    directions,
    discreteness,
    files,
    lots,
    noise,
    outgoing,
    sensitivity,
    side_channels,
    units,
)
from fedpriv.tools.verify.context import SAMPLES, Context
from fedpriv.tools.verify.interventions import uploaders
from fedpriv.tools.verify.ledger_claims import NONE
from fedpriv.tools.verify.probes import Recording
from fedpriv.tools.verify.shares import counts, silenced
from fedpriv.tools.verify.subject import Subject, keep_global_generators
from fedpriv.tools.verify.table import Check
from fedpriv.tools.verify.variations import ABSENT, empty, everything

_MOST_KEYS = 600
_MORE = 1 + 1e-6  # ratio of noted to charged noise from which on the noted noise counts as larger
_FEWER_WHERE_CORRELATED = 100


def all_checks(subject: Subject, samples: int = SAMPLES, units_too: bool = True) -> list[Check]:
    """Return the results of every check that applies.

    A single check is returned for a run that stops by itself, which fails, and for a run that claims no
    privacy, which says nothing. The random generators of numpy and torch are as before afterwards.

    Args:
        subject: The configuration.
        samples: Numbers of noise of each query.
        units_too: Also change units other than the chosen one, which takes half of the time.

    Raises:
        ConfigError: The configuration runs no round.
    """
    with keep_global_generators():
        context = Context(subject, samples)
        if context.reference.failure is not None:
            note = f"the run stops by itself: {context.reference.failure}"
            return [Check("charge", "the run", "stopped", "runs", passed=False, note=note)]
        if not context.reference.rounds:
            raise ConfigError("the configuration runs no round, so there is nothing to verify")
        if not subject.parts.private:
            return [Check("charge", "privacy", "none is claimed", "-")]
        return list(Verification(context).run(units_too))


class Verification:
    """The checks of one context, and the runs that several checks need.

    Attributes:
        context: The reference run and its claims.
        subject: The configuration.
        reference: The reference run.
    """

    def __init__(self, context: Context):
        self.context, self.subject, self.reference = context, context.subject, context.reference
        self._of_units: list[tuple[str, Recording]] = []
        self._of_records: list[tuple[str, Recording]] = []

    def run(self, units_too: bool) -> Iterator[Check]:
        """Yield all checks in the order of the table."""
        subject, reference, begin = self.subject, self.reference, self.subject.steps.begin
        # The order is that of what later checks rely on: a run that does not repeat itself makes
        # every comparison below meaningless.
        begin("the same run again, and resumed")
        yield chance.repeated(self.context)
        yield from side_channels.resumed(subject)
        begin("other noise", self._keys())
        yield from self._noise()
        begin("chance of other runs")
        yield from chance.two_runs(self.context)
        yield from chance.same_noise(self.context)
        yield from self._where_it_leaves()
        begin("a unit replaced")
        if subject.whole_numbers:
            # Shares are zero while units are replaced, so that a unit's change and its rounding are all
            # that moves a sum.
            yield from self.context.shares.checks(subject.seed)
            values, claims = self.context.repeats.values, self.context.claims
            yield from counts(values, reference, claims, subject.seed)
            with silenced():
                yield from units.checks(self.context)
        else:
            begin(f"a {subject.unit_words} replaced", len(self.context.variations))
            yield from self._sensitivity()
            begin("other units replaced")
            if units_too:
                yield from units.checks(self.context)
        begin("other lots and cohorts")
        yield from lots.checks(self.context)
        yield lots.unmoved(self.context, self._of_records)
        begin("whatever else leaves")
        yield from self._outside()
        begin("the files of a published run")
        yield from self._files()
        if self.context.correlated is None:
            yield from charge.checks(reference, subject.secret_cohort)
        else:
            yield from self.context.correlated.checks()

    # ---- noise

    def _noise(self) -> Iterator[Check]:
        """Yield the checks of the noise of each query."""
        claims, repeats, reference = self.context.claims, self.context.repeats, self.reference
        correlated = self.context.correlated
        contrasts = noise.Contrasts(reference, self.context.gaussian)
        # The first further key is also compared with the reference later on, so its states are kept.
        for key in range(1, self._keys() + 1):
            other_noise = self.context.pinned(noise=f"B{key}", see=contrasts.see, keep=key == 1)
            if key == 1:
                self._other_noise = other_noise
        layers = self.subject.layers()
        for name in reference.names:
            positions = [p for p in reference.positions(name) if p in claims]
            if not positions:
                yield Check(
                    "noise",
                    f"of {name}",
                    "is not charged",
                    "charged",
                    passed=False,
                    note=f"{name} leaves and the ledger has no release of it",
                )
                continue
            if claims[positions[0]].family == NONE:
                yield Check("noise", f"of {name}", "none is claimed", "-")
                continue
            samples, direct = repeats.noise(name, reference, claims)
            if not samples:
                # The noise of a long vector comes from runs under further keys, that of a small
                # answer from repeated releases of one round.
                samples = [s for s in contrasts.samples if s.position.name == name]
                direct = np.concatenate(contrasts.direct[name]) if samples else direct
            if correlated is not None:
                samples = correlated.white_samples(samples)
                direct = np.concatenate(correlated.white_list(contrasts.direct[name]))
            if samples:
                extra = max(float((claims[p].noted / claims[p].std).max()) for p in positions)
                # Where clients add more shares than are counted on, a sum has more noise than is
                # charged. Rounding is not taken for such noise.
                extra = extra if extra > _MORE else 1.0
                yield from noise.checks(name, samples, direct, extra, layers)
                yield from noise.independence(name, samples)
            yield from discreteness.on_grid(reference, claims, name)
            white, draws = correlated is not None, self.context.draws
            drawn = draws.of_samples(samples) if white else draws.of(name, self.context.gaussian)
            random, clients = (
                np.random.default_rng(self.subject.seed),
                self.subject.clients_to_try(),
            )
            yield from directions.checks(name, draws, drawn, reference, clients, random)
            yield from discreteness.of_draws(name, drawn, white)
            yield from repeats.of_bits(name, reference, claims)
            yield from repeats.between(name, claims)
        yield from noise.repeated_numbers(reference, self.context.gaussian)

    def _keys(self) -> int:
        """Return the number of further noise keys that give enough numbers of the gradient's noise."""
        width = self.subject.context.model.size
        seen = self.reference.seen.values()
        numbers = sum(s.values.numel() for s in seen if s.values.shape[1] == width)
        samples = self.context.samples
        if self.context.correlated is not None:  # its rounds cannot be drawn again by themselves
            samples *= samples // _FEWER_WHERE_CORRELATED
        return min(_MOST_KEYS, max(1, math.ceil(samples / max(1, numbers))))

    def _where_it_leaves(self) -> Iterator[Check]:
        """Yield the check of noise and sensitivity of what an observer receives."""
        positions = [p for p in self.reference.seen if p.round_index == 0]
        # With several releases in a round, the outcome is no affine function of one of them.
        if len(positions) != 1 or positions[0] not in self.context.gaussian:
            return
        if outgoing.affine(self.subject, self.reference):
            claim = self.context.claims[positions[0]]
            yield from outgoing.checks(self.subject, claim, self.context.variations)

    # ---- one unit

    def _sensitivity(self) -> Iterator[Check]:
        """Yield the checks of the distance by which the chosen unit moves releases."""
        context, subject = self.context, self.subject
        displacements = sensitivity.Displacements(
            self.reference, context.claims, subject.unit_client
        )
        for variation in context.variations:
            moves = displacements.begin(variation.name)
            recording = context.pinned(variation=variation, see=displacements.see)
            moves.failure = recording.failure
            label = f"a {subject.unit_words} {variation.name}"
            self._of_units.append((label, recording))
            if variation.name != ABSENT:
                self._of_records.append((label, recording))
            elif subject.per_record and any(
                subject.unit_record in indices for reads in recording.reads for indices in reads
            ):
                # A sampler of the user's own read the record that should be absent, so this run says
                # nothing about its absence.
                displacements.moves.remove(moves)
        yield from displacements.checks(context.adds_or_removes)
        if subject.secret_cohort and not uploaders(subject.loop()):
            yield Check(
                "sensitivity",
                "a malicious client",
                "no upload could be replaced",
                "replaced",
                passed=False,
                note="nothing shows that the trusted server clips what a malicious client sends: the client "
                "computation has no object with of(round_index, clients) that computes uploads",
            )

    # ---- everything else

    def _outside(self) -> Iterator[Check]:
        """Yield the checks that nothing but the releases depends on private data."""
        context, reference, subject = self.context, self.reference, self.subject
        yield side_channels.check(reference, self._other_noise, "other noise")
        recording = context.pinned(lots.OTHER_LOTS, "C")
        yield side_channels.check(reference, recording, "other lots, cohorts and noise")
        if self._of_units:
            yield side_channels.check_all(reference, self._of_units, subject.unit_words)
        recording = context.pinned(variation=everything(subject))
        self._of_records.append(("other records everywhere", recording))
        yield side_channels.check(reference, recording, "other records everywhere")
        if (none_sampled := empty(subject, context.adds_or_removes)) is not None:
            recording = context.pinned(variation=none_sampled)
            yield side_channels.check(reference, recording, none_sampled.name)

    def _files(self) -> Iterator[Check]:
        """Yield the checks of the files of a published run."""
        subject = self.subject
        config, reason = files.publishable(subject.config)
        if config is None:
            yield Check(
                "files", "files of a published run", "cannot be published", "-", note=reason
            )
            return
        first = files.published(subject, config)
        sampling_name = lots.OTHER_LOTS if subject.secret_cohort else None
        # The second run has other records, and other cohorts where these are secret. Only the
        # releases are those of the first.
        second = files.published(
            subject, config, first.recording, sampling_name, "C", everything(subject)
        )
        yield from files.check(first, second)
