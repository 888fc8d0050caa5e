"""Space of a search: keys given in Hydra's sweep syntax, as distributions of Optuna."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep

from fedpriv.common.errors import ConfigError, FedprivError

SAMPLERS = ("tpe", "random")
_EXAMPLE = "algorithm.learning_rate='tag(log, interval(0.01, 1))'"


def optuna() -> Any:
    """Return the package optuna, which from then on logs warnings alone.

    Raises:
        ConfigError: The package is not installed.
    """
    try:
        import optuna as package
    except ImportError:
        raise ConfigError(
            "hydra/sweeper=search needs the package optuna: pip install optuna"
        ) from None
    package.logging.set_verbosity(package.logging.WARNING)
    return package


@dataclass(frozen=True)
class Space:
    """The keys of a search.

    Attributes:
        fixed: Overrides that all trials have.
        searched: Key → Optuna's distribution of its values.
    """

    fixed: tuple[str, ...]
    searched: dict[str, Any]

    def overrides(self, values: dict[str, Any]) -> list[str]:
        """Return the overrides of a trial with these values of the searched keys."""
        texts = ((key, values[key]) for key in self.searched)
        chosen = (
            f"{key}={value if isinstance(value, str) else repr(value)}" for key, value in texts
        )
        return [*self.fixed, *chosen]

    def drawn(self, uniform: Callable[[], float]) -> dict[str, Any]:
        """Draw a value for each key; ``uniform`` returns independent numbers, uniform on [0, 1)."""
        return {key: _drawn(kind, uniform()) for key, kind in self.searched.items()}

    def corners(self) -> list[list[str]]:
        """Return the overrides of trials at the ends of each key, all other keys at their first value.

        A choice has all its values as ends. Combinations of ends are left out, as their number grows
        exponentially. The first trial has the first value of every key.
        """
        ends = {key: _ends(distribution) for key, distribution in self.searched.items()}
        first = {key: values[0] for key, values in ends.items()}
        others = [{**first, key: value} for key, values in ends.items() for value in values[1:]]
        return [self.overrides(values) for values in (first, *others)]


def read_space(arguments: Sequence[str]) -> Space:
    """Split the overrides of a command line into fixed and searched keys.

    Raises:
        ConfigError: No key is searched, or a sweep is none that Optuna can draw from.
    """
    fixed, searched = [], {}
    for override in OverridesParser.create().parse_overrides(list(arguments)):
        if override.is_sweep_override():
            searched[override.get_key_element()] = _distribution(override)
        else:
            fixed.append(override.input_line or "")
    if not searched:
        raise ConfigError(f"hydra/sweeper=search needs a key to search, such as {_EXAMPLE}")
    return Space(tuple(fixed), searched)


def _distribution(override: Override) -> Any:
    """Return Optuna's distribution of a swept key."""
    distributions, key, sweep = optuna().distributions, override.key_or_group, override.value()
    log = "log" in getattr(sweep, "tags", ())
    try:
        if isinstance(sweep, IntervalSweep):
            whole = isinstance(sweep.start, int) and isinstance(sweep.end, int)
            kind = distributions.IntDistribution if whole else distributions.FloatDistribution
            return kind(sweep.start, sweep.end, log=log)
        if isinstance(sweep, RangeSweep):
            values = list(sweep.range())
            # Only whole numbers with even steps are a distribution of Optuna's; any other range is a
            # choice among its values.
            if not log and values and all(isinstance(value, int) for value in values):
                step = abs(int(sweep.step))
                return distributions.IntDistribution(min(values), max(values), step=step)
        if isinstance(sweep, ChoiceSweep | RangeSweep):
            return distributions.CategoricalDistribution(list(override.sweep_string_iterator()))
    except ValueError as error:
        raise ConfigError(f"{key}: {error}") from None
    raise ConfigError(key, override.value_string if hasattr(override, "value_string") else
                      override.input_line, "choice(…), range(…) or interval(…) in a search")  # fmt: skip


def _ends(distribution: Any) -> list[Any]:
    """Return the values of a key that are planned before the first trial."""
    if hasattr(distribution, "choices"):
        return list(distribution.choices)
    return list(dict.fromkeys((distribution.low, distribution.high)))


def _drawn(distribution: Any, uniform: float) -> Any:
    """Return the value at the quantile ``uniform`` of a distribution."""
    if hasattr(distribution, "choices"):
        return distribution.choices[int(uniform * len(distribution.choices))]
    low, high, log = distribution.low, distribution.high, distribution.log
    if not isinstance(low, int):
        value = low * (high / low) ** uniform if log else low + uniform * (high - low)
    elif log:
        # The log-uniform law on [low - 1/2, high + 1/2], rounded to the nearest whole number.
        value = int((low - 0.5) * ((high + 0.5) / (low - 0.5)) ** uniform + 0.5)
    else:
        value = low + distribution.step * int(uniform * ((high - low) // distribution.step + 1))
    return min(max(value, low), high)


@dataclass(frozen=True)
class Trial:
    """A finished trial.

    Attributes:
        values: Value of each searched key.
        score: Value of the objective, or None where the trial failed.
    """

    values: dict[str, Any]
    score: float | None


class Proposals:
    """Proposals of Optuna for the next trial.

    The values of trial n follow from the seed, n and the trials before alone. So an interrupted search that
    goes on proposes the same trials as an uninterrupted search.

    Args:
        space: Keys to search.
        sampler: ``tpe`` or ``random``.
        seed: Seed of the proposals.
        maximize: True where a larger score is better.
    """

    def __init__(self, space: Space, sampler: str, seed: int, maximize: bool):
        self._optuna, self._space, self._sampler, self._seed = optuna(), space, sampler, seed
        direction = "maximize" if maximize else "minimize"
        self._study = self._optuna.create_study(direction=direction)

    def tell(self, trial: Trial) -> None:
        """Enter a finished trial, which later proposals may take into account."""
        states = self._optuna.trial.TrialState
        self._study.add_trial(
            self._optuna.trial.create_trial(
                state=states.FAIL if trial.score is None else states.COMPLETE,
                params=trial.values,
                distributions=self._space.searched,
                value=trial.score,
            )
        )

    def ask(self, number: int) -> dict[str, Any]:
        """Return the values proposed for trial ``number``.

        Raises:
            FedprivError: Optuna left a key out.
        """
        # A sampler of its own for each number, so that what came before in this process does not count.
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        samplers = self._optuna.samplers
        kind = samplers.TPESampler if self._sampler == "tpe" else samplers.RandomSampler
        self._study.sampler = kind(seed=seed)
        asked = self._study.ask(self._space.searched)
        values = dict(asked.params)
        # The study learns of ended trials by ``tell`` alone, so that a resumed search has the same history.
        self._study.tell(asked, state=self._optuna.trial.TrialState.FAIL)
        if set(values) != set(self._space.searched):
            raise FedprivError("search: optuna proposed a trial without all keys")
        return values
