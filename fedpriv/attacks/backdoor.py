"""A backdoor attack: who attacks, when, how, and with which trigger.

Torch-free: the work is :class:`~fedpriv.attacks.malicious.MaliciousClients`.
"""

from __future__ import annotations

from collections.abc import Iterator
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
from fedpriv.common.conflicts import RELEASED_ONCE, Combination
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import (
    declared,
    field,
    number,
    one_of,
    or_null,
    own_check,
    random_seed,
    when,
    whole,
)
from fedpriv.common.groups import option_of
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.saved import Saved
from fedpriv.common.words import counted

if TYPE_CHECKING:
    from fedpriv.attacks.malicious import MaliciousClients
    from fedpriv.attacks.triggers import Trigger
    from fedpriv.data.federated import FederatedData


def _trigger(name: str, value: Any) -> Trigger:
    if not hasattr(value, "plant"):
        raise ArgumentError(name, value, "a trigger: attack=label_flip has one, say")
    return value


def _by_share(part: Backdoor, value: Any) -> bool:
    return value is not None and part.attackers is None


def _boost(name: str, value: Any) -> float | str:
    if value == REPLACEMENT:
        return value
    if isinstance(value, str):
        raise ArgumentError(name, value, f"a number > 0, or {REPLACEMENT}")
    return checks.number(name, value, above=0)


@declared
class Backdoor(Saved):
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

    trigger: Trigger = field(
        own_check(_trigger), help="what the model is taught; choose one of the other options"
    )
    attackers: int | None = field(
        or_null(whole(at_least=0)),
        default=1,
        help="clients that attack, drawn by seed; 0: none, for comparison; null: attacker_fraction",
    )
    attacker_fraction: float | None = field(
        when(_by_share, number(above=0, below=1)),
        default=None,
        help="share of the clients that attack, at least one, with attackers=null",
    )
    participation: str = field(
        one_of(PARTICIPATIONS),
        default=SAMPLED,
        help="sampled: when the algorithm draws them; fixed: in every attacked round, beside those",
    )
    first_round: int = field(whole(at_least=1), default=1, help="first round they attack in")
    every: int | None = field(
        or_null(whole(at_least=1)),
        default=1,
        unit="rounds",
        help="interval of attacks; null: a single shot",
    )
    poisoned_fraction: float = field(
        number(above=0, at_most=1),
        default=0.5,
        help="share of their records, and of each batch, that carries the trigger",
    )
    dp_steps: str = field(
        one_of(DP_STEPS),
        default=SKIP,
        help="skip: plain SGD; follow: the algorithm's own local steps, with clipping and noise",
    )
    boost: float | str = field(
        own_check(_boost, "number > 0 or replacement"),
        default=1.0,
        unit="γ",
        help="factor of their upload; replacement: so that the model becomes theirs",
    )
    boosted: str = field(
        one_of(BOOSTED),
        default=UPDATE,
        help="what is multiplied: the whole update, or only what the poisoned records add",
    )
    norm_bound: float | None = field(
        or_null(number(above=0)),
        default=None,
        unit="M",
        help="radius of the ball that their upload is projected onto; null: none",
    )
    local_epochs: int = field(whole(at_least=1), default=5, help="of plain SGD (skip)")
    batch_size: int = field(
        whole(at_least=1), default=20, unit="records", help="of plain SGD (skip)"
    )
    learning_rate: float = field(number(above=0), default=0.1, help="of plain SGD (skip)")
    seed: int = field(random_seed, default=0, help="draws who attacks")

    def __attrs_post_init__(self) -> None:
        if (self.attackers is None) == (self.attacker_fraction is None):
            allowed = "a number, or attack.attacker_fraction one"
            if self.attackers is not None:
                allowed = "null if attack.attacker_fraction is given"
            raise ArgumentError("attackers", self.attackers, allowed)
        if self.boosted == MALICIOUS_PART and self.dp_steps == FOLLOW:
            raise ArgumentError("boosted", self.boosted, "update with attack.dp_steps=follow")

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse algorithms that take no attackers, data without a place for the trigger, and some boosts."""
        algorithm, rule = parts.algorithm, parts.aggregation
        option = option_of("attack", self.trigger)
        if algorithm.augmentation is not None:
            hint = "copies of attackers' records are not supported"
            if option == "pixel_pattern":
                hint = "its trigger would be moved with the images"
            copies = "none with algorithm.augmentation_multiplicity"
            yield ConfigError("attack", option, copies, hint)
        if algorithm.trust.sees_only_a_sum:
            trust = f"algorithm.trust={algorithm.trust.name}"
            hint = f"with {trust} a round has no other clients than those announced"
            yield ConfigError("attack", option, "none", hint)
        if parts.released_statistics is not None:
            yield ConfigError("attack", option, "none", RELEASED_ONCE)
        if not algorithm.uploads_changes:
            yield ConfigError(
                f"attack must be none with algorithm={algorithm.name}: its clients do not send changes of "
                "weights; those of all others but fedsgd and ldp_fedsgd do"
            )
        if self.boost == REPLACEMENT and rule is not None and not rule.linear:
            allowed = f"a number with aggregation={option_of('aggregation', rule)}"
            hint = "an upload has no weight of its own in what a rule returns"
            yield ConfigError("attack.boost", REPLACEMENT, allowed, hint)
        steps_itself = algorithm.unit == "client" and algorithm.optimizer != "sgd"
        if self.boost == REPLACEMENT and algorithm.uploads_changes and steps_itself:
            hint = "the server's optimizer is not sgd"
            yield ConfigError("attack.boost", REPLACEMENT, "a number", hint)
        if wanted := self.trigger.misfit(parts.dataset):
            yield ConfigError(
                f"attack.trigger needs {wanted}, which dataset={parts.dataset.name} has not"
            )
        if parts.partition.clients:
            self.attackers_among(parts.partition.clients)

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
            assert self.attacker_fraction is not None
            count = max(1, round(self.attacker_fraction * clients))
        if count >= clients:
            key = "attackers" if self.attacker_fraction is None else "attacker_fraction"
            allowed = f"at most {clients - 1} of the {clients} clients: one must be honest"
            raise ArgumentError(key, getattr(self, key), allowed)
        drawn = numpy_stream(self.seed, "attackers").choice(clients, count, replace=False)
        return np.sort(drawn)

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
