"""All checks of one configuration, in order."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import numpy as np
from torch import Tensor

from fedpriv.common.errors import ConfigError
from fedpriv.verify import again, charge, files, left, noise, outside, sampling, sensitivity
from fedpriv.verify.stated import GAUSSIAN, NONE, Stated, stated
from fedpriv.verify.subject import Subject, Variation, adds_or_removes, replaceable
from fedpriv.verify.table import Check
from fedpriv.verify.taps import Place, Recording
from fedpriv.verify.variations import ABSENT, adversarial, everything

SAMPLES = 10_400
"""Numbers of noise for each query: at the level that a table with 40 checks leaves it, noise 5 % too low is
found with probability .999."""
_KEYS_AT_MOST = 600
_COHORTS = 400
_COMPARED = 20_000


def all_checks(subject: Subject, tell: Callable[[str], None] = lambda _: None) -> list[Check]:
    """Every check that applies."""
    return list(Verification(subject, tell).run())


class Verification:
    """One reference run, and the runs that are held against it."""

    def __init__(self, subject: Subject, tell: Callable[[str], None]):
        self.subject, self._tell = subject, tell
        streams = subject.streams(subject.sampling_name, "again")
        self._again = again.Again(streams, SAMPLES, subject.rounds, subject.problem.model.size)
        self.reference = subject.run(again=self._again)
        self.said: dict[Place, Stated] = {}
        for place in self.reference.seen:
            if (found := stated(self.reference, place)) is not None:
                self.said[place] = found
        self.variations = adversarial(subject)

    def run(self) -> Iterator[Check]:
        reference = self.reference
        if reference.broke is not None:
            yield Check(
                "charge",
                "the run",
                "stopped",
                "runs",
                passed=False,
                note=f"the run stops by itself: {reference.broke}",
            )
            return
        if not reference.rounds:
            raise ConfigError("the configuration runs no round, so there is nothing to verify")
        if not self.subject.parts.private:
            yield Check("charge", "privacy", "none is claimed", "-")
            return
        yield from self._repeated()
        yield from self._noise()
        yield from self._sensitivity()
        yield from self._sampling()
        yield from self._outside()
        yield from self._files()
        yield from charge.checks(reference, self._ledger, self.subject.secret_cohort)

    # ---- noise

    def _repeated(self) -> Iterator[Check]:
        """All that follows holds chance equal by the run's streams."""
        self._tell("noise")
        found = self.subject.run(pinned=self.reference, see=(seen := _Kept()).see)
        apart = max(
            (_apart(seen.values.get(p), s.values) for p, s in self.reference.seen.items()),
            default=0.0,
        )
        yield Check(
            "noise",
            "the same run again",
            f"apart by {apart:g}",
            "0",
            passed=apart == 0 and found.broke is None,
            note="with the same keys a run releases something else: its chance is not of its streams",
        )

    def _noise(self) -> Iterator[Check]:
        subject, reference = self.subject, self.reference
        contrasts = noise.Contrasts(reference, self._gaussian())
        for key in range(1, self._keys() + 1):
            streams = subject.streams(subject.sampling_name, f"B{key}")
            other = subject.run(streams, pinned=reference, see=contrasts.see)
            if key == 1:
                self._other_noise = other
        for name in reference.names:
            places = [p for p in reference.places(name) if p in self.said]
            if not places:
                yield Check("noise", f"of {name}", "is not charged", "charged", passed=False)
                continue
            if self.said[places[0]].family == NONE:
                yield Check("noise", f"of {name}", "none is claimed", "-")
                continue
            samples = self._again.samples(name, reference, self.said)
            direct = self._again.direct(name, reference, self.said)
            if not samples:
                samples = [s for s in contrasts.samples if s.place.name == name]
                direct = np.concatenate(contrasts.direct[name]) if samples else direct
            if samples:
                extra = max(float((self.said[p].noted / self.said[p].std).max()) for p in places)
                layers = subject.layers()
                extra = extra if extra > 1 + 1e-6 else 1.0
                yield from noise.checks(name, samples, direct, extra, layers)
                yield from noise.independence(name, samples)
            yield from self._again.of_bits(name, reference, self.said)
            yield from self._again.between(name, self.said)
        yield from self._two_runs()
        yield from self._same_noise()
        yield from self._where_it_leaves()

    def _gaussian(self) -> dict[Place, Stated]:
        return {place: said for place, said in self.said.items() if said.family == GAUSSIAN}

    def _keys(self) -> int:
        """How many more noise keys make enough numbers of the gradient's noise."""
        width = self.subject.problem.model.size
        numbers = [
            s.values.numel() for s in self.reference.seen.values() if s.values.shape[1] == width
        ]
        return min(_KEYS_AT_MOST, max(1, math.ceil(SAMPLES / max(1, sum(numbers)))))

    def _two_runs(self) -> Iterator[Check]:
        """Runs of other identities, with the streams that ``fedpriv train`` would give them."""
        if not self._gaussian():
            return
        subject = self.subject
        config, rounds = subject.config, subject.parts.settings.rounds
        neighbour = subject.loop(self.variations[0]).problem
        neighbour.__dict__["digest"] = None
        first = self._under(subject.real_noise(config, rounds), "A")
        others = (
            ("another T", subject.real_noise(config, (rounds or 0) + 1)),
            (f"one {subject.unit_words} changed", subject.real_noise(config, rounds, neighbour)),
        )
        for words, streams in others:
            second = self._under(streams, "B1")
            z = float(first @ second) / float(np.linalg.norm(second) or math.nan)
            yield Check(
                "independence",
                f"of two runs: {words}",
                f"{z:+.2f} std",
                "normal",
                _normal_p(z),
                note=f"two runs that differ in {words} have noise in common",
            )

    def _under(self, streams: object, against: str) -> np.ndarray:
        """Standardised noise under these streams, against that of another key."""
        subject = self.subject
        kept, base = _Kept(), _Kept()
        subject.run(streams, pinned=self.reference, see=kept.see)
        subject.run(
            subject.streams(subject.sampling_name, against), pinned=self.reference, see=base.see
        )
        return self._differences(kept, base) / math.sqrt(2.0)

    def _differences(self, one: _Kept, other: _Kept) -> np.ndarray:
        """Of all Gaussian releases, in units of the ledger's standard deviations, in one long vector."""
        found = []
        for place, said in self._gaussian().items():
            a, b = one.values.get(place), other.values.get(place)
            if a is not None and b is not None and a.shape == b.shape:
                apart = (a.double() - b.double()).cpu().numpy() / said.std[:, None]
                found.append(apart.reshape(-1)[:: max(1, apart.size // _COMPARED)])
        return np.concatenate(found) if found else np.zeros(0)

    def _same_noise(self) -> Iterator[Check]:
        """Noise under two keys, with other data and with other lots."""
        if not self._gaussian():
            return
        reference = self._pair(Variation("as it is"), self.subject.sampling_name)
        unit = self.subject.unit_words
        for variation in self.variations:
            if variation.name in (ABSENT, "huge", "other tokens"):
                found = self._pair(variation, self.subject.sampling_name)
                yield sensitivity.scale_check(reference, found, f"a {unit} {variation.name}")
        if self.subject.secret_cohort or self.subject.parts.algorithm.clients_per_round is None:
            found = self._pair(Variation("as it is"), "other lots")
            if found.shape == reference.shape:
                yield sensitivity.scale_check(reference, found, "other lots and cohorts")

    def _pair(self, variation: Variation, lots: str) -> np.ndarray:
        one, other = _Kept(), _Kept()
        for key, kept in (("A", one), ("B1", other)):
            streams = self.subject.streams(lots, key)
            self.subject.run(streams, variation, pinned=self.reference, see=kept.see)
        return self._differences(one, other)

    def _where_it_leaves(self) -> Iterator[Check]:
        subject = self.subject
        places = [p for p in self.reference.seen if p.round_index == 0]
        if len(places) != 1 or places[0] not in self._gaussian():
            return
        if left.affine(subject, self.reference):
            check = left.check(subject, self.said[places[0]], self.variations, SAMPLES)
            if check is not None:
                yield check

    # ---- the rest

    def _sensitivity(self) -> Iterator[Check]:
        self._tell("sensitivity")
        subject = self.subject
        found = sensitivity.Displacements(self.reference, self.said, subject.unit_client)
        self._pinned: list[tuple[str, Recording]] = []
        for variation in self.variations:
            found.begin(variation.name)
            made = subject.run(None, variation, pinned=self.reference, see=found.see)
            found.broke(made.broke)
            self._pinned.append((f"a {subject.unit_words} {variation.name}", made))
        yield from found.checks(adds_or_removes(subject))
        if subject.secret_cohort and not replaceable([subject.loop()]):
            yield Check(
                "sensitivity",
                "a malicious client",
                "no upload could be replaced",
                "replaced",
                passed=False,
                note="nothing shows that the trusted server clips what a malicious client sends: the work "
                "has no object with of(round_index, clients) that computes uploads",
            )

    def _sampling(self) -> Iterator[Check]:
        self._tell("sampling")
        subject = self.subject
        made = subject.run(subject.streams("other lots", "A"))
        lots = self._lots(made)
        if subject.per_record and lots:
            laws = self._laws([lot.who for lot in lots])
            if laws is None:
                yield Check("sampling", "lots", "the event charged says nothing of them", "-")
            else:
                yield from sampling.checks("lots", lots, laws, subject.seed)
        elif subject.per_record:
            yield Check(
                "sampling",
                "lots",
                "no record is seen to be read",
                "read",
                passed=False,
                note="which records a round reads could not be seen: lots are read by Records.subset",
            )
        yield from self._cohorts(made)

    def _lots(self, made: Recording) -> list[sampling.Lot]:
        """The records that rounds read, as places among those of their client."""
        data = self.subject.problem.data
        owner = np.full(len(data.train), -1)
        place = np.zeros(len(data.train), dtype=int)
        for client, own in enumerate(data.clients):
            owner[own], place[own] = client, np.arange(len(own))
        lots, steps = [], max(1, max((len(reads) for reads in made.reads), default=1))
        for t, reads in enumerate(made.reads):
            for step, indices in enumerate(reads):
                whose = owner[indices]
                for client in made.cohorts[t]:
                    members = np.sort(place[indices[whose == client]])
                    lots.append(
                        sampling.Lot(
                            int(client), t * steps + step, len(data.clients[client]), members
                        )
                    )
        return lots

    def _laws(self, who: list[int]) -> dict[int, sampling.Law] | None:
        """How the ledger says that each client's lots are sampled."""
        found: dict[int, sampling.Law] = {}
        for release in (r for charged in self.reference.charged for r in charged):
            if "gradient_sum" not in release.joint.names and len(release.joint.names) == 1:
                continue
            law = sampling.law_of(release.joint.event())
            if law is None:
                return None
            found |= dict.fromkeys(map(int, release.clients), law)
        missing = [client for client in who if client not in found]
        return None if missing else found

    def _cohorts(self, made: Recording) -> Iterator[Check]:
        subject, algorithm = self.subject, self.subject.parts.algorithm
        streams, everyone = subject.streams("cohorts", ""), np.ones(subject.clients, dtype=bool)
        drawn = [algorithm.cohort(streams, t, everyone) for t in range(_COHORTS)]
        seen = [*made.cohorts, *drawn]
        if subject.secret_cohort:
            events = {r.joint.event() for charged in self.reference.charged for r in charged}
            laws = {sampling.law_of(event) for event in events}
        else:
            laws = {sampling.law_of(algorithm.client_sampling(subject.clients).event(1.0))}
        if None in laws or len(laws) != 1:
            yield Check("sampling", "cohorts", "the event charged says nothing of them", "-")
            return
        first = len(made.cohorts) + len(made.cohorts) % 2  # those of the run pair among themselves
        when = [*range(len(made.cohorts)), *range(first, first + _COHORTS)]
        lots = [
            sampling.Lot(0, t, subject.clients, np.sort(c)) for t, c in zip(when, seen, strict=True)
        ]
        yield from sampling.checks(
            "cohorts", lots, dict.fromkeys([0], laws.pop()), subject.seed + 1
        )

    def _outside(self) -> Iterator[Check]:
        self._tell("outside the releases")
        subject, reference = self.subject, self.reference
        yield outside.check(reference, self._other_noise, "other noise")
        if subject.secret_cohort or subject.parts.algorithm.clients_per_round is None:
            other = subject.run(subject.streams("other lots", "C"), pinned=reference)
            yield outside.check(reference, other, "other lots, cohorts and noise")
        yield outside.check_all(reference, self._pinned, subject.unit_words)
        made = subject.run(None, everything(subject), pinned=reference)
        yield outside.check(reference, made, "other records everywhere")

    def _files(self) -> Iterator[Check]:
        self._tell("files")
        subject = self.subject
        config, why_not = files.publishable(subject.config)
        if config is None:
            yield Check(
                "files", "files of a published run", "cannot be published", "-", note=why_not
            )
            return
        one = files.published(subject, config)
        sampling_name = "other lots" if subject.secret_cohort else None
        other = files.published(subject, config, one.tap, sampling_name, "C", everything(subject))
        yield from files.check(one, other)

    @property
    def _ledger(self) -> object:
        return self._ledger_of_reference()

    def _ledger_of_reference(self) -> object:
        from fedpriv.privacy.ledger import Ledger

        ledger = Ledger(self.subject.clients)
        for charged in self.reference.charged:
            for release in charged:
                ledger.record(release)
        return ledger


class _Kept:
    """All releases of a run, by their place."""

    def __init__(self) -> None:
        self.values: dict[Place, Tensor] = {}

    def see(self, place: Place, values: Tensor) -> None:
        self.values[place] = values.clone()


def _apart(one: Tensor | None, other: Tensor) -> float:
    if one is None or one.shape != other.shape:
        return math.inf
    both_nan = one.isnan() & other.isnan()
    return (
        float((one.double() - other.double()).abs().masked_fill(both_nan, 0.0).max())
        if one.numel()
        else 0.0
    )


def _normal_p(z: float) -> float:
    from fedpriv.verify.statistics import normal_two_sided

    return normal_two_sided(z)
