"""The noise of a larger cohort of an imagined population, scaled down to the clients that are simulated."""

from __future__ import annotations

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import declared, field, number, whole
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.calibration import RepeatedRelease, calibrate_noise_multiplier
from fedpriv.privacy.noise_schedule import NoiseSchedule, Setting


@declared
class LargerCohort(NoiseSchedule):
    """Noise of a larger cohort, scaled down: the mean of a round has as much noise as that of the cohort.

        σ = z m / M,   z the smallest multiplier with   ε(z, q = M / population, rounds) ≤ epsilon

    Simulations of production systems train m clients a round where the system would train M. The noise on the
    mean of the m clients is then that of the mean of M, z C / M, while the sampling error is that of m.

    The ε of this calibration is about the imagined population. The clients that are simulated have an ε of
    their own, which is much larger: the run accounts for σ at their own sample rate, and reports that ε as
    enforced and as sound.

    Source:
        ``noise_cohort_size`` of the benchmarks of pfl-research.

    Example:
        >>> LargerCohort(epsilon=2.0).known  # σ is computed when the run is planned
        False
    """

    epsilon: float = field(
        number(above=0),
        default=2.0,
        help="ε of a client of the imagined population after all rounds",
    )
    delta: float = field(
        number(above=0, below=1), default=1e-6, help="δ of the imagined population"
    )
    population: int = field(
        whole(at_least=1), default=1_000_000, help="clients of the imagined population"
    )
    cohort: int = field(
        whole(at_least=1),
        default=1000,
        unit="M",
        help="clients of a round in the imagined population",
    )
    rounds: int = field(
        whole(at_least=1), default=3000, help="rounds over which the imagined population spends ε"
    )

    def __attrs_post_init__(self) -> None:
        if self.cohort > self.population:
            raise ArgumentError("cohort", self.cohort, f"<= {self.population}, the population")
        self._release = RepeatedRelease("poisson")
        self._accountant = PldAccountant()
        self._multiplier: float | None = None
        self._sigma: float | None = None
        self._simulated: float | None = None

    @property
    def known(self) -> bool:
        return self._sigma is not None

    def calibrate(self, setting: Setting) -> None:
        """Compute σ from the ε of the imagined population and the expected cohort of this run.

        Raises:
            ArgumentError: No noise keeps to the ε, or this run's cohorts are the larger ones.
            ConfigError: The number of clients is not known before the data are read.
        """
        if setting.expected_cohort is None:
            allowed = "a number with noise_schedule=larger_cohort"
            raise ConfigError("partition.clients", None, allowed)
        if setting.expected_cohort > self.cohort:
            allowed = f">= {setting.expected_cohort:g}, the clients expected in a round of this run"
            raise ArgumentError("cohort", self.cohort, allowed)
        self._multiplier = calibrate_noise_multiplier(
            self._accountant,
            self._release,
            epsilon=self.epsilon,
            delta=self.delta,
            steps=self.rounds,
            sample_rate=self.cohort / self.population,
        )
        self._simulated = setting.expected_cohort
        self._sigma = self._multiplier * setting.expected_cohort / self.cohort

    def noise_multiplier(self, round_index: int) -> float:
        if self._sigma is None:
            raise RuntimeError("a calibrated schedule must be calibrated before it is used")
        return self._sigma

    @property
    def caveat(self) -> str:
        simulated = ""
        if self._simulated is not None and self._simulated < self.cohort:
            simulated = f", of which {self._simulated:,.4g} are simulated"
        return (
            f"Noise of an imagined population of {self.population:,} clients: the noise on the mean of a "
            f"round is that of {self.cohort:,} clients{simulated}. A client of that "
            f"population would have epsilon {self.epsilon:g} after {self.rounds:,} rounds, at delta "
            f"{self.delta:g}. That is no guarantee about the clients of this run, who have the sound epsilon."
        )

    def imagined_epsilon(self, rounds: int) -> float:
        """Return ε of a client of the imagined population after ``rounds`` rounds."""
        if not rounds:
            return 0.0
        assert self._multiplier is not None
        event = self._release.event(self._multiplier, self.cohort / self.population)
        return self._accountant.epsilon_of({event: rounds}, self.delta, self._release.neighbours)

    def imagined(self, rounds: int) -> dict[str, float | str]:
        """Return ε of the imagined population after ``rounds`` rounds, with what it was computed from."""
        assert self._multiplier is not None
        return {
            "population": self.population,
            "cohort": self.cohort,
            "noise_multiplier": self._multiplier,
            "delta": self.delta,
            "rounds": rounds,
            "epsilon": self.imagined_epsilon(rounds),
            "about": "an imagined population, not the clients of this run",
        }
