"""Whole runs of central DP-FedAvg: one price for all clients, whoever came."""

from __future__ import annotations

import math

import pandas as pd
import pytest
import torch
from dp_accounting import NeighboringRelation, dp_event
from dp_accounting.pld import PLDAccountant

from fedpriv.privacy.mechanisms import joint_noise_multiplier

DELTA, Z, RATE, CLIENTS = 1e-5, 1.5, 0.3, 20
CLIPPERS = {
    "constant": ("clipper=constant", "clipper.clip_norm=1"),
    "quantile": ("clipper=quantile", "clipper.bit_noise=5", "clipper.initial_clip_norm=0.1"),
    "median_histogram": (
        "clipper=median_histogram",
        "clipper.updates=2",
        "clipper.update_interval=2",
        "clipper.initial_clip_norm=0.1",
    ),
}


def cdp(*overrides: str, z: float = Z, rounds: int | None = 5) -> tuple[str, ...]:
    return (
        "algorithm=cdp_fedavg", f"partition.clients={CLIENTS}", f"algorithm.client_rate={RATE}",
        "noise_schedule=constant", f"noise_schedule.noise_multiplier={z}",
        f"rounds={rounds or 'null'}", "epsilon=null", "algorithm.learning_rate=1",
        "evaluation_interval=100",
        "algorithm.local_learning_rate=0.1", "algorithm.batch_size=null", *overrides,
    )  # fmt: skip


def pld(composition: dict[float, int]) -> float:
    """ε of Poisson-sampled Gaussians (multiplier → how many) by dp_accounting."""
    accountant = PLDAccountant(NeighboringRelation.ADD_OR_REMOVE_ONE, 1e-4)
    for multiplier, count in composition.items():
        gaussian = dp_event.GaussianDpEvent(multiplier)
        accountant.compose(dp_event.PoissonSampledDpEvent(RATE, gaussian), count)
    return accountant.get_epsilon(DELTA)


def weights_of(folder) -> torch.Tensor:
    return torch.load(folder / "checkpoint.pt", weights_only=False)["training"]["weights"]


@pytest.mark.few(1)
@pytest.mark.parametrize("clipper", CLIPPERS)
def test_every_client_is_charged_for_every_round_whoever_came(clipper, ran, came, charged):
    folder = ran(*cdp(*CLIPPERS[clipper])).folder
    assert charged(folder, CLIENTS).tolist() == [5] * CLIENTS
    assert 0 < came(folder, CLIENTS).sum() < 5 * CLIENTS


@pytest.mark.few(1)
@pytest.mark.parametrize("clipper", CLIPPERS)
def test_all_clients_have_one_epsilon(clipper, ran):
    privacy = ran(*cdp(*CLIPPERS[clipper])).privacy
    for name in ("epsilon", "epsilon_published", "epsilon_sound"):
        spread = privacy["spread"][name]
        assert spread["lowest"] == spread["highest"] == privacy[name]


@pytest.mark.thorough
@pytest.mark.parametrize("clipper", ["constant", "quantile"])
def test_the_epsilon_is_that_of_the_poisson_sampled_gaussian(clipper, ran):
    """With split the updates and the bits together cost what z says."""
    sound = ran(*cdp(*CLIPPERS[clipper])).privacy["epsilon_sound"]
    assert sound == pytest.approx(pld({Z: 5}), rel=1e-3)


@pytest.mark.thorough
def test_bits_on_top_of_the_average_are_one_joint_release_with_it(ran):
    sound = ran(*cdp(*CLIPPERS["quantile"], "clipper.split=false")).privacy["epsilon_sound"]
    z = joint_noise_multiplier([Z, 2 * 5.0])  # a client more or less moves a centred bit by a half
    assert sound == pytest.approx(pld({z: 5}), rel=1e-3)


@pytest.mark.thorough
def test_a_histogram_is_one_joint_release_with_the_average(ran, ledger):
    """A client more or less changes one count by one."""
    result = ran(*cdp(*CLIPPERS["median_histogram"], "clipper.epsilon=8"))
    joint = next(row for row in ledger(result.folder) if "clip_statistic" in row["queries"])
    std = float(joint["noise_std"].split("clip_statistic=")[1].split("..")[0])
    z = joint_noise_multiplier([Z, std])
    assert z < 0.9 * Z
    assert result.privacy["epsilon_sound"] == pytest.approx(pld({Z: 3, z: 2}), rel=1e-3)


def test_the_published_and_the_sound_analysis_charge_the_same_events(ran, ledger):
    for row in ledger(ran(*cdp(*CLIPPERS["quantile"])).folder):
        assert row["event_sound"] == row["event_published"]


def test_the_ledger_states_sensitivity_and_noise_of_the_sum(ran, ledger):
    (row,) = ledger(ran(*cdp("clipper.clip_norm=0.5")).folder)
    assert row["sensitivity"] == "gradient_sum=0.5..0.5"
    assert row["noise_std"] == "gradient_sum=0.75..0.75"
    assert row["clients"] == "0-19"


def test_a_budget_ends_the_run_at_the_planned_round(ran, charged):
    result = ran(*cdp("epsilon=3", z=2, rounds=None))
    assert result.stop_reason == "budget"
    assert result.summary["rounds"] == result.plan.rounds_allowed
    assert 2.8 < result.privacy["epsilon"] <= 3
    assert charged(result.folder, CLIENTS).tolist() == [result.summary["rounds"]] * CLIENTS


def test_a_run_to_which_nobody_comes_goes_to_its_end(ran, came):
    result = ran(*cdp("algorithm.client_rate=1e-9"))
    assert result.summary["rounds"] == 5
    assert came(result.folder, CLIENTS).sum() == 0
    assert pd.read_csv(result.folder / "metrics.csv")["train_loss"].isna().all()


@pytest.mark.usefixtures("common_streams")
def test_the_noise_of_a_step_is_z_c_over_the_expected_cohort(train):
    """One round at two z with one noise seed: the weights differ by 1.5 C/(qK) times N(0, I)."""
    settings = CLIPPERS["constant"]
    low, high = (
        weights_of(train(*cdp(*settings, z=z, rounds=1), name=str(z)).folder) for z in (1.5, 3.0)
    )
    expected = 1.5 / (RATE * CLIENTS)
    assert (high - low).std().item() == pytest.approx(expected, rel=5 / math.sqrt(2 * len(low)))


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (("clipper.noised_by=client",), "clipper.noised_by must be aggregator"),
        (
            ("clipper.noised_by=client", "clipper.bit_mechanism=randomized_response",
             "clipper.bit_epsilon=1"),
            "clipper.bit_mechanism must be gaussian",
        ),
    ],
)  # fmt: skip
def test_bits_that_the_clients_noise_are_refused(overrides, key, command, tmp_path):
    said = command("train", *cdp("clipper=quantile", *overrides))
    assert said.status == 2
    assert key in said.sentence
    assert list(tmp_path.iterdir()) == []


def test_a_clipper_that_does_not_say_who_noises_its_query_leaves_it_to_the_server(ran):
    """Adaptive clipping of Adap DP-FL has no key noised_by; a trusted server noises the sum."""
    result = ran("algorithm=cdp_fedavg", "rounds=3", "clipper=adap")
    assert result.summary["rounds"] == 3
    assert result.privacy["parts"] is None


def test_lots_of_an_accountant_for_plain_gaussians_are_refused(command):
    said = command("train", *cdp("accountant=gdp"))
    assert said.status == 2
    assert "accountant=gdp does not fit" in said.sentence
