"""Every file of a run folder × every damage × every command: a result or one sentence, no traceback."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from fedpriv.common.config import compose
from fedpriv.experiment.run import run
from fedpriv.store.stored_run import StoredRun

RUN = (
    "dataset=digits", "algorithm=dp_fl", "accountant=rdp", "rounds=3", "evaluation_interval=1",
    "partition=fixed_size", "partition.clients=12", "partition.records=20",
    "algorithm.participation=sampled", "algorithm.clients_per_round=4",
    "runtime.snapshot_interval=1", "runtime.checkpoint_interval=1",
)  # fmt: skip
COMMANDS = {
    "runs": ("runs", "run"),
    "plot": ("plot", "run", "--out", "lines.png"),
    "report": ("report", "run"),
    "account": ("account", "--run", "run"),
    "account_published": ("account", "--run", "run", "--view", "published"),
    "membership": ("audit", "membership", "run", "--records", "12", "--snapshots", "1"),
    "property": ("audit", "property", "run", "--clients", "4", "--snapshots", "1"),
    "resume": ("train", "resume=run", "runtime.progress=none", "runtime.plots=false"),
    "resume_with_audit": ("train", "resume=run", "runtime.progress=none", "audit=membership"),
    "go_on": ("train", "resume=run", "runtime.progress=none", "runtime.plots=false"),
}
FILES = (
    "config.yaml", "metrics.csv", "clients.csv", "participation.csv", "ledger.csv", "privacy.json",
    "privacy.txt", "summary.json", "environment.json", "checkpoint.pt", "checkpoint_before.pt", "model.pt",
    "snapshots/round000001.pt", "snapshots", "plots", "audit", "run.log", "search.csv", "secret_key",
)  # fmt: skip
READ = {
    "runs": ("config.yaml", "summary.json", "environment.json"),
    "plot": ("config.yaml", "metrics.csv", "environment.json", "summary.json"),
    "report": (
        "config.yaml", "metrics.csv", "ledger.csv", "privacy.json", "privacy.txt", "summary.json",
        "environment.json", "audit",
    ),
    "account": ("ledger.csv", "privacy.json", "config.yaml"),
    "account_published": ("ledger.csv",),
    "membership": (
        "config.yaml", "summary.json", "model.pt", "checkpoint.pt", "snapshots/round000001.pt",
        "metrics.csv", "participation.csv", "audit",
    ),
    "property": ("snapshots/round000001.pt", "snapshots", "metrics.csv", "participation.csv", "audit"),
    "resume": (
        "environment.json", "checkpoint.pt", "metrics.csv", "clients.csv", "participation.csv",
        "summary.json", "privacy.json", "ledger.csv", "run.log", "plots", "snapshots",
    ),
    "resume_with_audit": ("summary.json",),
    "go_on": ("checkpoint.pt", "metrics.csv", "clients.csv", "participation.csv", "config.yaml", "run.log"),
}  # fmt: skip
"""What each command reads or writes; all files and all damages are tried by the slow test."""


def _text(content: str) -> Callable[[Path], None]:
    return lambda path: path.write_text(content)


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _nuls(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(637))


def _folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def _loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _wrong_types(path: Path) -> None:
    """Every value another kind of thing, names as they were."""
    if path.suffix == ".json":
        values = json.loads(path.read_text())
        path.write_text(json.dumps({key: [{"x": None}] for key in values}))
    elif path.suffix == ".csv":
        lines = path.read_text().splitlines()
        cells = ",".join(["é"] * len(lines[0].split(",")))
        path.write_text("\n".join([lines[0], *[cells] * (len(lines) - 1)]) + "\n")
    else:
        path.write_text("seed: [1]\ndataset: 3\n")


def _absurd(path: Path) -> None:
    """Numbers that stand for more than fits."""
    if path.suffix == ".csv":
        lines = path.read_text().splitlines()
        cells = ",".join(["0-99999999999"] * len(lines[0].split(",")))
        path.write_text("\n".join([lines[0], cells]) + "\n")
    elif path.suffix == ".json":
        path.write_text(json.dumps(dict.fromkeys(json.loads(path.read_text()), 10**400)))
    else:
        path.write_text("9" * 5000)


DAMAGES: dict[str, Callable[[Path], None]] = {
    "absent": Path.unlink,
    "empty": _text(""),
    "cut": _cut,
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 8),
    "long": lambda path: path.write_bytes(bytes(range(128, 256)) * 400),
    "nuls": _nuls,
    "list": _text("[]\n"),
    "number": _text("7\n"),
    "null": _text("null\n"),
    "wrong_types": _wrong_types,
    "absurd": _absurd,
    "folder": _folder,
    "loop": _loop,
    "pipe": _pipe,
}


def run_into(folder: Path, *overrides: str) -> Path:
    """A quiet run as the command makes it, which can be resumed."""
    given = [*RUN, "runtime.progress=none", "runtime.plots=false", f"runtime.run_dir={folder}"]
    return run(compose([*given, *overrides]), overrides=[*given, *overrides]).folder


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    """A finished run with every file that there may be."""
    folder = run_into(tmp_path_factory.mktemp("whole") / "run")
    shutil.copy(folder / "checkpoint.pt", folder / "checkpoint_before.pt")
    (folder / "plots").mkdir(exist_ok=True)
    (folder / "audit").mkdir(exist_ok=True)
    for name in ("search.csv", "secret_key"):
        (folder / name).write_text("rounds,seed\n1,0\n")
    return folder


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Path:
    """A run that was stopped after its first round."""
    place = tmp_path_factory.mktemp("interrupted")
    (place / "stop").touch()
    folder = run_into(place / "run", f"runtime.stop_file={place / 'stop'}")
    shutil.copy(folder / "checkpoint.pt", folder / "checkpoint_before.pt")
    return folder


def spoil(folder: Path, file: str, damage: str) -> None:
    path = folder / file
    if path.is_dir():
        shutil.rmtree(path)
        path.touch()
    DAMAGES[damage](path)


def check(command, arguments: tuple[str, ...]) -> None:
    said = command(*arguments)
    assert said.status in (0, 1, 2), said
    assert "Traceback" not in said.err
    if said.status:
        assert said.sentence
    assert len(said.err) < 1500


TABLES = ("metrics.csv", "clients.csv", "participation.csv")
"""A run that goes on reads each of them in one way."""


@pytest.mark.few(19)
@pytest.mark.parametrize(
    ("by", "file"),
    [
        pytest.param(by, file, marks=[pytest.mark.slow] * (by == "go_on" and file in TABLES[1:]))
        for by, files in READ.items()
        for file in files
    ],
)
def test_a_damaged_file_is_a_result_or_a_sentence(by, file, whole, interrupted, tmp_path, command):
    """Of the damages to a file every seventh, beginning with another one for each file and command."""
    first = (FILES.index(file) + list(COMMANDS).index(by)) % 7
    folder = interrupted if by == "go_on" else whole
    try_all(by, file, folder, tmp_path, command, list(DAMAGES)[first :: 3 if by == "go_on" else 7])


@pytest.mark.slow
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize("by", COMMANDS)
def test_whatever_file_is_damaged_it_is_a_result_or_a_sentence(
    by, file, whole, interrupted, tmp_path, command
):
    if by == "go_on":
        try_all(by, file, interrupted, tmp_path, command)
        return
    try_all(by, file, whole, tmp_path, command)
    for name in ("summary.json", "model.pt"):  # the same of a run that has not ended
        (whole / name).rename(whole / f"{name}.away")
    try:
        try_all(by, file, whole, tmp_path, command)
    finally:
        for name in ("summary.json", "model.pt"):
            (whole / f"{name}.away").rename(whole / name)


def try_all(
    by: str, file: str, whole: Path, tmp_path: Path, command, damages: Iterable[str] = DAMAGES
) -> None:
    for damage in damages:
        folder = tmp_path / "run"
        shutil.copytree(whole, folder)
        if not (folder / file).exists():
            shutil.rmtree(folder)
            return
        spoil(folder, file, damage)
        try:
            check(command, COMMANDS[by])
        except (Exception, AssertionError) as error:
            raise AssertionError(f"{file} {damage}: {error!r}") from error
        shutil.rmtree(folder)


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", ["empty", "cut", "binary", "absurd", "another run"])
def test_a_damaged_configuration_is_that_of_the_run_again(damage, interrupted, tmp_path, command):
    """The checkpoint knows which run it is of."""
    folder = Path(shutil.copytree(interrupted, tmp_path / "run"))
    whole = (folder / "config.yaml").read_text()
    if damage == "another run":
        (folder / "config.yaml").write_text(whole.replace("rounds: 3", "rounds: 4"))
    else:
        spoil(folder, "config.yaml", damage)
    assert command(*COMMANDS["go_on"]).status == 0
    assert StoredRun(folder).identity == StoredRun(interrupted).identity


def test_a_folder_in_the_place_of_the_newest_checkpoint_is_said(interrupted, tmp_path, command):
    folder = Path(shutil.copytree(interrupted, tmp_path / "run"))
    spoil(folder, "checkpoint.pt", "folder")
    said = command(*COMMANDS["go_on"])
    assert said.status == 2
    assert "run/checkpoint.pt is a folder where a file belongs; move it away" in said.sentence
    (folder / "checkpoint.pt").rmdir()
    assert command(*COMMANDS["go_on"]).status == 0  # from the one before
