"""Every algorithm, clipper and noise schedule together, and what is refused before it starts."""

from __future__ import annotations

import csv
import itertools
import json
import math

import numpy as np
import pandas as pd
import pytest

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.privacy.mechanisms import joint_noise_multiplier

READINGS = ("sound", "scalar", "vector", "unclipped")
CLIPPERS = {
    "constant": ["clipper=constant"],
    "automatic": ["clipper=automatic"],
    **{name: ["clipper=adap", f"clipper.reading={name}"] for name in READINGS},
}
SCHEDULES = ("constant", "exponential", "step", "validation_decay")
ASKED = {"sound": 40.0, "scalar": None, "unclipped": 0.0}  # multiplier of the second query
ROUNDS = 3


def queries(cell: str) -> dict[str, float]:
    """``a=1 b=2`` → numbers by name."""
    return {name: float(value) for name, _, value in (part.partition("=") for part in cell.split())}


def extents(cell: str) -> dict[str, tuple[float, float]]:
    """``a=1..2`` → (low, high) by name."""
    pairs = (part.partition("=") for part in cell.split())
    return {name: tuple(map(float, value.split(".."))) for name, _, value in pairs}


ALL = itertools.product(*map(enumerate, (("dp_fl", "adap_dpfl"), CLIPPERS, SCHEDULES)))


@pytest.mark.few(2)
@pytest.mark.parametrize(  # half of them, with every pair
    ("algorithm", "clipper", "schedule"),
    [
        names
        for numbers, names in (zip(*each, strict=True) for each in ALL)
        if sum(numbers) % 2 == 0
    ],
)
def test_a_combination_runs_and_its_ledger_holds_what_was_released(
    algorithm, clipper, schedule, train
):
    result = train(
        f"algorithm={algorithm}",
        *CLIPPERS[clipper],
        f"noise_schedule={schedule}",
        "noise_schedule.noise_multiplier=12",
        "epsilon=null",
        f"rounds={ROUNDS}",
    )
    metrics = pd.read_csv(result.folder / "metrics.csv")
    rows = list(csv.DictReader((result.folder / "ledger.csv").read_text().splitlines()))
    assert result.summary["rounds"] == ROUNDS
    sigmas = []
    for row in rows:
        multipliers = queries(row["queries"])
        sigma = multipliers.pop("gradient_sum")
        sigmas += [sigma] * int(row["draws_per_client"])
        if clipper in ASKED:
            expected = sigma if ASKED[clipper] is None else ASKED[clipper]
            assert multipliers == {"clip_statistic": pytest.approx(expected, rel=1e-4)}
        else:
            assert multipliers == {}
        assert row["clients"] == "0-9"
        bound, noise = (extents(row[name])["gradient_sum"] for name in ("sensitivity", "noise_std"))
        assert noise == pytest.approx((sigma * bound[0], sigma * bound[1]), rel=1e-4)
    assert sorted(sigmas) == pytest.approx(sorted(metrics["noise_multiplier"]), rel=1e-4)


@pytest.mark.few(2)
@pytest.mark.parametrize("clipper", CLIPPERS)
def test_the_sound_epsilon_is_infinite_only_where_something_leaves_without_noise(clipper, train):
    result = train(*CLIPPERS[clipper], "noise_schedule=constant", "epsilon=null", "rounds=2")
    assert math.isinf(result.summary["epsilon_sound"]) == (clipper == "unclipped")


@pytest.mark.few(3)
@pytest.mark.parametrize("clipper", [c for c in CLIPPERS if c != "unclipped"])
def test_the_sound_epsilon_is_never_below_the_published_one(clipper, train):
    """Both at the accountant of the theorem; the published one leaves a query out."""
    result = train(*CLIPPERS[clipper], "noise_schedule=constant", "epsilon=null", "rounds=2")
    ledger = pd.read_csv(result.folder / "ledger.csv")
    sound, published = (
        float(ledger[name][0].partition("Gaussian(z=")[2].strip(")"))
        for name in ("event_sound", "event_published")
    )
    assert (sound < published) == (clipper in ("sound", "scalar"))
    assert sound <= published


def test_two_queries_on_a_lot_are_one_joint_event(train):
    result = train(
        "algorithm=dp_fl", *CLIPPERS["scalar"], "noise_schedule.noise_multiplier=10", "rounds=1"
    )
    event = pd.read_csv(result.folder / "ledger.csv")["event_sound"][0]
    assert event == f"Poisson(q=0.5, Gaussian(z={joint_noise_multiplier([10.0, 10.0])!r}))"


@pytest.mark.few(1)
@pytest.mark.parametrize("accountant", ["gdp", "zcdp"])
def test_plain_gaussians_have_a_filter_of_their_own(accountant, train):
    """Every record every time: sigma may adapt, and the budget is what is claimed."""
    result = train(
        f"accountant={accountant}", "algorithm.sample_rate=1", "epsilon=6",
        "noise_schedule.noise_multiplier=8", "noise_schedule.beta=0.9",
    )  # fmt: skip
    assert result.privacy["epsilon"] <= 6
    assert result.privacy["epsilon_sound"] == 6
    assert "sigma adapts, so the sum of the z^-2" in result.privacy["reasons"]["epsilon"]
    assert result.summary["noise_decays"] > 0


def test_fedavg_shows_no_epsilon_anywhere(train):
    result = train("algorithm=fedavg", "rounds=3")
    metrics = pd.read_csv(result.folder / "metrics.csv")
    columns = ["epsilon", "epsilon_published", "epsilon_sound", "noise_multiplier", "clip_norm"]
    assert metrics[columns].isna().all(axis=None)
    assert not [key for key, value in result.summary.items() if "epsilon" in key and value]
    assert json.loads((result.folder / "privacy.json").read_text())["private"] is False
    assert "epsilon" not in (result.folder / "privacy.txt").read_text()
    assert not (result.folder / "ledger.csv").exists()
    assert "no privacy" in (result.folder / "privacy.txt").read_text()


