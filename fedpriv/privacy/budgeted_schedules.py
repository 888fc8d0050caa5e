"""Schedules that spread a privacy budget over T rounds in advance (Wei et al., eqs. 15 and 19).

Costs are sums here. With noise multipliers z_t = s_t / C, an upload that the protected unit moves by D, and q
= m/K of the clients in a round, ε at δ allows

    Σ_t z_t^-2 ≤ B
    printed: B = ε² / (2 q (D/C)² log(1/δ))       eq. (15), D as the work claims it
    exact:   B = μ(ε, δ)² / (q (D/C)²)            μ-GDP, D as it is: the Gaussian's own trade-off

Uniform: z² = T/B.  Recalculated: z_t² = (T - t) / (B - Σ_{τ<t} z_τ^-2), which stays the same until T changes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from dp_accounting import dp_event

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import (
    declared,
    field,
    not_null,
    number,
    one_of,
    or_null,
    same_as,
    whole,
)
from fedpriv.privacy.accountants.gaussian import GdpAccountant
from fedpriv.privacy.mechanisms.claims import MomentsBound, wei_budget
from fedpriv.privacy.mechanisms.gaussian import GaussianQuery
from fedpriv.privacy.mechanisms.joint import TRAINING_LOSS
from fedpriv.privacy.mechanisms.visible import Visible, seen
from fedpriv.privacy.noise_schedule import BETA, LossQuery, NoiseSchedule, Setting

FORMS = ("printed", "exact")
DISCOUNTS = ("beta_squared", "beta")
PRINTED = "printed"
DISCOUNTED_AT = ("completed_rounds", PRINTED)
TRIGGERS = ("validation", "noised", "exact")
_ROUNDING = 1e-9  # share of B left unspent, so that T rounds fit however their sum is rounded


@dataclass(frozen=True)
class Spreading:
    """Quantities that a budget is spread by, in the enforced view.

    Attributes:
        sensitivity: D/C.
        client_rate: q.
        printed: Whether the enforced view is the published work's.
    """

    sensitivity: float
    client_rate: float
    printed: bool


def _spreading(setting: Setting, form: str | None) -> Spreading:
    """Return sensitivity and q of the enforced view, for a budget that is spread as a sum of z^-2."""
    claim = setting.claim if setting.published else None
    printed = claim is not None and isinstance(claim.accountant(), MomentsBound)
    if setting.samples_per_round > 1:
        raise ConfigError(
            "algorithm.local_steps", setting.samples_per_round, "1 with this schedule"
        )
    event = setting.sampling.event(1.0)
    if isinstance(event, dp_event.GaussianDpEvent):
        sensitivity, rate = 1.0 / event.noise_multiplier, 1.0
    elif printed and form != "exact":
        sensitivity, rate = 1.0, setting.sampling.poisson_rate
    else:
        raise ConfigError(
            "noise_schedule=uniform_budget and recalculated are for Gaussians without sampling, whose "
            "privacy cost is a sum; noise_schedule=calibrated is for sampled lots or secret cohorts"
        )
    counts_alike = isinstance(setting.accountant, MomentsBound if printed else GdpAccountant)
    if form is None and not counts_alike:
        raise ConfigError(
            "accountant",
            setting.accountant.name,
            f"{'published' if printed else 'gdp'} with this noise_schedule and budget_view",
            "its noise keeps to the budget as that counts; another count would end the run early",
        )
    rate *= setting.cohort_share
    if claim is not None:
        sensitivity = claim.sensitivity
    return Spreading(sensitivity, rate, printed)


@declared
class UniformBudget(NoiseSchedule):
    """The same noise multiplier z = (T/B)^(1/2) in every round, so that T rounds cost ε (eq. 15).

    Attributes:
        epsilon: ε to spread; by default that of the run.
        delta: δ of the budget.
        rounds: T.
        form: ``printed`` or ``exact`` B of the module; None: ``printed`` with ``budget_view=published``.

    Example:
        >>> schedule = UniformBudget(epsilon=1.0, delta=1e-5, rounds=20)
        >>> schedule.planned_rounds, schedule.ended(round_index=20)
        (20.0, True)
    """

    spreads_budget = True

    epsilon: float = field(
        not_null(
            number(above=0),
            "a number > 0: the budget to spread (that of the run, unless epsilon=null)",
        ),
        help="ε that is spread over the rounds",
    )
    delta: float = field(number(above=0, below=1), help="δ of the budget")
    rounds: int = field(
        not_null(whole(at_least=1), "a whole number >= 1: T (rounds of the run)"),
        unit="T",
        help="rounds over which the budget is spread",
    )
    form: str | None = field(
        or_null(one_of(FORMS)),
        default=None,
        help=(
            "formula of σ: as printed, or exact for the Gaussian; null: printed with "
            "budget_view=published, else exact"
        ),
    )

    def __attrs_post_init__(self) -> None:
        self._whole: float | None = None
        self._sigma: float | None = None

    @property
    def known(self) -> bool:
        return self._sigma is not None

    @property
    def spread_evenly(self) -> bool:
        """True if σ is the same in all rounds, as a search of T presumes. Subclasses may differ."""
        return type(self) is UniformBudget

    def calibrate(self, setting: Setting) -> None:
        """Compute B and σ.

        Args:
            setting: Sampling, accountant and claim of the run.

        Raises:
            ConfigError: The releases are not plain Gaussians, or the accountant counts in another way.
            ArgumentError: The losses that the schedule asks for cost all of the budget.
        """
        over = _spreading(setting, self.form)
        whole = self._budget(over, over.printed if self.form is None else self.form == "printed")
        self._whole = whole * (1.0 - _ROUNDING)  # B
        self._sigma = math.sqrt(self.rounds / self._whole)

    def _budget(self, over: Spreading, printed: bool) -> float:
        if printed:
            return wei_budget(self.epsilon, self.delta, over.sensitivity, over.client_rate)
        inverse_squares = GdpAccountant().largest_sum(self.epsilon, self.delta)
        return inverse_squares / (over.client_rate * over.sensitivity**2)

    @property
    def planned_rounds(self) -> float:
        return float(self.rounds)

    def noise_multiplier_over(self, rounds: int) -> float:
        """Return σ if the budget were spread over ``rounds`` rounds. :meth:`calibrate` must have run."""
        assert self._whole is not None
        return math.sqrt(rounds / self._whole)

    def noise_multiplier(self, round_index: int) -> float:
        if self._sigma is None:
            raise RuntimeError("a budget must be spread before it is used")
        return self._sigma

    def ended(self, round_index: int) -> bool:
        return round_index + 1 > self.planned_rounds


@declared
class RecalculatedNoise(UniformBudget):
    """Noise of eq. (19) with communication rounds discounting: T shrinks whenever the loss does not fall.

    After t completed rounds, if F(w_t) ≥ F(w_{t-1}):

        beta_squared   T ← β² (T - t) + t        (algorithm 2; ``discount_at=printed`` has t - 1)
        beta           T ← ⌈β T⌉                 (the authors' code)

    and round t runs only if t + 1 ≤ T; with ``loop=printed`` if t < T, as algorithm 2 has it, and then the
    last round costs up to β^-2 times the one before it, which B does not cover. ``trigger`` says which loss
    F is:

    - ``validation``: the loss of the validation split, which is public and hence free.
    - ``noised``: the mean loss of the round's clients. Each loss is cut at ``loss_bound`` b and noised by
      its client with ``loss_noise_multiplier``. The cost is taken from B before B is spread.
    - ``exact``: the same without noise, as in the work. No finite ε holds then.

    Attributes:
        beta: β, the discount.
        discount: ``beta_squared`` or ``beta``.
        discount_at: t of ``beta_squared``: ``completed_rounds``, or ``printed`` for one round fewer.
        loop: ``whole`` (None) or ``printed``.
        trigger: ``validation``, ``noised`` or ``exact``.
        loss_bound: b.
        loss_noise_multiplier: Noise multiplier of the losses with ``trigger=noised``.
        form: As in :class:`UniformBudget`.
        decays: Number of times that T was shortened.

    Example:
        >>> schedule = RecalculatedNoise(epsilon=1.0, delta=1e-5, rounds=20, beta=0.8)
        >>> schedule.adaptive, schedule.planned_rounds  # T shrinks during the run
        (True, 20.0)
    """

    saved_attributes: ClassVar = {
        "planned": "_planned",
        "spent": "_spent",
        "loss": "_loss",
        "sigma": "_sigma",
        "decays": "decays",
    }

    beta: float = field(
        BETA, default=0.9, unit="β", help="factor that shortens the remaining rounds"
    )
    discount: str = field(
        one_of(DISCOUNTS),
        default="beta_squared",
        help="how T shrinks: T ← β² (T - t) + t, or T ← ⌈β T⌉",
    )
    discount_at: str = field(
        one_of(DISCOUNTED_AT),
        default="completed_rounds",
        help="t in discount=beta_squared: the completed rounds, or one fewer as printed",
    )
    loop: str | None = field(
        or_null(one_of(("whole", PRINTED))),
        default=None,
        help=(
            "round t runs if t + 1 ≤ T (whole), or as printed if t < T, which spends more than epsilon "
            "and needs epsilon=null, noise_schedule.epsilon=…; null: whole"
        ),
    )
    trigger: str = field(
        one_of(TRIGGERS),
        default="validation",
        help=(
            "loss that must fall: of the public split (validation), of the clients with "
            "noise, which is charged (noised), or without noise, not private (exact)"
        ),
    )
    loss_bound: float = field(
        number(above=0),
        default=5.0,
        unit="b",
        help="bound at which a loss is cut, with trigger=noised or exact",
    )
    loss_noise_multiplier: float = field(
        number(above=0), default=10.0, help="noise multiplier of the losses, with trigger=noised"
    )
    form: str | None = same_as(UniformBudget, "form")

    def __attrs_post_init__(self) -> None:
        super().__attrs_post_init__()
        if self.discount == "beta" and self.discount_at == "printed":
            raise ArgumentError(
                "discount_at", self.discount_at, "completed_rounds with discount=beta"
            )
        if self.loop == self.discount_at == PRINTED:
            why = "the last round could have next to no noise"
            raise ArgumentError("discount_at", PRINTED, "completed_rounds with loop=printed", why)
        self.adaptive = self.beta < 1
        self.reads_validation = self.trigger == "validation"
        self._planned = float(self.rounds)
        self._spent = 0.0
        self._loss = math.inf

    @property
    def loss_query(self) -> LossQuery | None:
        if self.trigger == "validation":
            return None
        noise = self.loss_noise_multiplier if self.trigger == "noised" else 0.0
        # Any two losses are at most b apart, so replacing a record moves the mean no further than adding one.
        return LossQuery(GaussianQuery(TRAINING_LOSS, noise, replaced=1.0), self.loss_bound)

    def _budget(self, over: Spreading, printed: bool) -> float:
        whole = super()._budget(over, printed)
        if printed or self.trigger != "noised":
            return whole
        # B counts z^-2 of uploads, which the unit moves by D/C clip norms. The unit moves a loss by at most
        # one bound b, so each round's loss takes (z_loss D/C)^-2 from B.
        remaining = whole - self.rounds / (over.sensitivity * self.loss_noise_multiplier) ** 2
        if remaining <= 0:
            raise ArgumentError(
                "loss_noise_multiplier",
                self.loss_noise_multiplier,
                "larger: at this one the losses alone cost more than epsilon",
            )
        return remaining

    @property
    def planned_rounds(self) -> float:
        """T as it stands now."""
        return self._planned

    @property
    def total_noise_multiplier(self) -> float:
        """B^(-1/2), which holds whatever is observed; with ``loop=printed`` B is exceeded by a round."""
        assert self._whole is not None
        more = self.beta**-2 if self.loop == PRINTED else 0.0
        return (self._whole * (1 + more)) ** -0.5

    def lowest(self, round_index: int) -> float:
        """Return B^(-1/2): no round can spend more than all of B."""
        return self.total_noise_multiplier

    def ended(self, round_index: int) -> bool:
        if self.loop == PRINTED:
            return round_index >= self.planned_rounds
        return super().ended(round_index)

    def begin(self, validation_loss: Callable[[], float]) -> None:
        if self.reads_validation:
            self._loss = validation_loss()

    def observe(self, round_index: int, loss: Visible) -> None:
        completed = round_index + 1
        assert self._sigma is not None
        self._spent += self._sigma**-2
        current_loss = seen(loss, "a noise schedule")
        stalled = current_loss >= self._loss
        self._loss = current_loss
        if stalled and self.beta < 1:
            self._shorten(completed)

    def _shorten(self, completed: int) -> None:
        self.decays += 1
        if self.discount == "beta":
            self._planned = float(math.ceil(self.beta * self._planned))
        else:
            t = completed if self.discount_at == "completed_rounds" else completed - 1
            # With loop=printed t may be beyond T, which then stays.
            self._planned = min(self._planned, self.beta**2 * (self._planned - t) + t)
        if not self.ended(completed):
            assert self._whole is not None
            remaining = self._whole - self._spent
            self._sigma = math.sqrt((self._planned - completed) / remaining)
