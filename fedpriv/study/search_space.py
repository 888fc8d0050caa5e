"""The searched keys, from Hydra's own sweep syntax, as Optuna's distributions."""

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
    """The package. Raises ConfigError where it is not installed."""
    try:
        import optuna as package
    except ImportError:
        raise ConfigError(
            "hydra/sweeper=search needs the package optuna: pip install 'fedpriv[search]'"
        ) from None
    package.logging.set_verbosity(package.logging.WARNING)
    return package


@dataclass(frozen=True)
class Space:
    """``fixed``: overrides that all trials have; ``searched``: key → its distribution."""

    fixed: tuple[str, ...]
    searched: dict[str, Any]

    def overrides(self, values: dict[str, Any]) -> list[str]:
        """Those of a trial."""
        texts = ((key, values[key]) for key in self.searched)
        chosen = (
            f"{key}={value if isinstance(value, str) else repr(value)}" for key, value in texts
        )
        return [*self.fixed, *chosen]

    def drawn(self, uniform: Callable[[], float]) -> dict[str, Any]:
        """Values drawn from the distributions, by numbers that are uniform on [0, 1)."""
        return {key: _drawn(kind, uniform()) for key, kind in self.searched.items()}

    def corners(self) -> list[list[str]]:
        """Trials at the ends of every key, all others at their first value."""
        ends = {key: _ends(distribution) for key, distribution in self.searched.items()}
        first = {key: values[0] for key, values in ends.items()}
        others = [{**first, key: value} for key, values in ends.items() for value in values[1:]]
        return [self.overrides(values) for values in (first, *others)]


def read_space(arguments: Sequence[str]) -> Space:
    """What of the command line is searched. Raises ConfigError."""
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
    """Optuna's distribution of a key."""
    distributions, key, sweep = optuna().distributions, override.key_or_group, override.value()
    log = "log" in getattr(sweep, "tags", ())
    try:
        if isinstance(sweep, IntervalSweep):
            whole = isinstance(sweep.start, int) and isinstance(sweep.end, int)
            kind = distributions.IntDistribution if whole else distributions.FloatDistribution
            return kind(sweep.start, sweep.end, log=log)
        if isinstance(sweep, RangeSweep):
            values = list(sweep.range())
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
    """The values that are looked at before the first trial."""
    if hasattr(distribution, "choices"):
        return list(distribution.choices)
    return list(dict.fromkeys((distribution.low, distribution.high)))


def _drawn(distribution: Any, uniform: float) -> Any:
    """The value of a distribution at that share of it."""
    if hasattr(distribution, "choices"):
        return distribution.choices[int(uniform * len(distribution.choices))]
    low, high, log = distribution.low, distribution.high, distribution.log
    if not isinstance(low, int):
        value = low * (high / low) ** uniform if log else low + uniform * (high - low)
    elif log:  # each whole number has what is nearer to it than to others
        value = int((low - 0.5) * ((high + 0.5) / (low - 0.5)) ** uniform + 0.5)
    else:
        value = low + distribution.step * int(uniform * ((high - low) // distribution.step + 1))
    return min(max(value, low), high)


@dataclass(frozen=True)
class Trial:
    """A finished one: what was tried, and what came of it; None where it failed."""

    values: dict[str, Any]
    score: float | None


class Proposals:
    """What to try next, by Optuna. Trial n follows from the seed, n and the trials before it alone, so that a
    search that was interrupted proposes what it would have proposed."""

    def __init__(self, space: Space, sampler: str, seed: int, maximize: bool):
        self._optuna, self._space, self._sampler, self._seed = optuna(), space, sampler, seed
        direction = "maximize" if maximize else "minimize"
        self._study = self._optuna.create_study(direction=direction)

    def tell(self, trial: Trial) -> None:
        """Enter a trial that has ended."""
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
        """The values of trial ``number``."""
        seed = int(np.random.SeedSequence([self._seed, number]).generate_state(1)[0])
        samplers = self._optuna.samplers
        kind = samplers.TPESampler if self._sampler == "tpe" else samplers.RandomSampler
        self._study.sampler = kind(seed=seed)
        asked = self._study.ask(self._space.searched)
        values = dict(asked.params)
        # what has ended is entered by tell, so that a search that goes on knows the same
        self._study.tell(asked, state=self._optuna.trial.TrialState.FAIL)
        if set(values) != set(self._space.searched):
            raise FedprivError("search: optuna proposed a trial without all keys")
        return values
