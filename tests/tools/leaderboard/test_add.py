"""``fedpriv leaderboard add``: an entry of runs, and the runs that it refuses."""

from __future__ import annotations

import csv
import json

import pytest
import yaml
from sealing import seal

from fedpriv.tools.leaderboard import code
from fedpriv.tools.leaderboard.entry import read_entry
from fedpriv.tools.leaderboard.gather import file_name
from fedpriv.tools.leaderboard.measured import measure

ADD = ("leaderboard", "add")


def configure(folder, **values) -> None:
    """Set keys of a run's configuration; ``a__b`` is the key a.b."""
    config = yaml.safe_load(folder.config.read_text())
    for key, value in values.items():
        group, _, own = key.partition("__")
        if own:
            config[group][own] = value
        else:
            config[group] = value
    folder.config.write_text(yaml.safe_dump(config))
    seal(folder.path)


def repeat_draws(folder, times: int) -> None:
    """The ledger of a run that drew so many times as often, and nothing else of it."""
    rows = list(csv.DictReader(folder.ledger.read_text().splitlines()))
    for row in rows:
        row["draws_per_client"] = str(times * int(row["draws_per_client"]))
    with folder.ledger.open("w") as file:
        writer = csv.DictWriter(file, rows[0].keys())
        writer.writeheader()
        writer.writerows(rows)


def test_runs_of_two_seeds_make_an_entry(run, command, commit):
    first, second = run("a"), run("b", seed=1)
    said = command(*ADD, "b", "a", "--entries", "e/f")
    assert (said.status, said.err) == (0, "")
    (path,) = first.path.parent.glob("e/f/*.json")
    entry = read_entry(path)
    assert path.name.startswith("digits-")
    assert (entry.trust, entry.unit, entry.neighbours, entry.delta) == (
        "local",
        "record",
        "add_or_remove",
        1e-5,
    )
    assert (entry.commit, entry.overrides, entry.checks) == (
        commit,
        ("algorithm=dp_fl", "rounds=4"),
        (),
    )
    assert [(one.seed, one.noise_seed, one.rounds) for one in entry.runs] == [(0, 0, 4), (1, 1, 4)]
    for one, folder in zip(entry.runs, (first, second), strict=True):
        summary = json.loads(folder.summary.read_text())
        assert one.test_accuracy == summary["test_accuracy"]
        assert one.cpu_seconds == summary["cpu_seconds"] > 0
        assert one.epsilon == pytest.approx(summary["epsilon_sound"], rel=1e-6)
        assert entry.test_records == summary["test_records"] == 360
    assert "over 2 seeds" in said.out
    assert "a check accepts accuracies within" in said.out


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (("epsilon=1",), "digits-"),
        (("+recipe=digits_local_eps1",), "digits_local_eps1-"),
        (("+experiment=adap_dpfl/published", "epsilon=1"), "digits-adap_dpfl-published-"),
    ],
    ids=str,
)
def test_a_file_is_named_after_data_set_and_recipe(overrides, name, reaching):
    one, same = reaching(overrides=overrides), reaching(overrides=overrides, mean=0.5)
    assert file_name(one).startswith(name)
    assert file_name(one) == file_name(same) != file_name(reaching(overrides=("rounds=9",)))


def test_the_seed_of_a_rule_is_no_other_configuration(run, command):
    rule = ("algorithm=dp_fl", "rounds=2", "aggregation=median")
    run("a", *rule)
    run("b", *rule, seed=1)
    assert command(*ADD, "a", "b", "--entries", "e").status == 0


def test_one_seed_is_told_and_an_entry_is_replaced_only_when_asked(run, command):
    run("a")
    said = command(*ADD, "a", "--entries", "e")
    assert said.status == 0
    assert "one seed has no sd" in said.out
    assert "--replace puts this one in its place" in command(*ADD, "a", "--entries", "e").sentence
    assert command(*ADD, "a", "--entries", "e", "--replace").status == 0


def test_a_statement_that_is_not_that_of_the_ledger_is_refused(run, change, command):
    folder = run()
    for path in (folder.summary, folder.privacy_json):
        change(path, epsilon=0.01, epsilon_sound=0.01)
    said = command(*ADD, "run").sentence
    assert "ledger.csv has epsilon" in said
    assert "privacy.json states 0.01" in said


def test_a_ledger_that_is_not_that_of_the_statement_is_refused(run, command):
    folder = run()
    repeat_draws(folder, 25)
    assert "ledger.csv is not as the run wrote it" in command(*ADD, "run").sentence
    seal(folder.path)
    assert "ledger.csv has epsilon" in command(*ADD, "run").sentence


def test_a_summary_that_is_not_that_of_the_statement_is_refused(run, change, command):
    folder = run()
    change(folder.summary, epsilon_sound=0.01)
    said = command(*ADD, "run").sentence
    assert "summary.json says epsilon_sound 0.01, privacy.json says" in said


def test_a_file_that_is_not_as_the_run_wrote_it_is_refused(run, command):
    folder = run()
    text = folder.summary.read_text()
    accuracy = json.loads(text)["test_accuracy"]
    folder.summary.write_text(text.replace(f'"test_accuracy": {accuracy}', '"test_accuracy": 0.99'))
    assert "summary.json is not as the run wrote it" in command(*ADD, "run").sentence


def test_a_run_without_digests_is_entered_with_one_line(run, command):
    folder = run()
    summary = json.loads(folder.summary.read_text())
    del summary["files"]
    folder.summary.write_text(json.dumps(summary))
    said = command(*ADD, "run", "--entries", "e")
    assert said.status == 0
    assert "no digests" in said.err
    assert said.err.count("\n") == 1


