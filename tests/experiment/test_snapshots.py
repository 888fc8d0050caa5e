"""Copies of the global weights between rounds: they change nothing and survive an interruption."""

from __future__ import annotations

import pytest
import torch

from fedpriv.common.errors import FedprivError
from fedpriv.experiment import snapshots
from fedpriv.store.folder import RunFolder

RUN = (
    "algorithm=adap_dpfl", "noise_schedule.beta=0.99", "epsilon=3000", "rounds=7",
    "runtime.checkpoint_interval=3",
)  # fmt: skip
EVERY = "runtime.snapshot_interval=2"


def weights(folder) -> dict[int, torch.Tensor]:
    run = RunFolder(folder)
    return {rounds: snapshots.load(run, rounds).weights for rounds in snapshots.rounds_of(run)}


@pytest.mark.thorough
@pytest.mark.usefixtures("common_streams")
def test_they_are_the_weights_after_every_so_many_rounds(train):
    found = weights(train(*RUN, EVERY).folder)
    assert list(found) == [0, 2, 4, 6]
    for rounds in (2, 6):
        short = train(*RUN, f"rounds={rounds}", name=f"short{rounds}")
        saved = torch.load(short.folder / "checkpoint.pt", "cpu", weights_only=False)
        assert torch.equal(found[rounds], saved["training"]["weights"])


def test_they_change_no_result(train, assert_same_run):
    assert_same_run(train(*RUN, EVERY, name="with").folder, train(*RUN, name="without").folder)


def test_without_the_key_there_are_none(train):
    folder = train(*RUN).folder
    assert not (folder / "snapshots").exists()
    assert snapshots.rounds_of(RunFolder(folder)) == []


def test_they_hold_the_bounds_of_the_clipper(train):
    result = train(*RUN, EVERY)
    bounds = snapshots.load(RunFolder(result.folder), 4).clipper["bounds"]
    assert len(bounds) == 10
    assert bool((bounds > 0).all())


def test_a_damaged_one_is_said(train):
    folder = train(*RUN, EVERY, "rounds=2").folder
    (folder / "snapshots" / "round000002.pt").write_bytes(b"nonsense")
    with pytest.raises(FedprivError, match=r"round000002\.pt cannot be read"):
        snapshots.load(RunFolder(folder), 2)
