"""What parts of the user's own keep from round to round is in the checkpoint."""

from __future__ import annotations

import sys

import pytest
import torch

from fedpriv.common.config import compose
from fedpriv.tools.verify.side_channels import resumed
from fedpriv.tools.verify.subject import Subject

STOPS = """
import os, signal


def stop(count):
    if count == 4 and os.environ.get("STOP_WITH"):
        os.kill(os.getpid(), signal.SIGINT)
"""
STATE = """
    def state_dict(self):
        return {"count": self.count}

    def load_state_dict(self, state):
        self.count = state["count"]
"""
UPLOADS = (
    STOPS
    + """
from fedpriv.algorithms import CdpFedAvg
from fedpriv.algorithms.uploads import LocalChanges


class Growing(LocalChanges):
    count = 0

    def of(self, round_index, clients):
        self.count += 1
        stop(self.count)
        batch = super().of(round_index, clients)
        batch.uploads.mul_(self.count % 3 - 1)
        return batch
{state}

class Mine(CdpFedAvg):
    def uploads(self, problem):
        return Growing(problem, *self._local)
"""
)
ALGORITHM = (
    STOPS
    + """
from fedpriv.algorithms import CdpFedAvg


class Mine(CdpFedAvg):
    count = 0

    def denominator(self, cohort, clients):
        if cohort > 1:
            self.count += 1
            stop(self.count)
        return clients * (1.0 + (self.count > 3))
{state}
"""
)
ATTACK = (
    STOPS
    + """
from fedpriv.attacks.backdoor import Backdoor


class Mine(Backdoor):
    count = 0

    def attacks_in(self, round_index):
        self.count += 1
        stop(self.count)
        return self.count % 3 == 0
{state}
"""
)
KINDS = {
    "uploads": ("algorithm", UPLOADS, "cdp_fedavg", ("algorithm.client_rate=0.9",)),
    "algorithm": ("algorithm", ALGORITHM, "cdp_fedavg", ("algorithm.client_rate=0.9",)),
    "attack": ("attack", ATTACK, "dp_fl", ("attack.trigger.writers=2", "attack.attackers=2")),
}


@pytest.fixture
def interrupted(plug_in, monkeypatch):
    """(name of the part, its state hooks) → a run with it that was interrupted in the folder ``run``."""

    def run(name: str, state: str, *more: str) -> None:
        group, code, base, overrides = KINDS[name]
        monkeypatch.setenv("STOP_WITH", "SIGINT")
        made = code.replace("{state}", state)
        said = plug_in(group, "Mine", made, "partition.clients=8", *overrides, *more, base=base)
        assert said.status == 130, said.err
        monkeypatch.delenv("STOP_WITH")

    return run


@pytest.fixture
def resume(command, tmp_path):
    def run():
        (module,) = (path.stem for path in tmp_path.glob("plugin_*.py"))
        return command(
            "train",
            "--config-dir",
            "yamls",
            "resume=run",
            "--allow",
            module,
            "runtime.progress=lines",
        )

    return run


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "state"),
    [
        *((name, STATE) for name in KINDS),
        ("algorithm", '    saved_attributes = {"count": "count"}'),
    ],
    ids=[*KINDS, "named attributes"],
)
def test_a_resumed_run_with_state_of_ones_own_is_the_unbroken_one(
    name, state, interrupted, resume, command, tmp_path, assert_same_run
):
    """Once this state was lost without a word."""
    interrupted(name, state)
    saved = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=True)["own"]
    assert saved[name]["count"] >= 3
    said = resume()
    assert said.status == 0, said.err
    group, _, base, overrides = KINDS[name]
    chosen = ("algorithm=mine",) if group == "algorithm" else (f"algorithm={base}", "attack=mine")
    whole = command(
        "train", "--config-dir", "yamls", *chosen, "partition.clients=8", *overrides, "rounds=6",
        "epsilon=null", "runtime.progress=none", "runtime.plots=false", "runtime.run_dir=whole",
    )  # fmt: skip
    assert whole.status == 0, whole.err
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_checkpoint_of_parts_of_fedpriv_holds_nothing_of_this(train, tmp_path):
    train("algorithm=dp_fl", "rounds=1", "runtime.plots=false", name="shipped")
    state = torch.load(tmp_path / "shipped" / "checkpoint.pt", weights_only=True)
    assert "own" not in state


@pytest.mark.parametrize(("state", "passes"), [(STATE, True), ("", False)])
def test_verify_interrupts_and_resumes_a_run(state, passes, tmp_path, monkeypatch):
    name = "stateful_" + "".join(c for c in tmp_path.name if c.isalnum())
    (tmp_path / f"{name}.py").write_text(UPLOADS.replace("{state}", state))
    monkeypatch.syspath_prepend(str(tmp_path))
    overrides = [
        "algorithm=cdp_fedavg", f"algorithm._target_={name}.Mine", "partition.clients=8",
        "algorithm.client_rate=0.9",
    ]  # fmt: skip
    (found,) = resumed(Subject(compose(overrides)))
    assert found.passed is passes
    sys.modules.pop(name)


CLIPPER = (
    STOPS
    + """
from fedpriv.privacy.clippers import ConstantClipper


class Mine(ConstantClipper):
    {saved}

    def __init__(self):
        super().__init__(clip_norm=1.0)
        self.factor = 1.0

    def clip_norm(self, round_index, holders):
        self.factor *= 0.9
        stop(round_index)
        return self.factor * super().clip_norm(round_index, holders)
"""
)


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_clipper_that_keeps_more_than_it_saves_is_named(is_saved, plug_in, resume, monkeypatch):
    """After Ctrl-C no round is run again, so nothing else could notice it."""
    monkeypatch.setenv("STOP_WITH", "SIGINT")
    saved = 'saved_attributes = {"factor": "factor"}' if is_saved else ""
    given = ("partition.clients=4", "rounds=8", "epsilon=null")
    said = plug_in("clipper", "Mine", CLIPPER.replace("{saved}", saved), *given)
    assert said.status == 130, said.err
    monkeypatch.delenv("STOP_WITH")
    said = resume()
    assert said.status == 0, said.err
    assert ("clipper keeps more from round to round" in " ".join(said.err.split())) is not is_saved
