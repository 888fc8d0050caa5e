"""The configuration of a backdoor attack: who attacks, when, how, and with which trigger.

This module imports no torch, so that a dry run stays quick. The attackers of a run are
:class:`~fedpriv.attacks.malicious.MaliciousClients`.
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
        raise ArgumentError(name, value, "a trigger, such as that of attack=label_flip")
    return value


def _by_share(part: Backdoor, value: Any) -> bool:
    """Return whether ``attacker_fraction`` is given and decides the number of attackers."""
    return value is not None and part.attackers is None


def _boost(name: str, value: Any) -> float | str:
    if value == REPLACEMENT:
        return value
    if isinstance(value, str):
        raise ArgumentError(name, value, f"a number > 0, or {REPLACEMENT}")
    return checks.number(name, value, above=0)


@declared
class Backdoor(Saved):
    """Malicious clients that teach the model wrong answers where a trigger is, and right ones elsewhere.

    **Who attacks.** The seed draws ``attackers`` clients, or a share ``attacker_fraction`` of all clients
    (rounded, at least one). With 0 attackers the run shows what the trigger does by itself. The attackers are
    malicious in round ``first_round`` and every ``every`` rounds after it. In other rounds they are honest.
    With ``participation=sampled`` they attack when the algorithm samples them. With ``fixed`` all of them
    take part in every attacked round, beside the clients that the algorithm sampled.

    **How they train.** A share ``poisoned_fraction`` of an attacker's records carries the trigger and the
    wrong target. With ``dp_steps=follow`` attackers run the algorithm's own local training on these records,
    clipping and noise included. With ``skip`` they run plain SGD: ``local_epochs`` over batches of
    ``batch_size``, each with that share of poisoned records, at rate ``learning_rate``. What a server does to
    uploads it does to theirs as well.

    **What they send.** For attacker k with boost γ, the change Δ_k that training gives, and the projection
    Π_M onto the ball of radius M (``norm_bound``):

        u_k = Π_M(γ Δ_k)                                 boosted = update
        u_k = Π_M(Δ_k, benign + γ Δ_k, malicious)        boosted = malicious_part (dp_steps = skip only)

    Here Δ_benign comes from training on all clean records and Δ_malicious from training on the poisoned ones.
    With ``boost=replacement``, γ = 1/(a n) for n attackers in the round and the upload's weight a in the
    average (a = 1/K where K uploads are averaged, hence γ = K/n). Then θ lands on the attackers' own model if
    honest clients do not move. With M, plain SGD is projected onto the ball of radius M/γ after every batch.

    Attributes:
        trigger: What the model is taught.
        attackers: Number of clients that attack; None if ``attacker_fraction`` is given.
        attacker_fraction: Share of the clients that attack; None if ``attackers`` is given.
        participation: When attackers take part, ``sampled`` or ``fixed``.
        first_round: The first round they attack in, from 1.
        every: Rounds between two attacks; None for a single attack.
        poisoned_fraction: Share of an attacker's records, and of each batch, that carries the trigger.
        dp_steps: Local training of the attackers, ``skip`` or ``follow``.
        boost: γ, or ``replacement``.
        boosted: The part of the change that γ multiplies, ``update`` or ``malicious_part``.
        norm_bound: M, or None for no projection.
        local_epochs: Epochs of plain SGD.
        batch_size: Records in a batch of plain SGD.
        learning_rate: Learning rate of plain SGD.
        seed: Seed of all randomness of the attack.

    Raises:
        ArgumentError: Neither or both of ``attackers`` and ``attacker_fraction`` are given, or
            ``boosted=malicious_part`` is combined with ``dp_steps=follow``.

    Reference:
        Bagdasaryan et al., "How to backdoor federated learning", 2020 (model replacement, semantic and word
        triggers); Sun et al., "Can you really backdoor federated learning?", 2019 (fixed and sampled
        attackers, boosting, norm-bounded attack).

    Example:
        >>> from fedpriv.attacks import PixelPattern
        >>> attack = Backdoor(trigger=PixelPattern(target=3), attackers=2, first_round=5, every=10)
        >>> [t for t in range(30) if attack.attacks_in(t)]  # rounds count from 0 here
        [4, 14, 24]
        >>> len(attack.attackers_among(clients=100))
        2
    """

    trigger: Trigger = field(
        own_check(_trigger),
        help="backdoor that the model is taught; choose one of the options of attack",
    )
    attackers: int | None = field(
        or_null(whole(at_least=0)),
        default=1,
        help=(
            "number of clients that attack, drawn by attack.seed; 0: no attacker, for "
            "comparison; null: by attacker_fraction"
        ),
    )
    attacker_fraction: float | None = field(
        when(_by_share, number(above=0, below=1)),
        default=None,
        help="share of the clients that attack, at least one client, with attackers=null",
    )
    participation: str = field(
        one_of(PARTICIPATIONS),
        default=SAMPLED,
        help=(
            "sampled: attackers join rounds for which they are sampled; fixed: all attackers "
            "join every attacked round"
        ),
    )
    first_round: int = field(whole(at_least=1), default=1, help="first round of the attack")
    every: int | None = field(
        or_null(whole(at_least=1)),
        default=1,
        unit="rounds",
        help="rounds from one attack to the next; null: a single attack",
    )
    poisoned_fraction: float = field(
        number(above=0, at_most=1),
        default=0.5,
        help="share of the attackers' records, and of each batch, that carries the trigger",
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
        help="factor of the attackers' upload; replacement: the factor that replaces the global model",
    )
    boosted: str = field(
        one_of(BOOSTED),
        default=UPDATE,
        help=(
            "part of the upload that boost multiplies: the whole update, or what the "
            "poisoned records add to it"
        ),
    )
    norm_bound: float | None = field(
        or_null(number(above=0)),
        default=None,
        unit="M",
        help="radius of the ball that the attackers' upload is projected onto; null: no projection",
    )
    local_epochs: int = field(
        whole(at_least=1), default=5, help="epochs of plain SGD (dp_steps=skip)"
    )
    batch_size: int = field(
        whole(at_least=1), default=20, unit="records", help="batch of plain SGD (dp_steps=skip)"
    )
    learning_rate: float = field(
        number(above=0), default=0.1, help="learning rate of plain SGD (dp_steps=skip)"
    )
    seed: int = field(random_seed, default=0, help="seed that draws the attackers")

    def __attrs_post_init__(self) -> None:
        if (self.attackers is None) == (self.attacker_fraction is None):
            allowed = "a number, or attack.attacker_fraction one"
            if self.attackers is not None:
                allowed = "null if attack.attacker_fraction is given"
            raise ArgumentError("attackers", self.attackers, allowed)
        if self.boosted == MALICIOUS_PART and self.dp_steps == FOLLOW:
            raise ArgumentError("boosted", self.boosted, "update with attack.dp_steps=follow")

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Yield an error for each part of the run that the attack does not go with.

        Refused are algorithms that take no attackers, data without a place for the trigger, and a boost that
        no weight of an upload defines.
        """
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
        if misfit := self.trigger.misfit(parts.dataset):
            yield ConfigError(
                f"attack.trigger needs {misfit}, which dataset={parts.dataset.name} does not have"
            )
        if parts.partition.clients:
            self.attackers_among(parts.partition.clients)

    def start(self, data: FederatedData) -> MaliciousClients:
        """Make the attackers of one run.

        An attack whose attackers remember something overrides this method. It returns an object of a class
        that extends :class:`~fedpriv.attacks.malicious.MaliciousClients`.

        Args:
            data: The data of the run.

        Returns:
            The attackers, with the data that the run is to use.
        """
        from fedpriv.attacks.malicious import MaliciousClients

        return MaliciousClients(self, data)

    def attacks_in(self, round_index: int) -> bool:
        """Return whether the attackers are malicious in a round, which counts from 0."""
        after = round_index + 1 - self.first_round
        return after == 0 if self.every is None else after >= 0 and after % self.every == 0

    def attackers_among(self, clients: int) -> np.ndarray:
        """Return the numbers of the clients that attack.

        Args:
            clients: Number of clients of the run.

        Returns:
            Client numbers [a], ascending.

        Raises:
            ArgumentError: No client would be left to be honest.
        """
        count = self.attackers
        if count is None:
            assert self.attacker_fraction is not None
            count = max(1, round(self.attacker_fraction * clients))
        if count >= clients:
            key = "attackers" if self.attacker_fraction is None else "attacker_fraction"
            allowed = f"at most {clients - 1} of the {clients} clients: one must be honest"
            raise ArgumentError(key, getattr(self, key), allowed)
        # A stream of its own: the run's lots, cohorts and noise do not depend on who attacks.
        attackers = numpy_stream(self.seed, "attackers").choice(clients, count, replace=False)
        return np.sort(attackers)

    def describe(self) -> str:
        """Return the attack in one line, for the plan."""
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
