"""A search by random stopping shows its best trial and nothing that tells how many there were."""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from fedpriv.common.errors import ConfigError, FedprivError, Interrupted
from fedpriv.common.words import round_up
from fedpriv.privacy.ledger import Ledger
from fedpriv.privacy.random_stopping import NegativeBinomialTrials, PoissonTrials
from fedpriv.store.ledger_file import ledger_text
from fedpriv.study.search_secret_trials import BEST, HIDDEN, SecretTrials
from fedpriv.study.search_space import Space
from fedpriv.train import main
from tests.privacy.releases import released
from tests.study.test_search_stopping import RATE, TRIAL, search

pytest.importorskip("optuna")


class Pretended:
    """Writes what a trial leaves behind; the n-th ends with the n-th score, or as the word there says."""

    def __init__(self, own: SecretTrials, scores: Iterable[float | str]):
        self.own, self.scores, self.seen, self.count = own, list(scores), [], 3
        costs = own._first.parts.costs()
        self.joint = costs.joint(own._first.parts.noise_schedule.noise_multiplier(0))

    def __call__(self, config) -> str:
        number = len(self.seen)
        self.seen.append({path.name for path in (self.own.folder / HIDDEN).iterdir()})
        end, folder = self.scores[number], Path(config.runtime.run_dir)
        assert (config.publish, config.runtime.progress) == (True, "none")
        print("a line of a trial")
        if end == "refused":
            raise ConfigError("it cannot be")
        (folder / "public").mkdir(parents=True)
        (folder / "config.yaml").write_text("seed: 0\n")
        if end == "killed":
            os.kill(os.getpid(), signal.SIGTERM)
        if end == "broken":
            raise FedprivError("no room")
        ledger = Ledger(2)
        ledger.record(released(self.joint, np.arange(2), count=self.count))
        (folder / "ledger.csv").write_text(ledger_text(ledger, None))
        facts = {"finished": True, "stop_reason": "rounds", "epsilon_sound": 1.0, "caveats": []}
        (folder / "privacy.json").write_text(json.dumps(facts))
        (folder / "metrics.csv").write_text(f"round,validation_loss\n1,{end}\n")
        (folder / "public" / "config.yaml").write_text("rounds: 3\n")
        (folder / "public" / "model.pt").write_text(f"score {end}")
        return end if isinstance(end, str) else "rounds"


@pytest.fixture
def pretend(monkeypatch):
    """Makes a search whose trials end with these scores, all with the same values."""

    def make(folder: Path, scores: Iterable[float | str], **changed) -> SecretTrials:
        own = search(folder, *TRIAL, RATE, **changed)
        scores = list(scores)
        for law in (NegativeBinomialTrials, PoissonTrials):
            monkeypatch.setattr(law, "quantile", lambda self, p: len(scores))
        rate = {"algorithm.learning_rate": 0.5}
        monkeypatch.setattr(Space, "drawn", lambda self, uniform: rate)
        own._run = Pretended(own, scores)
        own._started = 10**9
        return own

    return make


def told(folder: Path) -> dict[str, object]:
    """Everything that a copy of the folder tells: names, contents, times."""
    found = {}
    for path in sorted(folder.rglob("*")):
        content = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (content, path.stat().st_mtime, path.stat().st_mode)
    return found


def stated(folder: Path) -> dict:
    return json.loads((folder / "search.json").read_text())


def composed(own: SecretTrials, trials: int) -> float:
    events = {event: trials * count for event, count in own.bound.events.items()}
    return own.bound.accountant.epsilon_of(events, own.bound.delta, own.bound.neighbours)


@pytest.mark.few(1)
@pytest.mark.parametrize("scores", [[0.5, 2, 3, "diverged", 0.5, 7], [0.9, 0.5], [2] * 30 + [0.5]])
def test_nothing_that_stays_tells_how_many_trials_there_were(pretend, tmp_path, capfd, scores):
    one = pretend(tmp_path / "one", [0.5])
    assert one.go() == {"values": {"algorithm.learning_rate": 0.5}, "score": 0.5}
    several = pretend(tmp_path / "several", scores)
    assert several.go() == one.go()
    assert told(tmp_path / "several") == told(tmp_path / "one")
    assert {path.name for path in (tmp_path / "one").iterdir()} == {
        "best", "search.json", "privacy.txt",
    }  # fmt: skip
    assert os.stat(tmp_path / "several").st_mtime == os.stat(tmp_path / "one").st_mtime
    assert capfd.readouterr() == ("", "")


