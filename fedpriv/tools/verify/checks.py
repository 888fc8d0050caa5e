"""All checks of one configuration, in order."""

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
from fedpriv.tools.verify.subject import Subject, chance_kept
from fedpriv.tools.verify.table import Check
from fedpriv.tools.verify.variations import ABSENT, empty, everything

_KEYS_AT_MOST = 600
_MORE = 1 + 1e-6
_LESS_WHERE_CORRELATED = 100


def all_checks(subject: Subject, samples: int = SAMPLES, units_too: bool = True) -> list[Check]:
    """Return every check that applies.

    Args:
        samples: Numbers of noise for each query.
        units_too: Whether other units than one are changed as well, which takes half of the time.

    Raises:
        ConfigError: The configuration runs no round.
    """
    with chance_kept():
        context = Context(subject, samples)
        if context.reference.broke is not None:
            note = f"the run stops by itself: {context.reference.broke}"
            return [Check("charge", "the run", "stopped", "runs", passed=False, note=note)]
        if not context.reference.rounds:
            raise ConfigError("the configuration runs no round, so there is nothing to verify")
        if not subject.parts.private:
            return [Check("charge", "privacy", "none is claimed", "-")]
        return list(Verification(context).run(units_too))


class Verification:
    """The runs that are held against the reference, each made once."""

    def __init__(self, context: Context):
        self.context, self.subject, self.reference = context, context.subject, context.reference
        self._of_units: list[tuple[str, Recording]] = []
        self._of_records: list[tuple[str, Recording]] = []

    def run(self, units_too: bool) -> Iterator[Check]:
        subject, reference, begin = self.subject, self.reference, self.subject.steps.begin
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
            yield from self.context.shares.checks(subject.seed)
            values, said = self.context.repeats.values, self.context.said
            yield from counts(values, reference, said, subject.seed)
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
        said, repeats, reference = self.context.said, self.context.repeats, self.reference
        contrasts = noise.Contrasts(reference, self.context.gaussian)
        for key in range(1, self._keys() + 1):
            other = self.context.pinned(noise=f"B{key}", see=contrasts.see, keep=key == 1)
            if key == 1:
                self._other_noise = other
        layers = self.subject.layers()
        for name in reference.names:
            places = [p for p in reference.places(name) if p in said]
            if not places:
                yield Check(
                    "noise",
                    f"of {name}",
                    "is not charged",
                    "charged",
                    passed=False,
                    note=f"{name} leaves and the ledger has no release of it",
                )
                continue
            if said[places[0]].family == NONE:
                yield Check("noise", f"of {name}", "none is claimed", "-")
                continue
            samples, direct = repeats.noise(name, reference, said)
            if not samples:
                samples = [s for s in contrasts.samples if s.place.name == name]
                direct = np.concatenate(contrasts.direct[name]) if samples else direct
            if self.context.correlated is not None:
                samples = self.context.correlated.white_samples(samples)
                direct = np.concatenate(self.context.correlated.white_list(contrasts.direct[name]))
            if samples:
                extra = max(float((said[p].noted / said[p].std).max()) for p in places)
                extra = extra if extra > _MORE else 1.0
                yield from noise.checks(name, samples, direct, extra, layers)
                yield from noise.independence(name, samples)
            # in every direction, and as a computer draws it
            yield from discreteness.on_grid(reference, said, name)
            white, draws = self.context.correlated is not None, self.context.draws
            drawn = draws.of_samples(samples) if white else draws.of(name, self.context.gaussian)
            random, units = np.random.default_rng(self.subject.seed), self.subject.told_apart()
            yield from directions.checks(name, draws, drawn, reference, units, random)
            yield from discreteness.of_draws(name, drawn, white)
            yield from repeats.of_bits(name, reference, said)
            yield from repeats.between(name, said)
        yield from noise.repeated_numbers(reference, self.context.gaussian)

    def _keys(self) -> int:
        """Return how many more noise keys make enough numbers of the gradient's noise."""
        width = self.subject.context.model.size
        seen = self.reference.seen.values()
        numbers = sum(s.values.numel() for s in seen if s.values.shape[1] == width)
        wanted = self.context.samples
        if self.context.correlated is not None:  # whose rounds cannot be opened again by themselves
            wanted *= wanted // _LESS_WHERE_CORRELATED
        return min(_KEYS_AT_MOST, max(1, math.ceil(wanted / max(1, numbers))))

    def _where_it_leaves(self) -> Iterator[Check]:
        places = [p for p in self.reference.seen if p.round_index == 0]
        if len(places) != 1 or places[0] not in self.context.gaussian:
            return
        if outgoing.affine(self.subject, self.reference):
            said = self.context.said[places[0]]
            yield from outgoing.checks(self.subject, said, self.context.variations)

    # ---- one unit

    def _sensitivity(self) -> Iterator[Check]:
        context, subject = self.context, self.subject
        found = sensitivity.Displacements(self.reference, context.said, subject.unit_client)
        for variation in context.variations:
            moves = found.begin(variation.name)
            made = context.pinned(variation=variation, see=found.see)
            moves.broke = made.broke
            words = f"a {subject.unit_words} {variation.name}"
            self._of_units.append((words, made))
            if variation.name != ABSENT:
                self._of_records.append((words, made))
            # a sampler of the user's own may find the record that should be absent
            if (
                subject.per_record
                and variation.name == ABSENT
                and any(subject.unit_record in own for reads in made.reads for own in reads)
            ):
                found.moves.remove(moves)  # it was not what it should be
        yield from found.checks(context.adds_or_removes)
        if subject.secret_cohort and not uploaders(subject.loop()):
            yield Check(
                "sensitivity",
                "a malicious client",
                "no upload could be replaced",
                "replaced",
                passed=False,
                note="nothing shows that the trusted server clips what a malicious client sends: the work "
                "has no object with of(round_index, clients) that computes uploads",
            )

    # ---- everything else

    def _outside(self) -> Iterator[Check]:
        context, reference, subject = self.context, self.reference, self.subject
        yield side_channels.check(reference, self._other_noise, "other noise")
        other = context.pinned(lots.OTHER_LOTS, "C")
        yield side_channels.check(reference, other, "other lots, cohorts and noise")
        if self._of_units:
            yield side_channels.check_all(reference, self._of_units, subject.unit_words)
        made = context.pinned(variation=everything(subject))
        self._of_records.append(("other records everywhere", made))
        yield side_channels.check(reference, made, "other records everywhere")
        if (nobody := empty(subject, context.adds_or_removes)) is not None:
            made = context.pinned(variation=nobody)
            yield side_channels.check(reference, made, nobody.name)

    def _files(self) -> Iterator[Check]:
        subject = self.subject
        config, why_not = files.publishable(subject.config)
        if config is None:
            yield Check(
                "files", "files of a published run", "cannot be published", "-", note=why_not
            )
            return
        one = files.published(subject, config)
        sampling_name = lots.OTHER_LOTS if subject.secret_cohort else None
        other = files.published(
            subject, config, one.recording, sampling_name, "C", everything(subject)
        )
        yield from files.check(one, other)
