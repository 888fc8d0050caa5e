"""Hundreds of random overrides: every one runs or ends in one sentence, never in a traceback."""

from __future__ import annotations

import functools
import random

import pytest
from omegaconf import OmegaConf

import fedpriv
from fedpriv.common.config import GROUPS, flatten, options

NUMBERS = (
    "-1",
    "0",
    "1",
    "2",
    "-0.5",
    "0.5",
    "1.5",
    "nan",
    "inf",
    "-inf",
    "1e308",
    "1e-320",
    "1e20",
)
OTHERS = (
    "", "null", "true", "false", "abc", "''", "' '", "[]", "[1,2]", "[null]", "{}", "{a:1}", "é",
    "99999999999999999999", "-99999999999999999999", "${seed}", "${nowhere}", "${seed", "$", "~",
    "'a b'", "a b", "a=b", "a,b", "(", "]", "%", "#", "\\", "../..", "x" * 300,
)  # fmt: skip
VALUES = NUMBERS + OTHERS
DRY_BATCHES, RUN_BATCHES, BATCH = 6, 2, 6
# legal, but a run of the size that is asked for takes its time
LARGE = {"algorithm.local_steps", "model.hidden", "runtime.threads"}


@functools.lru_cache
def keys_of(group: str, option: str) -> tuple[str, ...]:
    """The keys a configuration has with this option, those of the group alone."""
    chosen = fedpriv.compose([f"{group}={option}"])[group]
    if chosen is None:  # attack=none
        return ()
    return tuple(f"{group}.{key}" for key in flatten(OmegaConf.to_container(chosen)))


@functools.lru_cache
def root_keys() -> tuple[str, ...]:
    config = OmegaConf.to_container(fedpriv.compose(), resolve=False)
    rest = {key: value for key, value in config.items() if key not in GROUPS}
    return tuple(flatten(rest))


def choices(draw: random.Random) -> dict[str, str]:
    """Two group options; the data set stays the one that needs no files."""
    groups = draw.sample([group for group in GROUPS if group != "dataset"], 2)
    return {group: draw.choice([name for name, _ in options(group)]) for group in groups}


def combination(draw: random.Random) -> list[str]:
    """An option of many groups, any data set among them, and mostly sensible numbers."""
    groups = draw.sample(GROUPS, draw.randint(2, len(GROUPS)))
    chosen = [f"{group}={draw.choice([name for name, _ in options(group)])}" for group in groups]
    numbers = {
        "epsilon": ("null", "0.5", "2", "50"),
        "delta": ("1e-5", "1e-3", "1e-12"),
        "rounds": ("null", "1", "30", "2000"),
        "budget_view": ("sound", "published"),
        "publish": ("null", "true"),
        "runtime.diagnostics": ("true", "false"),
        "noise_schedule.noise_multiplier": ("0.5", "4", "60"),
        "algorithm.sample_rate": ("0.01", "1"),
        "algorithm.clients_per_round": ("1", "5"),
        "partition.clients": ("1", "40"),
    }
    keys = draw.sample(sorted(numbers), draw.randint(0, 4))
    return chosen + [f"{key}={draw.choice(numbers[key])}" for key in keys]


def overrides(draw: random.Random, changes: int) -> list[str]:
    """Group options and nasty values for a few keys, changed, added or deleted."""
    chosen = choices(draw)
    keys = [*root_keys(), *keys_of("dataset", "digits")]
    keys += [key for group, option in chosen.items() for key in keys_of(group, option)]
    keys = sorted(set(keys) - {"dry_run", "runtime.progress"})
    result = [f"{group}={option}" for group, option in chosen.items()]
    for key in draw.sample(keys, changes):
        value = draw.choice([v for v in VALUES if key not in LARGE or len(v) < 4])
        prefix = draw.choices(["", "+", "++", "~"], [20, 1, 2, 1])[0]
        result.append(f"~{key}" if prefix == "~" else f"{prefix}{key}={value}")
    if draw.random() < 0.1:
        result.append(f"{draw.choice(GROUPS)}={draw.choice(VALUES)}")
    return result


def check(command, arguments: list[str]) -> None:
    outcome = command("train", *arguments)
    assert outcome.status in (0, 1, 2), arguments
    assert "Traceback" not in outcome.err, arguments
    if outcome.status:
        (sentence,) = outcome.err.strip().splitlines()
        assert sentence.startswith("fedpriv: "), (arguments, outcome.err)


@pytest.mark.few(1)
@pytest.mark.usefixtures("wide_cells")
@pytest.mark.parametrize("batch", range(DRY_BATCHES))
def test_a_dry_run_of_anything_ends_in_a_plan_or_in_a_sentence(batch, command):
    draw = random.Random(f"dry {batch}")
    for i in range(BATCH):
        given = combination(draw) if i % 2 else overrides(draw, draw.choice([1, 1, 2, 4]))
        check(command, ["dry_run=true", *given])


@pytest.mark.thorough
@pytest.mark.parametrize("batch", range(RUN_BATCHES))
def test_a_run_of_anything_ends_in_a_result_or_in_a_sentence(batch, command):
    draw = random.Random(f"run {batch}")
    for _ in range(BATCH):
        quiet = ["runtime.progress=none", "runtime.plots=false", "rounds=1"]
        check(command, [*quiet, *overrides(draw, 1)])
