"""The joint ε of several runs: composition, what does not compose, what is left out."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pytest

from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.names import SOUND
from fedpriv.store.joint_privacy import choice_warning, joint_privacy
from fedpriv.store.stored_run import StoredRun


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    """Two private runs with fixed noise, and one without privacy."""
    from fedpriv import cli

    folder = tmp_path_factory.mktemp("joint")
    shared = ("rounds=2", "runtime.progress=none", "runtime.plots=false")
    private = ("algorithm=ldp_fedsgd", "noise_schedule=constant", "epsilon=null")
    for name, words in (
        ("a", (*private, "noise_schedule.noise_multiplier=8")),
        ("b", (*private, "noise_schedule.noise_multiplier=4", "seed=1")),
        ("open", ("algorithm=fedsgd",)),
    ):
        assert cli.run(["train", *words, *shared, f"runtime.run_dir={folder / name}"]) == 0
    return [folder / name for name in ("a", "b", "open")]


def changed(run: Path, to: Path, **facts: object) -> StoredRun:
    """Return a copy of a run with other facts in its statement."""
    shutil.copytree(run, to)
    path = to / "privacy.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **facts}))
    return StoredRun(to)


def test_ledgers_compose_by_rdp(runs):
    (joint,) = joint_privacy(map(StoredRun, runs[:2]))
    composition: dict = {}
    for path in runs[:2]:
        history = max(StoredRun(path).ledger(SOUND).histories, key=len)
        composition |= dict(history)
    expected = RdpAccountant().epsilon_of(composition, 1e-5, joint.neighbours)
    assert joint.epsilon == pytest.approx(expected)
    assert (joint.runs, joint.delta, joint.unit) == (2, 1e-5, "client")
    assert "no run was chosen by looking at the result" in " ".join(joint.sentences())


def test_the_joint_epsilon_is_above_that_of_each_run(runs):
    (joint,) = joint_privacy(map(StoredRun, runs[:2]))
    assert joint.epsilon > max(StoredRun(p).summary["epsilon_sound"] for p in runs[:2])


def test_a_single_run_has_its_own_epsilon(runs):
    (joint,) = joint_privacy([StoredRun(runs[0])])
    assert joint.epsilon == StoredRun(runs[0]).summary["epsilon_sound"]


def test_a_run_given_twice_counts_once(runs):
    (joint,) = joint_privacy([StoredRun(runs[0]), StoredRun(runs[0])])
    assert joint.runs == 1


def test_runs_without_privacy_are_named_and_not_composed(runs):
    (joint,) = joint_privacy(map(StoredRun, runs))
    assert (joint.runs, joint.without_privacy) == (2, 1)
    assert "1 run without privacy" in " ".join(joint.sentences())


def test_runs_whose_noise_adapts_count_as_a_whole(runs, tmp_path):
    adaptive = changed(runs[0], tmp_path / "adaptive", noise_adapts=True)
    (joint,) = joint_privacy([StoredRun(runs[1]), adaptive])
    alone = [StoredRun(path).summary["epsilon_sound"] for path in runs[:2]]
    assert joint.delta == pytest.approx(2e-5)
    assert joint.epsilon >= alone[0] + 0.9 * alone[1]
    assert "basic composition" in joint.how


def test_nothing_finite_holds_where_delta_adds_up_to_one(runs, tmp_path):
    adaptive = changed(runs[0], tmp_path / "adaptive", noise_adapts=True, delta=0.6)
    other = changed(runs[1], tmp_path / "other", noise_adapts=True, delta=0.4)
    (joint,) = joint_privacy([adaptive, other])
    assert math.isinf(joint.epsilon)


def test_an_infinite_epsilon_stays_infinite(runs, tmp_path):
    broken = changed(runs[0], tmp_path / "broken", epsilon_sound=math.inf)
    (joint,) = joint_privacy([StoredRun(runs[1]), broken])
    assert math.isinf(joint.epsilon)


@pytest.mark.parametrize(
    ("keys", "metrics", "warned"),
    [
        (["algorithm.learning_rate"], ["test_accuracy"], True),
        (["clipper.clip_norm", "epsilon"], ["test_loss"], True),
        (["algorithm.learning_rate"], ["validation_loss"], False),
        (["epsilon", "algorithm", "dataset"], ["test_accuracy"], False),
        (["partition.clients"], ["test_accuracy"], False),
    ],
)
def test_a_choice_on_test_records_is_warned_of(keys, metrics, warned):
    said = choice_warning(keys, metrics)
    assert bool(said) is warned
    if warned:
        assert keys[0] in said
