"""One flipped bit anywhere in a run folder is said by every command that reads the file."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch

from fedpriv.common.config import compose
from fedpriv.common.errors import Interrupted
from fedpriv.experiment.run import run

RUN = (
    "dataset=digits", "algorithm=dp_fl", "accountant=rdp", "rounds=3", "evaluation_interval=1",
    "partition=fixed_size", "partition.clients=12", "partition.records=20",
    "algorithm.participation=sampled", "algorithm.clients_per_round=4",
    "runtime.snapshot_interval=1", "runtime.checkpoint_interval=1", "runtime.progress=none",
    "runtime.plots=false",
)  # fmt: skip
COMMANDS = {
    "runs": ("runs", "run"),
    "plot": ("plot", "run", "--out", "lines.png"),
    "report": ("report", "run"),
    "account": ("account", "--run", "run", "--accountant", "rdp"),
    "audit": ("audit", "membership", "run", "--records", "40", "--snapshots", "4"),
    "resume": ("train", "resume=run", "runtime.progress=none", "runtime.plots=false"),
}
READ = {
    "config.yaml": ("runs", "plot", "report", "audit"),
    "summary.json": ("runs", "plot"),
    "environment.json": ("report", "plot"),
    "metrics.csv": ("report", "plot", "resume"),
    "ledger.csv": ("report", "account"),
    "privacy.json": ("report", "account"),
    "privacy.txt": ("report",),
    "clients.csv": ("resume",),
    "participation.csv": ("audit", "resume"),
    "model.pt": ("audit",),
    "checkpoint.pt": ("resume",),
    "snapshots/round000001.pt": ("audit",),
}
"""Which commands read a file."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("finished"))


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory) -> Path:
    """A run that was stopped after its second round, and has the checkpoint before its newest."""
    place = tmp_path_factory.mktemp("interrupted")
    (place / "stop").touch()
    make(place, f"runtime.stop_file={place / 'stop'}")
    return make(place, f"runtime.stop_file={place / 'stop'}", f"resume={place / 'run'}")


def make(place: Path, *more: str) -> Path:
    overrides = [*RUN, f"runtime.run_dir={place / 'run'}"]
    return run(compose([*overrides, *more]), overrides=overrides).folder


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(content)


def said_of(folder: Path, by: str, command) -> str:
    """Everything that a command says, and whether it failed."""
    done = command(*COMMANDS[by])
    assert "Traceback" not in done.err
    log = (folder / "run.log").read_text() if by == "resume" else ""
    return f"{'failed' if done.status else ''} {done.err} {done.out} {log}"


def is_noticed(said: str) -> bool:
    signs = ("failed", "warning:", "damaged:", "cannot be read", "no digests")
    return any(sign in said for sign in signs)


@pytest.fixture
def try_flips(finished, interrupted, tmp_path, command):
    """(file, command, bits drawn from this source, how many) → every flip is noticed."""

    def attempt(file: str, by: str, source: random.Random, count: int) -> None:
        whole = interrupted if by == "resume" else finished
        size = (whole / file).stat().st_size
        for _ in range(count):
            folder = Path(shutil.copytree(whole, tmp_path / "run"))
            bit = source.randrange(8 * size)
            flip(folder / file, bit)
            said = said_of(folder, by, command)
            shutil.rmtree(folder)
            assert is_noticed(said), f"bit {bit} of {file}, {by}: {said}"

    return attempt


@pytest.mark.few(8)
@pytest.mark.parametrize(
    ("file", "by"), [(file, commands[i % len(commands)]) for i, (file, commands) in enumerate(READ.items())]
)  # fmt: skip
def test_a_flipped_bit_is_noticed(file, by, try_flips):
    try_flips(file, by, random.Random(f"{file} {by}"), 2)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "by"), [(f, by) for f, commands in READ.items() for by in commands]
)
def test_whatever_bit_is_flipped_it_is_noticed(file, by, try_flips):
    """2,024 flips over all files: 92 for each of the 22 pairs of a file and a command that reads it."""
    try_flips(file, by, random.Random(f"many {file} {by}"), 92)


@pytest.mark.few(1)
@pytest.mark.parametrize("by", ["runs", "plot", "report", "account", "audit", "resume"])
def test_a_whole_folder_is_not_suspected(by, finished, interrupted, tmp_path, command):
    folder = shutil.copytree(interrupted if by == "resume" else finished, tmp_path / "run")
    assert not is_noticed(said_of(Path(folder), by, command))


