"""An entry made of the runs of one configuration that differ in their seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from operator import attrgetter
from pathlib import Path
from typing import Any

from fedpriv.common import config as configuration
from fedpriv.common.errors import ConfigError, show
from fedpriv.experiment.consent import refuse_strangers
from fedpriv.tools.leaderboard.code import full_commit
from fedpriv.tools.leaderboard.entry import LeaderboardEntry, SeededRun, entry_of, plain_words
from fedpriv.tools.leaderboard.measured import Measured, measure
from fedpriv.tools.leaderboard.overrides import PRESETS, entered

_SEEDS = ("seed", "noise_seed", "partition.seed", "model.seed", "aggregation.seed")


def gather(paths: Sequence[str]) -> LeaderboardEntry:
    """Return the entry that these run folders make.

    Raises:
        ConfigError: A run cannot be entered, cannot be reproduced from its overrides, or differs from the
            first run in its code or in more than its seeds.
    """
    runs = {path: measure(path) for path in dict.fromkeys(str(Path(path)) for path in paths)}
    first_path, first = next(iter(runs.items()))
    commit = full_commit(first.environment.get("commit"), first_path)
    overrides = entered(first.overrides, first_path)
    path_of_seeds: dict[tuple[int, int], str] = {}
    for path, run in runs.items():
        refuse_strangers(run.config, (), path)
        if run is not first and full_commit(run.environment.get("commit"), path) != commit:
            raise ConfigError(f"{path} and {first_path} were made by code of different commits")
        _refuse_another(path, run, first_path, first)
        _refuse_irreproducible(path, run, overrides)
        seeds = (run.config.seed, run.config.noise_seed)
        if seeds in path_of_seeds:
            raise ConfigError(
                f"{path} and {path_of_seeds[seeds]} have the same seed and noise_seed"
            )
        path_of_seeds[seeds] = path
    seeded_runs = [
        SeededRun(
            seed=int(run.config.seed),
            noise_seed=int(run.config.noise_seed),
            test_accuracy=run.test_accuracy,
            epsilon=run.epsilon,
            rounds=_from_summary(path, run, "rounds"),
            cpu_seconds=_from_summary(path, run, "cpu_seconds"),
        )
        for path, run in runs.items()
    ]
    seeded_runs.sort(key=attrgetter("seed", "noise_seed"))
    environment, versions = first.environment, first.environment.get("versions")
    cores = f"{environment.get('cores')} cores, {environment.get('threads')} threads"
    content = {
        **first.facts,
        "overrides": overrides,
        "runs": [asdict(run) for run in seeded_runs],
        "test_records": _from_summary(first_path, first, "test_records"),
        "fedpriv": versions.get("fedpriv") if isinstance(versions, dict) else None,
        "commit": commit,
        "machine": plain_words(
            f"{environment.get('processor')}, {cores}, {environment.get('device')}"
        ),
        "checks": [],
    }
    return entry_of(content, first_path)


def file_name(entry: LeaderboardEntry) -> str:
    """Return the file name of an entry, which depends on its configuration but not on its runs."""
    preset = next((o for o in entry.overrides if o.lstrip("+").startswith(PRESETS)), None)
    chosen = "" if preset is None else preset.partition("=")[2].replace("/", "-")
    names = (
        [chosen] if chosen.startswith(entry.dataset) else [entry.dataset, *filter(None, [chosen])]
    )
    facts = {"dataset": entry.dataset, "overrides": list(entry.overrides)}
    return f"{'-'.join(names)}-{configuration.fingerprint(facts)}.json"


def _refuse_another(path: str, run: Measured, first_path: str, first: Measured) -> None:
    """Raise ConfigError where two runs differ in more than their seeds."""
    identities = [configuration.identity(measured.config) for measured in (run, first)]
    for key in sorted(set().union(*identities)):
        value, first_value = (identity.get(key) for identity in identities)
        if value != first_value and key not in _SEEDS and not key.startswith("audit"):
            raise ConfigError(
                f"{path} and {first_path} have different configurations: {key} is {show(value)} and "
                f"{show(first_value)}; the runs of an entry differ in seed and noise_seed only"
            )


def _refuse_irreproducible(path: str, run: Measured, overrides: Sequence[str]) -> None:
    """Raise ConfigError where the overrides of the entry do not compose the run's configuration."""
    seeds = (f"seed={run.config.seed}", f"noise_seed={run.config.noise_seed}")
    composed = configuration.identity(configuration.compose([*overrides, *seeds]))
    saved = {k: v for k, v in configuration.identity(run.config).items() if k != "audit"}
    composed.pop("audit", None)
    if configuration.fingerprint(composed) != configuration.fingerprint(saved):
        differing = sorted(
            key for key in composed.keys() | saved.keys() if composed.get(key) != saved.get(key)
        )
        raise ConfigError(
            f"{path} cannot be made again: its overrides give another {', '.join(differing[:3])} with this "
            "code (YAMLs of its own, or an older version); run it again"
        )


def _from_summary(path: str, run: Measured, name: str) -> Any:
    value = run.summary.get(name)
    if value is None:
        raise ConfigError(
            f"{path}: its summary.json has no {name} (an older version); run it again"
        )
    return value
