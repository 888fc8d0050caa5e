"""The reader of run folders: every file × every damage is one sentence."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from fedpriv.common.errors import ConfigError
from fedpriv.common.notices import take
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
    take()
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
    "absent": (Path.unlink, r"FILE cannot be read: it is not there.*"),
    "binary": (lambda path: path.write_bytes(bytes(range(256)) * 4), r"FILE cannot be read.+"),
    "cut": (
        lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
        r"FILE (cannot be read|is not as the run wrote it).+",
    ),
    "huge": (
        lambda path: os.truncate(path, 1 << 34),
        r"FILE cannot be read: it has more than [\d,]+ bytes.*",
    ),
    "link": (link, r"run holds FILENAME, which is neither a file nor a folder; .+"),
    "pipe": (pipe, r"run holds FILENAME, which is neither a file nor a folder; .+"),
    "directory": (directory, r"FILE is a folder where a file belongs; move it away.*"),
    "edited": (
        lambda path: path.write_bytes(path.read_bytes() + b"\n"),
        r"FILE (is not as the run wrote it, by the SHA-256 .+: it is damaged or was edited|cannot be read.+)",
    ),
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", READ)
def test_a_damaged_file_is_one_sentence_to_every_reader(file, damage, folder):
    if file == "model.pt" and damage == "huge":
        pytest.skip("a model may be large")
    spoil, words = DAMAGES[damage]
    spoil(folder / file)
    if (file, damage) == ("summary.json", "absent"):
        words = "FILE is not there, though run/privacy.json is; .+"
    pattern = words.replace("FILENAME", re.escape(file)).replace("FILE", re.escape(f"run/{file}"))
    tolerant, strict = StoredRun(folder, tolerant=True), StoredRun(folder)
    said = []
    try:
        READ[file](tolerant)
    except ConfigError as error:  # a ledger has nothing that could stand for it
        said.append(str(error))
    tolerant.check_all()
    said += [*tolerant.damage.values(), *filter(None, [tolerant.lost])]
    assert take() == []
    try:
        READ[file](strict)
    except ConfigError as error:
        said.append(str(error))
    strict.check_all()
    said += [text.removeprefix("warning: ") for text in take()]
    assert len(set(said)) == 1, said
    assert re.fullmatch(pattern, said[0], re.DOTALL)


def test_a_whole_run_is_read_and_not_suspected(folder):
    run = StoredRun(folder)
    for read in READ.values():
        assert read(run)
    run.check_all()
    assert (run.damage, take()) == ({}, [])
    assert run.finished
    assert run.values["algorithm.name"] == "dp_fl"
    assert run.last_round["rounds"] == 2
    assert run.last_round["test_accuracy"] == run.summary["test_accuracy"]
    assert run.last_value("test_accuracy") == run.summary["test_accuracy"]
    assert run.vouches_for(run.files.ledger, run.files.privacy_json)


def test_nothing_is_read_before_it_is_asked_for(folder):
    run = StoredRun(folder)
    for path in folder.iterdir():
        if path.is_file():
            path.write_bytes(b"\x00")
    assert run.damage == {}


def test_each_file_is_read_once(folder):
    run = StoredRun(folder)
    before = run.values, run.summary, run.metrics
    for name in ("config.yaml", "summary.json", "metrics.csv"):
        (folder / name).unlink()
    assert (run.values, run.summary, run.metrics) == before


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
    assert (run.finished, run.damage, take()) == (False, {}, [])
    with pytest.raises(ConfigError, match=r"ledger\.csv cannot be read: it is not there"):
        run.ledger("sound")


def test_a_link_further_up_is_not_followed(folder):
    Path("audits").mkdir()
    (folder / "audit").symlink_to(Path("audits").absolute())
    Path("audits/x.json").write_text("{}")
    run = StoredRun(folder, tolerant=True)
    assert run.audits == []
    assert "run holds audit, which is neither" in run.damage[folder / "audit" / "x.json"]


def test_statement_and_summary_must_agree_where_no_digest_tells(folder):
    summary = json.loads((folder / "summary.json").read_text())
    del summary["files"]
    (folder / "summary.json").write_text(json.dumps(summary | {"epsilon_sound": 0.25}))
    run = StoredRun(folder, tolerant=True)
    assert run.statement
    (sentence,) = run.damage.values()
    assert sentence.startswith("run/summary.json says epsilon_sound 0.25, privacy.json says ")


@pytest.mark.parametrize(
    ("file", "text", "reason"),
    [
        ("summary.json", "{}", "it has no stop_reason"),
        ("summary.json", '{"rounds": 1, "rounds": 2}', "the key rounds is there twice"),
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
