"""The three numbers of a private run, and who may still take part.

- ``epsilon``: the configured accountant on the enforced view (``budget_view: sound | published``);
- ``epsilon_published``: what the work's own theorem says of the same releases;
- ``epsilon_sound``: the tightest valid ε of what really happened.

When σ depends on what was released (an adaptive schedule), composition for fixed σ does not hold. Then the
enforced total is a Rényi filter (Feldman & Zrnic 2021, theorem 4.3): one order fixed in advance; a round runs
only if the sum stays within the budget; and what may be claimed at the end is the budget.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
from dp_accounting.dp_event import ComposedDpEvent, DpEvent

from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.accountants import RunningTotal
from fedpriv.privacy.core.columns import each_client, of_clients
from fedpriv.privacy.core.names import NOBODY, SOUND
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.core.trade_off import EPSILONS, TradeOff, trade_off
from fedpriv.privacy.core.trust import LOCAL_TRUST, Trust
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms.announcement import Announcement, Group
from fedpriv.privacy.mechanisms.claims import Claim
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import JointQuery
from fedpriv.privacy.mechanisms.release import Release
from fedpriv.privacy.mechanisms.rows import joint_row
from fedpriv.privacy.recount import Counted
from fedpriv.privacy.sound import (
    Capped,
    Composed,
    Guarded,
    SoundEpsilon,
    Unguarded,
    epsilon_noised_by,
)
from fedpriv.privacy.target import Adaptation, Target


class Budget:
    """Ledger and running totals of one run of ``clients`` clients.

    Honest clients are charged by the :class:`Release` objects of what they released. All clients of a work
    whose theorem counts them in every round, and attackers in a total of their own, are charged by the
    announcement.
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
    ):
        """
        Args:
            clients: How many there are.
            target: What is enforced.
            claim: The work's own theorem, or None.
            first: What a participant releases in the first round.
            adaptation: How far the noise of an adaptive schedule can fall; None: σ is fixed in advance.
            trust: Who sees what, and so who is charged for a round.
            attackers: They are charged nothing; what they would have paid decides whether they are sampled
                again, else who is sampled would depend on who attacks.
        """
        self.limit, self.delta, self.view = target.epsilon, target.delta, target.view
        self.accountant, self.claim, self.trust = target.accountant, claim, trust
        self.adaptive = adaptation is not None
        self.ledger = Ledger(clients)
        for sample in first.samples:
            joint_row(sample.joint)  # refuses what a checkpoint cannot hold, before the first round
        self.neighbours = first.upload.joint.sampling.neighbours
        self.filtered = self.adaptive and self.view == SOUND and self.limit is not None
        event = first.event()[0]
        relation = self.neighbours if claim is None or self.view == SOUND else claim.neighbours

        def enforced() -> RunningTotal:
            if self.filtered and self.limit is not None:
                kept = (self.limit, self.delta)
                total = self.accountant.filter(clients, self.neighbours, event, *kept)
                assert total is not None  # an accountant without a filter is refused
                return total
            return self.accountant.running(clients, relation)

        self._enforced, self._new_enforced = enforced(), enforced
        self._published = None
        if claim is not None:
            self._new_published = lambda: claim.accountant().running(clients, claim.neighbours)
            self._published = self._new_published()
        self._sound = self._sound_epsilon(event, adaptation)
        self._took_part = np.zeros(clients, dtype=bool)
        self.honest = np.ones(clients, dtype=bool)
        self.honest[np.asarray(attackers, dtype=int)] = False
        self._if_honest = deepcopy(self._enforced) if len(attackers) else None
        # whether the theorem counts on sampling clients, and charges all of them in every round
        self._of_all = claim is not None and claim.client_rate is not None
        self._events: dict[JointQuery, tuple[DpEvent, DpEvent | None]] = {}  # (sound, claimed)

    def _sound_epsilon(self, first: DpEvent, adaptation: Adaptation | None) -> SoundEpsilon:
        if self.filtered and self.limit is not None:
            return Guarded(self._enforced, self.limit)
        if adaptation is not None and adaptation.bound is not None:
            return Capped(adaptation.bound, self.neighbours)
        if adaptation is not None and (self.limit is not None or not adaptation.lowest_known):
            return Unguarded()
        valid = self.view == SOUND and not self.adaptive
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
        """Which clients may take part in the round that is announced [K]: it stays within their budget."""
        eligible = np.ones(self.ledger.clients, dtype=bool)
        if self.limit is None:
            return eligible
        for group in announcement.groups:
            event, count = self._enforced_events(group)
            who = group.clients
            for total, own in ((self._enforced, who), (self._if_honest, who[~self.honest[who]])):
                if total is not None:
                    exceeded = total.would_exceed(event, count, self.limit, self.delta, own)
                    eligible[own] = ~exceeded
        return eligible

    def _enforced_events(self, group: Group) -> tuple[DpEvent, int]:
        """(an event, how often) of a round, in the enforced view."""
        if self.view == SOUND or self.claim is None:
            return group.event()
        events = [
            (self.claim.event(sample.joint), sample.times)
            for sample in group.samples
            if self.claim.covers(sample.joint)
        ]
        if len(events) == 1:
            return events[0]
        return ComposedDpEvent(tuple(e for e, times in events for _ in range(times))), 1

    def payers(self, cohort: np.ndarray) -> np.ndarray:
        """Who is charged for a round with this cohort, ascending: never an attacker."""
        payers = self.trust.charged(cohort, self.ledger.clients)
        return payers[self.honest[payers]]

    # ---- after a round

    def charge(
        self,
        releases: Iterable[Release],
        announcement: Announcement,
        sampled: np.ndarray | None = None,
    ) -> None:
        """Enter what a round released and charge it in every view. ``sampled``: the clients that the
        algorithm sampled, where attackers may have joined the cohort besides."""
        before = announcement.before
        if before is not None and not self.ledger.has_of_everyone(before):
            words = " ".join(query.describe() for query in before.queries)
            raise ReleaseError(
                f"{words} is what every client releases before the first round, and not every client was "
                "charged for it"
            )
        lowest = {s.joint: s.lowest for group in announcement.groups for s in group.samples}
        releases = tuple(releases)
        announcement.refuse_others(releases)
        for release in releases:
            self._charge(release, lowest[release.joint])
        if self._of_all and not releases:  # of attackers alone: the theorem does not ask who
            self._claim(announcement)
        if self._if_honest is not None and sampled is not None:
            self._charge_attackers(announcement, sampled)

    def _claim(self, announcement: Announcement) -> None:
        """Charge a round in which nobody honest released anything, in the published view alone."""
        assert self.claim is not None
        assert self._published is not None
        everyone = np.arange(self.ledger.clients)
        for group in announcement.groups:
            joint, times = group.upload.joint, group.upload.times
            self.ledger.claim(joint, times)
            self._published.add(self.claim.event(joint), everyone, times)
            if self.view != SOUND:
                self._enforced.add(self.claim.event(joint), everyone, times)

    def _charge(self, release: Release, lowest: JointQuery) -> None:
        joint, clients, count = release.joint, release.clients, release.count
        if joint not in self._events:  # the same release is charged alike in every round
            claimed_event = None
            if self.claim is not None and self.claim.covers(joint):
                claimed_event = self.claim.event(joint)
            self._events[joint] = joint.event(), claimed_event
        event, claimed_event = self._events[joint]
        covered = claimed_event is not None
        of_all = covered and self._of_all  # present or not
        claimed = np.arange(self.ledger.clients) if of_all else clients
        # the theorem charges nothing for what it does not cover
        claimed_count = count if of_all else None if covered or self.claim is None else 0
        self.ledger.record(release, claimed=claimed_count)
        if self.view == SOUND:
            self._enforced.add(event, clients, count)
        elif covered:
            self._enforced.add(claimed_event, claimed, count)
        if covered and self._published is not None:
            self._published.add(claimed_event, claimed, count)
        self._sound.add(lowest.event() if self.adaptive else event, clients, count)
        self._took_part[clients] = True

    def _charge_attackers(self, announcement: Announcement, sampled: np.ndarray) -> None:
        """What the attackers among those sampled would have paid had they been honest."""
        payers = self.trust.charged(sampled, self.ledger.clients)
        for group in announcement.groups:
            own = payers[np.isin(payers, group.clients) & ~self.honest[payers]]
            if self.view != SOUND and self._of_all:
                own = np.arange(self.ledger.clients)
            if len(own) and self._if_honest is not None:
                event, count = self._enforced_events(group)
                self._if_honest.add(event, own, count)

    def charge_before(self, releases: Iterable[Release], announcement: Announcement) -> None:
        """Enter what every client released before the first round of this run, as it was announced."""
        releases = tuple(releases)
        announcement.refuse_others(releases)
        for release in releases:
            self.charge_prior(release)

    def charge_prior(self, release: Release) -> None:
        """Enter what every client released before this run, on the same data: into the ledger and all that is
        sound. What is published, and enforced in that view, is about this run."""
        self.ledger.record(release, claimed=0)
        event, everyone = release.joint.event(), release.clients
        if self.view == SOUND:
            for total in (self._enforced, self._if_honest):
                if total is not None:
                    total.add(event, everyone, release.count)
        self._sound.charge_prior(event, everyone, release.count)
        self._took_part[everyone] = True

    def expose(self, names: Iterable[str]) -> None:
        """Enter what of every client's data is known without noise before the first round."""
        queries = tuple(GaussianQuery(name, 0.0, by=NOBODY) for name in names)
        self.charge_prior(
            Release(
                JointQuery(WholeData(self.neighbours), queries),
                np.arange(self.ledger.clients),
                {query.name: np.array([np.inf]) for query in queries},
                {},
            )
        )

    def recount(self) -> str:
        """Price the ledger again; of the ledger and a running total the larger counts from here on.

        Returns what differed, in words; empty where the totals are those of the ledger.
        """
        claim = None if self.view == SOUND else self.claim
        totals = [Counted("enforced", self._enforced, self._new_enforced, claim)]
        if self._published is not None:
            totals.append(Counted("published", self._published, self._new_published, self.claim))
        if (counted := self._sound.counted()) is not None:
            totals.append(Counted("sound", *counted))
        differing = [words for total in totals if (words := total.recount(self.ledger, self.delta))]
        took_part = self.ledger.samples_of() > 0
        if not np.array_equal(took_part, self._took_part):
            self._took_part |= took_part
            differing.append("other clients took part")
        return "; ".join(differing)

    # ---- the three numbers

    def epsilon(self) -> np.ndarray:
        """ε enforced, of every client [K]; 0 for one that never took part."""
        return np.where(self._took_part, self._enforced.epsilon(self.delta), 0.0)

    def epsilon_published(self) -> np.ndarray:
        """ε by the work's own theorem, of every client [K]; nan where the algorithm has none."""
        if self._published is None:
            return np.full(self.ledger.clients, np.nan)
        return self._published.epsilon(self.delta)

    def epsilon_sound(self) -> np.ndarray:
        """The tightest valid ε of every client [K]; ``inf`` where there is none."""
        return np.where(self._took_part, self._sound.epsilon(self.delta), 0.0)

    def trade_off(self) -> TradeOff:
        """How well an attack on any client can do, by what is sound."""
        if not self._took_part.any():
            return trade_off(np.zeros_like(EPSILONS))
        return trade_off(self._sound.deltas(EPSILONS, self.delta))

    def worst(self, seldom: bool) -> dict[str, float]:
        """The three ε of the worst client, by name of their column.

        An epsilon that takes long (PLD) is among them only if ``seldom``: the caller asks for those at some
        rounds only.
        """
        found = {}
        if self._published is not None:
            found["epsilon_published"] = self._published.worst(self.delta)
        for name, total in (("epsilon", self._enforced), ("epsilon_sound", self._sound)):
            if seldom or total.immediate:
                found[name] = total.worst(self.delta) if self._took_part.any() else 0.0
        return found

    @property
    def immediate(self) -> bool:
        """Whether ``epsilon`` is fast enough to be asked after every round."""
        return self._enforced.immediate

    @property
    def slow(self) -> bool:
        """Whether an epsilon has become so slow, as the noise moved much, that it is asked for seldom."""
        return self._enforced.slow or self._sound.slow

    def bound(self) -> float | None:
        """A number that ε of the worst client does not exceed, at once; ``None`` where none is known."""
        bound = self._enforced.bound(self.delta) if self._took_part.any() else 0.0
        bound = bound if self.limit is None else min(bound, self.limit)
        return bound if np.isfinite(bound) else None

    def epsilon_of_part(self, by: str) -> float | None:
        """Sound ε of the worst client of only what ``client`` or ``aggregator`` noised, had it been
        released alone; ``None`` if there is no such answer."""
        return epsilon_noised_by(by, self.ledger, self.delta, self.neighbours)

    def order(self) -> float | None:
        """The Rényi order behind ``epsilon`` of the worst client, where there is one."""
        return self._enforced.best_order(self.delta)

    def fraction_spent(self) -> float | None:
        """How far the worst client is on the way to the budget, 0 … 1, linear in the rounds at constant
        noise; ``None`` if it is not known."""
        return None if self.limit is None else self._enforced.share_of(self.limit, self.delta)

    def reasons(self) -> dict[str, str]:
        """Why each number is what it is, in words."""
        return {
            "epsilon": self._enforced_reason(),
            "epsilon_published": self._published_reason(),
            "epsilon_sound": self._sound_reason(),
        }

    def _published_reason(self) -> str:
        if self.claim is None:
            return "no published analysis is claimed for this algorithm"
        return (
            f"{self.claim.source}: {self.claim.statement}; "
            f"{self.claim.accountant().describe()}{self._looser_words()}"
        )

    def _looser_words(self) -> str:
        larger = np.max(self.epsilon_published()) > np.max(self.epsilon_sound())
        return ", which is larger than the sound epsilon" if larger else ""

    def _enforced_reason(self) -> str:
        settings = self.accountant.describe()
        if self.filtered:
            return f"{settings}; sigma adapts, so {self._enforced.filter_words()}"
        return f"{settings}; composition of the {self.view} view"

    def _sound_reason(self) -> str:
        if any(joint.unprotected for joint, _ in self.ledger):
            names = sorted({q for joint, _ in self.ledger for q in joint.unprotected})
            return f"released without noise: {', '.join(names)}"
        return self._sound.reason()

    def state_dict(self) -> dict[str, object]:
        return {
            "ledger": self.ledger.state_dict(),
            "enforced": self._enforced.state_dict(),
            "published": None if self._published is None else self._published.state_dict(),
            "if_honest": None if self._if_honest is None else self._if_honest.state_dict(),
            "sound": self._sound.state_dict(),
            "took_part": of_clients(self._took_part),
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self.ledger.load_state_dict(saved["ledger"])
        self._enforced.load_state_dict(saved["enforced"])
        if self._published is not None:
            self._published.load_state_dict(saved["published"])
        if self._if_honest is not None:
            self._if_honest.load_state_dict(saved["if_honest"])
        self._sound.load_state_dict(saved["sound"])
        self._took_part = each_client(saved["took_part"])