def test_a_trial_that_loses_is_deleted_at_once(pretend, tmp_path):
    own = pretend(tmp_path, [3, 4, 2, "diverged", 5, 1])
    own.go()
    assert own._run.seen[0] == {"begun"}
    assert all(seen == {"begun", BEST} for seen in own._run.seen[1:])
    assert (tmp_path / BEST / "model.pt").read_text() == "score 1"


def test_no_trial_with_a_score_is_told_as_no_trial_at_all(pretend, tmp_path):
    for name, scores in (("none", []), ("all", ["diverged", "nan", "diverged"])):
        assert pretend(tmp_path / name, scores, stopping="poisson").go() is None
    assert told(tmp_path / "none") == told(tmp_path / "all")
    assert "no trial has a score" in (tmp_path / "none" / "privacy.txt").read_text()


def test_the_statement_gives_the_bound_and_what_stays_secret(pretend, tmp_path):
    own = pretend(tmp_path, [2, 1], trials=10, eta=1)
    own.go()
    found, words = stated(tmp_path), (tmp_path / "privacy.txt").read_text()
    assert found["epsilon"] == own.bound.epsilon
    assert found["search"]["gamma"] == pytest.approx(0.1)
    assert "negative binomial law, eta 1, gamma 0.1 (10 on average)" in words
    assert "theorem 2" in words
    assert "improved conversion" in words
    assert "how long the search took" in words
    assert found["largest_tpr"] == own.bound.trade_off().largest()
    assert "best attack        true positive rate of at most " in words
    one = own.bound.trade_off_composed(1).largest()
    assert one["at_1_percent_fpr"] < found["largest_tpr"]["at_1_percent_fpr"] < 0.2


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("end", "kind"),
    [("killed", Interrupted), ("interrupted", Interrupted), ("broken", FedprivError)],
)
def test_a_search_that_is_cut_short_deletes_its_trials_and_is_charged_by_composition(
    pretend, tmp_path, end, kind
):
    own = pretend(tmp_path, [2, 1, end, 0])
    with pytest.raises(kind, match=r"cost epsilon [\d.]+ by composition") as caught:
        own.go()
    assert caught.value.exit_status == kind.exit_status
    assert {path.name for path in tmp_path.iterdir()} == {"search.json", "privacy.txt"}
    found = stated(tmp_path)
    assert (found["state"], found["trials_begun"]) == ("interrupted", 3)
    assert found["epsilon"] == composed(own, 3)
    assert found["largest_tpr"] == own.bound.trade_off_composed(3).largest()
    with pytest.raises(ConfigError, match="did not reach its end: it cannot go on"):
        pretend(tmp_path, [0]).go()
    assert stated(tmp_path) == found


@pytest.mark.few(1)
@pytest.mark.parametrize("known", [True, False])
def test_a_search_that_was_killed_is_stated_when_it_is_given_again(pretend, tmp_path, known):
    own = pretend(tmp_path, [2, 1, 3, "killed"])
    own._end_early = lambda made: None  # nobody has the time for it
    with pytest.raises(Interrupted):
        own.go()
    assert stated(tmp_path)["state"] == "running"
    assert "nothing may be claimed" in (tmp_path / "privacy.txt").read_text()
    if not known:
        (tmp_path / HIDDEN / "begun").unlink()
    with pytest.raises(ConfigError, match="charged by composition"):
        pretend(tmp_path, [0]).go()
    assert not (tmp_path / HIDDEN).exists()
    assert stated(tmp_path)["epsilon"] == (composed(own, 4) if known else None)


def test_a_first_trial_that_cannot_begin_leaves_nothing(pretend, tmp_path):
    with pytest.raises(ConfigError, match="it cannot be"):
        pretend(tmp_path / "search", ["refused"]).go()
    assert not any(tmp_path.iterdir())


