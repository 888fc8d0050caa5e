"""Whole runs whose features are normalized by statistics that the clients release first."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from feature_runs import (
    FEATURES,
    FREE,
    LOT,
    NORMALIZED,
    PLAIN,
    RELEASED,
    RUNS,
    SERVER,
    STATISTICS,
    ledger_of,
)
from omegaconf import OmegaConf

import fedpriv
from fedpriv.algorithms.feature_statistics import FeatureStatistics
from fedpriv.common.errors import ConfigError
from fedpriv.common.words import digits_up, round_up
from fedpriv.data.digits import Digits
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.plan import make_plan
from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.core.events import parse_event
from fedpriv.privacy.core.names import ADD_OR_REMOVE

EXACT = True  # ε itself is asserted
pytestmark = pytest.mark.usefixtures("cache_of_module")


def price(accountant, rounds: int = 4, statistics: bool = True) -> float:
    events = {parse_event(LOT): rounds} | ({parse_event(STATISTICS): 1} if statistics else {})
    return accountant.epsilon_of(events, 1e-5, ADD_OR_REMOVE)


# ---- what is charged


@pytest.mark.thorough
@pytest.mark.parametrize("trust", ["distributed", "local", "dp_fl"])
def test_the_ledger_has_one_release_of_every_client_before_its_lots(trust, ran):
    first, lots = ledger_of(ran(*RUNS[trust]).folder).to_dict("records")
    assert first["event_sound"] == STATISTICS
    assert first["queries"] == "feature_statistics=4"
    assert (first["draws_per_client"], first["clients"]) == (1, "0-9")
    assert first["sensitivity"] == "feature_statistics=0.5..0.5"
    share = 2 / np.sqrt(10) if trust == "distributed" else 2
    assert first["noise_std"] == f"feature_statistics={share:.6g}..{share:.6g}"
    assert lots["draws_per_client"] == 4


@pytest.mark.thorough
def test_a_client_without_records_releases_no_statistics_of_its_own(train, monkeypatch):
    """Only coins leave clients without records: files of the user's own, here digits."""
    monkeypatch.setattr(Digits, "known", False)
    given = ("partition=iid", "partition.clients=600", "rounds=1")
    first, lots = ledger_of(train(*RUNS["dp_fl"], *given).folder).to_dict("records")
    assert first["clients"] == lots["clients"] != "0-599"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("name", "accountant"), [("pld", PldAccountant()), ("rdp", RdpAccountant()), ("prv", None)]
)
def test_every_accountant_composes_it_with_the_lots(name, accountant, ran, command):
    result = ran(*RUNS["distributed"], f"accountant={name}")
    found = result.privacy["epsilon"]
    if accountant is None:
        assert price(PldAccountant()) < found < price(PldAccountant()) + 0.03
    else:
        assert found == pytest.approx(price(accountant))
    assert found > 1.1 * price(PldAccountant(), statistics=False)
    assert result.privacy["epsilon_sound"] <= found + 1e-9
    told = command("account", "--run", str(result.folder))
    assert told.status == 0, told.err
    assert f"tightest: pld, epsilon = {round_up(price(PldAccountant()))} at" in told.out


def test_the_published_view_of_dp_fl_is_not_about_it(ran, train):
    result = ran(*RUNS["dp_fl"])
    plain = train(*PLAIN, *FREE, "algorithm=dp_fl", "algorithm.sample_rate=0.2")
    assert result.privacy["epsilon_published"] == plain.privacy["epsilon_published"]
    assert result.privacy["epsilon_sound"] > 1.1 * plain.privacy["epsilon_sound"]


@pytest.mark.thorough
def test_lots_of_a_fixed_size_are_charged_with_it_for_a_replaced_record(train):
    fixed = ("algorithm.sampling=fixed_size", "partition=dirichlet", "partition.clients=2")
    result = train(*RUNS["dp_fl"], *fixed, "accountant=rdp")
    rows = ledger_of(result.folder)
    first = rows[rows["queries"] == "feature_statistics=4"]
    assert set(first["event_sound"]) == {"Gaussian(z=2.0)"}
    assert set(first["neighbours_sound"]) == {"replace_one"}
    assert list(first["clients"]) == ["0-1"]


def test_plain_gaussians_are_composed_exactly(train):
    every = ("algorithm.sample_rate=1", "accountant=gdp", "rounds=1")
    result = train(*RUNS["distributed"], *every)
    together = parse_event(f"Gaussian(z={(1 / 9 + 1 / 16) ** -0.5!r})")
    expected = PldAccountant().epsilon_of({together: 1}, 1e-5, ADD_OR_REMOVE)
    assert result.privacy["epsilon_sound"] == pytest.approx(expected, abs=2e-3)


