"""Whole runs of DP-FTRL: what they cost, who takes part, interruptions, and what is refused."""

from __future__ import annotations

import json
import math

import numpy as np
import pandas as pd
import pytest
import torch
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant

import fedpriv
from fedpriv.algorithms import DpFtrl
from fedpriv.common.errors import ConfigError, ReleaseError
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.loop import Loop
from fedpriv.experiment.plan import make_plan
from fedpriv.privacy.accountants import GdpAccountant, monte_carlo_cost
from fedpriv.privacy.matrix.banded import Banded
from fedpriv.store.tables import parse_ranges

CLIENTS, ROUNDS, REST = 20, 12, 4
STRATEGIES = ("identity", "tree", "banded_toeplitz", "banded", "blt")


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


@pytest.fixture
def few_samples(monkeypatch):
    """Enough for a δ of 1e-3."""
    monkeypatch.setattr(monte_carlo_cost, "SAMPLES", 200_000)
    monte_carlo_cost._sampled.cache_clear()
    yield
    monte_carlo_cost._sampled.cache_clear()


RESTED = (
    "algorithm.participation=b_min_sep", "algorithm.client_rate=0.3", "accountant=pld", "delta=1e-3",
)  # fmt: skip


def ftrl(*overrides: str, z: float | None = 2.0) -> tuple[str, ...]:
    noise = ("noise_schedule=constant", f"noise_schedule.noise_multiplier={z}", "epsilon=null")
    return (
        "algorithm=dp_ftrl", f"partition.clients={CLIENTS}", f"rounds={ROUNDS}",
        f"algorithm.min_separation={REST}", "evaluation_interval=100",
        *(noise if z else ()), *overrides,
    )  # fmt: skip


def plan_of(*overrides: str):
    return make_plan(build_parts(fedpriv.compose(overrides)))


def took_part(folder) -> np.ndarray:
    """[T, K]: who was in which round, by participation.csv."""
    found = np.zeros((ROUNDS, CLIENTS), dtype=bool)
    for row in pd.read_csv(folder / "participation.csv", dtype=str).to_dict("records"):
        first, last = int(row["first_round"]), int(row["last_round"])
        found[first - 1 : last, parse_ranges(row["clients"])] = True
    return found


# ---- what it costs


@pytest.mark.parametrize("times", [None, 3])
def test_independent_noise_costs_what_gaussians_compose_to(times, ran):
    """k participations of a client are k Gaussians of multiplier z on the same data."""
    overrides = ftrl("algorithm.strategy=identity")
    if times:
        overrides = (*overrides, f"algorithm.max_participations={times}")
    result = ran(*overrides)
    composed = GdpAccountant().epsilon_of({dp_event.GaussianDpEvent(2.0): 3}, 1e-5, "add_or_remove")
    assert result.privacy["epsilon"] == pytest.approx(composed, rel=1e-9)
    assert result.privacy["epsilon_sound"] == result.privacy["epsilon"]


def test_poisson_turns_cost_what_sampled_gaussians_compose_to():
    overrides = ("algorithm.participation=cyclic_poisson", "algorithm.client_rate=0.3")
    plan = plan_of(*ftrl(*overrides, "algorithm.strategy=identity", "accountant=pld"))
    accountant = PLDAccountant(value_discretization_interval=1e-4)
    sampled = dp_event.PoissonSampledDpEvent(0.3, dp_event.GaussianDpEvent(2.0))
    accountant.compose(sampled, 3)
    assert plan.epsilon == pytest.approx(accountant.get_epsilon(1e-5), rel=1e-3)


