"""Server optimisers: against formulas written anew, what the noise changes, what is refused, what is free."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.algorithms import CdpFedAvg, LdpFedSgd, NaseriCdp
from fedpriv.algorithms.server_optimizer import SERVER_OPTIMIZERS, ServerOptimizer
from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.clippers import ConstantClipper, QuantileClipper

ROUNDS, SIZE, RATE = 5, 7, 0.05


def cdp(**settings) -> CdpFedAvg:
    return CdpFedAvg("cdp_fedavg", **{"client_rate": 0.5, "local_learning_rate": 0.2, **settings})


class OfSize:
    """What an optimiser reads of a model."""

    size, device = SIZE, torch.device("cpu")


def changes(name: str, noise: float | None = None, **settings: float) -> np.ndarray:
    """The change of each round [t, d] for the gradients of :func:`gradients`."""
    optimizer = ServerOptimizer(name, RATE, **settings).make(OfSize())
    server, found = torch.zeros(1, dtype=torch.int64), []
    for g in gradients():
        optimizer.begin_round(server)
        if noise is not None:
            optimizer.observe_noise(torch.tensor([[noise]]))
        found.append(optimizer.step(server, torch.tensor(g, dtype=torch.float32)[None])[0].clone())
    return torch.stack(found).numpy()


def gradients() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(ROUNDS, SIZE))


def expected(name: str, noise: float = 0.0, **own: float) -> np.ndarray:
    """The same by the formulas of the papers, in float64."""
    m, v, found = np.zeros(SIZE), np.full(SIZE, own.get("initial_accumulator", 0.0)), []
    b1, b2 = own.get("beta1", 0.9), own.get("beta2", 0.999)
    for t, g in enumerate(gradients(), start=1):
        if name == "momentum":
            m = own["momentum"] * m + g
            found.append(-RATE * m)
            continue
        m = b1 * m + (1 - b1) * g
        if name == "adagrad":
            v = v + g**2
            found.append(-RATE * m / (np.sqrt(v) + own["optimizer_epsilon"]))
            continue
        v = b2 * v + (1 - b2) * g**2
        first, second = m / (1 - b1**t), v / (1 - b2**t)
        root = (
            np.sqrt(second) + own["optimizer_epsilon"]
            if name == "adam"
            else np.sqrt(np.maximum(second - noise**2, own["second_moment_floor"]))
        )
        found.append(-RATE * first / root)
    return np.stack(found)


SETTINGS = {
    "momentum": {"momentum": 0.7},
    "adagrad": {"beta1": 0.5, "optimizer_epsilon": 1e-3, "initial_accumulator": 0.1},
    "adam": {"beta1": 0.8, "beta2": 0.95, "optimizer_epsilon": 1e-3},
    "dp_adam_bc": {"beta1": 0.8, "beta2": 0.95, "second_moment_floor": 0.05},
}


@pytest.mark.parametrize("name", SETTINGS)
def test_a_step_is_what_the_paper_writes(name):
    noise = 0.6 if name == "dp_adam_bc" else None
    found = changes(name, noise, **SETTINGS[name])
    np.testing.assert_allclose(
        found, expected(name, noise or 0.0, **SETTINGS[name]), rtol=2e-4, atol=1e-7
    )


def test_without_noise_and_with_a_small_floor_the_correction_is_adam():
    np.testing.assert_allclose(
        changes("dp_adam_bc", 0.0, second_moment_floor=1e-16),
        changes("adam", optimizer_epsilon=0.0),
        rtol=1e-4,
    )


def test_adagrad_does_not_move_a_parameter_that_never_had_a_gradient():
    optimizer = ServerOptimizer("adagrad", RATE, optimizer_epsilon=0.0).make(OfSize())
    change = optimizer.step(torch.zeros(1, dtype=torch.int64), torch.zeros(1, SIZE))
    assert torch.equal(change, torch.zeros(1, SIZE))


# ---- the noise that is subtracted is the noise that was added


@pytest.mark.parametrize(
    ("algorithm", "std_of_mean"),
    [
        (lambda: cdp(optimizer="dp_adam_bc"), 2.0 * 0.3 / (0.5 * 6)),
        (lambda: LdpFedSgd("ldp", optimizer="dp_adam_bc"), 2.0 * 0.3 * np.sqrt(6) / 6),
        (lambda: NaseriCdp("n", 0.5, optimizer="dp_adam_bc", noise="as_printed"), 2.0 * 0.3 / 0.5),
    ],
    ids=["central", "local reports", "noise on the mean"],
)
def test_the_noise_of_the_mean_is_told_to_the_optimizer(algorithm, std_of_mean, serve, ragged):
    training = serve(algorithm(), data=ragged, clipper=ConstantClipper(0.3))
    for round_index in range(3):
        training.play(round_index, sigma=2.0)
    state = training.trainer.state_dict()["optimizer"]
    corrected = state["noise"] / (1 - 0.999 ** state["steps"])
    assert float(corrected) == pytest.approx(std_of_mean**2, rel=1e-5)


@pytest.mark.thorough
def test_the_second_moment_of_released_noise_is_the_variance_that_is_subtracted(serve, ragged):
    """Measured: an empty cohort releases noise alone, whose square is what the correction takes off."""
    training = serve(
        cdp(optimizer="dp_adam_bc", beta2=0.99), data=ragged, clipper=ConstantClipper(0.3)
    )
    for round_index in range(200):
        training.play(round_index, cohort=[], sigma=2.0)
    state = training.trainer.state_dict()["optimizer"]
    measured = float(state["second"].double().mean())
    assert measured == pytest.approx(float(state["noise"]), rel=0.02)


# ---- post-processing is free


def played(serve, ragged, optimizer: str):
    """(what each round released [t, d], its releases) of runs whose weights go different ways."""
    algorithm = cdp(optimizer=optimizer, learning_rate=0.01)
    training = serve(algorithm, data=ragged, clipper=QuantileClipper(0.2))
    ledgers = []
    for round_index in range(3):
        training.play(round_index, sigma=1.0)
        ledgers.append([(r.joint, r.clients.tolist(), r.count) for r in training.releases])
    return torch.stack(training.heard.means), ledgers, training.weights


@pytest.mark.parametrize("optimizer", [name for name in SERVER_OPTIMIZERS if name != "sgd"])
def test_an_optimizer_costs_nothing(optimizer, serve, ragged):
    """The first round releases the same numbers, noise included; every round the same kinds of releases."""
    sgd, other = played(serve, ragged, "sgd"), played(serve, ragged, optimizer)
    assert torch.equal(sgd[0][0], other[0][0])
    assert not torch.equal(sgd[2], other[2])
    assert sgd[1] == other[1]


# ---- state


@pytest.mark.parametrize("optimizer", SERVER_OPTIMIZERS)
def test_a_restored_optimizer_goes_on_bit_for_bit(optimizer, serve, ragged):
    def fresh():
        return serve(cdp(optimizer=optimizer, learning_rate=0.01), data=ragged)

    whole, first, second = fresh(), fresh(), fresh()
    for round_index in range(4):
        whole.play(round_index, sigma=1.0)
    for round_index in range(2):
        first.play(round_index, sigma=1.0)
    second.trainer.load_state_dict(first.trainer.state_dict())
    for round_index in range(2, 4):
        second.play(round_index, sigma=1.0)
    assert torch.equal(second.weights, whole.weights)


# ---- refused


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("sgd", {"momentum": 0.9}, "momentum must be null unless optimizer is momentum, got 0.9"),
        (
            "adam",
            {"second_moment_floor": 1.0},
            "second_moment_floor must be null unless optimizer is dp_adam_bc",
        ),
        ("momentum", {"momentum": 1.0}, "momentum must be >= 0 and < 1, got 1"),
        ("dp_adam_bc", {"second_moment_floor": 0}, "second_moment_floor must be > 0, got 0"),
        ("adagrad", {"initial_accumulator": -1}, "initial_accumulator must be >= 0, got -1"),
        ("lion", {}, "optimizer must be one of sgd, momentum, adagrad, adam, dp_adam_bc, got lion"),
    ],
)
def test_what_an_optimizer_does_not_have_is_refused(name, settings, message):
    with pytest.raises(ArgumentError, match=message):
        ServerOptimizer(name, 0.1, **settings)
