"""Attacks that spoil the model without a trigger: attackers send what no training gives.

The attackers of a round forge together, from the uploads that they see. Under local trust they see the noised
uploads of the honest clients of the round, as the server does, and send theirs afterwards. Where they see no
upload they take the honest uploads that they compute from their own records as an estimate (the "partial
knowledge" of the papers).

With honest uploads u_1, …, u_h, their mean μ and their standard deviation σ of each coordinate:

    sign_flip    -u_k                            u_k the attacker's own honest upload
    gaussian     N(0, s² I)
    mimic        u_j of one honest client
    alie         μ + τ σ                         Baruch et al., "A little is enough", NeurIPS 2019
    ipm          -τ μ                            Xie et al., "Fall of empires", UAI 2019
    min_max      μ + γ p, the largest γ with     Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS
                 max ‖. - u_i‖ <= max ‖u_i - u_j‖                                                2021
    min_sum      μ + γ p, the largest γ with Σ_i ‖. - u_i‖² <= max_i Σ_j ‖u_i - u_j‖²

This module imports no torch, so that a dry run stays quick. The attackers of a run are
:class:`~fedpriv.attacks.forgers.Forgers`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import TYPE_CHECKING, ClassVar

from fedpriv.attacks.base import Attack
from fedpriv.attacks.names import DP_STEPS, FOLLOW, RULE, SKIP
from fedpriv.common.fields import declared, field, number, one_of, or_null, whole

if TYPE_CHECKING:
    from torch import Tensor

    from fedpriv.attacks.forgers import Forgers, View
    from fedpriv.data.federated import FederatedData

AGAINST_MEAN, AGAINST_STD, AGAINST_SIGN = "mean", "std", "sign"
PERTURBATIONS = (AGAINST_STD, AGAINST_MEAN, AGAINST_SIGN)


@declared
class Untargeted(Attack):
    """The base class of attacks without a trigger. A class of your own overrides :meth:`forged`.

    Attackers with ``dp_steps=skip`` send what they forge with neither clip nor noise, where clients clip and
    add noise (local trust). With ``follow`` they do as the algorithm says, and at client level they then
    forge before they see the uploads of the others. A trusted server clips and noises what they send in any
    case. Their own honest uploads are those of the algorithm. At record level, where clipping and noise are
    part of every local step, private attackers with ``skip`` train by plain SGD (``local_epochs``,
    ``batch_size``, ``learning_rate``).

    Attributes:
        uses_uploads: Whether the formula uses uploads of honest clients.

    Example:
        >>> class Zeros(Untargeted):
        ...     def forged(self, view):
        ...         return view.own * 0
    """

    whole_round = True
    uses_uploads: ClassVar[bool] = True

    dp_steps: str = field(
        one_of(DP_STEPS),
        default=SKIP,
        kw_only=True,
        help="skip: attackers neither clip nor add noise; follow: they do as the algorithm says",
    )

    @abstractmethod
    def forged(self, view: View) -> Tensor:
        """Return what the attackers send in a round: a row for each of them [a, d], or one for all [d].

        Args:
            view: The round as the attackers see it.
        """

    def start(self, data: FederatedData) -> Forgers:
        from fedpriv.attacks.forgers import Forgers

        return Forgers(self, data)

    def describe(self) -> str:
        """Return the attack in one line, for the plan."""
        steps = (
            "clip and noise as others do"
            if self.dp_steps == FOLLOW
            else "no clip or noise of their own"
        )
        return f"{self._formula()}; {self._occasions()}; {steps}"

    def _formula(self) -> str:
        """Return the attack with its settings, in words."""
        return self.option


@declared
class SignFlip(Untargeted):
    """Each attacker sends minus its own honest upload, times ``scale``.

    Attributes:
        scale: Factor of the flipped upload.

    Reference:
        Allen-Zhu et al., "Byzantine-resilient non-convex stochastic gradient descent", ICLR 2021. (ByzFL's
        SignFlipping is minus the mean of all honest uploads: ``attack=ipm attack.tau=1`` here.)
    """

    uses_uploads = False

    scale: float = field(number(above=0), default=1.0, help="factor of the flipped upload")

    def forged(self, view: View) -> Tensor:
        return view.own * -self.scale

    def _formula(self) -> str:
        return f"sign flip, factor -{self.scale:g}"


@declared
class Gaussian(Untargeted):
    """Each attacker sends N(0, s² I) instead of an upload.

    Attributes:
        std: s.

    Reference:
        Blanchard et al., "Machine learning with adversaries", NeurIPS 2017.
    """

    uses_uploads = False

    std: float = field(number(above=0), default=1.0, unit="s", help="standard deviation")

    def forged(self, view: View) -> Tensor:
        return view.normals() * self.std

    def _formula(self) -> str:
        return f"Gaussian uploads, standard deviation {self.std:g}"


@declared
class LabelReversal(Untargeted):
    """Attackers train honestly on records with reversed labels: y becomes (classes - 1) - y.

    The option ``label_flip`` is another attack: a backdoor that concerns one label of some writers.

    Reference:
        Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR
        2022 ("label flipping").
    """

    uses_uploads = False
    flips_labels = True

    def forged(self, view: View) -> Tensor:
        return view.own

    def _formula(self) -> str:
        return "training on reversed labels"


@declared
class Mimic(Untargeted):
    """All attackers send the upload of one honest client, whose records then count too much.

    Attributes:
        victim: Place of the client among the honest clients of a round, from 0; counted around where there
            are fewer.

    Reference:
        Karimireddy, He, Jaggi, "Byzantine-robust learning on heterogeneous datasets via bucketing", ICLR
        2022; ByzFL's Mimic with epsilon = victim.
    """

    victim: int = field(
        whole(), default=0, help="place of the copied client among the honest ones, from 0"
    )

    def forged(self, view: View) -> Tensor:
        return view.honest[self.victim % len(view.honest)]

    def _formula(self) -> str:
        return "copies of one honest upload"


def _tau(default: float) -> float:
    made: float = field(
        number(at_least=0), default=default, unit="τ", help="strength of the attack"
    )
    return made


@declared
class Alie(Untargeted):
    """A little is enough: attackers send μ + τ σ, which hides in the spread of the honest uploads.

    Attributes:
        tau: τ. None takes the paper's z of the numbers n of clients and a of attackers in the round:
            Φ⁻¹((n - a - s)/(n - a)) with s = ⌊n/2 + 1⌋ - a, at least 0.

    Reference:
        Baruch, Baruch, Goldberg, "A little is enough", NeurIPS 2019, algorithm 3; ByzFL's ALittleIsEnough,
        τ = 1.5.
    """

    tau: float | None = field(
        or_null(number(at_least=0)),
        default=1.5,
        unit="τ",
        help="strength of the attack; null: the paper's value for the numbers of clients",
    )

    def forged(self, view: View) -> Tensor:
        tau = self.tau
        if tau is None:
            tau = hidden_deviation(len(view.attackers) + view.honest_count, len(view.attackers))
        return view.mean + tau * view.std

    def _formula(self) -> str:
        tau = "of the paper" if self.tau is None else f"{self.tau:g}"
        return f"a little is enough, τ {tau}"


@declared
class Ipm(Untargeted):
    """Inner product manipulation (fall of empires): attackers send -τ μ.

    Attributes:
        tau: τ.

    Reference:
        Xie, Koyejo, Gupta, "Fall of empires", UAI 2019; ByzFL's InnerProductManipulation, τ = 2.
    """

    tau: float = _tau(2.0)

    def forged(self, view: View) -> Tensor:
        return view.mean * -self.tau

    def _formula(self) -> str:
        return f"inner product manipulation, τ {self.tau:g}"


@declared
class _LineSearched(Untargeted):
    """An attack whose τ moves the rule's own result as far as possible from the mean of honest uploads.

    τ grows from 0 by a step that doubles as long as the result moves away. Then the step shrinks by
    ``ratio``.

    Attributes:
        evaluations: Number of τ that are tried in a round.
        step: First step of τ.
        ratio: Factor of the step after a τ that is no better.

    Reference:
        Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021; Allouah et al., "Fixing by mixing",
        AISTATS 2023; ByzFL's Optimal_ALittleIsEnough and Optimal_InnerProductManipulation.
    """

    needs = (RULE,)

    evaluations: int = field(
        whole(at_least=1), default=20, help="number of τ that are tried in a round"
    )
    step: float = field(number(above=0), default=10.0, help="first step of τ")
    ratio: float = field(
        number(above=0.5, below=1),
        default=0.8,
        help="factor of the step after a τ that is no better",
    )

    @abstractmethod
    def at(self, view: View, tau: float) -> Tensor:
        """Return the upload [d] that all attackers send with a strength τ."""

    def forged(self, view: View) -> Tensor:
        from fedpriv.attacks.forgers import line_search

        def distance(tau: float) -> float:
            return float((view.combined(self.at(view, tau)) - view.mean).norm())

        tau = line_search(distance, self.evaluations, self.step, self.ratio)
        return self.at(view, tau)

    def _formula(self) -> str:
        return f"{self.option}, τ by {self.evaluations} trials against the rule in every round"


@declared
class AlieOptimal(_LineSearched):
    """A little is enough with τ found against the rule: attackers send μ + τ σ."""

    def at(self, view: View, tau: float) -> Tensor:
        return view.mean + tau * view.std


@declared
class IpmOptimal(_LineSearched):
    """Inner product manipulation with τ found against the rule: attackers send -τ μ."""

    def at(self, view: View, tau: float) -> Tensor:
        return view.mean * -tau


@declared
class _Farthest(Untargeted):
    """An attack that goes as far from the honest mean, in a direction p, as honest uploads are apart.

    Attributes:
        perturbation: p, ``std``: -σ; ``mean``: -μ/‖μ‖; ``sign``: -sign(μ).
        sums: Whether sums of squared distances are compared, or the largest distance.

    Reference:
        Shejwalkar, Houmansadr, "Manipulating the Byzantine", NDSS 2021. The paper searches γ from 10 by
        halved steps; the largest γ follows in closed form from the inner products of uploads.
    """

    sums: ClassVar[bool] = False

    perturbation: str = field(
        one_of(PERTURBATIONS),
        default=AGAINST_STD,
        help="direction away from the honest mean: minus the deviations, the mean, or its signs",
    )

    def forged(self, view: View) -> Tensor:
        from fedpriv.attacks.forgers import farthest

        directions = {
            AGAINST_STD: lambda: -view.std,
            AGAINST_MEAN: lambda: -view.mean / view.mean.norm().clamp_min(1e-30),
            AGAINST_SIGN: lambda: -view.mean.sign(),
        }
        direction = directions[self.perturbation]()
        return view.mean + farthest(view.honest, direction, sums=self.sums) * direction

    def _formula(self) -> str:
        return f"{self.option}, direction -{self.perturbation}"


@declared
class MinMax(_Farthest):
    """Attackers are no farther from any honest upload than two honest uploads are from each other."""


@declared
class MinSum(_Farthest):
    """The sum of squared distances to honest uploads is at most the largest such sum of an honest upload."""

    sums = True


def hidden_deviation(clients: int, attackers: int) -> float:
    """Return z of "A little is enough": how many deviations attackers may move and still hide.

    Args:
        clients: Number of clients n of the round, attackers included.
        attackers: Number of attackers a among them.

    Example:
        >>> round(hidden_deviation(clients=50, attackers=12), 3)
        0.336
    """
    from statistics import NormalDist

    supporters = clients // 2 + 1 - attackers
    share = (clients - attackers - supporters) / (clients - attackers)
    return max(0.0, NormalDist().inv_cdf(min(max(share, 1e-9), 1 - 1e-9)))