def test_chances_without_rests_cost_what_sampled_gaussians_compose_to(few_samples):
    overrides = ftrl("algorithm.strategy=identity", "algorithm.min_separation=1")
    turns = plan_of(
        *overrides, *RESTED, "algorithm.participation=cyclic_poisson", "algorithm.warm_start=null"
    )
    assert turns.epsilon < plan_of(*overrides, *RESTED).epsilon < 1.03 * turns.epsilon


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_chances_that_leave_nothing_to_chance_cost_what_turns_do(strategy):
    """Rate 1 from one start: plain Gaussians, and any strategy."""
    chances = (
        "algorithm.participation=b_min_sep",
        "algorithm.client_rate=1",
        "algorithm.warm_start=false",
    )
    settings = ftrl(f"algorithm.strategy={strategy}")
    assert plan_of(*settings, *chances).epsilon == pytest.approx(
        plan_of(*settings).epsilon, rel=1e-6
    )


def test_secret_chances_cost_less_than_secret_turns_of_as_many_clients(few_samples):
    """q / (1 + (b - 1) q) = rate / b: cohorts of the same size on average."""
    rate = 1 / (REST / 0.5 - REST + 1)
    rested = plan_of(*ftrl(*RESTED, f"algorithm.client_rate={rate}"))
    turns = plan_of(
        *ftrl(*RESTED, "algorithm.participation=cyclic_poisson", "algorithm.client_rate=0.5")
    )
    assert rested.epsilon < turns.epsilon < plan_of(*ftrl("delta=1e-3")).epsilon


def test_sigma_is_calibrated_to_epsilon_by_samples(few_samples):
    plan = plan_of(*ftrl(*RESTED, "epsilon=3", z=None))
    assert 2.98 < plan.epsilon <= 3.0
    assert plan.rounds_allowed == ROUNDS


def test_a_run_of_chances_costs_what_was_planned_and_what_its_ledger_says(
    few_samples, ran, command, monkeypatch
):
    planned = plan_of(*ftrl(*RESTED)).epsilon
    result = ran(*ftrl(*RESTED))
    assert result.privacy["epsilon"] == result.privacy["epsilon_sound"] == planned
    monte_carlo_cost._sampled.cache_clear()
    monkeypatch.setattr(monte_carlo_cost, "losses_with", None)  # they are in the user's cache
    said = command("account", "--run", str(result.folder), "--json")
    assert said.status == 0, said.err
    accountants = json.loads(said.out)["accountants"]
    assert accountants["pld"]["epsilon"]["0.001"] == planned
    assert all("b-min-sep" in accountants[name]["reason"] for name in ("rdp", "prv", "gdp", "zcdp"))
    words = " ".join((result.folder / "privacy.txt").read_text().split())
    assert "each client that has rested joins with probability" in words
    assert "fails with probability delta / 1000" in words


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_sigma_is_calibrated_to_epsilon(strategy):
    plan = plan_of(*ftrl(f"algorithm.strategy={strategy}", "epsilon=3", z=None))
    assert 2.999 < plan.epsilon <= 3.0
    assert plan.rounds_allowed == ROUNDS


def test_the_ledger_has_one_release_of_all_rounds(ran, command):
    result = ran(*ftrl("algorithm.strategy=blt"))
    (row,) = pd.read_csv(result.folder / "ledger.csv", dtype=str).to_dict("records")
    assert row["draws_per_client"] == "1"
    assert row["neighbours_sound"] == "zero_out"
    assert "in 12 rounds by blt" in row["queries"]
    assert "a multiple of 4 apart" in row["queries"]
    said = command("account", "--run", str(result.folder), "--json")
    assert said.status == 0, said.err
    found = json.loads(said.out)["accountants"]["gdp"]["epsilon"]["1e-05"]
    assert found == pytest.approx(result.privacy["epsilon"], rel=1e-9)


def test_the_statement_says_what_the_neighbours_are_and_what_was_charged(ran):
    words = " ".join(
        (ran(*ftrl("algorithm.strategy=blt")).folder / "privacy.txt").read_text().split()
    )
    assert (
        "zero-out adjacency: all that one client contributes is zero in the other data set" in words
    )
    assert "charged as a whole in its first round" in words


# ---- who takes part


def test_clients_take_part_in_turn(ran):
    present = took_part(ran(*ftrl()).folder)
    assert present.sum(axis=1).tolist() == [CLIENTS / REST] * ROUNDS
    assert (present[:-REST] == present[REST:]).all()
    assert (present[:REST].sum(axis=0) == 1).all()


