"""What a noise schedule is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ConfigError
from fedpriv.common.fields import advised, field, number
from fedpriv.common.groups import option_of
from fedpriv.common.saved import Saved
from fedpriv.privacy.mechanisms.query import Query

if TYPE_CHECKING:
    from fedpriv.common.conflicts import Combination
    from fedpriv.privacy.accountants import Accountant
    from fedpriv.privacy.core.sampling import Sampling
    from fedpriv.privacy.mechanisms.claims import Claim
    from fedpriv.privacy.mechanisms.visible import Visible


@dataclass(frozen=True)
class LossQuery:
    """What a schedule asks of a round's clients: the mean of their losses on the new model, each
    record's cut at ``bound``."""

    query: Query
    bound: float


@dataclass(frozen=True)
class Setting:
    """What a schedule is calibrated to before the run.

    Attributes:
        sampling: How a client of an even share samples its records.
        samples_per_round: How many samples a participant answers on in a round.
        cohort_share: m/K, where m of K clients take part in a round; 1: all, or not known.
        accountant: That of the enforced view.
        claim: The work's own analysis, and ``published``: whether the budget enforces it.
        smallest_noise_multiplier: (epsilon, samples) → the smallest σ at which so many samples of a client
            (``None``: those planned) cost at most that. Raises ArgumentError, ConfigError.
    """

    sampling: Sampling
    samples_per_round: int
    cohort_share: float
    accountant: Accountant
    claim: Claim | None
    published: bool
    smallest_noise_multiplier: Callable[[float, int | None], float]


class NoiseSchedule(Saved, ABC):
    """σ_t for every round t = 0, 1, …; noise std = σ_t × sensitivity. 0 means no noise.

    A subclass gives ``noise_multiplier(t)``. One that listens to a public signal sets
    ``reads_validation`` and takes it in ``observe``; if σ can then depend on what was released,
    ``adaptive`` is true and the privacy filter is used.
    """

    reads_validation: bool = False
    adaptive: bool = False
    decays: int = 0
    """How often σ has been lowered by the signal."""
    adds_noise: bool = True
    """Whether σ is above 0, so that a run with it can be private."""
    spreads_budget: bool = False
    """Whether σ spends an ε over a number of rounds given in advance."""

    @property
    def spread_evenly(self) -> bool:
        """Whether σ spends an ε as one number for all rounds."""
        return False

    def conflicts(self, parts: Combination) -> Iterator[ConfigError]:
        """Refuse a question to the clients where only a sum, or no cohort, is seen, and noise that follows
        from what is not known in advance."""
        algorithm = parts.algorithm
        trust, asks = algorithm.trust, self.loss_query is not None
        if asks and trust.sees_only_a_sum:
            yield ConfigError(
                "noise_schedule asks the clients of a round for their losses, which algorithm.trust="
                f"{trust.name} adds no shares for; take a schedule that asks nothing"
            )
        if parts.released_statistics is not None and (
            self.adaptive or self.reads_validation or self.spreads_budget
        ):
            yield ConfigError(
                f"noise_schedule={option_of('noise_schedule', self)} does not go with features.normalization="
                "released, whose release is counted with noise that is fixed in advance; take constant, "
                "calibrated, exponential or step"
            )
        if not algorithm.private:
            return
        if not (self.known or parts.shares_known):
            yield ConfigError(
                "noise_schedule is calibrated to epsilon, which here depends on how many records a client "
                "has, and partition=natural does not say; set noise_schedule=constant, or another partition"
            )
        if asks and trust.secret_cohort:
            yield ConfigError(
                "noise_schedule asks the clients of a round for their losses, and with algorithm="
                f"{algorithm.name} who takes part is secret; take a schedule that asks nothing"
            )

    @abstractmethod
    def noise_multiplier(self, round_index: int) -> float:
        """σ_t of the round about to run."""

    @property
    def known(self) -> bool:
        """Whether σ is known already; else :meth:`calibrate` finds it."""
        return True

    def calibrate(self, setting: Setting) -> None:
        """Called once before anything is planned, where σ follows from an ε.

        Raises:
            ArgumentError, ConfigError: No σ keeps to it.
        """

    @fact
    def epsilon_per_draw(self) -> float | None:
        """ε of each draw that σ is calibrated to; None: σ does not follow from it."""
        return None

    @property
    def loss_query(self) -> LossQuery | None:
        """What is asked of the clients after each round, if the signal comes from them."""
        return None

    @property
    def planned_rounds(self) -> float | None:
        """T, for a schedule that says how many rounds there will be; it may change as they go."""
        return None

    @property
    def total_noise_multiplier(self) -> float | None:
        """σ of a single round that costs as much as all of them ever can; ``None``: there is no such
        bound."""
        return None

    def lowest(self, round_index: int) -> float:
        """The smallest σ_t any signal could have led to: fixed in advance. An adaptive schedule overrides it;
        one that does not has no sound epsilon without a budget."""
        return self.noise_multiplier(round_index)

    @property
    def lowest_known(self) -> bool:
        """Whether :meth:`lowest` says how low an adaptive σ can fall: where it is not overridden, nobody
        knows."""
        return not self.adaptive or type(self).lowest is not NoiseSchedule.lowest

    def begin(self, validation_loss: Callable[[], float]) -> None:
        """Called once before the first round; ``validation_loss()``: J(w_0), if it is read."""

    def observe(self, round_index: int, loss: Visible) -> None:
        """J(w_{t+1}), the public validation loss after round t, or the answer to ``loss_query``."""

    def ended(self, round_index: int) -> bool:
        """Whether round t, the next one, is not to run any more."""
        return False


def initial_noise_multiplier() -> Any:
    """Return the field of σ_0, whose errors name the option without noise."""
    return field(
        advised(number(above=0, at_most=1e6), "no noise is noise_schedule=none"),
        alias="noise_multiplier",
        unit="σ_0",
        help="noise multiplier of the first round",
    )


BETA = number(above=0, at_most=1)
"""What a factor by which σ is lowered may be."""