def test_a_run_that_releases_its_gradients_without_noise_has_an_infinite_epsilon(train):
    none = ("noise_schedule=none", "clipper=none", "epsilon=null", "rounds=2")
    result = train(*FEATURES, *SERVER, *NORMALIZED, *none)
    assert result.privacy["epsilon_sound"] == float("inf")
    assert ledger_of(result.folder)["queries"][0] == "feature_statistics=4"


def test_it_is_planned_and_priced_before_the_run(command):
    told = command("train", *RUNS["distributed"], "accountant=pld", "dry_run=true").out
    words = " ".join(told.replace("│", " ").split())
    assert "before the first round feature_statistics (noise multiplier 4)" in words
    assert f"epsilon {digits_up(price(PldAccountant()))} after 4 rounds" in words


@pytest.mark.thorough
def test_the_rounds_that_a_budget_allows_leave_room_for_it(train):
    budget = price(PldAccountant(), 5) + 1e-6
    overrides = (
        *RELEASED, "noise_schedule.noise_multiplier=3", "accountant=pld", f"epsilon={budget}",
        "rounds=null",
    )  # fmt: skip
    assert make_plan(build_parts(fedpriv.compose(overrides))).rounds_allowed == 5
    result = train(*overrides)
    assert (result.summary["rounds"], result.stop_reason) == (5, "budget")
    assert result.privacy["epsilon"] <= budget


def test_a_budget_that_it_leaves_no_round_of_is_refused():
    overrides = (*RELEASED, "noise_schedule.noise_multiplier=3", "accountant=pld")
    both = price(PldAccountant(), 1)
    words = f">= {digits_up(both)}, the cost of the release before the first round and a single round at this"
    plan = make_plan(build_parts(fedpriv.compose([*overrides, "epsilon=0.9"])))
    assert price(PldAccountant(), 1, statistics=False) < 0.9 < both
    with pytest.raises(ConfigError, match=words):
        plan.refuse_if_impossible(0.9)


@pytest.mark.thorough
def test_calibrated_noise_keeps_to_the_budget_with_it(train):
    calibrated = (
        *RELEASED, "noise_schedule=calibrated", "epsilon=2", "rounds=6", "accountant=pld",
        "accountant.discretization=0.01",
    )  # fmt: skip
    sigma = build_parts(fedpriv.compose(calibrated)).noise_schedule.noise_multiplier(0)
    without = [*PLAIN, *(override for override in calibrated if override not in RELEASED)]
    less = build_parts(fedpriv.compose(without)).noise_schedule.noise_multiplier(0)
    assert sigma > 1.05 * less
    result = train(*calibrated)
    assert result.summary["rounds"] == 6
    assert 1.98 < result.privacy["epsilon_sound"] <= 2


def test_a_calibration_that_it_leaves_nothing_says_so():
    overrides = ("noise_schedule=calibrated", "epsilon=0.5", "rounds=6", "accountant=pld")
    words = r"what is released before the first round costs 0\.9264 of it"
    with pytest.raises(ConfigError, match=words):
        build_parts(fedpriv.compose([*RELEASED, *overrides]))


def test_noise_that_falls_is_forecast_with_it():
    falling = (
        "noise_schedule=exponential", "noise_schedule.noise_multiplier=4", "noise_schedule.beta=0.9",
        "epsilon=null", "rounds=5", "accountant=rdp",
    )  # fmt: skip
    costs = build_parts(fedpriv.compose([*RELEASED, *falling])).costs()
    plain = build_parts(fedpriv.compose([*PLAIN, *falling])).costs()
    extra = parse_event(STATISTICS)
    assert costs.of_rounds(5) == {extra: 1, **plain.of_rounds(5)}
    both = RdpAccountant().epsilon_of(costs.of_rounds(5), 1e-5, ADD_OR_REMOVE)
    assert costs.epsilon_of_schedule(5)[0] == pytest.approx(both)


# ---- what is said, kept and given away


def test_the_statement_says_what_was_released_and_what_it_costs_alone(ran):
    result = ran(*RUNS["distributed"])
    told = json.loads((result.folder / "privacy.json").read_text())["before_first_round"]
    alone = PldAccountant().epsilon_of({parse_event(STATISTICS): 1}, 1e-5, ADD_OR_REMOVE)
    assert told["released"] == "feature_statistics=4"
    assert (told["clients"], told["clip_norm"]) == (10, 0.5)
    assert told["epsilon_alone"] == pytest.approx(alone, abs=1e-3)
    text = " ".join((result.folder / "privacy.txt").read_text().split())
    assert "each of 10 clients released feature_statistics once: the sum over its records" in text
    assert (
        "mean square of each channel of their features, clipped to L2 norm 0.5, with noise" in text
    )
    assert "with noise multiplier 4. What the sums make is in model.pt (mean, variance)" in text