def test_clients_rest(ran):
    overrides = (
        "algorithm.participation=min_separation", "algorithm.clients_per_round=4",
        "algorithm.max_participations=3",
    )  # fmt: skip
    present = took_part(ran(*ftrl(*overrides)).folder)
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


@pytest.mark.parametrize("warm", [True, False])
def test_clients_rest_and_come_again_by_chance(warm, few_samples, ran):
    present = took_part(ran(*ftrl(*RESTED, f"algorithm.warm_start={warm}")).folder)
    gaps = np.concatenate([np.diff(np.flatnonzero(client)) for client in present.T])
    assert gaps.min() == REST
    assert len(set(gaps)) > 1  # not in turn


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


def test_an_own_algorithm_whose_clients_do_not_rest_stops_the_run(few_samples, train):
    with pytest.raises(ReleaseError, match=r"Restless.cohort chose other clients than fedpriv's"):
        train(*ftrl(*RESTED, f"algorithm._target_={Restless.__module__}.{Restless.__qualname__}"))


def test_a_client_that_does_not_rest_stops_the_run(few_samples, train, monkeypatch):
    monkeypatch.setattr(DpFtrl, "cohort", Restless.cohort)
    with pytest.raises(ReleaseError, match="rounds of a client at least 4 apart"):
        train(*ftrl(*RESTED))


class Uneven(DpFtrl):
    """Says that its columns are alike, and adds noise by others."""

    def find_strategy(self):
        return Banded(np.linspace(1.0, 2.0, ROUNDS * REST).reshape(ROUNDS, REST))


def test_a_strategy_that_chances_are_not_accounted_for_with_stops_the_run(few_samples, train):
    with pytest.raises(ReleaseError, match="neither identity nor banded_toeplitz"):
        train(*ftrl(*RESTED, f"algorithm._target_={Uneven.__module__}.{Uneven.__qualname__}"))


# ---- resuming