@pytest.mark.thorough
def test_a_folder_that_an_audit_added_to_is_not_suspected(finished, tmp_path, command):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    for by in ("audit", "report", "runs", "audit"):
        assert not is_noticed(said_of(folder, by, command)), by
    flip(folder / "audit" / "membership.json", 4001)
    assert is_noticed(said_of(folder, "report", command))


def test_zeroes_in_a_checkpoint_are_not_resumed(interrupted, tmp_path, command):
    folder = Path(shutil.copytree(interrupted, tmp_path / "run"))
    (folder / "checkpoint_before.pt").unlink(missing_ok=True)
    path = folder / "checkpoint.pt"
    content = bytearray(path.read_bytes())
    content[2000:8000] = bytes(6000)
    path.write_bytes(content)
    done = command(*COMMANDS["resume"])
    assert done.status == 2
    assert "checkpoint.pt cannot be read (its SHA-256 is another)" in done.sentence


def without_digests(folder: Path) -> Path:
    """The folder as an older version wrote it."""
    path = folder / "summary.json"
    summary = json.loads(path.read_text())
    del summary["files"]
    path.write_text(json.dumps(summary, indent=2))
    for name in ("checkpoint.pt", "model.pt"):
        state = torch.load(folder / name, weights_only=True)
        state.pop("files", None)
        torch.save(state, folder / name)
    return folder


@pytest.mark.few(4)
@pytest.mark.parametrize("by", ["runs", "plot", "report", "account", "audit"])
def test_a_folder_of_an_older_version_is_read_with_one_line(by, finished, tmp_path, command):
    without_digests(Path(shutil.copytree(finished, tmp_path / "run")))
    done = command(*COMMANDS[by])
    assert done.status == 0
    assert done.err.count("\n") == 1
    assert "no digests" in done.err


@pytest.mark.parametrize("file", ["checkpoint.pt", "model.pt"])
def test_flips_in_tensors_of_an_older_version_are_noticed(
    file, finished, interrupted, tmp_path, command
):
    by = "resume" if file == "checkpoint.pt" else "audit"
    folder = Path(shutil.copytree(interrupted if by == "resume" else finished, tmp_path / "run"))
    without_digests(folder)
    (folder / "checkpoint_before.pt").unlink(missing_ok=True)
    content = (folder / file).read_bytes()
    flip(folder / file, 8 * (content.index(b"data/0") + 300))
    done = command(*COMMANDS[by])
    assert done.status == 2
    assert "cannot be read" in done.sentence


def test_a_tensor_of_an_older_version_that_became_a_folder_is_noticed(finished, tmp_path, command):
    folder = without_digests(Path(shutil.copytree(finished, tmp_path / "run")))
    content = bytearray((folder / "model.pt").read_bytes())
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"data/0"))
    content[entry + 38] |= 0x10  # the attribute of a folder, which no checksum covers
    (folder / "model.pt").write_bytes(content)
    done = command(*COMMANDS["audit"])
    assert done.status == 2
    assert "model.pt cannot be read (its checksum is another)" in done.sentence


def test_a_file_that_was_edited_before_a_resume_is_said(interrupted, tmp_path, command):
    folder = Path(shutil.copytree(interrupted, tmp_path / "run"))
    path = folder / "environment.json"
    path.write_text(path.read_text() + "\n")
    assert command(*COMMANDS["resume"]).status == 0
    assert "environment.json is not as the run wrote it" in (folder / "run.log").read_text()


def test_an_audit_does_not_give_an_edited_summary_a_digest_that_fits(finished, tmp_path, command):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    edit(folder / "summary.json", '"test_accuracy": 0.', '"test_accuracy": 0.9')
    for by in ("audit", "runs"):
        assert "summary.json is not as the run wrote it" in said_of(folder, by, command), by


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("by", ["account", "report"])
def test_an_edited_ledger_is_said(by, older, finished, tmp_path, command):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    if older:
        without_digests(folder)
    text = (folder / "ledger.csv").read_text()
    multiplier = text.partition("z=")[2].partition(")")[0]
    edit(folder / "ledger.csv", f"z={multiplier}", f"z={10 * float(multiplier)}")
    done = command(*COMMANDS[by])
    if not (older and by == "report"):  # a report computes no epsilon
        assert done.status == 0
        assert "ledger.csv" in done.err
        assert "edited" in done.err


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("by", ["runs", "report"])
def test_an_edited_summary_is_said(by, older, finished, tmp_path, command):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    if older:
        without_digests(folder)
    stated = summary_of(folder)["epsilon_sound"]
    edit(folder / "summary.json", f'"epsilon_sound": {stated}', f'"epsilon_sound": {stated / 2}')
    done = command(*COMMANDS[by])
    assert done.status == 0
    assert "summary.json" in done.err + done.out
    assert "edited" in done.err + done.out


