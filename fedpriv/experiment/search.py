"""Finds the T of a rounds search: its runs are ordinary runs, kept and found again in a store."""

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
"""Runs a configuration to its end and returns its result."""


@dataclass(frozen=True)
class BestRounds:
    """``rounds``: the best T; ``table``: rounds, seed, the criterion of every run made for it; ``samples``:
    T → how many samples a client answered on in all runs with it, by their ledgers."""

    rounds: int
    table: pd.DataFrame
    samples: dict[int, int]


def find_rounds(
    config: DictConfig, search: RoundsSearch, run: Run, say: Callable[[str], None]
) -> BestRounds:
    """The T with the best mean over seeds. Raises Interrupted; FedprivError if a run fails."""
    import pandas as pd

    rows: list[dict[str, Any]] = []
    samples: Counter[int] = Counter()
    sign = 1.0 if search.criterion == "test_loss" else -1.0

    def cost(rounds: int) -> float:
        found = []
        for seed in search.seeds:
            try:
                result = run(_candidate(config, rounds, seed))
                value = _value(result, search.criterion, rounds)
            except KeyboardInterrupt:
                raise Interrupted(_INTERRUPTED) from None
            rows.append({"rounds": rounds, "seed": seed, search.criterion: value})
            found.append(value)
            samples[rounds] += _samples(Path(result.folder))
        mean = sum(found) / len(found)
        say(
            f"search: T = {rounds}, mean {search.criterion} {mean:.4f} ({counted(len(found), 'run')})"
        )
        return sign * mean

    best = search.best(cost)
    say(f"search: best T = {best}{_at_an_end(best, search)}")
    return BestRounds(best, pd.DataFrame(rows), dict(samples))


_INTERRUPTED = "interrupted while searching T; the same command goes on with the runs not yet made"


def _at_an_end(best: int, search: RoundsSearch) -> str:
    """A word of warning if the best may lie beyond what was tried."""
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
    return float("inf") if result.stop_reason == "diverged" else float(value)


def _samples(folder: Path) -> int:
    """How many samples a client of a run answered on at most."""
    try:
        ledger = StoredRun(folder).ledger(SOUND)
    except ConfigError as error:
        raise FedprivError(f"search: {error}") from None
    return max(sum(count for _, count in history) for history in ledger.histories)


def with_rounds(config: DictConfig, rounds: int) -> DictConfig:
    """The configuration with that T."""
    chosen = config.copy()
    with open_dict(chosen):
        chosen.rounds = rounds
    return chosen


def _candidate(config: DictConfig, rounds: int, seed: int) -> DictConfig:
    """A run of the algorithm without search: the same run as one would start by hand."""
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
