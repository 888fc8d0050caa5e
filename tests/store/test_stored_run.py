"""The reader of run folders: a file that cannot be read is one sentence with its path."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.store.stored_run import StoredRun

RUN = (
    "dataset=digits", "algorithm=dp_fl", "accountant=rdp", "rounds=2", "evaluation_interval=1",
    "partition=fixed_size", "partition.clients=12", "partition.records=20",
    "algorithm.participation=sampled", "algorithm.clients_per_round=4",
)  # fmt: skip
READ = {
    "config.yaml": lambda run: (run.values, run.configuration),
    "summary.json": lambda run: run.summary,
    "privacy.json": lambda run: run.statement,
    "privacy.txt": lambda run: run.statement_text,
    "environment.json": lambda run: (run.overrides, run.environment),
    "metrics.csv": lambda run: run.metrics,
    "clients.csv": lambda run: run.clients,
    "participation.csv": lambda run: run.participants(12),
    "ledger.csv": lambda run: run.ledger("sound"),
    "model.pt": lambda run: run.model("cpu"),
}
"""Each file and what reads it."""


@pytest.fixture
def folder(ran, tmp_path, monkeypatch) -> Path:
    """A finished run, to be spoilt."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ran(*RUN).folder, "run")
    return Path("run")


def link(path: Path) -> None:
    path.rename("elsewhere")
    path.symlink_to(Path("elsewhere").absolute())


def pipe(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES = {
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 4), r"FILE cannot be read.+"),
    "link": (link, r"run holds FILENAME, which is neither a file nor a folder; .+"),
    "pipe": (pipe, r"run holds FILENAME, which is neither a file nor a folder; .+"),
    "directory": (directory, r"FILE is a folder where a file belongs; move it away.*"),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", READ)
def test_a_file_that_cannot_be_read_is_one_sentence(file, damage, folder):
    spoil, words = DAMAGES[damage]
    spoil(folder / file)
    pattern = words.replace("FILENAME", re.escape(file)).replace("FILE", re.escape(f"run/{file}"))
    with pytest.raises(ConfigError) as refused:
        READ[file](StoredRun(folder))
    assert re.fullmatch(pattern, str(refused.value), re.DOTALL)


@pytest.mark.parametrize(
    "file", ["config.yaml", "metrics.csv", "clients.csv", "ledger.csv", "model.pt"]
)
def test_a_file_that_every_run_has_must_be_there(file, folder):
    (folder / file).unlink()
    with pytest.raises(ConfigError, match=f"run/{file} cannot be read: it is not there"):
        READ[file](StoredRun(folder))


def test_a_whole_run_is_read_and_not_suspected(folder):
    run = StoredRun(folder)
    for read in READ.values():
        assert read(run) is not None
    assert run.finished
    assert run.values["algorithm.name"] == "dp_fl"
    assert run.last_round["rounds"] == 2
    assert run.last_round["test_accuracy"] == run.summary["test_accuracy"]
    assert run.last_value("test_accuracy") == run.summary["test_accuracy"]


def test_nothing_is_read_before_it_is_asked_for(folder):
    run = StoredRun(folder)
    for path in folder.iterdir():
        if path.is_file():
            path.write_bytes(b"\x00")
    with pytest.raises(ConfigError):
        _ = run.values


def test_each_file_is_read_once(folder):
    run = StoredRun(folder)
    before = run.values, run.summary
    metrics = run.metrics
    for name in ("config.yaml", "summary.json", "metrics.csv"):
        (folder / name).unlink()
    assert (run.values, run.summary) == before
    assert run.metrics is metrics


def test_what_a_run_has_not_written_yet_is_empty(folder):
    for name in (
        "summary.json",
        "privacy.json",
        "ledger.csv",
        "trackers.json",
        "participation.csv",
    ):
        (folder / name).unlink(missing_ok=True)
    run = StoredRun(folder)
    assert (run.summary, run.statement, run.trackers, run.participants(12)) == ({}, {}, {}, None)
    assert not run.finished
    with pytest.raises(ConfigError, match=r"ledger\.csv cannot be read: it is not there"):
        run.ledger("sound")


def test_a_link_further_up_is_not_followed(folder):
    Path("audits").mkdir()
    (folder / "audit").symlink_to(Path("audits").absolute())
    Path("audits/x.json").write_text("{}")
    with pytest.raises(ConfigError, match="run holds audit, which is neither"):
        _ = StoredRun(folder).audits


def test_digests_in_the_summary_of_an_archived_run_are_passed_over(folder):
    summary = json.loads((folder / "summary.json").read_text())
    stated = {"files": {"metrics.csv": {"bytes": 1, "sha256": "0" * 64}}}
    (folder / "summary.json").write_text(json.dumps(summary | stated))
    run = StoredRun(folder)
    assert run.finished
    assert len(run.metrics) == 2


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("summary.json", '{"rounds": 1}', "it has no stop_reason"),
        ("environment.json", '{"overrides": [7]}', "its overrides are not a list of texts"),
        ("metrics.csv", "a\n1\n", "it is no table of rounds"),
        ("participation.csv", "clients\n0-99\n", "it is no list of this run's clients"),
        ("ledger.csv", "clients\n0\n", "line 2 is not an entry of a ledger"),
    ],
)
def test_content_that_no_run_writes_is_refused(file, text, reason, folder):
    (folder / file).write_text(text)
    with pytest.raises(ConfigError, match=f"run/{file} cannot be read: {re.escape(reason)}"):
        READ[file](StoredRun(folder))
