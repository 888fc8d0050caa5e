"""The joint ε of several runs: composition, what does not compose, what is left out."""

from __future__ import annotations

import json
import math
import shutil
from collections import Counter
from pathlib import Path

import pytest

import fedpriv
from fedpriv.common import notices
from fedpriv.experiment.observers import Metrics
from fedpriv.privacy.accountants import RdpAccountant
from fedpriv.privacy.core.names import SOUND
from fedpriv.store.joint_privacy import OWN, choice_warning, joint_privacy, population
from fedpriv.store.run_folders import runs_below
from fedpriv.store.stored_run import StoredRun
from fedpriv.store.sweep import state_joint_privacy


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


def test_what_code_of_ones_own_declares_is_named(runs, tmp_path):
    declared = changed(runs[0], tmp_path / "a", declared_by=["mine.Query"])
    (joint,) = joint_privacy([declared, StoredRun(runs[1])])
    assert any(
        sentence.startswith("It is as declared by mine.Query") for sentence in joint.sentences()
    )


def test_ledgers_compose_by_rdp(runs):
    (joint,) = joint_privacy(map(StoredRun, runs[:2]))
    composition: dict = {}
    for path in runs[:2]:
        history = max(StoredRun(path).ledger(SOUND).histories, key=len)
        composition |= dict(history)
    expected = RdpAccountant().epsilon_of(composition, 1e-5, joint.neighbours)
    assert joint.epsilon == pytest.approx(expected)
    assert (len(joint.runs), joint.delta, joint.unit) == (2, 1e-5, "client")
    words = " ".join(joint.sentences())
    assert "neither which runs were made nor when they stopped followed from their results" in words
    assert "for a client that all these runs protect" in words


def test_the_joint_epsilon_is_above_that_of_each_run(runs):
    (joint,) = joint_privacy(map(StoredRun, runs[:2]))
    assert joint.epsilon > max(StoredRun(p).summary["epsilon_sound"] for p in runs[:2])


def test_a_single_run_has_its_own_epsilon(runs):
    (joint,) = joint_privacy([StoredRun(runs[0])])
    assert joint.epsilon == StoredRun(runs[0]).summary["epsilon_sound"]


def test_a_run_given_twice_counts_once(runs):
    (joint,) = joint_privacy([StoredRun(runs[0]), StoredRun(runs[0])])
    assert len(joint.runs) == 1


def test_runs_without_privacy_are_named_and_not_composed(runs):
    (joint,) = joint_privacy(map(StoredRun, runs))
    assert len(joint.runs) == 2
    words = " ".join(joint.sentences())
    assert "Not included: 1 run without privacy" in words
    assert "all 2" not in words


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


PRIVATE = (
    "algorithm=ldp_fedsgd", "noise_schedule=constant", "epsilon=null", "noise_schedule.noise_multiplier=8",
    "rounds=3", "runtime.plots=false", "runtime.progress=none",
)  # fmt: skip


def told(folder: Path, capsys) -> str:
    notices.take()
    state_joint_privacy(folder, [])
    return " ".join([*capsys.readouterr().out.split(), *notices.take()])


def made(folder: Path, name: str, *overrides: str) -> StoredRun:
    given = fedpriv.compose([*PRIVATE, *overrides, f"runtime.run_dir={folder / name}"])
    fedpriv.run(given)
    return StoredRun(folder / name)


def killed(folder: Path, name: str, monkeypatch, *overrides: str) -> StoredRun:
    """A run that was killed after two rounds."""
    see = Metrics.see

    def dies(self, done):
        if done.number == 2:
            raise SystemExit
        see(self, done)

    with monkeypatch.context() as patch:
        patch.setattr(Metrics, "see", dies)
        with pytest.raises(SystemExit):
            made(folder, name, *overrides)
    return StoredRun(folder / name)


def test_every_ledger_below_the_folder_counts_whether_its_run_ended_or_not(
    tmp_path, capsys, monkeypatch
):
    """Once two of these four were left out, and the sentence said "all"."""
    for seed, name in enumerate(("0", "deep/below/own")):
        made(tmp_path, name, f"seed={seed}")
    stop = tmp_path / "stop"
    stop.touch()
    made(tmp_path, "interrupted", "seed=2", f"runtime.stop_file={stop}")
    killed(tmp_path, "deep/killed", monkeypatch, "seed=3")
    words = told(tmp_path, capsys)
    assert "Joint ε of all 4 private runs together on digits" in words
    assert "2 runs did not end and count with the releases so far" in words
    runs = [StoredRun(path) for _, path in runs_below(tmp_path)]
    (joint,) = joint_privacy(runs)
    composition = Counter()
    for run in runs:
        composition.update(dict(max(run.ledger(SOUND).histories, key=len)))
    assert sum(composition.values()) == 3 + 3 + 1 + 2
    expected = RdpAccountant().epsilon_of(dict(composition), 1e-5, joint.neighbours)
    assert joint.epsilon == pytest.approx(expected)


