"""Whole runs of DP-FTRL: what they cost, who takes part, interruptions, and what is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from ftrl_runs import CLIENTS, REST, ROUNDS, ftrl, took_part

from fedpriv.algorithms import DpFtrl
from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.experiment.loop import Loop

RESTED = ("algorithm.participation=min_separation", "algorithm.clients_per_round=4")


# ---- who takes part


def test_clients_take_part_in_turn(ran):
    present = took_part(ran(*ftrl()).folder)
    assert present.sum(axis=1).tolist() == [CLIENTS / REST] * ROUNDS
    assert (present[:-REST] == present[REST:]).all()
    assert (present[:REST].sum(axis=0) == 1).all()


def test_clients_rest(ran):
    present = took_part(ran(*ftrl(*RESTED, "algorithm.max_participations=3")).folder)
    assert present.sum(axis=1).tolist() == [4] * ROUNDS
    assert present.sum(axis=0).max() <= 3
    for client in present.T:
        assert (np.diff(np.flatnonzero(client)) >= REST).all()
    assert (present[:-REST] != present[REST:]).any()


def test_clients_take_part_once_in_every_epoch(ran):
    overrides = ("algorithm.participation=once_per_epoch", "algorithm.strategy=tree")
    present = took_part(ran(*ftrl(*overrides)).folder)
    assert (present.reshape(-1, REST, CLIENTS).sum(axis=1) == 1).all()
    assert (present[:REST] != present[REST : 2 * REST]).any()


class OutOfTurn(DpFtrl):
    """Says that clients take turns, and lets the first one come every time."""

    def cohort(self, streams, round_index, eligible):
        return np.array([0])


def test_a_cohort_against_what_was_charged_stops_the_run(train, monkeypatch):
    monkeypatch.setattr(DpFtrl, "cohort", OutOfTurn.cohort)
    with pytest.raises(ReleaseError, match="round 2: client 0 was in round 1"):
        train(*ftrl())


def test_a_cohort_of_ones_own_out_of_turn_stops_the_run_at_once(train):
    with pytest.raises(ReleaseError, match=r"round 1: OutOfTurn\.cohort chose other clients"):
        train(*ftrl(f"algorithm._target_={OutOfTurn.__module__}.{OutOfTurn.__qualname__}"))


def test_how_far_a_run_is_follows_its_rounds(train, monkeypatch):
    """Its budget is spent in the first one."""
    seen, run = [], Loop.run

    def watched(self, observers, interrupts):
        class Watch:
            name = "watch"

            def begin(self, rounds_done): ...

            def see(watch, done):
                seen.append(self.fraction())

            def close(self): ...

            def state_dict(self):
                return None

        return run(self, [*observers, Watch()], interrupts)

    monkeypatch.setattr(Loop, "run", watched)
    train(*ftrl("epsilon=3", "rounds=4", z=None))
    assert seen == [0.25, 0.5, 0.75, 1.0]


class Restless(DpFtrl):
    """Says that clients rest, and tosses a coin for everyone."""

    def cohort(self, streams, round_index, eligible):
        return self.cohorts.choose(streams, round_index, eligible)


def test_an_own_algorithm_whose_clients_do_not_rest_stops_the_run(train):
    with pytest.raises(ReleaseError, match=r"Restless.cohort chose other clients than fedpriv's"):
        train(*ftrl(*RESTED, f"algorithm._target_={Restless.__module__}.{Restless.__qualname__}"))


def test_a_client_that_does_not_rest_stops_the_run(train, monkeypatch):
    monkeypatch.setattr(DpFtrl, "cohort", Restless.cohort)
    with pytest.raises(ReleaseError, match="rounds of a client at least 4 apart"):
        train(*ftrl(*RESTED))


# ---- resuming


@pytest.mark.thorough
@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm.strategy=banded_toeplitz", "algorithm.momentum=0.9", "algorithm.cooldown=3"),
        ("algorithm.strategy=tree",),
        (
            "algorithm.strategy=blt", "algorithm.participation=min_separation",
            "algorithm.clients_per_round=5",
        ),
    ],
    ids=lambda overrides: overrides[0],
)  # fmt: skip
def test_a_run_that_is_interrupted_after_every_round_is_the_run_that_was_not(
    overrides, train, tmp_path, assert_same_run
):
    settings = ftrl(*overrides, "rounds=5")
    whole = train(*settings, name="whole")
    (stop := tmp_path / "stop").touch()
    result = train(*settings, f"runtime.stop_file={stop}", name="stopped")
    for _ in range(6):
        if result.stop_reason != "interrupted":
            break
        again = (f"runtime.stop_file={stop}", f"resume={result.folder}")
        result = train(*settings, *again, name="stopped")
    assert result.stop_reason == "rounds"
    assert_same_run(result.folder, whole.folder)


# ---- the server


def test_the_server_has_momentum_and_cools_down():
    from fedpriv.algorithms.cooled_sgd import CooledSgd
    from fedpriv.privacy.matrix.workload import Workload

    workload = Workload(6, momentum=0.5, cooldown=2)
    optimizer, changes = CooledSgd(0.3, 0.5, workload.rates), torch.randn(6, 1, 4).double()
    position = torch.cumsum(
        torch.stack([optimizer.step(torch.zeros(1), c.clone())[0] for c in changes]), dim=0
    )
    expected = 0.3 * workload.apply(changes[:, 0].numpy())
    assert position.numpy() == pytest.approx(expected)


# ---- what is refused, before the first round

REFUSED = {
    "algorithm.strategy=fancy": "algorithm.strategy must be one of identity, tree",
    "rounds=null": "algorithm.rounds must be a whole number >= 1, got null",
    "algorithm.rounds=10": "algorithm.rounds must be 12, the value of rounds, got 10",
    "algorithm.min_separation=13": "algorithm.min_separation must be a whole number >= 1 and <= 12",
    "algorithm.max_participations=2": "algorithm.max_participations must be >= 3",
    "algorithm.bands=5 algorithm.strategy=banded": "algorithm.bands must be <= 4",
    "algorithm.bands=5 algorithm.strategy=blt": "algorithm.bands must be null with strategy=blt",
    "algorithm.buffers=9 algorithm.strategy=blt": "algorithm.buffers must be a whole number >= 1 and <= 8",
    "algorithm.clients_per_round=5": "algorithm.clients_per_round must be null",
    "algorithm.participation=min_separation": "algorithm.clients_per_round must be a whole number",
    "algorithm.participation=min_separation algorithm.clients_per_round=6": (
        "algorithm.clients_per_round must be <= 5"
    ),
    "algorithm.participation=cyclic_poisson algorithm.client_rate=0.5": "accountant=gdp does not fit",
    "algorithm.participation=cyclic_poisson algorithm.client_rate=0.5 algorithm.strategy=blt": (
        "algorithm.strategy must be identity, banded_toeplitz or banded"
    ),
    "algorithm.participation=cyclic_poisson": "algorithm.client_rate must be a number > 0 and <= 1",
    "algorithm.participation=cyclic_poisson algorithm.client_rate=0": "algorithm.client_rate must be > 0",
    "algorithm.participation=cyclic_poisson algorithm.client_rate=2": "must be > 0 and <= 1",
    "algorithm.participation=cyclic_poisson algorithm.client_rate=0.5 algorithm.bands=5": (
        "algorithm.bands must be <= 4, min_separation, got 5"
    ),
    "algorithm.participation=cyclic_poisson algorithm.client_rate=0.5 algorithm.max_participations=3": (
        "algorithm.max_participations must be null with cyclic_poisson"
    ),
    "algorithm.participation=once_per_epoch algorithm.strategy=banded": (
        "algorithm.participation must be cyclic, min_separation or cyclic_poisson"
    ),
    "partition.clients=3": "algorithm.min_separation must be <= 3, the number of clients",
    "noise_schedule=exponential": "the same noise multiplier in every round",
    "noise_schedule=validation_decay": "fixed in advance",
    "algorithm.momentum=1": "algorithm.momentum must be",
    "algorithm.cooldown=13": "algorithm.cooldown must be",
    "epsilon=1e-6": "epsilon must be >=",
}  # fmt: skip


@pytest.mark.few(24)
@pytest.mark.parametrize("overrides", REFUSED)
def test_what_cannot_be_kept_is_one_sentence(overrides, train):
    with pytest.raises(ConfigError) as error:
        train(*ftrl(*overrides.split()))
    assert REFUSED[overrides] in str(error.value)


def test_a_run_without_noise_promises_nothing(ran):
    overrides = ftrl("noise_schedule=none", "epsilon=null", "rounds=4", z=None)
    assert math.isinf(ran(*overrides).privacy["epsilon_sound"])


def test_amplification_rests_on_what_must_stay_secret():
    algorithm = DpFtrl(
        "mine", participation="cyclic_poisson", client_rate=0.5, strategy="identity", rounds=10
    )
    assert algorithm.caveats() == ("correlated", "secret_turns")
