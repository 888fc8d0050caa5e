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

_SEEDS = ("seed", "noise_seed", "partition.seed", "model.seed")


def gather(paths: Sequence[str]) -> LeaderboardEntry:
    """The entry of these run folders. Raises ConfigError, in a sentence, where they are not one."""
    paths = list(dict.fromkeys(str(Path(path)) for path in paths))
    runs = {path: measure(path) for path in paths}
    first, one = next(iter(runs.items()))
    commit = full_commit(one.environment.get("commit"), first)
    overrides = entered(one.overrides, first)
    seen: dict[tuple[int, int], str] = {}
    for path, run in runs.items():
        refuse_strangers(run.config, (), path)
        if run is not one and full_commit(run.environment.get("commit"), path) != commit:
            raise ConfigError(f"{path} and {first} were made by code of different commits")
        _refuse_another(path, run, first, one)
        _refuse_irreproducible(path, run, overrides)
        seeds = (run.config.seed, run.config.noise_seed)
        if seeds in seen:
            raise ConfigError(f"{path} and {seen[seeds]} have the same seed and noise_seed")
        seen[seeds] = path
    seeded = [_seeded(path, run) for path, run in runs.items()]
    seeded.sort(key=attrgetter("seed", "noise_seed"))
    environment, versions = one.environment, one.environment.get("versions")
    cores = f"{environment.get('cores')} cores, {environment.get('threads')} threads"
    found = {
        **one.facts,
        "overrides": overrides,
        "runs": [asdict(run) for run in seeded],
        "test_records": _known(first, one, "test_records"),
        "fedpriv": versions.get("fedpriv") if isinstance(versions, dict) else None,
        "commit": commit,
        "machine": plain_words(
            f"{environment.get('processor')}, {cores}, {environment.get('device')}"
        ),
        "checks": [],
    }
    return entry_of(found, first)


def file_name(entry: LeaderboardEntry) -> str:
    """Of an entry: the same for the same configuration, whatever its runs."""
    preset = next((o for o in entry.overrides if o.lstrip("+").startswith(PRESETS)), None)
    chosen = "" if preset is None else preset.partition("=")[2].replace("/", "-")
    names = (
        [chosen] if chosen.startswith(entry.dataset) else [entry.dataset, *filter(None, [chosen])]
    )
    facts = {"dataset": entry.dataset, "overrides": list(entry.overrides)}
    return f"{'-'.join(names)}-{configuration.fingerprint(facts)}.json"


def _refuse_another(path: str, run: Measured, first: str, one: Measured) -> None:
    """Raise ConfigError where two runs differ in more than their seeds."""
    here, there = (configuration.identity(measured.config) for measured in (run, one))
    for key in sorted(here.keys() | there.keys()):
        if key in _SEEDS or key.startswith("audit"):
            continue
        if here.get(key) != there.get(key):
            raise ConfigError(
                f"{path} and {first} are of different configurations: {key} is {show(here.get(key))} and "
                f"{show(there.get(key))}; the runs of an entry differ in seed and noise_seed only"
            )


def _refuse_irreproducible(path: str, run: Measured, overrides: Sequence[str]) -> None:
    """Raise ConfigError where the overrides of the entry do not give the run's configuration."""
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


def _seeded(path: str, run: Measured) -> SeededRun:
    return SeededRun(
        seed=int(run.config.seed),
        noise_seed=int(run.config.noise_seed),
        test_accuracy=run.test_accuracy,
        epsilon=run.epsilon,
        rounds=_known(path, run, "rounds"),
        cpu_seconds=_known(path, run, "cpu_seconds"),
    )


def _known(path: str, run: Measured, name: str) -> Any:
    value = run.summary.get(name)
    if value is None:
        raise ConfigError(
            f"{path}: its summary.json has no {name} (an older version); run it again"
        )
    return value