def test_without_a_ledger_that_can_be_read_there_is_no_number(runs, tmp_path, capsys):
    for name, content in (("a", None), ("b", "event_sound\nnot an event\n")):
        folder = tmp_path / name
        shutil.copytree(runs[0], folder / "whole")
        shutil.copytree(runs[1], folder / "broken")
        (folder / "broken" / "ledger.csv").unlink()
        if content:
            (folder / "broken" / "ledger.csv").write_text(content)
        words = told(folder, capsys)
        assert "is not known" in words
        assert "broken/ledger.csv" in words
        assert "δ =" not in words


def test_a_run_that_released_nothing_costs_nothing(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "begun")
    for path in (tmp_path / "begun").iterdir():
        if path.name not in ("config.yaml", "environment.json") and path.is_file():
            path.unlink()
    (joint,) = joint_privacy([StoredRun(tmp_path / "begun"), StoredRun(runs[0])])
    assert len(joint.runs) == 1


def test_a_repeat_counts_once_whatever_its_runtime(tmp_path):
    made(tmp_path, "one")
    made(tmp_path, "other", "runtime.threads=2")
    (joint,) = joint_privacy(StoredRun(path) for _, path in runs_below(tmp_path))
    assert len(joint.runs) == 1


OWN_MODEL = """
import numpy, torch


class Net(torch.nn.Module):
    def __init__(self, seed=None):
        super().__init__()
        self.linear, self.file = torch.nn.Linear(64, 10), numpy.loadtxt(PATH, ndmin=1)

    def forward(self, x):
        return float(self.file[0]) * self.linear(x.flatten(1))
"""


