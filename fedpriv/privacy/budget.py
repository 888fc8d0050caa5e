"""Budget of a private run: its three ε, and the clients that may still take part.

- ``epsilon``: the configured accountant on the enforced view (``budget_view: sound | published``);
- ``epsilon_published``: the result of the work's own theorem for the same releases;
- ``epsilon_sound``: the tightest valid ε of the releases as they were.

When σ depends on released values (an adaptive schedule), composition theorems for fixed σ do not hold. Then
the enforced total is a Rényi filter (Feldman & Zrnic 2021) at one order fixed in advance. A
round runs only if the sum stays within the budget, and the budget is what may be claimed at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass

import numpy as np
from dp_accounting.dp_event import DpEvent

from fedpriv.common.attributes import is_own, own_classes
from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.common.saved import StateDict
from fedpriv.privacy.accountants import Accountant, RunningTotal
from fedpriv.privacy.core.client_groups import tensor
from fedpriv.privacy.core.names import NOBODY, SOUND
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off
from fedpriv.privacy.core.trust import LOCAL_TRUST, Trust
from fedpriv.privacy.ledger import Ledger, joint_row, recount
from fedpriv.privacy.mechanisms.announcement import Announcement, Group, as_one_event
from fedpriv.privacy.mechanisms.claims import Claim
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import JointQuery
from fedpriv.privacy.mechanisms.query import EARLIER, EarlierQuery
from fedpriv.privacy.mechanisms.release import Release
from fedpriv.privacy.sound import (
    Capped,
    Composed,
    Guarded,
    SoundEpsilon,
    Unguarded,
    epsilon_noised_by,
)


@dataclass(frozen=True)
class Target:
    """Budget of each client, and how it is accounted for.

    Attributes:
        epsilon: ε of each client; None means that nothing is enforced.
        delta: δ.
        view: Releases that are counted, ``sound`` or ``published``.
        accountant: Accountant that composes them.
    """

    epsilon: float | None
    delta: float
    view: str
    accountant: Accountant


@dataclass(frozen=True)
class Adaptation:
    """Limits of an adaptive schedule, whose σ depends on released values.

    Attributes:
        bound: A composition that no run of the schedule exceeds for any client in the sound view, or None.
        lowest_known: Whether the schedule says how low its noise can fall.
    """

    bound: Mapping[DpEvent, int] | None = None
    lowest_known: bool = True


class Budget:
    """Ledger and running totals of one run.

    Honest clients are charged by the :class:`Release` records of what they released. Two kinds of charges
    follow the announcement instead: all clients of a work whose theorem counts them in every round, and
    attackers, who have a total of their own.

    The life of a round, seen from here:

        eligible(announcement)  →  clients whose budget has room for the announced queries
        payers(cohort)          →  clients that are charged
        charge(releases, …)     →  ledger, enforced total, published total and sound ε

    Attributes:
        limit: ε of the budget, or None if nothing is enforced.
        delta: δ.
        view: Enforced view, ``sound`` or ``published``.
        accountant: Accountant of the enforced view.
        claim: Theorem of the published work, or None.
        trust: Who sees which uploads, which decides who is charged.
        adaptive: Whether σ depends on released values.
        ledger: Everything that was released.
        neighbours: Adjacency of the releases.
        filtered: Whether the enforced total is a Rényi filter.
        honest: Mask of the clients that are no attackers [K].

    Example:
        >>> from fedpriv.privacy.accountants import GdpAccountant
        >>> from fedpriv.privacy.mechanisms.announcement import Sample
        >>> joint = JointQuery(WholeData("add_or_remove"), (GaussianQuery("gradient_sum", 4.0),))
        >>> group = Group(np.arange(3), Sample(joint, times=1, lowest=joint))
        >>> announcement = Announcement(0, (group,))
        >>> target = Target(epsilon=1.0, delta=1e-5, view=SOUND, accountant=GdpAccountant())
        >>> budget = Budget(clients=3, target=target, claim=None, first=group)
        >>> clip_norm, noise_std = {"gradient_sum": np.array([0.5])}, {"gradient_sum": np.array([2.0])}
        >>> budget.charge([Release(joint, np.array([0]), clip_norm, noise_std)], announcement)
        >>> budget.epsilon().round(3).tolist()
        [0.926, 0.0, 0.0]
        >>> budget.eligible(announcement).tolist()  # a second round would cost client 0 more than 1
        [False, True, True]
    """

    def __init__(
        self,
        *,
        clients: int,
        target: Target,
        claim: Claim | None,
        first: Group,
        adaptation: Adaptation | None = None,
        trust: Trust = LOCAL_TRUST,
        attackers: Sequence[int] | np.ndarray = (),
        makers: Sequence[object] = (),
    ):
        """Set up the totals before the first round.

        Args:
            clients: K, the number of clients.
            target: ε, δ, view and accountant that are enforced.
            claim: The work's own theorem, or None.
            first: Queries that a participant answers in the first round.
            adaptation: How far the noise of an adaptive schedule can fall. None means that σ is fixed in
                advance.
            trust: Who sees which uploads.
            attackers: Positions of the attackers. They are charged nothing. Their hypothetical cost decides
                whether they are sampled again; otherwise the cohorts would depend on who attacks.
            makers: Objects that state events, beside the queries and samplings in the ledger.

        Raises:
            ConfigError: A query holds values that a checkpoint cannot store.
        """
        self.limit, self.delta, self.view = target.epsilon, target.delta, target.view
        self.accountant, self.claim, self.trust = target.accountant, claim, trust
        self._makers = makers
        self.adaptive = adaptation is not None
        self.ledger = Ledger(clients)
        for sample in first.samples:
            joint_row(sample.joint)  # refuse what a checkpoint cannot hold, before the first round
        self.neighbours = first.upload.joint.sampling.neighbours
        self.filtered = self.adaptive and self.view == SOUND and self.limit is not None
        event = first.event()[0]
        relation = self.neighbours if claim is None or self.view == SOUND else claim.neighbours

        def new_enforced() -> RunningTotal:
            if self.filtered and self.limit is not None:
                budget = (self.limit, self.delta)
                total = self.accountant.filter(clients, self.neighbours, event, *budget)
                assert total is not None  # an accountant without a filter is refused
                return total
            return self.accountant.running(clients, relation)

        self._enforced, self._new_enforced = new_enforced(), new_enforced
        self._published = None
        if claim is not None:
            self._new_published = lambda: claim.accountant().running(clients, claim.neighbours)
            self._published = self._new_published()
        self._sound = self._sound_epsilon(event, adaptation)
        self._took_part = np.zeros(clients, dtype=bool)
        self.honest = np.ones(clients, dtype=bool)
        self.honest[np.asarray(attackers, dtype=int)] = False
        # Made once, as every round asks for them; nobody may write into them.
        self._everyone, self._honest_clients = np.arange(clients), np.flatnonzero(self.honest)
        for numbers in (self._everyone, self._honest_clients):
            numbers.flags.writeable = False
        # What attackers would have spent had they been honest. It bars them as it would bar honest clients.
        self._if_honest = deepcopy(self._enforced) if len(attackers) else None
        # Whether the theorem amplifies by sampling clients, and so charges all of them in every round.
        self._charges_everyone = claim is not None and claim.client_rate is not None
        self._events: dict[JointQuery, tuple[DpEvent, DpEvent | None]] = {}  # (sound, claimed)

    def _sound_epsilon(self, first: DpEvent, adaptation: Adaptation | None) -> SoundEpsilon:
        """Choose the argument by which a sound ε holds: see the four cases of ``sound``."""
        if self.filtered and self.limit is not None:
            return Guarded(self._enforced, self.limit)
        if adaptation is not None and adaptation.bound is not None:
            return Capped(adaptation.bound, self.neighbours)
        if adaptation is not None and (self.limit is not None or not adaptation.lowest_known):
            return Unguarded()
        # The enforced total is valid as well where it counts what was released, by a theorem for fixed σ.
        valid = self.view == SOUND and not self.adaptive and not is_own(self.accountant)
        return Composed(
            first,
            self.ledger.clients,
            self.neighbours,
            enforced=self._enforced if valid else None,
            enforced_by=self.accountant,
            lowest=self.adaptive,
        )

    # ---- before a round

    def eligible(self, announcement: Announcement) -> np.ndarray:
        """Return a mask of the clients whose budget has room for the announced round [K].

        All clients have room where no ε is enforced.
        """
        eligible = np.ones(self.ledger.clients, dtype=bool)
        if self.limit is None:
            return eligible
        for group in announcement.groups:
            event, count = self._enforced_events(group)
            members = group.clients
            exceeded = self._enforced.would_exceed(event, count, self.limit, self.delta, members)
            eligible[members[exceeded]] = False
            if self._if_honest is not None:
                # Attackers have a hypothetical total, which overrides the total of what they were charged.
                attackers = members[~self.honest[members]]
                exceeded = self._if_honest.would_exceed(
                    event, count, self.limit, self.delta, attackers
                )
                eligible[attackers] = ~exceeded
        return eligible

    def _enforced_events(self, group: Group) -> tuple[DpEvent, int]:
        """Return the event of a round in the enforced view, and how often it occurs."""
        if self.view == SOUND or self.claim is None:
            return group.event()
        claim = self.claim
        covered = (sample for sample in group.samples if claim.covers(sample.joint))
        return as_one_event([(claim.event(sample.joint), sample.times) for sample in covered])

    def payers(self, cohort: np.ndarray) -> np.ndarray:
        """Return the clients that are charged for a round with this cohort, ascending, without attackers."""
        if self.trust.secret_cohort:
            return self._honest_clients
        return cohort[self.honest[cohort]]

    # ---- after a round

    def charge(
        self,
        releases: Iterable[Release],
        announcement: Announcement,
        sampled: np.ndarray | None = None,
    ) -> None:
        """Enter the releases of a round in the ledger and charge them in every view.

        Args:
            releases: Records of what honest clients released.
            announcement: The announcement of the round.
            sampled: Clients that the algorithm sampled [c], where attackers may have joined the cohort
                besides.

        Raises:
            ReleaseError: A release was not announced, or of a client that was not charged for what it
                releases before the first round.
        """
        before, releases = announcement.before, tuple(releases)
        if before is not None:
            charged = self.ledger.counts(before) > 0
            if not all(charged[release.clients].all() for release in releases):
                queries = " ".join(query.describe() for query in before.queries)
                raise ReleaseError(
                    f"every client must be charged for {queries} before the first round, and some were not"
                )
        lowest = {s.joint: s.lowest for group in announcement.groups for s in group.samples}
        announcement.refuse_others(releases)
        for release in releases:
            self._charge(release, lowest[release.joint])
        if self.claim is not None and self._charges_everyone and not releases:
            # A round of attackers alone. The theorem charges everyone, whoever took part.
            for group in announcement.groups:
                joint, times = group.upload.joint, group.upload.times
                self.ledger.claim(joint, times)
                self._charge_claim(self.claim.event(joint), self._everyone, times)
        if self._if_honest is not None and sampled is not None:
            self._charge_attackers(announcement, sampled)

    def _charge(self, release: Release, lowest: JointQuery) -> None:
        joint, clients, count = release.joint, release.clients, release.count
        if joint not in self._events:  # the same release is charged alike in every round
            claimed_event = None
            if self.claim is not None and self.claim.covers(joint):
                claimed_event = self.claim.event(joint)
            self._events[joint] = joint.event(), claimed_event
        event, claimed_event = self._events[joint]
        covered = claimed_event is not None
        # How the theorem counts the release in the ledger: by those who released (None), not at all where it
        # does not cover the release (0), or by all clients, whether they took part or not.
        claimed, claimed_count = clients, None if covered or self.claim is None else 0
        if covered and self._charges_everyone:
            claimed, claimed_count = self._everyone, count
        self.ledger.record(release, claimed=claimed_count)
        if self.view == SOUND:
            self._enforced.add(event, clients, count)
        if claimed_event is not None:
            self._charge_claim(claimed_event, claimed, count)
        self._sound.add(lowest.event() if self.adaptive else event, clients, count)
        self._note(clients)

    def _note(self, clients: np.ndarray) -> None:
        """Note that clients took part."""
        if len(clients) == self.ledger.clients:
            self._took_part.fill(True)  # quicker than by number, for a million clients
        else:
            self._took_part[clients] = True

    def _charge_claim(self, event: DpEvent, clients: np.ndarray, count: int) -> None:
        """Charge an event of the theorem, in the published view and where that view is enforced."""
        if self._published is not None:
            self._published.add(event, clients, count)
        if self.view != SOUND:
            self._enforced.add(event, clients, count)

    def _charge_attackers(self, announcement: Announcement, sampled: np.ndarray) -> None:
        """Charge the attackers among the sampled clients what they would have paid had they been honest."""
        payers = self.trust.charged(sampled, self.ledger.clients)
        for group in announcement.groups:
            attackers = payers[np.isin(payers, group.clients) & ~self.honest[payers]]
            if self.view != SOUND and self._charges_everyone:
                attackers = self._everyone
            if len(attackers) and self._if_honest is not None:
                event, count = self._enforced_events(group)
                self._if_honest.add(event, attackers, count)

    def charge_before(self, releases: Iterable[Release], announcement: Announcement) -> None:
        """Enter what every client released before the first round of this run.

        Raises:
            ReleaseError: A release was not announced.
        """
        releases = tuple(releases)
        announcement.refuse_others(releases)
        for release in releases:
            self.charge_prior(release)

    def charge_prior(self, release: Release) -> None:
        """Enter what every client released before this run on the same data.

        The release goes into the ledger and into every sound total. The published view is about this run
        alone, so it is not charged there.

        Raises:
            ConfigError: No accountant composes the release with those of the rounds.
        """
        event, everyone = release.joint.event(), release.clients
        self._sound.refuse_prior(event)
        if self.view == SOUND and (why := self.accountant.supports(event, self.neighbours)):
            raise ConfigError(f"what was released before the first round has no price here: {why}")
        self.ledger.record(release, claimed=0)
        if self.view == SOUND:
            for total in (self._enforced, self._if_honest):
                if total is not None:
                    total.add(event, everyone, release.count)
        self._sound.charge_prior(event, everyone, release.count)
        self._note(everyone)

    def expose(self, names: Iterable[str]) -> None:
        """Enter facts about every client's data that were public, without noise, before the first round.

        Args:
            names: Names of the facts in the ledger.
        """
        queries = tuple(GaussianQuery(name, 0.0, by=NOBODY) for name in names)
        self.charge_prior(
            Release(
                JointQuery(WholeData(self.neighbours), queries),
                self._everyone,
                {query.name: np.array([np.inf]) for query in queries},
                {},
            )
        )

    def charge_earlier(
        self, event: str, clients: np.ndarray, count: int, name: str = EARLIER
    ) -> None:
        """Enter what an earlier run released, or a round that came out otherwise when it was run again.

        Args:
            event: Text of the event of one sample.
            clients: Clients that were charged [m].
            count: Number of samples.
            name: Name in the ledger.
        """
        query = EarlierQuery(event, name)
        joint, nothing = JointQuery(WholeData(self.neighbours), (query,)), {query.name: np.zeros(1)}
        self.charge_prior(Release(joint, clients, nothing, {}, count=count))

    def recount(self) -> str:
        """Account for the ledger again. Where the ledger's total is larger, it replaces the running total.

        Clients that the ledger knows and the running totals do not are noted as having taken part.

        Returns:
            The differences in words; empty where the running totals are those of the ledger.
        """
        settings = self.ledger, self.delta
        enforced_claim = None if self.view == SOUND else self.claim
        messages = [
            recount("enforced", self._enforced, self._new_enforced, *settings, enforced_claim)
        ]
        if self._published is not None:
            totals = self._published, self._new_published
            messages.append(recount("published", *totals, *settings, self.claim))
        if (sound_totals := self._sound.counted()) is not None:
            messages.append(recount("sound", *sound_totals, *settings))
        differences = [message for message in messages if message]
        took_part = self.ledger.samples_of() > 0
        if not np.array_equal(took_part, self._took_part):
            self._took_part |= took_part
            differences.append("other clients took part")
        return "; ".join(differences)

    # ---- the three numbers

    @property
    def declared_by(self) -> list[str]:
        """Classes outside fedpriv by which the sound ε is declared: nothing proves the events they state."""
        joints = [joint for joint, _ in self.ledger]
        of_ledger = (part for j in joints for part in (j, j.sampling, *j.queries))
        guard = self.accountant if self.filtered else None
        return own_classes((*self._makers, *of_ledger, guard))

    def epsilon(self) -> np.ndarray:
        """Return the enforced ε of every client [K]; 0 for a client that never took part."""
        return np.where(self._took_part, self._enforced.epsilon(self.delta), 0.0)

    def epsilon_published(self) -> np.ndarray:
        """Return ε by the work's own theorem of every client [K]; nan where the algorithm has no theorem."""
        if self._published is None:
            return np.full(self.ledger.clients, np.nan)
        return self._published.epsilon(self.delta)

    def epsilon_sound(self) -> np.ndarray:
        """Return the tightest valid ε of every client [K]; ``inf`` where no finite ε is valid."""
        return np.where(self._took_part, self._sound.epsilon(self.delta), 0.0)

    def trade_off(self) -> TradeOff:
        """Return the trade-off curve of the best attack on any client, by the sound ε(δ)."""
        if not self._took_part.any():
            return trade_off(np.zeros_like(EPSILONS))
        return trade_off(self._sound.deltas(EPSILONS, self.delta))

    def worst(self, seldom: bool) -> dict[str, float]:
        """Return the three ε of the worst client, by the name of their column.

        An ε is left out where it does not exist (``epsilon_published`` without a claim), or where it takes
        long and ``seldom`` is false.

        Args:
            seldom: Whether to include an ε that takes long to compute (PLD). The caller asks for those at
                some rounds only.
        """
        epsilons = {}
        if self._published is not None:
            epsilons["epsilon_published"] = self._published.worst(self.delta)
        for name, total in (("epsilon", self._enforced), ("epsilon_sound", self._sound)):
            if seldom or total.immediate:
                epsilons[name] = total.worst(self.delta) if self._took_part.any() else 0.0
        return epsilons

    @property
    def immediate(self) -> bool:
        """True if ``epsilon`` is fast enough to be computed after every round."""
        return self._enforced.immediate

    @property
    def slow(self) -> bool:
        """True if an ε has become so slow that it is computed seldom, because the noise changed often."""
        return self._enforced.slow or self._sound.slow

    def bound(self) -> float | None:
        """Return an upper bound of the worst client's ε, computed at once, or None if there is none."""
        bound = self._enforced.bound(self.delta) if self._took_part.any() else 0.0
        bound = bound if self.limit is None else min(bound, self.limit)
        return bound if np.isfinite(bound) else None

    def epsilon_of_part(self, by: str) -> float | None:
        """Return the sound ε of the worst client for the part of the releases that ``by`` noised.

        The rest is left out, as if this part had been released alone.

        Args:
            by: ``client`` or ``aggregator``.

        Returns:
            ε, or None if that party noised nothing.
        """
        return epsilon_noised_by(by, self.ledger, self.delta, self.neighbours)

    def order(self) -> float | None:
        """Return the Rényi order behind the worst client's ``epsilon``, or None without orders."""
        return self._enforced.best_order(self.delta)

    def fraction_spent(self) -> float | None:
        """Return the share of the budget that the worst client has spent, in 0 … 1.

        The share is linear in the rounds at constant noise. None means that no budget is enforced or the
        share is not known.
        """
        return None if self.limit is None else self._enforced.share_of(self.limit, self.delta)

    def reasons(self) -> dict[str, str]:
        """Return for each ε how it was computed, in words."""
        accountant = self.accountant.describe()
        enforced = f"{accountant}; all releases composed, charged as in the {self.view} analysis"
        if self.filtered:
            filter_words = self._enforced.filter_words()
            enforced = f"{accountant}; sigma adapts, so {filter_words}"
        published = "no published analysis is claimed for this algorithm"
        if self.claim is not None:
            claim = self.claim
            published = f"{claim.source}: {claim.statement}; {claim.accountant().describe()}"
            if np.max(self.epsilon_published()) > np.max(self.epsilon_sound()):
                published += "; this value is larger than the sound epsilon"
        unprotected = {name for joint, _ in self.ledger for name in joint.unprotected}
        sound = self._sound.reason()
        if unprotected:
            sound = f"released without noise: {', '.join(sorted(unprotected))}"
        return {"epsilon": enforced, "epsilon_published": published, "epsilon_sound": sound}

    def state_dict(self) -> dict[str, object]:
        return {
            "ledger": self.ledger.state_dict(),
            "enforced": self._enforced.state_dict(),
            "published": None if self._published is None else self._published.state_dict(),
            "if_honest": None if self._if_honest is None else self._if_honest.state_dict(),
            "sound": self._sound.state_dict(),
            "took_part": tensor(self._took_part),
        }

    def load_state_dict(self, state: StateDict) -> None:
        self.ledger.load_state_dict(state["ledger"])
        self._enforced.load_state_dict(state["enforced"])
        if self._published is not None:
            self._published.load_state_dict(state["published"])
        if self._if_honest is not None:
            self._if_honest.load_state_dict(state["if_honest"])
        self._sound.load_state_dict(state["sound"])
        self._took_part = state["took_part"].cpu().numpy().copy()
