"""``surface.txt`` lists all that a user can type or read; its diff shows what a change adds or takes away.

``FEDPRIV_WRITE_SURFACE=1 pytest -n 0 -m '' tests/test_surface.py`` writes the list again.
"""

import csv
import importlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
import yaml

from fedpriv.cli.commands import fedpriv as group
from fedpriv.cli.commands import run
from fedpriv.common.errors import FedprivError
from fedpriv.common.groups import conf_dir

SURFACE = Path(__file__).with_name("surface.txt")
API = (
    *(
        "",
        "aggregation",
        "algorithms",
        "attacks",
        "engine",
        "experiment.trackers",
        "features",
        "models",
    ),
    *("privacy.accountants", "privacy.clippers", "privacy.mechanisms", "privacy.noise_schedules"),
)
TYPED = ("option ", "key ", "command ", "argument ", "flag ", "exit ", "name ")
READ = ("file ", "column ", "field ")


def keys(value: object, name: str = "") -> Iterator[str]:
    """Yield each key of a YAML with its default."""
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from keys(inner, f"{name}.{key}" if name else str(key))
    else:
        yield f"{name}: {json.dumps(value, ensure_ascii=False, default=str)}"


def configuration() -> Iterator[str]:
    """Yield every option of every group, and every key with its default; of figures only the names."""
    conf = conf_dir()
    for path in sorted(conf.rglob("*.yaml")):
        name = path.relative_to(conf).with_suffix("").as_posix()
        yield f"option {name}"
        if not name.startswith(("figure/", "work/")):
            found = yaml.safe_load(path.read_text()) or {}
            yield from (f"key {name} {line}" for line in keys(found) if "defaults:" not in line)


def commands(command: click.Command, name: str = "fedpriv") -> Iterator[str]:
    """Yield a command with its arguments and flags, and those of its subcommands."""
    yield f"command {name}"
    for parameter in command.params:
        kind = "argument" if isinstance(parameter, click.Argument) else "flag"
        spelt = " ".join((*parameter.opts, *parameter.secondary_opts))
        default = (
            parameter.default if isinstance(parameter.default, (str, int, float, tuple)) else None
        )
        yield f"{kind} {name} {spelt} = {default}"
    if isinstance(command, click.Group):
        for sub in command.list_commands(click.Context(command)):
            yield from commands(command.commands[sub], f"{name} {sub}")


def statuses(error: type[FedprivError] = FedprivError) -> Iterator[str]:
    """Yield the exit statuses of known errors."""
    yield f"exit status {error.exit_status}"
    for kind in error.__subclasses__():
        yield from statuses(kind)


def names() -> Iterator[str]:
    """Yield the names of the Python API."""
    for room in API:
        module = importlib.import_module(f"fedpriv.{room}".rstrip("."))
        yield from (f"name {module.__name__}.{name}" for name in module.__all__)


def written(folder: Path) -> Iterator[str]:
    """Yield the files below a folder: columns of tables and keys of JSON files."""
    for path in folder.rglob("*"):
        if path.suffix == ".csv":
            with path.open() as file:
                yield from (f"column {path.name} {name}" for name in next(csv.reader(file)))
        elif path.suffix == ".json":
            found = json.loads(path.read_text())
            yield from (f"field {path.name} {key}" for key in found if "/" not in key)
        if path.is_file():
            yield f"file {path.name}"


FIGURE = """base: algorithm=dp_fl partition.clients=4 rounds=2
x: {epsilon: [1, 2]}
curves: {algorithm.learning_rate: [0.1]}
metric: accuracy
"""


def compare(lines: set[str], kinds: tuple[str, ...]) -> None:
    """Hold the lines of these kinds against the list, or write them there."""
    listed = SURFACE.read_text().splitlines() if SURFACE.exists() else []
    if os.environ.get("FEDPRIV_WRITE_SURFACE"):
        listed = sorted(lines.union(line for line in listed if not line.startswith(kinds)))
        SURFACE.write_text("".join(f"{line}\n" for line in listed))
    assert sorted(lines) == [line for line in listed if line.startswith(kinds)]


def test_what_a_user_can_type_is_listed() -> None:
    """No option, key, command, flag or name comes or goes without a line of ``surface.txt``."""
    compare({*configuration(), *commands(group), *statuses(), *names()}, TYPED)


@pytest.mark.thorough
def test_what_a_user_can_read_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No file, column or field comes or goes without a line of ``surface.txt``."""
    monkeypatch.chdir(tmp_path)
    short = [
        "rounds=2",
        "evaluation_interval=1",
        "runtime.plots=false",
        "runtime.snapshot_interval=1",
    ]
    attacked = [
        "algorithm=fedavg",
        "attack=pixel_pattern",
        "attack.trigger.size=2",
        "audit=membership",
    ]
    assert run(["train", *short, *attacked, "runtime.run_dir=run"]) == 0
    assert run(["train", "-m", *short, "algorithm=dp_fl", "seed=0,1", "hydra.sweep.dir=sweep"]) == 0
    Path("own.yaml").write_text(FIGURE)
    assert run(["figure", "own.yaml"]) == 0
    assert run(["runs", "sweep", "--csv", "runs.csv"]) == 0
    compare(set(written(tmp_path)), READ)