@pytest.mark.few(1)
@pytest.mark.parametrize("by", ["account", "audit"])
def test_a_ledger_cut_at_a_row_is_said(by, finished, tmp_path, command):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    lines = (folder / "ledger.csv").read_text().splitlines(keepends=True)
    assert len(lines) > 2
    (folder / "ledger.csv").write_text("".join(lines[:-1]))
    assert "ledger.csv is not as the run wrote it" in command(*COMMANDS[by]).err


@pytest.mark.thorough
def test_an_audit_says_that_the_ledger_is_gone(finished, tmp_path, command):
    folder = Path(shutil.copytree(finished, tmp_path / "run"))
    (folder / "ledger.csv").unlink()
    done = command(*COMMANDS["audit"])
    assert "ledger.csv cannot be read: it is not there" in done.sentence
    assert "any attack, by the statement" in done.out


def test_no_seed_can_be_guessed_from_the_digests_of_a_run_that_withholds_it(tmp_path):
    folder = make(tmp_path, "runtime.diagnostics=false")
    text = (folder / "config.yaml").read_bytes()
    import hashlib

    assert summary_of(folder)["files"]["config.yaml"]["sha256"] == hashlib.sha256(text).hexdigest()
    assert b"seed: null" in text


@pytest.mark.few(1)
@pytest.mark.parametrize("damage", ["edited", "cut", "absent"])
@pytest.mark.parametrize("state", ["interrupted", "finished"])
@pytest.mark.parametrize("file", ["ledger.csv", "privacy.json", "privacy.txt", "model.pt"])
def test_a_resume_says_what_it_writes_over(
    file, state, damage, interrupted, finished, tmp_path, command
):
    whole = {"interrupted": interrupted, "finished": finished}[state]
    folder = Path(shutil.copytree(whole, tmp_path / "run"))
    content = (folder / file).read_bytes()
    (folder / file).unlink()
    if damage != "absent":
        (folder / file).write_bytes(content[:-40] if damage == "cut" else content[:-2] + b"2\n")
    done = command(*COMMANDS["resume"])
    assert done.status == 0
    assert f"run/{file} " in done.sentence
    assert done.sentence.endswith("; it is written again from the checkpoint")
    assert done.sentence.removeprefix("fedpriv: ") in (folder / "run.log").read_text()
    assert not is_noticed(said_of(folder, "runs", command))


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["dp_fl", "cdp_fedavg", "dp_fl publish"])
def test_a_healthy_run_says_nothing_on_standard_error(algorithm, tmp_path, command):
    name, _, publish = algorithm.partition(" ")
    given = [*RUN[:1], f"algorithm={name}", *RUN[2:6], "runtime.progress=none", "epsilon=null"]
    given += ["audit=membership"] if not publish else ["publish=true"]
    given += [f"runtime.run_dir={tmp_path / 'run'}"]
    (tmp_path / "stop").touch()
    stopping = f"runtime.stop_file={tmp_path / 'stop'}"
    run(compose([*given, stopping]), overrides=given)
    run(compose([*given, stopping, f"resume={tmp_path / 'run'}"]), overrides=given)
    for _ in range(2):  # it goes on, and is resumed once it is finished
        done = command("train", "resume=run")
        assert (done.status, done.err) == (0, "")
        assert summary_of(tmp_path / "run")["rounds"] == 3
    for by in ("runs", "report"):
        assert command(*COMMANDS[by]).err == ""


@pytest.mark.thorough
def test_a_report_that_ctrl_c_ended_is_no_damage(tmp_path, command, monkeypatch):
    from fedpriv.store import run_plots

    given = [*RUN[:-1], "epsilon=null", "rounds=9", f"runtime.run_dir={tmp_path / 'run'}"]
    (tmp_path / "stop").touch()
    for begun in ([], [f"resume={tmp_path / 'run'}"]):
        stopping = [f"runtime.stop_file={tmp_path / 'stop'}", *begun]
        with monkeypatch.context() as patch:
            patch.setattr(run_plots, "plot_run", interrupt)
            with pytest.raises(Interrupted):
                run(compose([*given, *stopping]), overrides=given)
        run(compose([*given, stopping[0], f"resume={tmp_path / 'run'}"]), overrides=given)
    with monkeypatch.context() as patch:
        patch.setattr(run_plots, "plot_run", interrupt)
        assert command("train", "resume=run").status == 130
    done = command("train", "resume=run")
    assert (done.status, done.err) == (0, "")


def interrupt(*_) -> None:
    raise KeyboardInterrupt
