"""DP-FTRL: its noise is that of the strategy the ledger charges, and nobody takes part too often."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from fedpriv.algorithms import DpFtrl
from fedpriv.common.errors import ConfigError
from fedpriv.privacy.core import noise
from fedpriv.privacy.matrix import strategy as strategies
from fedpriv.privacy.matrix.banded import Banded
from fedpriv.privacy.matrix.make import make_strategy
from fedpriv.privacy.matrix.participation import Cyclic, MinSeparation, OncePerEpoch
from fedpriv.privacy.matrix.workload import Workload
from fedpriv.privacy.mechanisms.matrix import Attendance, CorrelatedQuery, Correlation
from fedpriv.privacy.mechanisms.mechanism import Mechanism
from fedpriv.tools.verify.correlated import noising, worst_sensitivity

OVERRIDES = (
    "algorithm=dp_ftrl", "partition.clients=24", "rounds=6", "algorithm.min_separation=3",
    "algorithm.strategy=banded", "noise_schedule=constant", "epsilon=null",
)  # fmt: skip
STRATEGIES = ("identity", "tree", "banded_toeplitz", "banded", "blt")
pytestmark = pytest.mark.usefixtures("unpublished")


def about(found: list[str], kind: str) -> bool:
    return any(one.startswith(kind) for one in found)


def found_strategy(name, participation):
    return make_strategy(name, Workload(13, 0.0, 0), participation, None, "mean")


# ---- nothing is wrong


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_passes(caught, strategy):
    assert caught(*OVERRIDES, f"algorithm.strategy={strategy}", rounds=6) == []


@pytest.mark.thorough
@pytest.mark.parametrize(
    "more",
    [
        ("algorithm.participation=cyclic_poisson", "algorithm.client_rate=0.5", "accountant=pld"),
        ("algorithm.momentum=0.9", "algorithm.cooldown=2"),
    ],
)
def test_every_participation_passes(caught, more):
    assert caught(*OVERRIDES, *more, rounds=6) == []


@pytest.mark.thorough
def test_a_part_of_the_rounds_passes(caught):
    assert caught(*OVERRIDES, rounds=4) == []


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_noise_follows_from_the_matrix(name):
    """Of trees, too, though 13 rounds are two trees and a part of one, of five rounds each."""
    strategy = found_strategy(name, Cyclic(5))
    assert noising(strategy) == pytest.approx(strategy.noising(), abs=1e-9)


@pytest.mark.few(3)
@pytest.mark.parametrize("name", STRATEGIES)
@pytest.mark.parametrize("participation", [Cyclic(5), MinSeparation(5, 2), OncePerEpoch(5)])
def test_no_pattern_moves_the_run_further_than_its_sensitivity(name, participation):
    if name == "banded" and isinstance(participation, OncePerEpoch):
        pytest.skip("refused")
    strategy = found_strategy(name, participation)
    worst, charged = worst_sensitivity(strategy, participation), strategy.sensitivity(participation)
    assert 0.9 * charged < worst <= charged * (1 + 1e-9)


# ---- something is


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [0.0, 0.8])
def test_bands_with_other_coefficients(caught, monkeypatch, factor):
    """Under the digest of those that are charged."""
    stream = Banded.stream

    def other(self):
        return stream(Banded(self.entries * np.where(np.arange(self.bands) > 0, factor, 1.0)))

    monkeypatch.setattr(Banded, "stream", other)
    found = caught(*OVERRIDES, rounds=6, samples=10_400)
    assert about(found, "independence: gradient_sum: over rounds")


def test_noise_that_starts_anew_in_every_round(caught_by, monkeypatch):
    """What earlier rounds added is not taken back."""
    row = strategies.NoiseStream.next

    def forgets(self, draw):
        self.held = [h if h is None else h * 0 for h in self.held]
        return row(self, draw)

    monkeypatch.setattr(strategies.NoiseStream, "next", forgets)
    assert about(
        caught_by("noise", *OVERRIDES, rounds=6), "independence: gradient_sum: over rounds"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("factor", [0.5, 0.9])
def test_less_noise(caught_by, monkeypatch, factor):
    whole = noise.add_on_grid
    monkeypatch.setattr(
        noise, "add_on_grid", lambda values, row, std: whole(values, row * factor, std)
    )
    assert about(caught_by("noise", *OVERRIDES, rounds=6), "noise: std of gradient_sum")


@pytest.mark.thorough
def test_noise_that_is_left_out_in_one_round(caught_by, monkeypatch):
    row = strategies.NoiseStream.next

    def leaves_out(self, draw):
        made = row(self, draw)
        return made * 0 if self.round == 4 else made

    monkeypatch.setattr(strategies.NoiseStream, "next", leaves_out)
    assert about(caught_by("noise", *OVERRIDES, rounds=6), "noise: ")


def test_a_client_that_takes_part_too_often(caught_by, monkeypatch):
    cohort = DpFtrl.cohort

    def with_the_first(self, streams, round_index, eligible):
        return np.union1d(cohort(self, streams, round_index, eligible), [0])

    monkeypatch.setattr(DpFtrl, "cohort", with_the_first)
    stops = caught_by("sampling", *OVERRIDES, rounds=6)
    assert stops == ["charge: the run"]
    monkeypatch.setattr(Attendance, "enter", lambda self, round_index, cohort: None)
    assert about(caught_by("sampling", *OVERRIDES, rounds=6), "sampling: rounds of a client")


@pytest.mark.thorough
def test_clients_that_join_more_often_than_is_charged(caught_by, monkeypatch):
    monkeypatch.setattr(Correlation, "query", lambda self, sigma: _rarer(query(self, sigma)))
    sampled = ("algorithm.participation=cyclic_poisson", "algorithm.client_rate=0.5")
    found = caught_by("sampling", *OVERRIDES, *sampled, "accountant=pld", rounds=3)
    assert about(found, "sampling: joins of a client")


query = Correlation.query


def _rarer(made):
    return replace(made, sample_rate=0.45)


def test_a_sensitivity_that_is_too_small(caught_by, monkeypatch):
    sensitivity = strategies.Strategy.sensitivity
    monkeypatch.setattr(strategies.Strategy, "sensitivity", lambda s, p: 0.9 * sensitivity(s, p))
    assert about(caught_by("charge", *OVERRIDES, rounds=6), "sensitivity: gradient_sum: all rounds")


def test_an_event_that_forgets_the_sensitivity(caught_by, monkeypatch):
    from dp_accounting import dp_event

    monkeypatch.setattr(
        CorrelatedQuery, "event", lambda self: dp_event.GaussianDpEvent(2 * self.noise_multiplier)
    )
    assert about(caught_by("charge", *OVERRIDES, rounds=6), "charge: event")


def test_another_mechanism_that_is_charged_at_once_is_refused(caught, monkeypatch):
    monkeypatch.setattr(Mechanism, "charged_at_once", 3)
    with pytest.raises(ConfigError, match="algorithm=cdp_fedavg cannot be verified"):
        caught("algorithm=cdp_fedavg", "partition.clients=24")


def test_another_strategy_than_was_charged(caught_by, monkeypatch):
    monkeypatch.setattr(Correlation, "digest", "0" * 16)
    assert about(caught_by("charge", *OVERRIDES, rounds=6), "charge: the strategy")
