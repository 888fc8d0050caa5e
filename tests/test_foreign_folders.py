"""A run folder from somebody else: reading, pricing, auditing and resuming it runs no code of theirs."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import yaml

from fedpriv.common.groups import conf_dir

SMALL = ("dataset=digits", "algorithm=dp_fl", "accountant=rdp", "rounds=2", "evaluation_interval=1")
OWN_MODEL = """
import pathlib
import torch
from torch import nn
pathlib.Path("imported").touch()
class Net:
    def __init__(self, seed): pass
    def build(self, input_shape, classes):
        torch.manual_seed(0)
        return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))
"""


class Evil:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple:
        return os.mkdir, (str(self.path),)


@pytest.fixture
def folder(ran, tmp_path) -> Path:
    """A finished run, to be spoilt."""
    return Path(shutil.copytree(ran(*SMALL).folder, tmp_path / "foreign"))


@pytest.fixture
def trace(tmp_path, monkeypatch) -> Path:
    """What foreign code would leave behind."""
    monkeypatch.chdir(tmp_path)
    return tmp_path / "imported"


def change(folder: Path, key: str, value: object) -> None:
    """Set a key of config.yaml."""
    path = folder / "config.yaml"
    config = yaml.safe_load(path.read_text())
    node = config
    for part in key.split(".")[:-1]:
        node = node.setdefault(part, {})
    node[key.rpartition(".")[2]] = value
    path.write_text(yaml.safe_dump(config))


def overrides(folder: Path, *more: object) -> None:
    """Add overrides to those that a resumed run takes from its folder."""
    path = folder / "environment.json"
    facts = json.loads(path.read_text())
    facts["overrides"] = [*(facts["overrides"] or []), *more]
    path.write_text(json.dumps(facts))


COMMANDS = {
    "audit": ("audit", "membership", "foreign", "--records", "20"),
    "account": ("account", "--run", "foreign"),
    "plot": ("plot", "foreign", "--out", "lines.png"),
    "report": ("report", "foreign"),
    "resume": ("train", "resume=foreign", "runtime.progress=none"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("file", ["checkpoint.pt", "model.pt"])
@pytest.mark.parametrize("by", COMMANDS)
def test_a_pickle_in_a_folder_is_not_run(by, file, folder, trace, command):
    torch.save({"schema_version": 4, "weights": Evil(trace)}, folder / file)
    if file == "checkpoint.pt":
        (folder / "summary.json").unlink()
    command(*COMMANDS[by])
    assert not trace.exists()


@pytest.mark.few(1)
@pytest.mark.parametrize("file", ["checkpoint.pt", "model.pt"])
def test_a_bare_pickle_is_not_run(file, folder, trace, command):
    (folder / file).write_bytes(pickle.dumps(Evil(trace)))
    for arguments in COMMANDS.values():
        command(*arguments)
    assert not trace.exists()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("key", "target"),
    [
        ("model._target_", "evil.Net"),
        ("model._target_", "foreign.evil.Net"),
        ("model._target_", "os.mkdir"),
        ("model._target_", "fedpriv.experiment.run.os.mkdir"),
        ("model._target_", "fedpriv.common.files.write_text"),
        ("model._target_", "fedpriv.data.digits.Digits"),  # an option of another group
        ("model.extra", {"_target_": "evil.Net", "seed": 0}),
        ("model.extra", [{"_target_": "evil.Net", "seed": 0}]),
        ("algorithm._target_", "evil.Net"),
        ("attack", {"_target_": "evil.Net"}),
        ("other._target_", "evil.Net"),
    ],
)
@pytest.mark.parametrize("by", ["audit", "account", "plot", "report"])
def test_code_that_a_configuration_names_is_not_run(by, key, target, folder, trace, command):
    for place in (folder, folder.parent):
        (place / "evil.py").write_text(OWN_MODEL)
    change(folder, key, target)
    change(folder, "model.path", str(trace))
    done = command(*COMMANDS[by])
    assert not trace.exists()
    if by == "audit":
        assert done.status == 2
        assert "names code outside fedpriv" in done.err
        assert "--allow" in done.err


@pytest.mark.parametrize(
    "override",
    [
        "hydra.callbacks.x={_target_: evil.Net, seed: 0}",
        "+hydra.callbacks.x._target_=evil.Net",
        "hydra/launcher=joblib",
        "model@hydra.callbacks.x=cnn",
        "hydra.searchpath=['file://foreign']",
        "--config-dir=foreign",
        "-m",
        "model={up}/foreign/global",
        "+experiment={up}/foreign/global",
        "model=[{up}/foreign/global]",
        "+model/{up}/foreign=global",
        "model=${seed}",
        "runtime={output_dir:/tmp/elsewhere}",
        "+work={up}/foreign/global",
        "./model={up}/foreign/global",
        "model/.={up}/foreign/global",
        ".={up}/model/foreign/global",
        7,
        None,
    ],
)
def test_settings_of_hydra_are_not_taken_from_a_folder(override, folder, trace, command):
    (folder.parent / "evil.py").write_text(OWN_MODEL)
    (folder / "global.yaml").write_text(
        "# @package _global_\nhydra: {callbacks: {x: {_target_: evil.Net, seed: 0}}}\n"
    )
    up = os.path.relpath(folder.parent, conf_dir() / "model")
    overrides(folder, override.replace("{up}", up) if isinstance(override, str) else override)
    done = command(*COMMANDS["resume"])
    assert done.status == 2
    assert "resume: " in done.err
    assert "overrides" in done.err
    assert not trace.exists()


@pytest.mark.parametrize(
    "override", ["model._target_=evil.Net", "+model.extra={_target_: evil.Net, seed: 0}"]
)
def test_code_that_overrides_of_a_folder_name_is_not_run(override, folder, trace, command):
    (folder.parent / "evil.py").write_text(OWN_MODEL)
    overrides(folder, override)
    done = command(*COMMANDS["resume"])
    assert done.status == 2
    assert not trace.exists()
    assert "names code outside fedpriv" in done.err
    assert "--allow evil" in done.err


@pytest.mark.thorough
def test_what_the_reader_allows_is_audited_and_resumed(folder, trace, command):
    (folder.parent / "own_nets.py").write_text(OWN_MODEL)
    settings = (*SMALL, "model._target_=own_nets.Net", "runtime.run_dir=own", "runtime.plots=false")
    assert command("train", *settings, "runtime.progress=none").status == 0
    audit = ("audit", "membership", "own", "--records", "20")
    assert command(*audit).status == 2
    assert command(*audit, "--allow", "another").status == 2
    assert command(*audit, "--allow", "own_nets").status == 0
    resume = ("train", "resume=own", "runtime.progress=none")
    refused = command(*resume)
    assert refused.status == 2
    assert "add --allow own_nets" in refused.err
    assert command(*resume, "--allow", "own_nets").status == 0
    assert command(*resume, "--allow=own_nets").status == 0


@pytest.mark.thorough
def test_an_audit_that_the_run_itself_asks_for_needs_no_consent(trace, command):
    (trace.parent / "own_nets.py").write_text(OWN_MODEL)
    settings = (*SMALL, "model._target_=own_nets.Net", "runtime.run_dir=own", "audit=membership")
    done = command("train", *settings, "runtime.progress=none", "runtime.plots=false")
    assert done.status == 0, done.err


@pytest.mark.thorough
def test_options_in_a_folder_that_the_reader_names_are_his_own(trace, command):
    (trace.parent / "own_nets.py").write_text(OWN_MODEL)
    yamls = trace.parent / "yamls" / "model"
    yamls.mkdir(parents=True)
    (yamls / "net.yaml").write_text("_target_: own_nets.Net\nseed: ${seed}\n")
    settings = (*SMALL, "model=net", "runtime.run_dir=own", "runtime.plots=false")
    config = ("--config-dir", "yamls", "runtime.progress=none")
    assert command("train", *settings, *config).status == 0
    assert command("train", "resume=own", *config).status == 0


@pytest.mark.parametrize(
    "arguments", [("--allow", "x"), ("resume=foreign", "--allow"), ("resume=foreign", "--allow=")]
)
def test_consent_is_for_a_module_of_a_resumed_run(arguments, folder, trace, command):
    done = command("train", *arguments)
    assert done.status == 2
    assert "--allow" in done.err


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "no run's configuration"),
        ("seed: 0\n", "no usable dataset"),
        ("[1, 2]\n", "no run's configuration"),
        ("a: [\n", "not YAML"),
    ],
)
@pytest.mark.parametrize("by", ["audit", "plot"])
def test_a_configuration_that_is_none_is_said(by, text, words, folder, trace, command):
    (folder / "config.yaml").write_text(text)
    done = command(*COMMANDS[by])
    assert done.status == 2
    assert words in done.err


def test_the_environment_of_the_reader_is_not_read(folder, trace, command, monkeypatch):
    monkeypatch.setenv("SECRET", "swordfish")
    change(folder, "model.name", "${oc.env:SECRET}")
    for by in ("audit", "plot"):
        done = command(*COMMANDS[by])
        assert done.status == 2
        assert "interpolation" in done.err
        assert "swordfish" not in done.out + done.err


def test_an_audit_fetches_nothing(ran, folder, trace, command, monkeypatch):
    change(
        folder, "dataset", {"_target_": "fedpriv.data.mnist.Mnist", "path": "x", "download": True}
    )
    monkeypatch.setattr("fedpriv.data.downloads.wait_for_answer", pytest.fail)
    done = command(*COMMANDS["audit"])
    assert done.status == 2
    assert not Path("x").exists()


@pytest.mark.parametrize("by", ["audit", "resume", "report"])
@pytest.mark.parametrize("name", ["metrics.csv", "audit", "run.log"])
def test_nothing_is_written_through_a_link(name, by, folder, trace, command):
    elsewhere = trace.parent / "elsewhere"
    if name == "audit":
        elsewhere.mkdir()
    else:
        (folder / name).rename(elsewhere)
    (folder / name).symlink_to(elsewhere)
    before = None if elsewhere.is_dir() else elsewhere.read_bytes()
    done = command(*COMMANDS[by])
    assert done.status == 2
    assert f"holds {name}, which is neither a file nor a folder" in done.err
    assert (list(elsewhere.iterdir()) == []) if before is None else elsewhere.read_bytes() == before


@pytest.mark.parametrize("by", ["audit", "resume"])
@pytest.mark.parametrize("name", ["plots/accuracy_by_round.png", "audit/membership.png"])
def test_nothing_is_written_through_a_link_further_down(name, by, folder, trace, command):
    victim = trace.parent / "victim"
    victim.write_text("keep")
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(victim)
    assert command(*COMMANDS[by]).status == 2
    assert victim.read_text() == "keep"


@pytest.mark.parametrize("by", ["audit", "resume", "report"])
def test_a_pipe_is_not_waited_for(by, folder, trace, command):
    (folder / "run.log").unlink(missing_ok=True)
    os.mkfifo(folder / "run.log")
    assert command(*COMMANDS[by]).status == 2


ONE_AFTER_ANOTHER = """
import json, sys
sys.path[:] = [p for p in sys.path if p]
from fedpriv import cli
commands = json.loads(sys.argv[1])
for words in commands:
    try:
        cli.run(words)
    except SystemExit:
        pass
