"""One flipped bit in a checkpoint, a model or a snapshot is refused; of a healthy run nothing is said."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest
import torch

from fedpriv.common.config import compose
from fedpriv.common.errors import ConfigError, Interrupted
from fedpriv.experiment.run import run
from fedpriv.store.saved import saved_tensors

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
ARCHIVES = {"checkpoint.pt": "resume", "model.pt": "audit", "snapshots/round000001.pt": "audit"}
"""Files of tensors, and a command that reads each."""


@pytest.fixture(scope="module")
def finished(tmp_path_factory) -> Path:
    return make(tmp_path_factory.mktemp("finished"))


def make(place: Path, *more: str) -> Path:
    overrides = [*RUN, f"runtime.run_dir={place / 'run'}"]
    return run(compose([*overrides, *more]), overrides=overrides).folder


@pytest.fixture
def folder(finished, tmp_path) -> Path:
    """A finished run, to be spoilt."""
    return Path(shutil.copytree(finished, tmp_path / "run"))


def flip(path: Path, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[bit // 8] ^= 1 << (bit % 8)
    path.write_bytes(content)


@pytest.mark.parametrize("file", ARCHIVES)
def test_a_flipped_bit_in_a_tensor_is_refused(file, folder, command):
    content = (folder / file).read_bytes()
    flip(folder / file, 8 * (content.index(b"data/0") + 300))
    done = command(*COMMANDS[ARCHIVES[file]])
    assert done.status == 2
    assert f"run/{file} cannot be read (its checksum is another)" in done.sentence


@pytest.mark.parametrize("file", ARCHIVES)
def test_whatever_bit_is_flipped_other_values_are_never_read(file, folder):
    """Bits that no value follows from, such as those of a date, may pass."""
    path, source = folder / file, random.Random(file)
    whole, expected = path.read_bytes(), leaves(saved_tensors(path, "cpu"))
    for _ in range(300):
        path.write_bytes(whole)
        bit = source.randrange(8 * len(whole))
        flip(path, bit)
        try:
            read = leaves(saved_tensors(path, "cpu"))
        except ConfigError:
            continue
        assert read == expected, f"bit {bit} of {file}"


def leaves(value: object) -> object:
    """Return nested values with the bytes of each tensor, which can be compared."""
    if isinstance(value, torch.Tensor):
        return str(value.dtype), tuple(value.shape), value.numpy().tobytes()
    if isinstance(value, dict):
        return {key: leaves(item) for key, item in value.items()}
    return [leaves(item) for item in value] if isinstance(value, list | tuple) else repr(value)


def test_a_tensor_that_became_a_folder_is_refused(folder, command):
    content = bytearray((folder / "model.pt").read_bytes())
    entry = content.rindex(b"PK\x01\x02", 0, content.rindex(b"data/0"))
    content[entry + 38] |= 0x10  # the attribute of a folder, which no checksum covers
    (folder / "model.pt").write_bytes(content)
    done = command(*COMMANDS["audit"])
    assert done.status == 2
    assert "model.pt cannot be read (its checksum is another)" in done.sentence


@pytest.mark.parametrize("damage", ["cut", "zeroes", "absent"])
def test_a_damaged_checkpoint_is_not_resumed(damage, folder, command):
    path = folder / "checkpoint.pt"
    content = path.read_bytes()
    path.unlink()
    if damage != "absent":
        path.write_bytes(
            content[:-9000] if damage == "cut" else content[:2000] + bytes(6000) + content[8000:]
        )
    done = command(*COMMANDS["resume"])
    assert done.status == 2
    assert "run/checkpoint.pt " in done.sentence


@pytest.mark.few(1)
@pytest.mark.parametrize("by", COMMANDS)
def test_of_a_whole_folder_nothing_is_said_on_standard_error(by, folder, command):
    done = command(*COMMANDS[by])
    assert (done.status, done.err) == (0, "")


def test_a_configuration_that_was_edited_before_a_resume_is_refused(folder, command):
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("\nrounds: 3", "\nrounds: 4"))
    done = command(*COMMANDS["resume"])
    assert done.status == 2
    assert "run holds a different run: rounds is 4 there and 3 here" in done.sentence


def summary_of(folder: Path) -> dict:
    return json.loads((folder / "summary.json").read_text())


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
