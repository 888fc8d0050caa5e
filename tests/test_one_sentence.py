"""A file of a run that cannot be read is one sentence in every command that reads it, and no traceback."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from fedpriv.common.config import compose
from fedpriv.experiment.run import run

RUN = (
    "dataset=digits", "algorithm=dp_fl", "accountant=rdp", "rounds=2", "evaluation_interval=1",
    "partition=fixed_size", "partition.clients=12", "partition.records=20",
    "algorithm.participation=sampled", "algorithm.clients_per_round=4", "runtime.snapshot_interval=1",
    "runtime.progress=none", "runtime.plots=false",
)  # fmt: skip
COMMANDS = {
    "plot": ("plot", "run", "--out", "lines.png"),
    "ends": ("plot", "run", "--points", "rounds", "--y", "test_accuracy", "--out", "ends.png"),
    "report": ("report", "run"),
    "account": ("account", "--run", "run", "--accountant", "rdp"),
    "membership": ("audit", "membership", "run", "--records", "40", "--snapshots", "2"),
    "resume": ("train", "resume=run", "runtime.progress=none", "runtime.plots=false"),
}
READ = {
    "config.yaml": ("plot", "ends", "report", "membership", "resume"),
    "summary.json": ("plot", "ends", "report", "membership"),
    "environment.json": ("plot", "ends", "report", "resume"),
    "metrics.csv": ("plot", "report", "resume"),
    "clients.csv": ("resume",),
    "ledger.csv": ("report", "account"),
    "privacy.json": ("report", "account"),
    "participation.csv": ("membership", "resume"),
    "model.pt": ("membership",),
    "checkpoint.pt": ("resume",),
}
"""Which commands read each file."""
DAMAGES = {
    "binary": lambda content: bytes(range(128, 256)) * 8,
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "a list": lambda content: b"[]\n",
}


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    """A finished run as the command makes it."""
    given = [*RUN, f"runtime.run_dir={tmp_path_factory.mktemp('made') / 'run'}"]
    return run(compose(given), overrides=given).folder


@pytest.mark.few(4)
@pytest.mark.parametrize("file", READ)
def test_a_file_that_cannot_be_read_is_one_sentence_in_every_command(file, made, tmp_path, command):
    for by in READ[file]:
        folder = Path(shutil.copytree(made, tmp_path / "run"))
        (folder / file).write_bytes(DAMAGES["binary"](b""))
        done = command(*COMMANDS[by])
        assert (done.status, "Traceback" in done.err) == (2, False), by
        assert f"run/{file} " in done.sentence, by
        shutil.rmtree(folder)


@pytest.mark.thorough
@pytest.mark.parametrize("file", READ)
def test_whatever_is_in_a_file_it_is_a_result_or_one_sentence(file, made, tmp_path, command):
    """Half a table, for example, is a table."""
    for by in READ[file]:
        for damage, spoilt in DAMAGES.items():
            folder = Path(shutil.copytree(made, tmp_path / "run"))
            (folder / file).write_bytes(spoilt((folder / file).read_bytes()))
            done = command(*COMMANDS[by])
            assert done.status in (0, 1, 2), (by, damage)
            assert "Traceback" not in done.err, (by, damage)
            if done.status:
                assert done.sentence, (by, damage)
            shutil.rmtree(folder)


def test_of_many_runs_the_one_that_cannot_be_read_is_named_and_left_out(made, tmp_path, command):
    for name in ("broken", "whole"):
        shutil.copytree(made, tmp_path / "runs" / name)
    (tmp_path / "runs" / "broken" / "summary.json").write_text("{")
    sentence = "runs/broken/summary.json cannot be read: it is not JSON"
    listed = command("runs", "runs")
    assert (listed.status, listed.err) == (0, "")
    assert f"damaged: {sentence}" in " ".join(listed.out.split())
    reported = command("report", "runs")
    assert reported.status == 0
    assert reported.sentence == f"fedpriv: warning: runs/broken is left out: {sentence}"
    assert "whole" in (tmp_path / "runs" / "report.html").read_text()
    plotted = command("plot", "runs")
    assert (plotted.status, sentence in plotted.sentence) == (2, True)
