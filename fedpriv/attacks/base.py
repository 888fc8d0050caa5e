"""The settings that all attacks share: who attacks, in which rounds, and what attackers see of the others.

This module imports no torch, so that a dry run stays quick. The attackers of a run are
:class:`~fedpriv.attacks.attackers.Attackers`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from fedpriv.attacks.names import (
    DP_STEPS,
    FOLLOW,
    GLOBAL_MODELS,
    KNOWLEDGE,
    NOISED_UPLOADS,
    PARTICIPATIONS,
    RULE,
    SAMPLED,
    SKIP,
)
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import (
    boolean,
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
from fedpriv.store.caveats import SEES_HIDDEN

if TYPE_CHECKING:
    from fedpriv.attacks.attackers import Attackers
    from fedpriv.data.federated import FederatedData

_LISTED = "list of " + ", ".join(KNOWLEDGE)


def _by_share(part: Attack, value: Any) -> bool:
    """Return whether ``attacker_fraction`` is given and decides the number of attackers."""
    return value is not None and part.attackers is None


def _knowledge(name: str, value: Any) -> tuple[str, ...]:
    """Return the names of a list of knowledge, each once and in the order of ``KNOWLEDGE``."""
    listed = isinstance(value, (list, tuple)) and all(item in KNOWLEDGE for item in value)
    if not listed:
        raise ArgumentError(name, value, f"null, or a {_LISTED}")
    return tuple(item for item in KNOWLEDGE if item in value)


@declared
class Attack(Saved, ABC):
    """Malicious clients: who they are, when they attack, and what they know.

    **Who attacks.** The seed draws ``attackers`` clients, or a share ``attacker_fraction`` of all clients
    (rounded, at least one). The attackers are malicious in round ``first_round`` and every ``every`` rounds
    after it. In other rounds they are honest. With ``participation=sampled`` they attack when the algorithm
    samples them. With ``fixed`` all of them take part in every attacked round, beside the clients that the
    algorithm sampled.

    **What they know.** Their own records in any case, and what ``knows`` lists: the global model of every
    round (``global_models``), the uploads of honest clients as the server sees them (``noised_uploads``,
    local trust), these uploads before noise (``raw_uploads``), the aggregation rule (``rule``). With null
    they know all that the trust model shows. More than that takes ``omniscient=true``. In a private run raw
    uploads then reach the model through the attackers without noise: the sound ε is infinite.

    Attributes:
        attackers: Number of clients that attack; None if ``attacker_fraction`` is given.
        attacker_fraction: Share of the clients that attack; None if ``attackers`` is given.
        participation: When attackers take part, ``sampled`` or ``fixed``.
        first_round: The first round they attack in, from 1.
        every: Rounds between two attacks; None for a single attack.
        knows: What attackers see beside their own records; None: all that the trust model shows.
        omniscient: True lets ``knows`` list what the trust model hides.
        dp_steps: Whether attackers clip and add noise as honest clients do, ``follow``, or not, ``skip``.
        local_epochs: Epochs of plain SGD.
        batch_size: Records in a batch of plain SGD.
        learning_rate: Learning rate of plain SGD.
        seed: Seed of all randomness of the attack.
        needs: Knowledge without which the attack cannot be made.
        whole_round: Whether all attackers of a round forge together, from the uploads of that round.
        flips_labels: Whether attackers train on records with reversed labels.
        trigger: The trigger of a backdoor; None for an attack without one.

    Raises:
        ArgumentError: Neither or both of ``attackers`` and ``attacker_fraction`` are given.

    Example:
        >>> from fedpriv.algorithms import CdpFedAvg, DpFl
        >>> from fedpriv.attacks import Alie
        >>> Alie().knowledge(DpFl(name="dp_fl", sample_rate=0.1))
        ('global_models', 'noised_uploads', 'rule')
        >>> Alie().knowledge(CdpFedAvg(name="cdp_fedavg", client_rate=0.1))
        ('global_models', 'rule')
    """

    needs: ClassVar[tuple[str, ...]] = ()
    whole_round: ClassVar[bool] = False
    flips_labels: ClassVar[bool] = False
    trigger: Any = None

    attackers: int | None = field(
        or_null(whole(at_least=0)),
        default=1,
        kw_only=True,
        help=(
            "number of clients that attack, drawn by attack.seed; 0: no attacker, for "
            "comparison; null: by attacker_fraction"
        ),
    )
    attacker_fraction: float | None = field(
        when(_by_share, number(above=0, below=1)),
        default=None,
        kw_only=True,
        help="share of the clients that attack, at least one client, with attackers=null",
    )
    participation: str = field(
        one_of(PARTICIPATIONS),
        default=SAMPLED,
        kw_only=True,
        help=(
            "sampled: attackers join rounds for which they are sampled; fixed: all attackers "
            "join every attacked round"
        ),
    )
    first_round: int = field(
        whole(at_least=1), default=1, kw_only=True, help="first round of the attack"
    )
    every: int | None = field(
        or_null(whole(at_least=1)),
        default=1,
        kw_only=True,
        unit="rounds",
        help="rounds from one attack to the next; null: a single attack",
    )
    knows: tuple[str, ...] | None = field(
        or_null(own_check(_knowledge, _LISTED)),
        default=None,
        kw_only=True,
        help="what attackers see beside their own records; null: all that the trust model shows",
    )
    omniscient: bool | None = field(
        or_null(boolean),
        default=None,
        kw_only=True,
        help="true: attack.knows may list what the trust model hides; null: false",
    )
    dp_steps: str = field(
        one_of(DP_STEPS),
        default=SKIP,
        kw_only=True,
        help="skip: plain SGD; follow: the algorithm's own local steps, with clipping and noise",
    )
    local_epochs: int = field(
        whole(at_least=1),
        default=5,
        kw_only=True,
        help="epochs of plain SGD (dp_steps=skip)",
    )
    batch_size: int = field(
        whole(at_least=1),
        default=20,
        kw_only=True,
        unit="records",
        help="batch of plain SGD (dp_steps=skip)",
    )
    learning_rate: float = field(
        number(above=0),
        default=0.1,
        kw_only=True,
        help="learning rate of plain SGD (dp_steps=skip)",
    )
    seed: int = field(random_seed, default=0, kw_only=True, help="seed that draws the attackers")

    def __attrs_post_init__(self) -> None:
        if (self.attackers is None) == (self.attacker_fraction is None):
            allowed = "a number, or attack.attacker_fraction one"
            if self.attackers is not None:
                allowed = "null if attack.attacker_fraction is given"
            raise ArgumentError("attackers", self.attackers, allowed)

    @property
    def option(self) -> str:
        """Name of the attack, as it is chosen."""
        return option_of("attack", self)

    # ---- what attackers know

    def knowledge(self, algorithm: Any) -> tuple[str, ...]:
        """Return what the attackers know beside their own records, as names of ``KNOWLEDGE``.

        Args:
            algorithm: The algorithm, whose trust model decides what is shown.
        """
        return shown_by(algorithm) if self.knows is None else self.knows

    def hidden(self, algorithm: Any) -> tuple[str, ...]:
        """Return the attackers' knowledge that the trust model hides; only ``omniscient`` allows any."""
        shown = shown_by(algorithm)
        return tuple(item for item in self.knowledge(algorithm) if item not in shown)

    def sends_after_release(self, algorithm: Any) -> bool:
        """Return whether attackers put uploads into the place of released ones.

        At client level and local trust, attackers that neither clip nor add noise do so. They see the
        uploads of the others first, as the server does.
        """
        seen = algorithm.unit == "client" and algorithm.trust.sees_each_upload
        return self.whole_round and seen and self.dp_steps == SKIP

    # ---- who attacks, and when

    @abstractmethod
    def start(self, data: FederatedData) -> Attackers:
        """Make the attackers of one run.

        Args:
            data: The data of the run.

        Returns:
            The attackers, with the data that the run is to use.
        """

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

    # ---- words

    def describe(self) -> str:
        """Return the attack in one line, for the plan; by default its option, who attacks and when."""
        return f"{self.option}; {self._occasions()}"

    def describe_knowledge(self, algorithm: Any) -> str:
        """Return what the attackers know, for the plan."""
        names = (item.replace("_", " ") for item in self.knowledge(algorithm))
        text = ", ".join(("their own records", *names))
        return f"{text}; {SEES_HIDDEN}" if self.hidden(algorithm) else text

    def _occasions(self) -> str:
        """Return who attacks and when."""
        if self.attackers is None:
            who = f"{self.attacker_fraction:.3g} of the clients"
        else:
            who = counted(self.attackers, "client")
        how = "when they take part" if self.participation == SAMPLED else "added to those drawn"
        if self.every is None:
            when_attacked = f"once, in round {self.first_round}"
        else:
            rounds = "every round" if self.every == 1 else f"every {self.every} rounds"
            when_attacked = f"{rounds} from round {self.first_round}"
        return f"{who}, {how}, {when_attacked}"

    def _steps(self) -> str:
        return "the local DP steps" if self.dp_steps == FOLLOW else "plain SGD"


def shown_by(algorithm: Any) -> tuple[str, ...]:
    """Return what the trust model of an algorithm shows to attackers, as names of ``KNOWLEDGE``.

    Without privacy everybody may see every upload, and no upload has noise.
    """
    if not algorithm.private:
        return KNOWLEDGE
    if algorithm.trust.sees_each_upload:
        return GLOBAL_MODELS, NOISED_UPLOADS, RULE
    return GLOBAL_MODELS, RULE
