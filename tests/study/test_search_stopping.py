"""Random stopping: its bound, its law, what is drawn, and what no theorem covers."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from dp_accounting import dp_event
from dp_accounting.rdp import rdp_privacy_accountant

from fedpriv import compose
from fedpriv.common.errors import ConfigError
from fedpriv.common.words import round_up
from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.random_stopping import NegativeBinomialTrials, PoissonTrials
from fedpriv.study.search_secret_trials import SecretTrials
from fedpriv.study.search_settings import SearchSettings
from fedpriv.study.search_space import read_space
from fedpriv.study.search_stopping import SelectionBound

EXACT = True  # ε itself is asserted

pytest.importorskip("optuna")
DELTA = 1e-5
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "search.md"
TRIAL = ["algorithm=cdp_fedavg", "rounds=3", "epsilon=null", "noise_schedule=validation_decay"]
TRIAL += ["noise_schedule.beta=1", "noise_schedule.noise_multiplier=2"]
RATE = "algorithm.learning_rate=tag(log,interval(0.1,1))"
LAWS = [NegativeBinomialTrials.of_mean(eta, 10) for eta in (-0.5, 0, 1)] + [PoissonTrials(10)]


def settings(**changed) -> SearchSettings:
    given = {
        "epsilon": 50,
        "trials": 4,
        "objective": "validation_loss",
        "public_test_records": False,
        "sampler": "random",
        "seed": 0,
        "stopping": "negative_binomial",
    }
    return SearchSettings.of(**{**given, **changed})


def search(folder: Path, *arguments: str, **changed) -> SecretTrials:
    return SecretTrials(settings(**changed), arguments, folder, lambda job: compose(list(job)))


@pytest.mark.parametrize("law", LAWS[1:], ids=lambda law: law.words)
@pytest.mark.parametrize("rounds", [1, 100])
def test_the_bound_is_that_of_dp_accounting(law, rounds):
    event = dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(2.0))
    ours = SelectionBound(law, RdpAccountant("2..128"), {event: rounds}, DELTA, ADD_OR_REMOVE)
    shape = np.inf if isinstance(law, PoissonTrials) else law.eta
    library = rdp_privacy_accountant.RdpAccountant(ours.accountant.orders)
    one = dp_event.SelfComposedDpEvent(event, rounds)
    library.compose(dp_event.RepeatAndSelectDpEvent(one, law.mean, shape))
    orders, rdp = np.asarray(ours.accountant.orders), np.asarray(library._rdp)
    grows = np.minimum.accumulate(rdp[::-1])[::-1]  # what holds at an order holds at those below it
    theirs, order = rdp_privacy_accountant.compute_epsilon(orders, grows, DELTA)
    assert (ours.epsilon, ours.order) == (pytest.approx(theirs, rel=1e-6), order)
    assert ours.trial < ours.epsilon <= library.get_epsilon(DELTA) * (1 + 1e-9)


@pytest.mark.few(2)
@pytest.mark.parametrize("trials", [5, 10, 20, 50])
def test_the_guide_compares_with_composition(trials):
    event = dp_event.PoissonSampledDpEvent(0.3, dp_event.GaussianDpEvent(4.0))
    rdp, many = RdpAccountant(), {event: 20 * trials}
    laws = NegativeBinomialTrials.of_mean(0, trials), PoissonTrials(trials)
    bounds = [SelectionBound(law, rdp, {event: 20}, DELTA, ADD_OR_REMOVE) for law in laws]
    composed = [own.epsilon_of(many, DELTA, ADD_OR_REMOVE) for own in (rdp, PldAccountant())]
    numbers = map(round_up, (*composed, *(bound.epsilon for bound in bounds)))
    guide = GUIDE.read_text(encoding="utf-8")
    assert " | ".join((f"| {trials}", *numbers)) + " |" in guide
    assert f"one trial alone has ε = {round_up(bounds[0].trial)}" in guide
    if trials == 10:
        assert "one search in a hundred has more than 81" in guide
        assert "at most 18 in 99 of 100 searches" in guide
        assert [bound.most_often for bound in bounds] == [81, 18]


@pytest.mark.parametrize("eta", [-0.5, 0, 1, 3])
@pytest.mark.parametrize("mean", [1.5, 10, 40])
def test_a_law_is_found_by_its_mean(eta, mean):
    assert NegativeBinomialTrials.of_mean(eta, mean).mean == pytest.approx(mean, rel=1e-9)


@pytest.mark.thorough
@pytest.mark.parametrize("law", LAWS, ids=lambda law: law.words)
def test_a_number_of_trials_has_its_probability(law):
    drawn = Counter(law.quantile(u) for u in (np.arange(2000) + 0.5) / 2000)
    first = 0 if isinstance(law, PoissonTrials) else 1
    for k, probability in enumerate(law.probabilities(30), start=first):
        assert drawn[k] / 2000 == pytest.approx(probability, abs=1 / 2000)


def test_values_are_drawn_evenly_from_the_space():
    whole, texts = "a=range(1,6)", "b=adam,sgd"
    log, real, steps = "c=tag(log,interval(0.01,1))", "d=interval(-1,1)", "e=range(1,12,5)"
    powers = "f=int(tag(log,interval(1,100)))"
    space = read_space([whole, texts, log, real, steps, powers])
    found = [space.drawn(lambda i=i: (i + 0.5) / 1200) for i in range(1200)]
    assert Counter(v["a"] for v in found) == dict.fromkeys((1, 2, 3, 4, 5), 240)
    assert Counter(v["b"] for v in found) == {"adam": 600, "sgd": 600}
    assert sum(v["c"] < 0.1 for v in found) == 600
    assert sum(v["d"] < 0 for v in found) == 600
    assert Counter(v["e"] for v in found) == dict.fromkeys((1, 6, 11), 400)
    near = Counter(v["f"] for v in found)
    assert (min(near), max(near)) == (1, 100)
    assert near[1] == pytest.approx(1200 * np.log(3) / np.log(201), abs=1)


@pytest.mark.few(16)
@pytest.mark.parametrize(
    ("arguments", "changed", "words"),
    [
        ([RATE], {"sampler": "tpe"}, r"hydra\.sweeper\.sampler must be random, got tpe"),
        ([RATE], {"seed": 1}, r"hydra\.sweeper\.seed must be 0"),
        ([RATE], {"stopping": "geometric"}, r"hydra\.sweeper\.stopping must be one of none"),
        ([RATE], {"stopping": "poisson", "eta": 1}, r"hydra\.sweeper\.eta must be 0 unless"),
        ([RATE], {"eta": -1}, r"hydra\.sweeper\.eta must be > -1"),
        ([RATE], {"trials": 1}, r"hydra\.sweeper\.trials must be a whole number >= 2"),
        ([RATE], {"eta": -0.9}, r"hydra\.sweeper\.trials must be <= 2\.\d+ with eta=-0\.9"),
        ([RATE], {"epsilon": 0.1}, "the cost of the search"),
        (["noise_schedule.noise_multiplier=2,3"], {}, "leave noise, sampling and rounds alone"),
        (["rounds=3,4"], {}, "leave noise, sampling and rounds alone"),
        ([RATE, "accountant=pld"], {}, "accountant must be rdp, got pld"),
        ([RATE, "tracker=mlflow"], {}, "tracker must be none"),
        ([RATE, "audit=membership"], {}, "audit must be null"),
        ([RATE, "runtime.run_dir=here"], {}, r"runtime\.run_dir must be null"),
        ([RATE, "publish=true"], {}, "publish must be null"),
        ([RATE, "algorithm=dp_fl"], {}, "algorithm must be one with central trust, .* got dp_fl"),
        ([RATE, "noise_schedule.beta=0.9"], {}, "does not follow released values"),
    ],
)  # fmt: skip
def test_refused_before_the_first_trial(tmp_path, arguments, changed, words):
    replaced = {one.partition("=")[0] for one in arguments}
    given = [one for one in TRIAL if one.partition("=")[0] not in replaced]
    with pytest.raises(ConfigError, match=words) as caught:
        search(tmp_path, *given, *arguments, **changed)
    assert "\n" not in str(caught.value)
    assert not any(tmp_path.iterdir())
