"""Base class of noise schedules.

To add a schedule, subclass :class:`NoiseSchedule` in a file of your own and name the class in a YAML
(docs/extend.md).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from fedpriv.common.base_classes import fact
from fedpriv.common.fields import advised, field, number
from fedpriv.common.saved import Saved
from fedpriv.privacy.mechanisms.query import Query

if TYPE_CHECKING:
    from fedpriv.privacy.accountants import Accountant
    from fedpriv.privacy.core.sampling import Sampling
    from fedpriv.privacy.mechanisms.claims import Claim
    from fedpriv.privacy.mechanisms.visible import Visible


@dataclass(frozen=True)
class LossQuery:
    """Question of a schedule to a round's clients: the mean of their losses on the new model.

    Attributes:
        query: Query that noises the mean, named ``TRAINING_LOSS``.
        bound: Bound at which each record's loss is cut.
    """

    query: Query
    bound: float


@dataclass(frozen=True)
class Setting:
    """Facts that a schedule is calibrated to before the run.

    Attributes:
        sampling: How a client with an even share of the records samples them.
        samples_per_round: Number of samples that a participant answers on in a round.
        cohort_share: m/K, where m of K clients take part in a round; 1 if all take part or m is not known.
        accountant: Accountant of the enforced view.
        claim: The work's own theorem, or None.
        published: Whether the budget enforces the claim.
        smallest_noise_multiplier: Function (epsilon, samples) → the smallest σ at which that many samples of
            a client cost at most ε. None means the samples that are planned. Raises ArgumentError or
            ConfigError.
        expected_cohort: Expected number of clients in a round; None if the number of clients is not known.
    """

    sampling: Sampling
    samples_per_round: int
    cohort_share: float
    accountant: Accountant
    claim: Claim | None
    published: bool
    smallest_noise_multiplier: Callable[[float, int | None], float]
    expected_cohort: float | None = None


class NoiseSchedule(Saved, ABC):
    """Noise multiplier σ_t of every round t = 0, 1, … of a run.

        noise std of round t = σ_t × sensitivity

    The same σ_t is added and charged. σ_t = 0 means no noise, hence no privacy.

    A subclass must define :meth:`noise_multiplier`. If σ_t depends on the round alone, nothing else is
    needed, and ordinary composition holds. A schedule may follow a signal that is public or released: it sets
    ``reads_validation`` (or returns a :attr:`loss_query`) and takes the signal in :meth:`observe`. If σ_t can
    then depend on released values, it must set ``adaptive``, and define :meth:`lowest`, ``state_dict`` and
    ``load_state_dict``. Composition theorems for fixed σ do not hold for it, so a Rényi filter guards the
    budget.

    Attributes:
        reads_validation: Whether the schedule reads the loss on the public validation split.
        adaptive: Whether σ_t can depend on released values.
        decays: Number of times that the signal lowered σ.
        adds_noise: Whether σ is above 0, so that a run can be private.
        spreads_budget: Whether σ spends an ε over a number of rounds given in advance.

    Example:
        >>> class Halving(NoiseSchedule):
        ...     def noise_multiplier(self, round_index):
        ...         return 8.0 * 0.5**round_index
        >>> [Halving().noise_multiplier(t) for t in range(3)]
        [8.0, 4.0, 2.0]
    """

    reads_validation: bool = False
    adaptive: bool = False
    decays: int = 0
    adds_noise: bool = True
    spreads_budget: bool = False

    @property
    def spread_evenly(self) -> bool:
        """True if σ spends an ε as one number for all rounds."""
        return False

    @abstractmethod
    def noise_multiplier(self, round_index: int) -> float:
        """Return σ_t of the round that is about to run.

        Args:
            round_index: t = 0, 1, …

        Returns:
            A finite number ≥ 0. Unless ``adaptive`` is set, it must not change once it was planned.
        """

    @property
    def known(self) -> bool:
        """True if σ is known already. If not, :meth:`calibrate` computes it."""
        return True

    def calibrate(self, setting: Setting) -> None:
        """Compute σ from an ε. Called once, before anything is planned; does nothing unless overridden.

        Args:
            setting: Facts about the run.

        Raises:
            ArgumentError: No σ keeps to the ε.
            ConfigError: The schedule does not go with the run.
        """

    @fact
    def epsilon_per_draw(self) -> float | None:
        """ε of each draw that σ is calibrated to; None if σ does not follow from such an ε."""
        return None

    @property
    def caveat(self) -> str | None:
        """Sentence about the noise for the privacy statement; None, the default, if there is none."""
        return None

    def imagined(self, rounds: int) -> Mapping[str, float | str] | None:
        """Return ε of a population that is not the one simulated, for the privacy statement, or None.

        Args:
            rounds: Number of rounds made.
        """
        return None

    @property
    def loss_query(self) -> LossQuery | None:
        """Query that the clients answer after each round, or None if the signal does not come from them."""
        return None

    @property
    def planned_rounds(self) -> float | None:
        """T of a schedule that says how many rounds there will be; None (the default) if it does not say.

        T may change while the run goes on.
        """
        return None

    @property
    def total_noise_multiplier(self) -> float | None:
        """σ of a single round that costs as much as all rounds ever can, or None without such a bound."""
        return None

    def lowest(self, round_index: int) -> float:
        """Return the smallest σ_t that any signal could have led to. It is fixed in advance.

        The default is :meth:`noise_multiplier`, which is right for a schedule that is not adaptive. An
        adaptive schedule overrides this method; otherwise a run without a budget has no sound ε.

        Args:
            round_index: t = 0, 1, …
        """
        return self.noise_multiplier(round_index)

    @property
    def lowest_known(self) -> bool:
        """True if :meth:`lowest` bounds σ. An adaptive schedule that does not override it has no bound."""
        return not self.adaptive or type(self).lowest is not NoiseSchedule.lowest

    def begin(self, validation_loss: Callable[[], float]) -> None:
        """Read the initial signal. Called once before the first round; does nothing unless overridden.

        Args:
            validation_loss: Function that returns J(w_0), the public validation loss of the initial model.
        """

    def observe(self, round_index: int, loss: Visible) -> None:
        """Learn from the signal after round t. Does nothing unless overridden.

        Args:
            round_index: t.
            loss: J(w_{t+1}), the public validation loss, or the noised answer to :attr:`loss_query`.
        """

    def ended(self, round_index: int) -> bool:
        """Return whether the run ends before round t, the next one; False unless overridden."""
        return False


def initial_noise_multiplier() -> Any:
    """Return the field of σ_0, whose error messages name the option without noise."""
    return field(
        advised(number(above=0, at_most=1e6), "no noise is noise_schedule=none"),
        alias="noise_multiplier",
        unit="σ_0",
        help="noise multiplier of the first round",
    )


BETA = number(above=0, at_most=1)
"""Check of a factor by which σ is lowered, in a configuration."""
