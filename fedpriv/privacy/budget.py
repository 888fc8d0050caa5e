"""The three numbers of a private run, and who may still take part.

- ``epsilon``: the configured accountant on the enforced view (``budget_view: sound | published``);
- ``epsilon_published``: what the work's own theorem says of the same draws;
- ``epsilon_sound``: the tightest valid price of what really happened.

When σ depends on what was released (an adaptive schedule), a composition theorem for fixed σ does
not hold. Then the enforced total is a Rényi filter (Feldman & Zrnic 2021, theorem 4.3): one order
fixed in advance; a round runs only if the sum stays within the budget; and what may be claimed at the
end is the budget, not the ε at the stopping time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from dp_accounting.dp_event import DpEvent

from fedpriv.privacy.accountants import Accountant
from fedpriv.privacy.claims import Claim
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanism import Draw, Query
from fedpriv.privacy.names import NOBODY, SOUND
from fedpriv.privacy.sampling import WholeData
from fedpriv.privacy.sound import Capped, Composed, Guarded, SoundPrice, Unguarded, tightest


class Budget:
    """Ledger and running totals of one run of ``clients`` clients."""

    def __init__(
        self,
        *,
        clients: int,
        epsilon: float | None,
        delta: float,
        view: str,
        accountant: Accountant,
        claim: Claim,
        first_draw: Draw,
        adaptive: bool,
        cap: Mapping[DpEvent, int] | None = None,
    ):
        """``cap``: what an adaptive schedule can never spend more than on a client (sound view)."""
        self.limit, self.delta, self.view, self.claim = epsilon, delta, view, claim
        self.accountant, self.adaptive = accountant, adaptive
        self.ledger = Ledger(clients)
        self.neighbours = first_draw.sampling.neighbours
        self.filtered = adaptive and view == SOUND and epsilon is not None
        if self.filtered:
            self._enforced = accountant.filter(
                clients, self.neighbours, first_draw.event(), epsilon, delta
            )
        else:
            self._enforced = accountant.running(clients, self._neighbours_of(view))
        self._published = claim.accountant().running(clients, claim.neighbours)
        self._sound = self._sound_price(first_draw, cap)
        self._took_part = np.zeros(clients, dtype=bool)

    def _sound_price(self, first_draw: Draw, cap: Mapping[DpEvent, int] | None) -> SoundPrice:
        if self.filtered:
            return Guarded(self._enforced, self.limit)
        if self.adaptive and cap is not None:
            return Capped(cap, self.neighbours)
        if self.adaptive and self.limit is not None:
            return Unguarded()
        valid = self.view == SOUND and not self.adaptive
        return Composed(
            first_draw.event(),
            self.ledger.clients,
            self.neighbours,
            enforced=self._enforced if valid else None,
            enforced_by=self.accountant,
            lowest=self.adaptive,
        )

    def _neighbours_of(self, view: str) -> str:
        return self.neighbours if view == SOUND else self.claim.neighbours

    def _enforced_event(self, draw: Draw) -> Any:
        return draw.event() if self.view == SOUND else self.claim.event(draw)

    def may_take_part(self, draw: Draw, count: int, clients: np.ndarray) -> np.ndarray:
        """For each of ``clients`` [m]: do ``count`` more such draws stay within its budget?"""
        if self.limit is None:
            return np.ones(len(clients), dtype=bool)
        event = self._enforced_event(draw)
        return ~self._enforced.would_exceed(event, count, self.limit, self.delta, clients)

    def charge(
        self,
        draw: Draw,
        clients: np.ndarray,
        sensitivities: Mapping[str, np.ndarray],
        worst_draw: Draw,
    ) -> None:
        """Enter one draw by each of ``clients`` [m] and charge it in every view.

        ``worst_draw`` is the same draw at the smallest σ the schedule could have reached by this
        round, whatever the data: what an adaptive run without a filter is charged.
        """
        # a theorem that counts on sampling clients charges all of them, present or not
        of_all = self.claim.client_rate is not None
        claimed = np.arange(self.ledger.clients) if of_all else clients
        self.ledger.record(draw, clients, sensitivities, claimed=1 if of_all else None)
        self._enforced.add(self._enforced_event(draw), clients if self.view == SOUND else claimed)
        self._published.add(self.claim.event(draw), claimed)
        self._sound.add(worst_draw.event() if self.adaptive else draw.event(), clients)
        self._took_part[clients] = True

    def prepay(self, draw: Draw, count: int, sensitivities: Mapping[str, np.ndarray]) -> None:
        """Enter ``count`` draws by every client made before this run, on the same data: into the ledger
        and all that is sound. What is published, and enforced in that view, is about this run."""
        everyone = np.arange(self.ledger.clients)
        self.ledger.record(draw, everyone, sensitivities, count, claimed=0)
        if self.view == SOUND:
            self._enforced.add(draw.event(), everyone, count)
        self._sound.prepay(draw.event(), everyone, count)
        self._took_part[:] = True

    def expose(self, names: Iterable[str]) -> None:
        """Enter what of every client's data is known without noise before the first round."""
        queries = tuple(Query(name, 0.0, by=NOBODY) for name in names)
        draw = Draw(WholeData(self.neighbours), queries)
        self.prepay(draw, 1, {query.name: np.array([np.inf]) for query in queries})

    def epsilon(self) -> np.ndarray:
        """ε enforced, of every client [K]; 0 for one that never took part."""
        return np.where(self._took_part, self._enforced.epsilon(self.delta), 0.0)

    def epsilon_published(self) -> np.ndarray:
        """ε by the work's own theorem, of every client [K]."""
        return self._published.epsilon(self.delta)

    def epsilon_sound(self) -> np.ndarray:
        """The tightest valid ε of every client [K]; ``inf`` where there is none."""
        return np.where(self._took_part, self._sound.epsilon(self.delta), 0.0)

    def worst(self, seldom: bool) -> dict[str, float]:
        """The three ε of the worst client, by name of their column.

        A price that takes long (PLD) is among them only if ``seldom``: the caller asks for those at some
        rounds only.
        """
        prices = {"epsilon_published": self._published.worst(self.delta)}
        for name, total in (("epsilon", self._enforced), ("epsilon_sound", self._sound)):
            if seldom or total.immediate:
                prices[name] = total.worst(self.delta) if self._took_part.any() else 0.0
        return prices

    @property
    def immediate(self) -> bool:
        """Whether ``epsilon`` is fast enough to be asked after every round."""
        return self._enforced.immediate

    def epsilon_of_part(self, by: str) -> float | None:
        """Sound ε of the worst client of only what ``client`` or ``aggregator`` noised, had it been
        released alone; ``None`` if there is no such answer."""
        worst = None
        for history in self.ledger.histories():
            composition: dict[Any, int] = {}
            for draw, count in history.items():
                if (part := draw.of(by)) is not None:
                    composition[part.event()] = composition.get(part.event(), 0) + count
            if composition:
                accountant = tightest(next(iter(composition)), self.neighbours)
                price = accountant.epsilon_of(composition, self.delta, self.neighbours)
                worst = price if worst is None else max(worst, price)
        return worst

    def order(self) -> float | None:
        """The Rényi order behind ``epsilon`` of the worst client, where there is one."""
        best = getattr(self._enforced, "best_order", None)
        return None if best is None else best(self.delta)

    def fraction_spent(self) -> float | None:
        """How far the worst client is on the way to the budget, 0 … 1, linear in the rounds at constant
        noise; ``None`` if it is not known."""
        return None if self.limit is None else self._enforced.share_of(self.limit, self.delta)

    def reasons(self) -> dict[str, str]:
        """Why each number is what it is, in words."""
        return {
            "epsilon": self._enforced_reason(),
            "epsilon_published": (
                f"{self.claim.source}: {self.claim.statement}; "
                f"{self.claim.accountant().describe()}{self._looser_words()}"
            ),
            "epsilon_sound": self._sound_reason(),
        }

    def _looser_words(self) -> str:
        larger = np.max(self.epsilon_published()) > np.max(self.epsilon_sound())
        return ", which is looser than the sound price" if larger else ""

    def _enforced_reason(self) -> str:
        settings = self.accountant.describe()
        if self.filtered:
            return f"{settings}; sigma adapts, so {self._enforced.filter_words()}"
        return f"{settings}; composition of the {self.view} view"

    def _sound_reason(self) -> str:
        if any(draw.unprotected for draw, _ in self.ledger):
            names = sorted({q for draw, _ in self.ledger for q in draw.unprotected})
            return f"released without noise: {', '.join(names)}"
        return self._sound.reason()

    def state_dict(self) -> dict[str, Any]:
        return {
            "ledger": self.ledger.state_dict(),
            "enforced": self._enforced.state_dict(),
            "published": self._published.state_dict(),
            "sound": self._sound.state_dict(),
            "took_part": self._took_part.copy(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.ledger.load_state_dict(state["ledger"])
        self._enforced.load_state_dict(state["enforced"])
        self._published.load_state_dict(state["published"])
        self._sound.load_state_dict(state["sound"])
        self._took_part = np.array(state["took_part"], dtype=bool)