@pytest.mark.parametrize(
    "overrides",
    [
        ("algorithm.strategy=banded_toeplitz", "algorithm.momentum=0.9", "algorithm.cooldown=3"),
        ("algorithm.strategy=tree",),
        (
            "algorithm.strategy=blt", "algorithm.participation=min_separation",
            "algorithm.clients_per_round=5",
        ),
        RESTED,
    ],
    ids=lambda overrides: overrides[0],
)  # fmt: skip
def test_a_run_that_is_interrupted_after_every_round_is_the_run_that_was_not(
    overrides, train, tmp_path, assert_same_run, few_samples
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


def test_less_noise_reaches_the_model_than_with_independent_noise(ran):
    """At one ε, with clients that do not learn: how far the weights have moved is noise alone."""
    moved = {}
    for strategy in ("identity", "banded_toeplitz"):
        overrides = (
            f"algorithm.strategy={strategy}",
            "algorithm.local_learning_rate=1e-9",
            "epsilon=2",
        )
        folder = ran(*ftrl(*overrides, z=None)).folder
        state = torch.load(folder / "checkpoint.pt", weights_only=False)
        moved[strategy] = float(state["training"]["weights"].norm())
    assert moved["banded_toeplitz"] < 0.8 * moved["identity"]


# ---- what is refused, before the first round

REFUSED = {
    "algorithm.strategy=fancy": "algorithm.strategy must be one of identity, tree",
    "rounds=null": "algorithm.rounds must be a whole number >= 1, got null",
    "algorithm.rounds=10": "algorithm.rounds must be 12, as many as rounds, got 10",
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
    "algorithm.participation=b_min_sep": "algorithm.client_rate must be a number > 0 and <= 1",
    "algorithm.participation=b_min_sep algorithm.client_rate=0": "algorithm.client_rate must be > 0",
    "algorithm.participation=b_min_sep algorithm.client_rate=2": "algorithm.client_rate must be > 0 and <= 1",
    "algorithm.participation=b_min_sep algorithm.client_rate=0.5": "accountant=gdp does not fit",
    "algorithm.participation=b_min_sep algorithm.client_rate=0.5 algorithm.strategy=blt": (
        "algorithm.strategy must be identity or banded_toeplitz with participation=b_min_sep, got blt"
    ),
    "algorithm.participation=b_min_sep algorithm.client_rate=0.5 algorithm.strategy=banded": (
        "algorithm.strategy must be identity or banded_toeplitz"
    ),
    "algorithm.participation=b_min_sep algorithm.client_rate=0.5 algorithm.bands=5": (
        "algorithm.bands must be <= 4, min_separation, got 5"
    ),
    "algorithm.participation=b_min_sep algorithm.client_rate=0.5 algorithm.max_participations=3": (
        "algorithm.max_participations must be null with b_min_sep"
    ),
    "algorithm.participation=b_min_sep algorithm.client_rate=0.5 algorithm.warm_start=2": (
        "algorithm.warm_start must be true or false"
    ),
    "algorithm.warm_start=true": "algorithm.warm_start must be null with participation=cyclic",
    "algorithm.participation=once_per_epoch algorithm.strategy=banded": (
        "algorithm.participation must be cyclic, min_separation or cyclic_poisson"
    ),
    "partition.clients=3": "algorithm.min_separation must be <= 3, the number of clients",
    "clipper=quantile": "takes one clip norm fixed in advance",
    "noise_schedule=exponential": "the same noise multiplier in every round",
    "noise_schedule=validation_decay": "fixed in advance",
    "algorithm.momentum=1": "algorithm.momentum must be",
    "algorithm.cooldown=13": "algorithm.cooldown must be",
    "epsilon=1e-6": "epsilon must be >=",
}  # fmt: skip


@pytest.mark.parametrize("overrides", REFUSED)
def test_what_cannot_be_kept_is_one_sentence(overrides, train):
    with pytest.raises(ConfigError) as error:
        train(*ftrl(*overrides.split()))
    assert REFUSED[overrides] in str(error.value)
    assert "\n" not in str(error.value)


def test_a_delta_that_samples_cannot_certify_is_refused_in_one_sentence(command):
    said = command("train", *ftrl(*RESTED, "delta=1e-12"))
    assert said.status != 0
    assert "delta must be >= 3e-08 with algorithm.participation=b_min_sep and 12 rounds" in said.err
    assert len(said.err.strip().splitlines()) == 1


def test_it_passes_a_verification(command):
    said = command("verify", *ftrl())
    assert (said.status, "none failed" in said.out) == (0, True)


def test_a_run_without_noise_promises_nothing(ran):
    overrides = ftrl("noise_schedule=none", "epsilon=null", "rounds=4", z=None)
    assert math.isinf(ran(*overrides).privacy["epsilon_sound"])


# ---- what is said of it

POISSON = ("algorithm.participation=cyclic_poisson", "algorithm.client_rate=0.5", "accountant=pld")


@pytest.mark.parametrize(("overrides", "secret"), [((), False), (POISSON, True)])
def test_who_takes_part_is_a_secret_only_where_sampling_amplifies(overrides, secret, ran):
    words = " ".join((ran(*ftrl(*overrides)).folder / "privacy.txt").read_text().split())
    assert ("participation.csv (who took part must stay secret" in words) == secret
    assert ("Who joins a round must stay secret" in words) == secret


def test_one_release_is_one_release(ran):
    words = " ".join((ran(*ftrl()).folder / "privacy.txt").read_text().split())
    assert f"all {CLIENTS} have the same, 1 release in all." in words


def test_a_budget_that_is_too_small_is_held_against_the_whole_run():
    plan = plan_of(*ftrl(z=0.5), "epsilon=2")
    with pytest.raises(ConfigError, match="the cost of the whole run at this noise"):
        plan.refuse_if_impossible(2.0)
    assert (
        "is the cost of the whole run; a run would be refused" in dict(plan.lines)["rounds allowed"]
    )
