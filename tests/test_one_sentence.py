"""A damaged file of a run is the same sentence in every command that reads it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest

from fedpriv.common.config import compose
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.run import run
from fedpriv.store.stored_run import StoredRun

RUN = (
    "dataset=digits", "algorithm=dp_fl", "accountant=rdp", "rounds=2", "evaluation_interval=1",
    "partition=fixed_size", "partition.clients=12", "partition.records=20",
    "algorithm.participation=sampled", "algorithm.clients_per_round=4", "runtime.snapshot_interval=1",
    "runtime.progress=none", "runtime.plots=false",
)  # fmt: skip
COMMANDS = {
    "runs": ("runs", "run"),
    "plot": ("plot", "run", "--out", "lines.png"),
    "ends": ("plot", "run", "--points", "rounds", "--y", "test_accuracy", "--out", "ends.png"),
    "report": ("report", "run"),
    "account": ("account", "--run", "run", "--accountant", "rdp"),
    "membership": ("audit", "membership", "run", "--records", "40", "--snapshots", "2"),
}
READ = {
    "config.yaml": ("runs", "plot", "ends", "report", "membership"),
    "summary.json": ("runs", "plot", "ends", "report", "account", "membership"),
    "environment.json": ("plot", "ends", "report"),
    "metrics.csv": ("plot", "report"),
    "ledger.csv": ("report", "account"),
    "privacy.json": ("report", "account"),
    "participation.csv": ("membership",),
    "model.pt": ("membership",),
}
"""Which commands read each file."""


def _cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def _edited(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\n")


def _link(path: Path) -> None:
    path.rename("elsewhere")
    path.symlink_to(Path("elsewhere").absolute())


def _pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


DAMAGES = {
    "cut": _cut,
    "edited": _edited,
    "link": _link,
    "pipe": _pipe,
    "binary": lambda path: path.write_bytes(bytes(range(256)) * 8),
    "list": lambda path: path.write_text("[]\n"),
    "number": lambda path: path.write_text("7\n"),
    "empty": lambda path: path.write_text(""),
}


def sentence_of(file: str) -> str:
    """Return what the reader of run folders says of a file."""
    run, path = StoredRun("run", tolerant=True), Path("run") / file
    with suppress(ConfigError):
        run.ledger("sound")
    _ = run.values, run.statement, run.overrides, run.metrics, run.participants(12)
    run.model("cpu")
    run.check_all()
    return run.damage[path]


def said_by_all(file: str, damages: Iterable[str], whole: Path, command) -> None:
    for damage in damages:
        shutil.copytree(whole, "run")
        DAMAGES[damage](Path("run") / file)
        sentence = sentence_of(file)
        for by in READ[file]:
            done = command(*COMMANDS[by])
            assert "Traceback" not in done.err, (damage, by)
            text = " ".join(f"{done.err}\n{done.out}".split())
            assert sentence in text, (damage, by, sentence, text)
            rest = text.replace(sentence, "")
            other = rf"run(/{re.escape(file)} (cannot be read|is not as|is a folder)| holds)"
            assert not re.search(other, rest), (damage, by, sentence, text)
        shutil.rmtree("run")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A finished run as the command makes it."""
    given = [*RUN, f"runtime.run_dir={tmp_path_factory.mktemp('made') / 'run'}"]
    return run(compose(given), overrides=given).folder


@pytest.fixture
def whole(made, tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return made


@pytest.mark.few(1)
@pytest.mark.parametrize("file", READ)
def test_a_damaged_file_is_the_same_sentence_in_every_command(file, whole, command):
    """Two of the damages, others for each file."""
    first = list(READ).index(file)
    names = list(DAMAGES)
    said_by_all(file, (names[first % 2], names[2 + first % 6]), whole, command)


@pytest.mark.slow
@pytest.mark.parametrize("file", READ)
def test_whatever_the_damage_is_it_is_the_same_sentence(file, whole, command):
    said_by_all(file, DAMAGES, whole, command)