def test_a_trial_that_releases_more_than_planned_ends_the_search(pretend, tmp_path):
    own = pretend(tmp_path, [1])
    own._run.count = 4
    with pytest.raises(FedprivError, match="more than the plan"):
        own.go()
    assert not (tmp_path / BEST).exists()


def test_a_folder_with_other_things_is_refused_and_left_alone(pretend, tmp_path):
    (tmp_path / BEST).mkdir()
    (tmp_path / BEST / "mine.txt").write_text("mine")
    with pytest.raises(ConfigError, match=r"hydra\.sweep\.dir must be a new or an empty folder"):
        pretend(tmp_path, [1, 2]).go()
    assert (tmp_path / BEST / "mine.txt").read_text() == "mine"


def test_another_search_is_refused_in_the_same_folder(pretend, tmp_path):
    pretend(tmp_path, [1]).go()
    with pytest.raises(ConfigError, match="is of another search"):
        pretend(tmp_path, [1], trials=9).go()


COMMAND = ["-m", "hydra/sweeper=search", "hydra.sweeper.stopping=poisson", "hydra.sweeper.trials=3"]
COMMAND += ["hydra.sweeper.epsilon=50", "hydra.sweeper.sampler=random", *TRIAL, RATE]


@pytest.mark.thorough
def test_the_command_says_and_leaves_the_same_however_many_trials_there_are(
    tmp_path, monkeypatch, capfd
):
    kept = {}
    for trials in (1, 3):
        (tmp_path / str(trials)).mkdir()
        monkeypatch.chdir(tmp_path / str(trials))
        monkeypatch.setattr(PoissonTrials, "quantile", lambda self, p, k=trials: k)
        main(COMMAND)
        files = [p.relative_to(".").as_posix() for p in sorted(Path().rglob("*"))]
        said = [re.sub(r"(learning_rate=|loss )[\d.e-]+", r"\1", one) for one in capfd.readouterr()]
        said = [re.sub(r"99 of 100 .*", "", one) for one in said]  # by the law that was replaced
        kept[trials] = files, said
        folder = next(Path("outputs/searches").iterdir())
        sizes = [len(p.read_text().splitlines()) for p in folder.glob("*.*")]
        kept[trials] += (sizes,)
        times = {p.stat().st_mtime for p in (folder, *folder.rglob("*"))}
        assert len(times) == 1
        assert "seed" not in (folder / BEST / "config.yaml").read_text()
    assert kept[1] == kept[3]
    assert "search: best is algorithm.learning_rate=" in kept[3][1][0]


@pytest.mark.thorough
def test_trials_with_the_same_values_have_noise_of_their_own(tmp_path, monkeypatch):
    own = search(tmp_path, *TRIAL, "algorithm.learning_rate=0.5,0.5")
    monkeypatch.setattr(NegativeBinomialTrials, "quantile", lambda self, p: 3)
    keys, models, run = [], [], own._run

    def watched(config):
        end = run(config)
        folder = Path(config.runtime.run_dir)
        keys.append((folder / "secret_key").read_text())
        models.append((folder / "model.pt").read_bytes())
        return end

    own._run = watched
    own.go()
    assert (len(set(keys)), len(set(models))) == (3, 3)
    assert not any(
        key.strip() in p.read_text("latin-1") for key in keys for p in tmp_path.rglob("*.*")
    )


def test_a_launcher_that_shows_its_jobs_is_refused(tmp_path, monkeypatch):
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match="hydra/launcher must be basic"):
        main([*COMMAND, "hydra/launcher=joblib"])


@pytest.mark.thorough
def test_dry_run_compares_with_composition(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main([*COMMAND, "dry_run=true"])
    own = search(tmp_path / "none", *TRIAL, RATE, stopping="poisson", trials=3)
    said = capsys.readouterr().out
    assert f"costs epsilon {round_up(own.bound.epsilon)} at delta" in said
    assert f"3 trials that are all shown {round_up(composed(own, 3))}" in said
    assert not any(tmp_path.iterdir())
