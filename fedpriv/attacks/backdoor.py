"""A backdoor attack: who attacks, when, how, and with which trigger.

Torch-free: the work is :class:`~fedpriv.attacks.malicious.MaliciousClients`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from fedpriv.attacks.names import (
    BOOSTED,
    DP_STEPS,
    FOLLOW,
    MALICIOUS_PART,
    PARTICIPATIONS,
    REPLACEMENT,
    SAMPLED,
    SKIP,
    UPDATE,
)
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.words import counted

if TYPE_CHECKING:
    from fedpriv.attacks.malicious import MaliciousClients
    from fedpriv.attacks.triggers import Trigger
    from fedpriv.data.federated import FederatedData


class Backdoor:
    """Some clients teach the model to answer wrongly where a trigger is, and rightly elsewhere.

    Who: ``attackers`` clients (0: nobody, the baseline for what the trigger does by itself), or
    ``attacker_fraction`` of all (rounded, at least one), drawn by ``seed``. They attack in round
    ``first_round`` and every ``every`` rounds after it (null: only then, a single shot).
    ``participation``: ``sampled``, when the algorithm happens to draw them, or ``fixed``, all of them
    in every attacked round beside those it drew. In other rounds they are as honest as anyone.

    How: a share ``poisoned_fraction`` of their records carries the trigger and the wrong target.
    ``dp_steps=follow``: they run the algorithm's own local training on these, clipping and noise
    included. ``skip``: they run plain SGD, ``local_epochs`` over batches of ``batch_size``, each with
    that share of poisoned records, at rate ``learning_rate``; what a server does is done to them too.

    The upload is γ Δ with ``boost`` γ, or, with ``boosted=malicious_part``, Δ_benign + γ Δ_malicious
    from training on the clean and on the poisoned records apart (``skip`` only). With
    ``boost=replacement``, γ = 1/(a n) for n attackers in the round and weight a of the upload in the
    average (K/n where K uploads are averaged), so that θ lands on the attackers' own model where
    honest clients do not move. With ``norm_bound`` M the upload is projected onto the ball of radius
    M, and training onto that of radius M/γ after every batch.

    Source: Bagdasaryan et al. 2020 (model replacement, semantic and word triggers); Sun et al. 2019
    (fixed and sampled attackers, boosting, norm-bounded attack, 7 → 1 of chosen writers).
    """

    def __init__(
        self,
        trigger: Trigger | None,
        attackers: int | None = 1,
        attacker_fraction: float | None = None,
        participation: str = SAMPLED,
        first_round: int = 1,
        every: int | None = 1,
        poisoned_fraction: float = 0.5,
        dp_steps: str = SKIP,
        boost: float | str = 1.0,
        boosted: str = UPDATE,
        norm_bound: float | None = None,
        local_epochs: int = 5,
        batch_size: int = 20,
        learning_rate: float = 0.1,
        seed: int = 0,
    ):
        if not hasattr(trigger, "plant"):
            raise ArgumentError("trigger", trigger, "a trigger: attack=label_flip has one, say")
        self.trigger = trigger
        if (attackers is None) == (attacker_fraction is None):
            allowed = "a number, or attack.attacker_fraction one"
            if attackers is not None:
                allowed = "null if attack.attacker_fraction is given"
            raise ArgumentError("attackers", attackers, allowed)
        self.attackers = (
            None if attackers is None else checks.whole("attackers", attackers, at_least=0)
        )
        self.attacker_fraction = None
        if attacker_fraction is not None:
            self.attacker_fraction = checks.number(
                "attacker_fraction", attacker_fraction, above=0, below=1
            )
        self.participation = checks.one_of("participation", participation, PARTICIPATIONS)
        self.first_round = checks.whole("first_round", first_round, at_least=1)
        self.every = None if every is None else checks.whole("every", every, at_least=1)
        self.poisoned_fraction = checks.number(
            "poisoned_fraction", poisoned_fraction, above=0, at_most=1
        )
        self.dp_steps = checks.one_of("dp_steps", dp_steps, DP_STEPS)
        self.boosted = checks.one_of("boosted", boosted, BOOSTED)
        if self.boosted == MALICIOUS_PART and self.dp_steps == FOLLOW:
            raise ArgumentError("boosted", boosted, "update with attack.dp_steps=follow")
        self.boost = boost
        if boost != REPLACEMENT:
            if isinstance(boost, str):
                raise ArgumentError("boost", boost, f"a number > 0, or {REPLACEMENT}")
            self.boost = checks.number("boost", boost, above=0)
        self.norm_bound = None
        if norm_bound is not None:
            self.norm_bound = checks.number("norm_bound", norm_bound, above=0)
        self.local_epochs = checks.whole("local_epochs", local_epochs, at_least=1)
        self.batch_size = checks.whole("batch_size", batch_size, at_least=1)
        self.learning_rate = checks.number("learning_rate", learning_rate, above=0)
        self.seed = checks.seed("seed", seed)

    def start(self, data: FederatedData) -> MaliciousClients:
        """Make the attackers of one run, with its data. To override with attackers that remember something:
        a class that extends :class:`~fedpriv.attacks.malicious.MaliciousClients`."""
        from fedpriv.attacks.malicious import MaliciousClients

        return MaliciousClients(self, data)

    def attacks_in(self, round_index: int) -> bool:
        """Whether the attackers are malicious in this round (0-based)."""
        after = round_index + 1 - self.first_round
        return after == 0 if self.every is None else after >= 0 and after % self.every == 0

    def attackers_among(self, clients: int) -> np.ndarray:
        """Who attacks, ascending [a]; ArgumentError if nobody honest would be left."""
        count = self.attackers
        if count is None:
            count = max(1, round(self.attacker_fraction * clients))
        if count >= clients:
            key = "attackers" if self.attacker_fraction is None else "attacker_fraction"
            allowed = f"at most {clients - 1} of the {clients} clients: one must be honest"
            raise ArgumentError(key, getattr(self, key), allowed)
        drawn = numpy_stream(self.seed, "attackers").choice(clients, count, replace=False)
        return np.sort(drawn)

    def state_dict(self) -> dict[str, Any]:
        """Return what the next round needs of this object, for the checkpoint: nothing, unless an attack of
        the user's own keeps something."""
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore what ``state_dict`` gave."""

    def describe(self) -> str:
        """The attack in a line of the plan."""
        if self.attackers is None:
            who = f"{self.attacker_fraction:.3g} of the clients"
        else:
            who = counted(self.attackers, "client")
        how = "when they take part" if self.participation == SAMPLED else "added to those drawn"
        if self.every is None:
            when = f"once, in round {self.first_round}"
        else:
            rounds = "every round" if self.every == 1 else f"every {self.every} rounds"
            when = f"{rounds} from round {self.first_round}"
        gain = ", model replacement" if self.boost == REPLACEMENT else f", boost {self.boost:g}"
        if gain == ", boost 1":
            gain = ""
        bound = "" if self.norm_bound is None else f", norm at most {self.norm_bound:g}"
        steps = "the local DP steps" if self.dp_steps == FOLLOW else "plain SGD"
        return f"{self.trigger.describe()}; {who}, {how}, {when}; {steps}{gain}{bound}"