def test_epsilon_is_what_fedpriv_account_says(run, command):
    folder = run()
    said = json.loads(command("account", "--run", str(folder.path), "--json").out)
    answers = [a["epsilon"]["1e-05"] for a in said["accountants"].values() if "epsilon" in a]
    assert measure(folder.path).epsilon == pytest.approx(min(answers), rel=1e-3)  # prv is not asked


def test_noise_that_adapts_has_the_budget_of_its_filter_if_the_ledger_keeps_to_it(run):
    folder = run("run", "algorithm=adap_dpfl", "rounds=4")
    assert measure(folder.path).epsilon == 2.0
    repeat_draws(folder, 100)
    with pytest.raises(Exception, match="by its ledger its filter spent epsilon"):
        measure(folder.path)


def test_noise_that_adapts_without_a_filter_is_refused(run, change, command):
    folder = run("run", "algorithm=adap_dpfl", "rounds=4")
    change(folder.privacy_json, order=None)
    assert "no Renyi filter guards it" in command(*ADD, "run").sentence


def _planted(folder, change) -> None:
    folder.audit.mkdir()
    folder.canaries.write_text("{}")


SPOILT = {
    "is not finished: it ended as interrupted": lambda f, change: change(
        f.summary, stop_reason="interrupted"
    ),
    "is not finished: it ended as diverged": lambda f, change: change(f.summary, stop_reason="diverged"),
    "is not finished": lambda f, change: f.summary.unlink(),
    "is no run folder": lambda f, change: f.config.unlink(),
    "has malicious clients": lambda f, change: change(f.summary, attackers=[1]),
    "has canaries": _planted,
    "is a shadow run of an audit": lambda f, change: configure(
        f, shadow={"half": 0, "nonmembers": "test", "seed": 0}
    ),
    "has publish=true": lambda f, change: configure(f, publish=True),
    "has budget_view=published": lambda f, change: configure(f, budget_view="published"),
    "does not have its overrides": lambda f, change: change(f.environment, overrides=None),
    "has no test_accuracy": lambda f, change: change(f.summary, test_accuracy=None),
    "has no cpu_seconds": lambda f, change: change(f.summary, cpu_seconds=None),
    "has no test_records": lambda f, change: change(f.summary, test_records=None),
    "changes that are not committed": lambda f, change: change(f.environment, commit="0" * 12 + "-dirty"),
    "an installed package, whose commit is not known": lambda f, change: change(f.environment, commit=None),
    "which this checkout lacks": lambda f, change: change(f.environment, commit="0" * 12),
    "commit --upload-pack=x, which": lambda f, change: change(f.environment, commit="--upload-pack=x"),
    "cannot be made again: its overrides give another rounds": lambda f, change: configure(f, rounds=5),
    "names code outside fedpriv": lambda f, change: configure(f, clipper___target_="os.system"),
    "the override model=../x cannot be in an entry": lambda f, change: change(
        f.environment, overrides=["model=../x"]
    ),
    "run/ledger.csv has no entries": lambda f, change: f.ledger.write_text("x"),
}  # fmt: skip


@pytest.mark.few(18)
@pytest.mark.parametrize("sentence", SPOILT)
def test_a_run_that_cannot_be_entered_is_refused_in_a_sentence(
    sentence, run, change, command, tmp_path
):
    folder = run()
    SPOILT[sentence](folder, change)
    said = command(*ADD, "run", "--entries", "e")
    assert said.status == 2
    assert sentence in said.sentence
    assert not (tmp_path / "e").exists()


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("overrides", "sentence"),
    [
        (("algorithm=fedavg", "rounds=2"), "has no privacy"),
        (
            ("algorithm=dp_fl", "rounds=2", "attack=label_flip", "attack.trigger.writers=2"),
            "has malicious clients",
        ),
        (("algorithm=dp_fl", "rounds=2", "delta=.01"), "delta=0.01 is too large"),
        (("algorithm=dp_fl", "rounds=2", "audit=epsilon:10"), "has canaries"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_runs_without_a_guarantee_to_compare_are_refused(overrides, sentence, run, command):
    run("run", *overrides)
    assert sentence in command(*ADD, "run").sentence


def test_a_trial_of_a_search_is_refused(run, command, tmp_path):
    run()
    (tmp_path / "search.json").write_text("{}")
    assert "is a trial of a search" in command(*ADD, "run").sentence


def test_runs_that_differ_in_more_than_seeds_are_refused(run, command):
    run("a")
    run("b", "algorithm=dp_fl", "rounds=5")
    said = command(*ADD, "a", "b").sentence
    assert "b and a have different configurations: rounds is 5 and 4" in said


def test_the_same_seed_twice_is_refused(run, command):
    run("a")
    run("b")
    assert "b and a have the same seed and noise_seed" in command(*ADD, "a", "b").sentence


def test_runs_of_different_commits_are_refused(run, command, change, checkout):
    run("a")
    change(run("b", seed=1).environment, commit="v1")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(code, "_commit", lambda root, name: "b" * 40 if "v1" in name else "a" * 40)
        assert "b and a were made by code of different commits" in command(*ADD, "a", "b").sentence


def test_without_a_checkout_it_says_what_is_missing(run, command, monkeypatch, tmp_path):
    run()
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("fedpriv.__file__", str(tmp_path / "fedpriv" / "__init__.py"))
    assert "is no git checkout: run fedpriv from one" in command(*ADD, "run").sentence