def test_other_runs_say_nothing_of_it(train):
    result = train(*PLAIN, *FREE)
    assert "before_first_round" not in result.privacy
    assert "first round" not in (result.folder / "privacy.txt").read_text()
    assert "statistics" not in torch.load(result.folder / "checkpoint.pt")


def test_the_saved_model_holds_them_and_gives_the_accuracy_that_was_measured(ran):
    result = ran(*RUNS["distributed"])
    stored = torch.load(result.folder / "model.pt")
    assert list(stored) == ["mean", "variance", "model.1.weight", "model.1.bias"]
    assert not torch.equal(stored["mean"], torch.zeros(5))
    parts = build_parts(fedpriv.compose(RUNS["distributed"]))
    test = parts.dataset.load().test
    scale = stored["variance"].rsqrt()[:, None, None]
    normalized = ((test.inputs - stored["mean"][:, None, None]) * scale).flatten(1)
    found = (normalized @ stored["model.1.weight"].T + stored["model.1.bias"]).argmax(1)
    assert float((found == test.targets).float().mean()) == pytest.approx(
        result.summary["test_accuracy"], abs=1e-6
    )


def test_a_published_run_gives_them_away_with_the_model(train):
    result = train(*RUNS["distributed"], "epsilon=8", "publish=true")
    public = result.folder / "public"
    assert "mean" in torch.load(public / "model.pt")
    assert "before_first_round" in json.loads((public / "privacy.json").read_text())


# ---- resuming


@pytest.mark.thorough
@pytest.mark.parametrize("name", RUNS)
def test_a_run_interrupted_after_every_round_is_the_run_that_was_not(
    name, ran, train, tmp_path, assert_same_run
):
    whole = ran(*RUNS[name])
    stop = tmp_path / "stop"
    stop.touch()
    settings = (*RUNS[name], f"runtime.stop_file={stop}")
    result = train(*settings, name="stopped")
    while result.stop_reason == "interrupted":
        result = train(*settings, f"resume={result.folder}", name="stopped")
    assert_same_run(whole.folder, result.folder)
    models = [torch.load(folder / "model.pt") for folder in (whole.folder, result.folder)]
    for key, values in models[0].items():
        assert torch.equal(values, models[1][key]), key


class Died(BaseException):
    """Stands for the end of the process."""


@pytest.mark.parametrize("moment", ["before it is known", "before the first round"])
def test_a_run_killed_beside_the_release_goes_on_with_the_same_one(
    moment, ran, train, tmp_path, monkeypatch, assert_same_run
):
    whole = ran(*RUNS["distributed"])
    dies = (FeatureStatistics, "_set") if moment == "before it is known" else (Loop, "_round")
    with monkeypatch.context() as patch:
        patch.setattr(*dies, die)
        with pytest.raises(Died):
            train(*RUNS["distributed"], name="killed")
    result = train(f"resume={tmp_path / 'killed'}", *RUNS["distributed"], name="killed")
    assert_same_run(whole.folder, result.folder)


def die(*_: object) -> None:
    raise Died


def test_one_more_noise_seed_releases_other_statistics(ran, train):
    one = torch.load(ran(*RUNS["distributed"]).folder / "model.pt")
    other = torch.load(train(*RUNS["distributed"], "noise_seed=1").folder / "model.pt")
    assert not torch.equal(one["mean"], other["mean"])


# ---- runs without it


def test_identity_and_streams_of_other_runs_are_what_they_were():
    """The new keys are null there, which is the same as absent."""
    from fedpriv.common.config import fingerprint, identity
    from fedpriv.experiment import secrets

    config = fedpriv.compose(PLAIN)
    assert config.features.statistics_noise_multiplier is None
    before = config.copy()
    OmegaConf.set_struct(before, False)
    for key in ("statistics_noise_multiplier", "statistics_clip_norm"):
        del before.features[key]
    assert fingerprint(identity(config)) == fingerprint(identity(before))

    class Nothing:
        name = digest = "the same"

    Nothing.data = Nothing.model = Nothing.engine = Nothing
    assert secrets.run_digest(config, 4, Nothing) == secrets.run_digest(before, 4, Nothing)
