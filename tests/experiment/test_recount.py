"""The ledger is priced again at resume and at the end: a damaged state states no smaller epsilon."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch

from fedpriv.common.files import write_tensors
from fedpriv.experiment.assemble import Budget

RUN = (
    "dataset=digits", "algorithm=dp_fl", "rounds=null", "epsilon=0.6", "evaluation_interval=5",
    "runtime.checkpoint_interval=1",
)  # fmt: skip
ACCOUNTING = {
    "rdp": ("accountant=rdp",),
    "pld": ("accountant=pld", "accountant.discretization=0.05"),
    "adaptive": ("accountant=rdp", "noise_schedule=validation_decay"),
}


@pytest.fixture
def interrupted(train, tmp_path):
    """(settings) → the folder of a run that was stopped after its first rounds."""

    def stopped(*settings: str) -> Path:
        (tmp_path / "stop").touch()
        for resume in ((), *[(f"resume={tmp_path / 'run'}",)] * 4):
            train(*settings, *resume, f"runtime.stop_file={tmp_path / 'stop'}")
        (tmp_path / "stop").unlink()
        return tmp_path / "run"

    return stopped


def edit(folder: Path, change) -> None:
    """Change the state in the newest checkpoint, as a defect in fedpriv would."""
    state = torch.load(folder / "checkpoint.pt", weights_only=True)
    change(state["budget"])
    write_tensors(folder / "checkpoint.pt", state)


def once(groups: dict, count: int = 1) -> None:
    """Make each number of draws of a saved total or ledger 1, or another number."""
    groups["values"] = [[(kind, count) for kind, _ in history] for history in groups["values"]]


@pytest.mark.few(1)
@pytest.mark.parametrize("accounting", ACCOUNTING)
def test_totals_that_forgot_what_was_spent_are_those_of_the_ledger_again(
    accounting, interrupted, train, tmp_path
):
    settings = (*RUN, *ACCOUNTING[accounting])
    whole = train(*settings, name="whole")
    folder = interrupted(*settings)

    def damage(budget: dict) -> None:
        for name in ("enforced", "published", "sound"):
            for value in budget[name].values():
                if not isinstance(value, dict):
                    continue
                if isinstance(value["values"], torch.Tensor):
                    value["values"].zero_()
                else:
                    once(value)
        budget["took_part"].zero_()

    edit(folder, damage)
    train(*settings, f"resume={folder}")
    ended, stated = (json.loads((f / "summary.json").read_text()) for f in (folder, whole.folder))
    for key in ("rounds", "stop_reason"):
        assert ended[key] == stated[key]
    for key in ("epsilon", "epsilon_published", "epsilon_sound"):
        assert ended[key] == pytest.approx(stated[key], rel=1e-9)
    assert (
        "running totals of the checkpoint are not those of its ledger"
        in (folder / "run.log").read_text()
    )


@pytest.mark.thorough
def test_clients_that_a_checkpoint_forgot_took_part(interrupted, train, tmp_path):
    settings = (*RUN, "accountant=rdp")
    folder = interrupted(*settings)
    edit(folder, lambda budget: budget["took_part"].zero_())
    train(*settings, f"resume={folder}")
    assert "its ledger (other clients took part)" in (folder / "run.log").read_text()


def test_a_ledger_that_lost_draws_does_not_take_the_place_of_what_was_charged(
    interrupted, train, tmp_path
):
    settings = (*RUN, "accountant=rdp")
    whole = train(*settings, name="whole")
    folder = interrupted(*settings)

    def forget(budget: dict) -> None:
        once(budget["ledger"]["counts"])

    edit(folder, forget)
    ended = train(*settings, f"resume={folder}")
    assert ended.summary["rounds"] == whole.summary["rounds"]
    assert ended.privacy["epsilon"] == pytest.approx(whole.privacy["epsilon"], rel=1e-9)
    assert any("priced again at its end" in caveat for caveat in ended.privacy["caveats"])


def test_a_ledger_beyond_the_budget_is_stated_and_fails(interrupted, command):
    folder = interrupted(*RUN, "accountant=rdp")

    def spend(budget: dict) -> None:
        once(budget["ledger"]["counts"], 300)

    edit(folder, spend)
    said = command("train", f"resume={folder}", *RUN, "accountant=rdp", "runtime.progress=none")
    assert said.status == 1
    assert "budget exceeded" in said.err.splitlines()[-1]
    privacy = json.loads((folder / "privacy.json").read_text())
    assert privacy["budget_exceeded"] is True
    assert privacy["epsilon"] > 2 * 0.6
    assert privacy["stop_reason"] == "budget"
    assert "Budget exceeded" in (folder / "privacy.txt").read_text()
    priced = command("account", "--run", str(folder), "--accountant", "rdp", "--json")
    stated = json.loads(priced.out)["accountants"]["rdp"]["epsilon"]
    assert privacy["epsilon"] == pytest.approx(float(next(iter(stated.values()))), rel=0.02)


@pytest.mark.thorough
def test_totals_that_lose_draws_while_the_run_goes_are_found_at_its_end(train, monkeypatch):
    """The planted fault: nine of ten draws are entered into the ledger and charged to nobody."""
    real, calls = Budget._charge, [0]

    def careless(self, release, lowest):
        calls[0] += 1
        if calls[0] % 10 == 1:
            return real(self, release, lowest)
        return self.ledger.record(release)

    monkeypatch.setattr(Budget, "_charge", careless)
    done = train(*RUN, "accountant=rdp", "rounds=60", "epsilon=0.4")
    assert done.privacy["budget_exceeded"] is True
    assert 0.4 < done.privacy["epsilon"] < math.inf
    assert any("priced again at its end" in caveat for caveat in done.privacy["caveats"])
