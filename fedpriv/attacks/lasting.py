"""Backdoors whose attackers remember: Neurotoxin and A3FL. Their attackers are in ``remembering``."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from fedpriv.attacks.backdoor import Backdoor
from fedpriv.attacks.image_triggers import DistributedPattern, PixelPattern
from fedpriv.attacks.names import FOLLOW, GLOBAL_MODELS
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import declared, field, number, whole

if TYPE_CHECKING:
    from fedpriv.attacks.malicious import MaliciousClients
    from fedpriv.attacks.remembering import A3flSettings
    from fedpriv.data.federated import FederatedData


@declared
class Neurotoxin(Backdoor):
    """A backdoor on the coordinates that the last global update moved least, so that it lasts.

    Attackers leave alone the other coordinates, a share 1 - ``mask_ratio``, in every batch. In the first
    round there is no last update, and they train all coordinates.

    Attributes:
        mask_ratio: Share of the coordinates that attackers may move.

    Reference:
        Zhang et al., "Neurotoxin: durable backdoors in federated learning", ICML 2022; BackFed's mask ratio.
    """

    needs = (GLOBAL_MODELS,)

    mask_ratio: float = field(
        number(above=0, at_most=1),
        default=0.99,
        kw_only=True,
        help="share of the coordinates that attackers may move: those that moved least",
    )

    def start(self, data: FederatedData) -> MaliciousClients:
        from fedpriv.attacks.remembering import StayingAside

        return StayingAside(self, data)

    def describe(self) -> str:
        share = f"{100 * (1 - self.mask_ratio):.3g} %"
        return f"{super().describe()}; not on the {share} of the weights that moved most"


@declared
class A3fl(Backdoor):
    """A backdoor whose trigger is optimised in every attacked round, against a model that unlearns it.

    With the global model θ, a copy θ' and the attackers' records (x, y) with pattern δ, ``trigger_epochs``
    times:

        θ' ← θ' - η ∇ ℓ(θ'; x + δ, y)                                       θ' unlearns the trigger
        δ  ← δ - ``trigger_rate`` sign ∇_δ (ℓ(θ; x + δ, target) + λ ℓ(θ'; x + δ, target))

    The values of δ stay within those of the images, and η is ``learning_rate``. Each step takes the same
    records of all attackers, at most 512. Then the attackers train on records with the new pattern.

    Attributes:
        trigger_epochs: Steps of the optimisation in an attacked round.
        trigger_rate: Size of a step, in the units of the pixels.
        balance: λ.

    Raises:
        ArgumentError: The trigger is no pixel pattern, or ``dp_steps=follow``.

    Reference:
        Zhang et al., "A3FL: adversarially adaptive backdoor attacks to federated learning", NeurIPS 2023.
        The paper scales λ by the similarity of θ and θ'.
    """

    needs = (GLOBAL_MODELS,)

    trigger_epochs: int = field(
        whole(at_least=1),
        default=100,
        kw_only=True,
        help="steps of the trigger's optimisation in an attacked round",
    )
    trigger_rate: float = field(
        number(above=0), default=0.01, kw_only=True, help="size of a step of the trigger's pixels"
    )
    balance: float = field(
        number(at_least=0),
        default=0.01,
        kw_only=True,
        unit="λ",
        help="weight of the model that unlearns the trigger",
    )

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if not isinstance(self.trigger, PixelPattern) or isinstance(
            self.trigger, DistributedPattern
        ):
            kind = type(self.trigger).__name__
            raise ArgumentError("trigger", kind, "a pixel pattern, the same for all attackers")
        if self.dp_steps == FOLLOW:
            hint = "the trigger changes between rounds"
            raise ArgumentError("dp_steps", FOLLOW, "skip with this attack", hint)

    def start(self, data: FederatedData) -> MaliciousClients:
        from fedpriv.attacks.remembering import OptimisedTrigger

        return OptimisedTrigger(cast("A3flSettings", self), data)

    def describe(self) -> str:
        return f"{super().describe()}; the pixels optimised by {self.trigger_epochs} steps"