def test_fedavg_prints_no_epsilon(command):
    said = command("train", "algorithm=fedavg", "rounds=2", "runtime.plots=false")
    assert said.status == 0
    assert "epsilon" not in said.out.replace("no epsilon", "")


BAD = {
    "no noise has no budget": (
        ["algorithm=dp_fl", "noise_schedule=none"],
        "epsilon must be null: .*without noise",
    ),
    "no noise and no clipper has no budget": (
        ["algorithm=dp_fl", "noise_schedule=none", "clipper=none"],
        "epsilon must be null",
    ),
    "unclipped has no sound budget": (["clipper.reading=unclipped"], "without noise"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("case", BAD)
def test_a_bad_combination_is_refused(case, train, tmp_path):
    overrides, words = BAD[case]
    with pytest.raises(ConfigError, match=words):
        train(*overrides)
    assert not (tmp_path / "run").exists()


def test_without_noise_and_without_budget_a_run_is_said_not_to_be_private(train):
    result = train("algorithm=dp_fl", "noise_schedule=none", "epsilon=null", "rounds=2")
    assert math.isinf(result.summary["epsilon_sound"])
    assert "NOT differentially private" in (result.folder / "privacy.txt").read_text()


def test_an_accountant_that_cannot_price_the_sampler_is_refused(tmp_path, train, monkeypatch):
    (tmp_path / "picky_accountant.py").write_text(
        "from fedpriv.privacy.accountants import RdpAccountant\n"
        "class Picky(RdpAccountant):\n"
        "    name = 'picky'\n"
        "    def supports(self, event, neighbours):\n"
        "        return 'it knows no lots'\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = r"picky .*adap_dpfl.*: it knows no lots; .*accountant=rdp"
    with pytest.raises(ConfigError, match=words):
        train("accountant._target_=picky_accountant.Picky")


def test_models_that_mix_records_are_refused(tmp_path, train, monkeypatch):
    (tmp_path / "mixing_model.py").write_text(
        "from torch import nn\n"
        "class Mixing:\n"
        "    def __init__(self, seed): pass\n"
        "    def build(self, shape, classes):\n"
        "        return nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, classes))\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ConfigError, match="BatchNorm"):
        train("model._target_=mixing_model.Mixing")


SAME = ["algorithm=dp_fl", "rounds=4", "epsilon=null", "evaluation_interval=2"]


def results(result) -> tuple[pd.DataFrame, np.ndarray]:
    import torch

    state = torch.load(result.folder / "checkpoint.pt", "cpu", weights_only=False)
    metrics = pd.read_csv(result.folder / "metrics.csv").drop(columns="seconds")
    return metrics, state["training"]["weights"].numpy()


@pytest.mark.few(1)
@pytest.mark.parametrize("seed", [0, 3])
def test_the_same_seed_gives_the_same_run(seed, train):
    first, second = (results(train(*SAME, f"seed={seed}", name=name)) for name in "ab")
    pd.testing.assert_frame_equal(first[0], second[0], check_exact=True)
    assert np.array_equal(first[1], second[1])


def test_other_seeds_give_other_runs(train):
    weights = [results(train(*SAME, f"seed={seed}", name=str(seed)))[1] for seed in range(3)]
    assert all(not np.allclose(a, b) for a, b in itertools.combinations(weights, 2))


def test_a_run_leaves_the_global_random_states_alone(train):
    import torch

    torch.manual_seed(1)
    np.random.seed(1)
    before = torch.get_rng_state(), np.random.get_state()[1].copy()
    train(*SAME)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])


def test_results_do_not_depend_on_the_number_of_threads(train):
    runs = [results(train(*SAME, f"runtime.threads={n}", name=str(n))) for n in (1, 2)]
    np.testing.assert_allclose(runs[0][1], runs[1][1], rtol=1e-5, atol=1e-6)


def test_results_do_not_depend_on_the_engine(train, monkeypatch):
    """Under common streams: engines differ by more than rounding where gradients cancel, so no two have."""
    monkeypatch.setattr("fedpriv.experiment.assemble.run_digest", lambda *_: "one for all")
    runs = [
        results(train(*SAME, f"runtime.engine={name}", name=name)) for name in ("fast", "opacus")
    ]
    np.testing.assert_allclose(runs[0][1], runs[1][1], rtol=1e-4, atol=1e-5)


def test_composing_does_not_run_anything(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fedpriv.compose(["algorithm=dp_fl"])
    assert list(tmp_path.iterdir()) == []


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("algorithm", "accountant"),
    [
        ("cdp_fedavg", "gdp"), ("cdp_fedavg", "zcdp"), ("naseri_cdp", "gdp"), ("naseri_ldp", "zcdp"),
        ("dp_fl", "gdp"), ("adap_dpfl", "zcdp"), ("ldp_fedsgd", "prv"),
    ],
)  # fmt: skip
def test_an_accountant_that_cannot_price_what_a_theorem_charges_is_one_sentence(
    algorithm, accountant, command
):
    said = command(
        "train", f"algorithm={algorithm}", f"accountant={accountant}", "budget_view=published"
    )
    assert said.status == 2
    assert (
        f"accountant={accountant} does not fit what algorithm={algorithm} is charged for"
        in said.sentence
    )
    assert said.sentence.endswith("accountant=published")
