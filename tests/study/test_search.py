"""``hydra/sweeper=search``: what is refused, what a search pays for, and that it goes on."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fedpriv import compose
from fedpriv.common.errors import ConfigError, FedprivError
from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.mechanisms import JointQuery
from fedpriv.store.ledger_file import ledger_text
from fedpriv.study.search_planned import plan_trial
from fedpriv.study.search_run import Search
from fedpriv.study.search_settings import SearchSettings
from fedpriv.train import main
from tests.privacy.releases import released

pytest.importorskip("optuna")
DELTA = 1e-5
CONSTANT = ["algorithm=dp_fl", "rounds=2", "noise_schedule=validation_decay"]
CONSTANT += ["noise_schedule.beta=1", "noise_schedule.noise_multiplier=12"]
RATE = "algorithm.learning_rate=tag(log,interval(0.01,1))"
NOISE = "noise_schedule.noise_multiplier=8,12"


def settings(**changed) -> SearchSettings:
    given = {
        "epsilon": 50,
        "trials": 4,
        "objective": "validation_loss",
        "public_test_records": False,
        "sampler": "random",
        "seed": 0,
    }
    return SearchSettings.of(**{**given, **changed})


def search(folder: Path, *arguments: str, said: list[str] | None = None, **changed) -> Search:
    say = (lambda _: None) if said is None else said.append
    return Search(settings(**changed), arguments, folder, lambda job: compose(list(job)), say)


def planned(*overrides: str) -> tuple[JointQuery, dict]:
    """(what a trial of these overrides releases on a sample, its planned events)."""
    trial = plan_trial(compose(list(overrides)))
    costs = trial.parts.costs()
    return costs.joint(trial.parts.noise_schedule.noise_multiplier(0)), trial.events


class Pretended:
    """Writes what a run leaves behind, without one."""

    def __init__(self, folder: Path, joint: JointQuery, count: int, **ends: str):
        self.folder, self.joint, self.count, self.ends = folder, joint, count, ends
        self.launched: list[tuple[int, list[str]]] = []

    def __call__(self, number: int, overrides: Sequence[str]) -> None:
        self.launched.append((number, list(overrides)))
        end = self.ends.get(f"trial_{number}", "rounds")
        if end == "nothing":
            return
        folder = self.folder / str(number)
        folder.mkdir(exist_ok=True)
        ledger = Ledger(2)
        count = self.count if end == "rounds" else 1
        ledger.record(released(self.joint, np.arange(2), count=count))
        (folder / "ledger.csv").write_text(ledger_text(ledger, None))
        (folder / "summary.json").write_text(json.dumps({"stop_reason": end}))
        (folder / "metrics.csv").write_text(f"round,validation_loss\n1,{2.0 + number % 7}\n")


def pretended(folder: Path, **ends: str) -> Pretended:
    joint, events = planned(*CONSTANT)
    return Pretended(folder, joint, events[joint.event()], **ends)


def stated(folder: Path) -> dict:
    return json.loads((folder / "search.json").read_text())


def test_trials_that_fail_or_diverge_are_charged_in_full_where_events_are_fixed(tmp_path):
    launch = pretended(tmp_path, trial_1="diverged", trial_2="nothing")
    own = search(tmp_path, *CONSTANT, RATE)
    own.go(launch)
    _, events = planned(*CONSTANT)
    ((event, count),) = events.items()
    found = stated(tmp_path)
    assert [row["state"] for row in found["trials"]] == ["rounds", "diverged", "failed", "rounds"]
    assert found["epsilon"] == RdpAccountant().epsilon_of(
        {event: 4 * count}, DELTA, "add_or_remove"
    )


def test_trial_that_diverges_pays_what_it_released_under_a_filter(tmp_path):
    own = search(tmp_path, *CONSTANT[:-1], NOISE, RATE)
    assert own.budget.adaptive
    joint, _ = planned(*CONSTANT)
    launch = Pretended(tmp_path, joint, 1, trial_0="diverged")
    own.trials = [
        {"values": {"noise_schedule.noise_multiplier": "12", "algorithm.learning_rate": 0.1}}
    ]
    own.settings = settings(trials=1)
    own.go(launch)
    (history,) = own.ledger.histories()
    assert history == {joint.event(): 1}
    assert stated(tmp_path)["epsilon"] == 50


def test_no_trial_starts_that_might_exceed_the_budget(tmp_path):
    said: list[str] = []
    _, events = planned(*CONSTANT)
    one = RdpAccountant().epsilon_of(events, DELTA, "add_or_remove")
    launch = pretended(tmp_path)
    own = search(tmp_path, *CONSTANT, RATE, epsilon=1.5 * one, trials=50, said=said)
    own.go(launch)
    assert 1 < len(launch.launched) < 50
    assert stated(tmp_path)["epsilon"] <= 1.5 * one
    assert said[-1] == f"search: the budget allows no trial {len(launch.launched)}"


@pytest.mark.thorough
def test_search_that_was_interrupted_goes_on_as_if_it_had_not_been(tmp_path):
    whole = search(tmp_path / "whole", *CONSTANT, RATE)
    uninterrupted = pretended(tmp_path / "whole")
    best = whole.go(uninterrupted)
    part = pretended(tmp_path / "part", trial_2="interrupted")
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path / "part", *CONSTANT, RATE).go(part)
    paid = stated(tmp_path / "part")
    assert [row["state"] for row in paid["trials"]] == ["rounds", "rounds", "interrupted"]
    rest = pretended(tmp_path / "part")
    assert search(tmp_path / "part", *CONSTANT, RATE).go(rest) == best
    assert rest.launched == uninterrupted.launched
    assert stated(tmp_path / "part") == stated(tmp_path / "whole")


def test_trial_that_runs_is_in_the_statement_already(tmp_path):
    def killed(number: int, overrides: Sequence[str]) -> None:
        found.append(stated(tmp_path)["epsilon"])

    found: list[float] = []
    own = search(tmp_path, *CONSTANT, RATE, trials=1)
    own.go(killed)
    assert found == [stated(tmp_path)["epsilon"]]
    assert found[0] > 0


def test_trial_that_is_an_earlier_one_is_neither_run_nor_charged(tmp_path):
    said: list[str] = []
    launch = pretended(tmp_path)
    own = search(tmp_path, *CONSTANT, "algorithm.learning_rate=0.1,0.2", trials=6, said=said)
    own.go(launch)
    _, events = planned(*CONSTANT)
    ((event, count),) = events.items()
    assert len(launch.launched) == 2
    assert sum("not run, not charged" in line for line in said) == 4
    found = stated(tmp_path)
    assert found["epsilon"] == RdpAccountant().epsilon_of(
        {event: 2 * count}, DELTA, "add_or_remove"
    )
    again = search(tmp_path, *CONSTANT, "algorithm.learning_rate=0.1,0.2", trials=6)
    again.go(pretended(tmp_path))
    assert stated(tmp_path) == found


def test_search_killed_while_it_reads_its_trials_states_all_of_them(tmp_path):
    search(tmp_path, *CONSTANT, RATE).go(pretended(tmp_path))
    before = stated(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        search(tmp_path, *CONSTANT, RATE).go(pretended(tmp_path, trial_1="interrupted"))
    assert stated(tmp_path) == before


def test_another_budget_is_refused_in_the_same_folder(tmp_path):
    search(tmp_path, *CONSTANT, RATE).go(pretended(tmp_path))
    with pytest.raises(ConfigError, match="is of another search"):
        search(tmp_path, *CONSTANT, RATE, epsilon=60)


def test_any_accountant_composes_trials_with_the_same_events(tmp_path):
    own = search(tmp_path, *CONSTANT, "accountant=pld", RATE)
    assert isinstance(own.budget.accountant, PldAccountant)
    assert not own.budget.adaptive


@pytest.mark.few(5)
@pytest.mark.parametrize(
    ("arguments", "changed", "words"),
    [
        ([*CONSTANT], {}, "needs a key to search"),
        ([*CONSTANT, RATE], {"epsilon": None}, r"hydra\.sweeper\.epsilon must be a number > 0"),
        ([*CONSTANT, RATE], {"epsilon": 0.01}, "the cost of a single trial as planned"),
        ([*CONSTANT, RATE], {"objective": "train_loss"}, r"hydra\.sweeper\.objective must be one of"),
        ([*CONSTANT, RATE], {"objective": "worst_decile_own_accuracy"}, "objective must be one of"),
        ([*CONSTANT, RATE], {"objective": "test_accuracy"}, "public_test_records=true declares"),
        ([*CONSTANT, RATE], {"sampler": "best"}, r"hydra\.sweeper\.sampler must be one of"),
        ([*CONSTANT[:-1], NOISE, "accountant=pld"], {}, "the accountant has no filter"),
        ([*CONSTANT, "seed=1,2"], {}, "seed must be the same in all trials"),
        ([*CONSTANT, "partition=shards40,iid"], {}, "partition"),
        ([*CONSTANT[:-2], RATE], {}, "does not follow released values"),
        (["algorithm=fedsgd", "rounds=2", "algorithm.learning_rate=0.1,1"], {}, "a private one"),
        (["algorithm=dp_fl", "rounds=2", RATE], {}, "needs a noise_schedule that sets public"),
    ],
)  # fmt: skip
def test_refused_before_the_first_trial(tmp_path, arguments, changed, words):
    with pytest.raises(ConfigError, match=words) as caught:
        search(tmp_path, *arguments, **changed)
    assert "\n" not in str(caught.value)
    assert not any(tmp_path.iterdir())


def test_optuna_that_is_not_installed_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ConfigError, match="pip install optuna"):
        search(tmp_path, *CONSTANT, RATE)


def test_key_that_changes_the_mechanism_between_its_ends_ends_the_search(tmp_path, monkeypatch):
    own = search(tmp_path, *CONSTANT, RATE)
    other = plan_trial(compose([*CONSTANT, "rounds=3"]))
    monkeypatch.setattr("fedpriv.study.search_run.plan_trial", lambda _: other)
    with pytest.raises(FedprivError, match="releases something else than other trials"):
        own.go(pretended(tmp_path))


@pytest.mark.thorough
def test_command_runs_trials_and_states_what_they_cost(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    command = ["-m", "hydra/sweeper=search", "hydra.sweeper.epsilon=5", "hydra.sweeper.trials=2"]
    command += [*CONSTANT, RATE, "runtime.plots=false"]
    main(command)
    (folder,) = (tmp_path / "outputs" / "searches").iterdir()
    found = stated(folder)
    _, events = planned(*CONSTANT)
    ((event, count),) = events.items()
    whole = RdpAccountant().epsilon_of({event: 2 * count}, DELTA, "add_or_remove")
    assert found["epsilon"] == pytest.approx(whole, rel=1e-12)
    assert {path.name for path in folder.iterdir()} == {"0", "1", "search.json", "privacy.txt"}
    assert "best is trial" in capsys.readouterr().out
    main(command)  # it is done: the same again, and nothing more is paid
    assert stated(folder) == found


WILD = ["algorithm.learning_rate=1e38,0.1", "dataset.normalize=false", "runtime.plots=false"]


@pytest.mark.thorough
def test_a_trial_that_diverges_is_no_failure(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    limits = ["hydra.sweeper.epsilon=5", "hydra.sweeper.trials=4", "hydra.sweeper.sampler=random"]
    main(["-m", "hydra/sweeper=search", *limits, *CONSTANT, *WILD])
    (folder,) = (tmp_path / "outputs" / "searches").iterdir()
    assert {"rounds", "diverged"} <= {row["state"] for row in stated(folder)["trials"]}
    said = capsys.readouterr()
    assert said.err == ""
    assert "diverged; epsilon spent" in said.out
    assert "algorithm.learning_rate=0.1, validation_loss" in said.out


@pytest.mark.thorough
def test_a_search_whose_trials_all_diverge_fails(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    limits = ["hydra.sweeper.epsilon=5", "hydra.sweeper.trials=2"]
    wild = ["algorithm.learning_rate=1e38,1e37", *WILD[1:]]
    with pytest.raises(FedprivError, match="no trial has a finite validation_loss") as caught:
        main(["-m", "hydra/sweeper=search", *limits, *CONSTANT, *wild])
    assert caught.value.exit_status == 1


def test_dry_run_says_how_many_trials_fit(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    _, events = planned(*CONSTANT)
    ((event, count),) = events.items()
    two = RdpAccountant().epsilon_of({event: 2 * count}, DELTA, "add_or_remove")
    main(
        [
            "-m",
            "hydra/sweeper=search",
            f"hydra.sweeper.epsilon={two}",
            *CONSTANT,
            RATE,
            "dry_run=true",
        ]
    )
    assert "allows 2 of 20 trials, all with the same events" in capsys.readouterr().out
    assert not any(tmp_path.iterdir())


def test_figure_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="a figure has curves of its own"):
        main(["-m", "hydra/sweeper=search", "+figure=adap_dpfl/fig1", *CONSTANT, RATE])
