"""Search for the number of rounds T. Its runs are ordinary runs, kept in a store and found there again."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, open_dict

from fedpriv.algorithms.rounds_search import WITHOUT, RoundsSearch
from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError, FedprivError, Interrupted
from fedpriv.common.words import counted
from fedpriv.privacy.core.names import SOUND
from fedpriv.store.stored_run import StoredRun

if TYPE_CHECKING:
    import pandas as pd

Run = Callable[[DictConfig], Any]
"""A function that runs a configuration to its end and returns its result."""


@dataclass(frozen=True)
class BestRounds:
    """The result of a search for T.

    Attributes:
        rounds: The best T.
        table: T, seed and criterion of every run that the search made.
        samples: By T: number of samples that a client answered on in all runs with this T, by their ledgers.
    """

    rounds: int
    table: pd.DataFrame
    samples: dict[int, int]


def find_rounds(
    config: DictConfig, search: RoundsSearch, run: Run, say: Callable[[str], None]
) -> BestRounds:
    """Return the T with the best mean of the criterion over seeds.

    Each candidate is an ordinary run without search, in ``runs/`` below ``runtime.output_dir``, where it
    stays. One that is there already is not run again.

    Args:
        config: A configuration of an algorithm with a search.
        search: The values of T, the seeds and the criterion.
        run: Runs a configuration to its end.
        say: Tells the user one line.

    Raises:
        Interrupted: The search was interrupted; the same command goes on.
        FedprivError: A run failed.
    """
    import pandas as pd

    rows: list[dict[str, Any]] = []
    samples: Counter[int] = Counter()
    # The search minimises.
    sign = 1.0 if search.criterion == "test_loss" else -1.0

    def cost(rounds: int) -> float:
        values = []
        for seed in search.seeds:
            try:
                result = run(_candidate(config, rounds, seed))
                value = _value(result, search.criterion, rounds)
                if result.stop_reason == "diverged":
                    value = sign * float("inf")  # the worst value of the criterion
            except KeyboardInterrupt:
                raise Interrupted(_INTERRUPTED) from None
            rows.append({"rounds": rounds, "seed": seed, search.criterion: value})
            values.append(value)
            # All runs of a candidate saw the same clients, so their samples add up in the statement.
            samples[rounds] += _samples(Path(result.folder))
        mean = sum(values) / len(values)
        say(
            f"search: T = {rounds}, mean {search.criterion} {mean:.4f} ({counted(len(values), 'run')})"
        )
        return sign * mean

    best = search.best(cost)
    say(f"search: best T = {best}{_at_an_end(best, search)}")
    return BestRounds(best, pd.DataFrame(rows), dict(samples))


_INTERRUPTED = "interrupted while searching T; the same command goes on with the runs not yet made"


def _at_an_end(best: int, search: RoundsSearch) -> str:
    """Return a warning if the best T may lie beyond those that were tried."""
    if len(search.rounds) == 1:
        return ""
    if best == search.rounds[0]:
        return ", the smallest tried: the best may be smaller"
    return ", the largest tried: the best may be larger" if best == search.rounds[-1] else ""


def _value(result: Any, criterion: str, rounds: int) -> float:
    if result.stop_reason == "interrupted":
        raise Interrupted(_INTERRUPTED)
    value = result.summary[criterion]
    if value is None:
        raise FedprivError(
            f"search: the run with T = {rounds} has no {criterion} ({result.folder})"
        )
    return float(value)


def _samples(folder: Path) -> int:
    """Return the largest number of samples that a client of a run answered on."""
    try:
        ledger = StoredRun(folder).ledger(SOUND)
    except ConfigError as error:
        raise FedprivError(f"search: {error}") from None
    return max(sum(count for _, count in history) for history in ledger.histories)


def with_rounds(config: DictConfig, rounds: int) -> DictConfig:
    """Return the configuration with ``rounds`` as its T."""
    chosen = config.copy()
    with open_dict(chosen):
        chosen.rounds = rounds
    return chosen


def _candidate(config: DictConfig, rounds: int, seed: int) -> DictConfig:
    """Return the configuration of a run without search: the same run as a user would start by hand."""
    candidate = with_rounds(config, rounds)
    with open_dict(candidate):
        candidate.seed = seed
        candidate.algorithm.name = WITHOUT
        del candidate.algorithm["search"]
        candidate.resume = candidate.tracker = None
        candidate.runtime.reuse = True
        candidate.runtime.plots = False
        candidate.runtime.progress = "none"
        name = configuration.run_name(candidate, configuration.identity(candidate))
        candidate.runtime.run_dir = str(Path(config.runtime.output_dir) / "runs" / name)
    return candidate
