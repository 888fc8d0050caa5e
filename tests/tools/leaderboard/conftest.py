"""A checkout of git with fedpriv in it, runs by its code, and an entry."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from sealing import seal

import fedpriv
from fedpriv.store.folder import RunFolder
from fedpriv.tools.leaderboard import code
from fedpriv.tools.leaderboard.attack_sets import ATTACK_SETS
from fedpriv.tools.leaderboard.entry import (
    AttackedRun,
    LeaderboardEntry,
    Reproduction,
    SeededRun,
    WorstCase,
)

REPOSITORY = Path(__file__).parents[3]
SMALL = ("algorithm=dp_fl", "rounds=4")
QUIET = ("runtime.progress=none", "runtime.plots=false")
RECIPE = """# @package _global_
# A few rounds on digits
defaults:
  - override /algorithm: dp_fl
rounds: 4
"""


def git(root: Path, *words: str) -> str:
    """What git says."""
    who = ("-c", "user.name=x", "-c", "user.email=x@example.org", "-c", "commit.gpgsign=false")
    line = ["git", "-C", str(root), *who, *words]
    return subprocess.run(line, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture(scope="session")
def checkout(tmp_path_factory) -> Path:
    """One commit with a recipe that fedpriv does not have, and a working copy without it: what has it
    runs that commit."""
    root = tmp_path_factory.mktemp("leaderboard") / "checkout"
    for part in code.PARTS:
        shutil.copytree(
            REPOSITORY / part, root / part, ignore=shutil.ignore_patterns("__pycache__")
        )
    recipe = root / "conf" / "recipe" / "a_few_rounds.yaml"
    recipe.parent.mkdir(exist_ok=True)
    recipe.write_text(RECIPE)
    git(root, "init", "--quiet")
    git(root, "add", ".")
    git(root, "commit", "--quiet", "--message", "All")
    recipe.unlink()
    return root


@pytest.fixture
def commit(checkout, monkeypatch) -> str:
    """That commit, by the checkout that fedpriv would run from."""
    monkeypatch.setattr(code, "checkout", lambda: checkout)
    return git(checkout, "rev-parse", "HEAD")


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """(overrides) → the folder of a finished run, made once."""
    made: dict[tuple[str, ...], Path] = {}

    def run(*overrides: str) -> Path:
        if overrides not in made:
            folder = tmp_path_factory.mktemp("finished") / "run"
            given = [*QUIET, f"runtime.run_dir={folder}", *overrides]
            fedpriv.run(fedpriv.compose(given))
            set_keys(RunFolder(folder).environment, overrides=given)
            made[overrides] = folder
        return made[overrides]

    return run


@pytest.fixture
def run(finished, commit, tmp_path):
    """(name, overrides) → a copy of such a run, made by the code of that commit, to be spoilt."""

    def copy(name: str = "run", *overrides: str, seed: int = 0) -> RunFolder:
        source = finished(*(overrides or SMALL), f"seed={seed}")
        folder = RunFolder(shutil.copytree(source, tmp_path / name))
        set_keys(folder.environment, commit=commit[:12])
        return folder

    return copy


def set_keys(path: Path, **values: object) -> None:
    path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    seal(path.parent)  # else the leaderboard takes it for damaged


@pytest.fixture
def change():
    """(path, values) sets keys of a JSON file."""
    return set_keys


@pytest.fixture
def entry(commit) -> LeaderboardEntry:
    """Of three seeds, 87 ± 1 %, checked once."""
    runs = tuple(
        SeededRun(seed, seed, accuracy, 1.8, 122, 30.0)
        for seed, accuracy in enumerate((0.86, 0.87, 0.88))
    )
    return LeaderboardEntry(
        dataset="digits", trust="local", unit="record", neighbours="add_or_remove", delta=1e-5,
        overrides=("algorithm=dp_fl",), runs=runs, test_records=10_000, fedpriv="0.2.0",
        commit=commit, machine="AMD EPYC, 2 cores, 1 threads, cpu",
        checks=(Reproduction("2026-11-23", 0, 123, 0.865, 1.8),),
    )  # fmt: skip


@pytest.fixture
def worst_case() -> WorstCase:
    """Of three seeds, 40 ± 10 % under ipm and 60 ± 10 % under each other attack."""
    return WorstCase(
        attack_set=1,
        runs=tuple(
            AttackedRun(attack, seed, seed, (0.4 if attack == "ipm" else 0.6) + off)
            for attack in ATTACK_SETS[1]
            for seed, off in enumerate((-0.1, 0.0, 0.1))
        ),
        left_out=(),
    )


@pytest.fixture
def reaching(entry):
    """(values) → the entry with other values; ``mean`` moves the accuracy of every run there."""

    def make(
        mean: float | None = None, epsilon: float | None = None, **values: object
    ) -> LeaderboardEntry:
        runs = tuple(
            replace(
                run,
                test_accuracy=run.test_accuracy + (0.0 if mean is None else mean - entry.mean),
                epsilon=run.epsilon if epsilon is None else epsilon,
            )
            for run in entry.runs
        )
        return replace(entry, **{"runs": runs, **values})

    return make