@pytest.mark.parametrize(("numbers", "shares"), [((1, 1), False), ((1, 2), True)])
def test_runs_of_own_code_that_read_another_file_share_their_noise(
    numbers, shares, tmp_path, monkeypatch
):
    module = f"net_of_{'two' if shares else 'one'}"
    (tmp_path / f"{module}.py").write_text(
        OWN_MODEL.replace("PATH", repr(str(tmp_path / "number.txt")))
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    for place, number in enumerate(numbers):
        (tmp_path / "number.txt").write_text(str(number))
        given = (f"model._target_={module}.Net", "~model.seed", "rounds=2", "epsilon=null")
        made(tmp_path / "runs", str(place), "algorithm=dp_fl", *given)
    (joint,) = joint_privacy(StoredRun(path) for _, path in runs_below(tmp_path / "runs"))
    assert (len(joint.runs), math.isinf(joint.epsilon)) == ((2, True) if shares else (1, False))
    assert shares == ("runs that share their noise" in joint.sentences()[0])


def test_the_same_run_on_an_edited_file_is_another_release_about_the_same_people(tmp_path):
    for name, first in (("before", 1), ("after", 8)):
        rows = "".join(f"{n % 9},{n % 2}\n" for n in range(first, first + 300))
        (tmp_path / "own.csv").write_text("age,y\n" + rows)
        table = ("dataset=csv", f"dataset.path={tmp_path}/own.csv", "dataset.label=y")
        given = ("dataset.ranges={age: [0, 9]}", "dataset.labels=[0,1]", "partition.clients=5")
        made(tmp_path / "runs", name, "algorithm=dp_fl", *table, *given)
    (joint,) = joint_privacy(StoredRun(path) for _, path in runs_below(tmp_path / "runs"))
    assert len(joint.runs) == 2


def test_runs_that_withhold_their_seeds_are_not_one(tmp_path):
    for seed in (0, 1):
        made(tmp_path, str(seed), f"seed={seed}", "runtime.diagnostics=false")
    (joint,) = joint_privacy(StoredRun(path) for _, path in runs_below(tmp_path))
    assert len(joint.runs) == 2


def test_names_stand_for_people():
    def named(target: str, **more: str) -> str:
        return population(
            {"dataset._target_": target, **{f"dataset.{k}": v for k, v in more.items()}}
        )

    def option(name: str) -> str:
        return named("fedpriv.data.Any", _option_=name)

    assert len({option(name) for name in ("mnist", "emnist", "femnist")}) == 1
    assert option("fashion_mnist") == "fashion_mnist"
    assert option("csv") == named("mine.Coins") == named("mine.Texts") == OWN
    one, other = (named("mine.Coins", population=name) for name in ("Ulm", "Bonn"))
    assert len({one, other, OWN}) == 3


def test_a_population_moves_no_fingerprint(tmp_path):
    one, named = made(tmp_path, "one"), made(tmp_path, "named", "dataset.population=Ulm")
    assert one.identity == named.identity
    assert (one.files.metrics.read_text().count("\n")) == 4
    weights = [run.model("cpu") for run in (one, named)]
    assert all(weights[0][name].equal(weights[1][name]) for name in weights[0])
    assert population(named.values) != population(one.values)


@pytest.mark.thorough
def test_one_sweep_may_hold_records_out_in_some_of_its_runs(tmp_path, command):
    said = command(
        "train", "-m", "algorithm=adap_dpfl,dp_fl", "epsilon=3", "rounds=2", "partition.clients=10",
        "hydra.sweep.dir=sweep", "runtime.progress=none", "runtime.plots=false",
    )  # fmt: skip
    assert said.status == 0, said.err
    words = " ".join(said.out.split())
    assert "Joint ε of all 2 private runs together on digits" in words
    public = {
        StoredRun(path).environment["guarantee"]["public_records"]
        for _, path in runs_below(tmp_path / "sweep")
    }
    assert len(public) == 2
    assert f"for a record that all these runs protect; at least {max(public):,} records" in words


def test_other_units_are_another_number_and_all_is_not_said(runs, tmp_path):
    made(tmp_path, "records", "algorithm=dp_fl", "noise_schedule=constant")
    both = joint_privacy([*map(StoredRun, runs[:2]), StoredRun(tmp_path / "records")])
    assert {joint.unit for joint in both} == {"client", "record"}
    (clients,) = (joint for joint in both if joint.unit == "client")
    words = " ".join(clients.sentences())
    assert "Joint ε of 2 private runs together" in words
    assert "Not included: 1 run with another unit (record)" in words


@pytest.mark.thorough
def test_adjacencies_mix_by_the_wider_one(tmp_path):
    shared = ("algorithm=dp_fl", "accountant=rdp", "noise_schedule.noise_multiplier=20")
    one = made(tmp_path, "poisson", *shared)
    other = made(tmp_path, "fixed", *shared, "algorithm.sampling=fixed_size")
    (joint,) = joint_privacy([one, other])
    stated = [run.summary["epsilon_sound"] for run in (one, other)]
    assert joint.neighbours == "replace_one"
    assert joint.epsilon >= 2 * stated[0] + 0.9 * stated[1]
    assert joint.delta == pytest.approx(1e-5 * (2 + math.exp(stated[0])))


def test_a_killed_run_whose_noise_adapts_has_the_epsilon_of_its_filter(tmp_path, monkeypatch):
    adaptive = ("algorithm=adap_dpfl", "noise_schedule=validation_decay", "rounds=30")
    guarded = killed(tmp_path, "guarded", monkeypatch, *adaptive, "epsilon=30")
    (joint,) = joint_privacy([guarded])
    assert joint.epsilon == pytest.approx(30)
    free = killed(tmp_path, "free", monkeypatch, *adaptive)
    (joint,) = joint_privacy([guarded, free])
    assert math.isinf(joint.epsilon)


def test_the_trials_of_a_search_count_once_by_its_ledger(runs, tmp_path):
    for number, run in enumerate(runs[:2]):
        shutil.copytree(run, tmp_path / "search" / str(number))
    (tmp_path / "search" / "search.json").write_text(json.dumps({"epsilon": 7.0, "delta": 1e-5}))
    made(tmp_path, "other", "seed=5")
    (joint,) = joint_privacy(StoredRun(path) for _, path in runs_below(tmp_path))
    assert len(joint.runs) == 2
    assert joint.epsilon > 7.0


def test_shadow_runs_are_listed_as_not_included(runs, tmp_path):
    shutil.copytree(runs[0], tmp_path / "shadow")
    config = tmp_path / "shadow" / "config.yaml"
    shadow = "shadow: {half: 0, nonmembers: records, seed: 0}"
    config.write_text(config.read_text().replace("shadow: null", shadow))
    (joint,) = joint_privacy([StoredRun(runs[0]), StoredRun(tmp_path / "shadow")])
    assert len(joint.runs) == 1
    assert "Not included: 1 run of the shadow runs of audits" in " ".join(joint.sentences())


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
