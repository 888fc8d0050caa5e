"""What two runs must have in common to be the same run; who took part in one and who was charged."""

from __future__ import annotations

import csv
import json
import shutil
import sys
import textwrap
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import rules
import torch

from fedpriv.store.tables import parse_ranges

sys.path.append(str(Path(__file__).parent))  # for the modules beside the tests


def state_of(folder: Path) -> dict:
    return torch.load(folder / "checkpoint.pt", weights_only=False)


def flat(tree, prefix: str = ""):
    """(path, leaf) of nested dictionaries."""
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


@pytest.fixture
def common_streams(monkeypatch):
    """Runs whose configurations differ have the same lots, cohorts and noise, so that they can be told
    apart by nothing else. No run does that by itself."""
    monkeypatch.setattr("fedpriv.experiment.assemble.run_digest", lambda *_: "one for all")


@pytest.fixture
def assert_same_run():
    """(folder, folder): the same files but for times, the same state bit for bit."""

    def check(one: Path, other: Path) -> None:
        metrics = [pd.read_csv(f / "metrics.csv").drop(columns="seconds") for f in (one, other)]
        pd.testing.assert_frame_equal(*metrics, check_exact=True)
        for name in ("clients.csv", "ledger.csv", "participation.csv"):
            files = [(f / name) for f in (one, other)]
            assert files[0].exists() == files[1].exists()
            if files[0].exists():
                assert files[0].read_text() == files[1].read_text(), name
        training = [dict(flat(state_of(f)["training"])) for f in (one, other)]
        assert training[0].keys() == training[1].keys()
        for key, value in training[0].items():
            assert torch.equal(value, training[1][key]), key
        summaries = [json.loads((f / "summary.json").read_text()) for f in (one, other)]
        for summary in summaries:
            summary.pop("seconds")
            summary.pop("cpu_seconds")
        assert summaries[0] == summaries[1]
        statements = [(f / "privacy.txt").read_text() for f in (one, other)]
        assert statements[0] == statements[1]

    return check


def table(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


@pytest.fixture
def ledger():
    """(folder) → the rows of its ledger."""
    return lambda folder: table(folder / "ledger.csv")


@pytest.fixture
def came():
    """(folder, clients) → how often each client took part, by participation.csv [K]."""

    def count(folder: Path, clients: int) -> np.ndarray:
        counts = np.zeros(clients, dtype=int)
        for row in table(folder / "participation.csv"):
            rounds = int(row["last_round"]) - int(row["first_round"]) + 1
            counts[parse_ranges(row["clients"])] += rounds
        return counts

    return count


@pytest.fixture
def charged():
    """(folder, clients) → how many samples the ledger charges each client for [K]."""

    def count(folder: Path, clients: int) -> np.ndarray:
        counts = np.zeros(clients, dtype=int)
        for row in table(folder / "ledger.csv"):
            counts[parse_ranges(row["clients"])] += int(row["draws_per_client"])
        return counts

    return count


PLUGGED = ("rounds=6", "epsilon=null", "runtime.progress=none", "runtime.plots=false")


@pytest.fixture
def plug_in(command, tmp_path):
    """(group, class name, its code, overrides) → how a run with it ended, in the folder ``run``; ``base``:
    the algorithm that it extends, or goes with; ``verb``: of the command."""
    count = [0]

    def run(
        group: str, name: str, code: str, *overrides: str, base: str = "dp_fl", verb: str = "train"
    ):
        count[0] += 1
        module = "plugin_" + "".join(c for c in tmp_path.name if c.isalnum()) + str(count[0])
        (tmp_path / f"{module}.py").write_text(textwrap.dedent(code))
        folder = tmp_path / "yamls" / group
        folder.mkdir(parents=True, exist_ok=True)
        lines = ["# mine", f"_target_: {module}.{name}"]
        if group == "algorithm":
            lines = [
                "# @package _global_", "# mine", f"defaults: [{base}, _self_]",
                "algorithm:", f"  _target_: {module}.{name}", "  name: mine",
            ]  # fmt: skip
        elif group == "attack":
            lines = ["# mine", "defaults: [label_flip, _self_]", *lines[1:]]
        (folder / "mine.yaml").write_text("\n".join(lines) + "\n")
        chosen = (
            [f"{group}=mine"] if group == "algorithm" else [f"algorithm={base}", f"{group}=mine"]
        )
        given = ("--config-dir", str(tmp_path / "yamls"), *chosen)
        if verb != "train":
            return command(verb, *given, *overrides)
        return command(verb, *given, *PLUGGED, "runtime.run_dir=run", *overrides)

    return run


PLUGINS = Path(__file__).parent / "plugins"


@pytest.fixture
def plugins(tmp_path):
    """The user's folder, with a Python file and a YAML for each part."""
    shutil.copytree(PLUGINS, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("__*"))
    yield tmp_path
    for path in PLUGINS.glob("*.py"):
        sys.modules.pop(path.stem, None)


@pytest.fixture
def combined(command, plugins):
    """(overrides, folder) → how a run with the median ended."""

    def run(*overrides: str, folder: str = "run", aggregation: str = "my_median"):
        chosen = (f"aggregation={aggregation}", f"runtime.run_dir={folder}", "rounds=3")
        return command(
            "train", "--config-dir", "yamls", *rules.RUN, "epsilon=null", *chosen, *overrides
        )

    return run


@pytest.fixture(scope="module")
def cache_of_module(tmp_path_factory):
    """A cache that the tests of a module share."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        yield
