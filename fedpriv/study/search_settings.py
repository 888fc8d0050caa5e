"""Settings of a search (``hydra.sweeper``), fixed before the first trial."""

from __future__ import annotations

from typing import Any

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError
from fedpriv.common.fields import Allowed, declared, field, number, one_of, unchecked, whole
from fedpriv.privacy.random_stopping import NegativeBinomialTrials, PoissonTrials
from fedpriv.study.search_objective import Objective, read_objective
from fedpriv.study.search_space import SAMPLERS, Space

NONE, NEGATIVE_BINOMIAL, POISSON = "none", "negative_binomial", "poisson"
STOPPINGS = (NONE, NEGATIVE_BINOMIAL, POISSON)
Law = NegativeBinomialTrials | PoissonTrials


@declared
class SearchSettings:
    """Checked settings of a search.

    Attributes:
        epsilon: ε of the whole search, all trials together.
        trials: Largest number of trials; with random stopping, the mean number.
        objective: Score by which trials are compared. The argument is the score's name.
        public_test_records: True where the user declares the test records public.
        sampler: Source of the proposals.
        seed: Seed of the proposals.
        stopping: Law of the number of trials; ``none`` for at most ``trials`` trials, which all compose.
        eta: Shape of the negative binomial law.
        law: Law of the number of trials, or None without random stopping.
    """

    epsilon: float = field(number(above=0), help="ε of the whole search")
    trials: int = field(whole(at_least=1), help="most trials; with random stopping, their mean")
    objective: Objective = field(
        Allowed(lambda name, value, part: read_objective(value, part.public_test_records)),
        help="score of a trial",
    )
    public_test_records: bool = field(
        unchecked("true or false"), help="an objective may read the test records"
    )
    sampler: str = field(one_of(SAMPLERS), help="source of the proposals")
    seed: int = field(whole(), help="seed of the proposals")
    stopping: str = field(one_of(STOPPINGS), default=NONE, help="law of the number of trials")
    eta: float = field(unchecked("number > -1"), default=0, help="shape of the negative binomial")

    def __attrs_post_init__(self) -> None:
        if self.stopping != NEGATIVE_BINOMIAL and self.eta != 0:
            raise ArgumentError("eta", self.eta, f"0 unless stopping={NEGATIVE_BINOMIAL}")
        self.law: Law | None = None
        if self.stopping == NONE:
            return
        checks.whole("trials", self.trials, at_least=2)
        try:
            self.law = (
                NegativeBinomialTrials.of_mean(self.eta, self.trials)
                if self.stopping == NEGATIVE_BINOMIAL
                else PoissonTrials(self.trials)
            )
        except ArgumentError as error:
            name = {"mean": "trials"}.get(error.argument, error.argument)
            raise ArgumentError(name, error.value, error.allowed) from None
        # The theorems of random stopping need proposals that are independent of each other, and secret.
        if self.sampler != "random":
            hint = f"hydra.sweeper.stopping={self.stopping} holds for independent proposals alone"
            raise ArgumentError("sampler", self.sampler, "random", hint)
        if self.seed != 0:
            hint = "under random stopping proposals are secret, and come from the operating system"
            raise ArgumentError("seed", self.seed, "0, its default", hint)

    @classmethod
    def of(cls, **values: Any) -> SearchSettings:
        """Return the settings that the keys of ``hydra.sweeper`` hold.

        Raises:
            ConfigError: A value is not allowed. The error names the key in full.
        """
        try:
            return cls(**values)
        except ArgumentError as error:
            raise error.within("hydra.sweeper") from None

    def definition(self, space: Space) -> dict[str, Any]:
        """Return the facts that two commands must have in common to be one search."""
        definition: dict[str, Any] = {
            "fixed": list(space.fixed),
            "searched": {key: str(kind) for key, kind in space.searched.items()},
            "epsilon": self.epsilon,
            "trials": self.trials,
            "objective": self.objective.name,
            "sampler": self.sampler,
            "seed": self.seed,
        }
        if self.law is not None:
            definition |= {"stopping": self.stopping, **vars(self.law)}
        return definition
