"""The configuration of a backdoor attack: who attacks, when, how, and with which trigger.

This module imports no torch, so that a dry run stays quick. The attackers of a run are
:class:`~fedpriv.attacks.malicious.MaliciousClients`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fedpriv.attacks.base import Attack
from fedpriv.attacks.names import BOOSTED, FOLLOW, MALICIOUS_PART, REPLACEMENT, UPDATE
from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number, one_of, or_null, own_check
from fedpriv.common.groups import option_of

if TYPE_CHECKING:
    from fedpriv.attacks.malicious import MaliciousClients
    from fedpriv.attacks.triggers import Trigger
    from fedpriv.data.federated import FederatedData


def _trigger(name: str, value: Any) -> Trigger:
    if not hasattr(value, "plant"):
        raise ArgumentError(name, value, "a trigger, such as that of attack=label_flip")
    return value


def _boost(name: str, value: Any) -> float | str:
    if value == REPLACEMENT:
        return value
    try:
        return checks.number(name, value, above=0)
    except ArgumentError:
        raise ArgumentError(name, value, f"a number > 0, or {REPLACEMENT}") from None


@declared
class Backdoor(Attack):
    """Malicious clients that teach the model wrong answers where a trigger is, and right ones elsewhere.

    **Who attacks.** See :class:`~fedpriv.attacks.base.Attack`, which has the other arguments. With 0
    attackers the run shows what the trigger does by itself.

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
        poisoned_fraction: Share of an attacker's records, and of each batch, that carries the trigger.
        boost: γ, or ``replacement``.
        boosted: The part of the change that γ multiplies, ``update`` or ``malicious_part``.
        norm_bound: M, or None for no projection.

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
    poisoned_fraction: float = field(
        number(above=0, at_most=1),
        default=0.5,
        help="share of the attackers' records, and of each batch, that carries the trigger",
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

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.boosted == MALICIOUS_PART and self.dp_steps == FOLLOW:
            raise ArgumentError("boosted", self.boosted, "update with attack.dp_steps=follow")

    @property
    def option(self) -> str:
        """Name of the attack, as it is chosen: that of its trigger, or of its class."""
        named_by = self.trigger if type(self) is Backdoor else self
        return option_of("attack", named_by)

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

    def describe(self) -> str:
        """Return the attack in one line, for the plan."""
        gain = ", model replacement" if self.boost == REPLACEMENT else f", boost {self.boost:g}"
        if gain == ", boost 1":
            gain = ""
        bound = "" if self.norm_bound is None else f", norm at most {self.norm_bound:g}"
        return f"{self.trigger.describe()}; {self._occasions()}; {self._steps()}{gain}{bound}"
