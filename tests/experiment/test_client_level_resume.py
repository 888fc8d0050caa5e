"""Runs of client-level algorithms that are interrupted, and ledgers that are priced again."""

from __future__ import annotations

import json

import pytest

LDP = (
    "algorithm=ldp_fedsgd", "partition.clients=20", "algorithm.clients_per_round=9",
    "algorithm.learning_rate=0.1", "noise_schedule=constant", "noise_schedule.noise_multiplier=4",
    "epsilon=null",
)  # fmt: skip
CDP = (
    "algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.4",
    "algorithm.batch_size=20", "algorithm.local_epochs=2", "noise_schedule=constant",
    "noise_schedule.noise_multiplier=3", "epsilon=null",
)  # fmt: skip
QUANTILE = ("clipper=quantile", "clipper.bit_noise=5", "clipper.initial_clip_norm=0.1")
RESPONSE = (
    "clipper=quantile", "clipper.bit_mechanism=randomized_response", "clipper.noised_by=client",
    "clipper.bit_epsilon=0.5", "accountant=pld", "accountant.discretization=1e-3",
)  # fmt: skip
HISTOGRAM = ("clipper=median_histogram", "clipper.updates=1", "clipper.update_interval=2")
RUNS = {
    "fedsgd, adam, lots": (
        "algorithm=fedsgd", "partition.clients=20", "algorithm.optimizer=adam",
        "algorithm.clients_per_round=9", "algorithm.sample_rate=0.5",
    ),
    "ldp, poly, adam": (*LDP, "clipper=poly", "algorithm.optimizer=adam"),
    "ldp, quantile, a budget that ends it": (*LDP, *QUANTILE, "epsilon=3"),
    "ldp, randomized response": (*LDP, *RESPONSE, "algorithm.sample_rate=0.5"),
    "cdp, layers by quantiles": (
        *CDP, "clipper=per_layer_quantile", "clipper.bit_noise=5",
    ),
    "control variates": (
        "algorithm=dp_scaffold", "partition.clients=5", "epsilon=null", "algorithm.local_steps=2",
        "algorithm.optimizer=momentum",
    ),
    "cdp, adam without noise": (
        *CDP, "algorithm.optimizer=dp_adam_bc", "algorithm.learning_rate=0.01",
    ),
    "cdp, median histogram, a budget that ends it": (*CDP, *HISTOGRAM, "epsilon=3"),
}  # fmt: skip


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_is_interrupted_after_every_round_is_the_run_that_was_not(
    name, train, tmp_path, assert_same_run
):
    settings = (*RUNS[name], "rounds=3", "evaluation_interval=2")
    whole = train(*settings, name="whole")
    stop = tmp_path / "stop"
    stop.touch()
    result = train(*settings, f"runtime.stop_file={stop}", name="stopped")
    sessions = 1
    while result.stop_reason == "interrupted":
        sessions += 1
        assert sessions < 6
        result = train(
            *settings, f"runtime.stop_file={stop}", f"resume={result.folder}", name="stopped"
        )
    assert sessions == whole.summary["rounds"] > 1
    assert_same_run(result.folder, whole.folder)


PRICED = {
    "ldp by gdp": (LDP, "gdp"),
    "ldp, median histogram, by gdp": ((*LDP, *HISTOGRAM), "gdp"),
    "ldp, randomized response, by pld": ((*LDP, *RESPONSE[:4], "accountant=pld"), "pld"),
    "cdp, median histogram, by rdp": ((*CDP, *HISTOGRAM), "rdp"),
}


@pytest.mark.few(2)
@pytest.mark.parametrize("name", PRICED)
def test_a_run_is_priced_again_as_it_priced_itself(name, ran, command):
    overrides, accountant = PRICED[name]
    result = ran(*overrides, "rounds=4")
    said = command("account", "--run", str(result.folder), "--accountant", accountant, "--json")
    assert said.status == 0, said.err
    found = json.loads(said.out)["accountants"][accountant]["epsilon"]["1e-05"]
    assert found == pytest.approx(result.privacy["epsilon"], rel=1e-9)


@pytest.mark.parametrize("name", ["ldp by gdp", "cdp, median histogram, by rdp"])
def test_the_published_view_of_a_run_is_priced_again_as_it_priced_itself(name, ran, command):
    result = ran(*PRICED[name][0], "rounds=4")
    said = command("account", "--run", str(result.folder), "--view", "published", "--json")
    assert said.status == 0, said.err
    found = json.loads(said.out)["accountants"]["published"]["epsilon"]["1e-05"]
    assert found == pytest.approx(result.privacy["epsilon_published"], rel=1e-9)