print("ran", len(commands))
"""


@pytest.mark.thorough
def test_modules_where_the_reader_works_are_not_imported(folder, trace, start):
    code = f"open({str(trace)!r}, 'w')"
    for name in ("hydra_plugins/evil.py", "cuda/__init__.py", "dill/__init__.py"):
        (folder / name).parent.mkdir()
        (folder / name).write_text(code)
    words = [[word.replace("foreign", ".") for word in one] for one in COMMANDS.values()]
    child = subprocess.run(
        [sys.executable, "-c", ONE_AFTER_ANOTHER, json.dumps(words)],
        cwd=folder, capture_output=True, check=True, text=True,
    )  # fmt: skip
    assert child.stdout.splitlines()[-1] == f"ran {len(COMMANDS)}"
    assert not trace.exists()


def test_what_a_folder_says_of_other_places_is_not_taken(folder, trace, command):
    elsewhere = trace.parent / "elsewhere"
    overrides(
        folder, "algorithm=wei_cdp_optimal", "partition.clients=10", "partition.records=40",
        "algorithm.search.rounds=[1,2]", "algorithm.search.seeds=[0]", f"runtime.output_dir={elsewhere}",
        f"++runtime.run_dir={elsewhere}",
    )  # fmt: skip
    assert command(*COMMANDS["resume"]).status == 2
    assert not elsewhere.exists()


def test_a_path_of_a_device_or_a_pipe_is_refused(folder, trace, command):
    os.mkfifo(trace.parent / "pipe")
    for path in ("/dev/zero", "pipe"):
        change(folder, "dataset", {"_target_": "fedpriv.data.ipums.Ipums", "path": path})
        done = command(*COMMANDS["audit"])
        assert done.status == 2
        assert "is neither a file nor a folder" in done.err
