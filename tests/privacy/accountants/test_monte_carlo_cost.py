"""ε of a b-min-sep event: what it is a function of, what keeps it, what is refused."""

from __future__ import annotations

import math

import attr
import numpy as np
import pytest
from dp_accounting import dp_event

from fedpriv.privacy.accountants import (
    CannotAccount,
    GdpAccountant,
    PldAccountant,
    RdpAccountant,
    monte_carlo_cost,
)
from fedpriv.privacy.accountants.monte_carlo_bound import Losses
from fedpriv.privacy.core.events import describe_event, parse_event
from fedpriv.privacy.core.min_sep_events import BMinSepDpEvent
from fedpriv.privacy.core.names import REPLACE_ONE, ZERO_OUT
from fedpriv.privacy.core.trade_off import EPSILONS

DELTA = 1e-3
EVENT = BMinSepDpEvent(12, 4, 0.3, True, (1.0, 0.5, 0.25), dp_event.GaussianDpEvent(2.0))
FREE = BMinSepDpEvent(12, 1, 0.3, True, (1.0,), dp_event.GaussianDpEvent(2.0))


@pytest.fixture(autouse=True)
def few_samples(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(monte_carlo_cost, "SAMPLES", 200_000)
    monte_carlo_cost._sampled.cache_clear()
    yield
    monte_carlo_cost._sampled.cache_clear()


def epsilon(event: BMinSepDpEvent, delta: float = DELTA, **others: int) -> float:
    counts = {event: 1, **{parse_event(text): n for text, n in others.items()}}
    return PldAccountant().epsilon_of(counts, delta, ZERO_OUT)


def never(*arguments: object) -> None:
    raise AssertionError("sampled again")


def test_without_rests_it_is_a_little_above_pld():
    sampled = dp_event.PoissonSampledDpEvent(0.3, dp_event.GaussianDpEvent(2.0))
    exact = PldAccountant().epsilon_of({sampled: 12}, DELTA, ZERO_OUT)
    assert exact < epsilon(FREE) < 1.03 * exact


def test_it_is_no_more_than_without_amplification():
    """Rate 1 and the same start for all: nothing is secret, and it is what turns cost."""
    known = attr.evolve(EVENT, rate=1.0, warm_start=False)
    turns = {dp_event.GaussianDpEvent(2.0 / math.sqrt(1.3125)): 3}
    exact = GdpAccountant().epsilon_of(turns, DELTA, ZERO_OUT)
    assert epsilon(known) == pytest.approx(exact, rel=1e-9)
    by_samples = monte_carlo_cost._smallest(
        monte_carlo_cost._sampled(*monte_carlo_cost._on_grid(known), 200_000), DELTA
    )
    assert exact < by_samples < 1.1 * exact


@pytest.mark.parametrize("direction", ["losses_with", "losses_without"])
def test_presence_and_absence_both_count(direction, monkeypatch):
    """With losses that are all beyond measure in one direction, nothing is left of the amplification."""
    none = np.zeros(0, dtype=np.int64)
    monkeypatch.setattr(
        monte_carlo_cost, direction, lambda *_: Losses(1000, 1, 0.0, none, none, 1000)
    )
    assert epsilon(EVENT) == monte_carlo_cost._unamplified(EVENT, DELTA)


def test_less_noise_more_chances_and_shorter_rests_cost_more():
    changes = ({"event": dp_event.GaussianDpEvent(1.9)}, {"rate": 0.4}, {"rounds": 16})
    for change in changes:
        assert epsilon(attr.evolve(EVENT, **change)) > epsilon(EVENT)
    assert epsilon(EVENT, 1e-2) < epsilon(EVENT)


def test_it_is_found_once_and_then_read(monkeypatch):
    first = epsilon(EVENT)
    monkeypatch.setattr(monte_carlo_cost, "losses_with", never)
    assert epsilon(EVENT) == first
    monte_carlo_cost._sampled.cache_clear()  # another process
    assert epsilon(EVENT) == first


def test_it_is_the_same_when_it_is_found_anew(tmp_path):
    first = epsilon(EVENT)
    monte_carlo_cost._sampled.cache_clear()
    (kept,) = tmp_path.rglob("b-min-sep-*.npz")
    kept.unlink()
    assert epsilon(EVENT) == first


def test_a_damaged_file_is_not_read(tmp_path):
    first = epsilon(EVENT)
    (kept,) = tmp_path.rglob("b-min-sep-*.npz")
    kept.write_bytes(kept.read_bytes()[:-200])
    monte_carlo_cost._sampled.cache_clear()
    assert epsilon(EVENT) == first


def test_a_delta_that_takes_too_many_samples_is_refused():
    with pytest.raises(CannotAccount, match=r"delta must be >= 3e-08 .* 12 rounds, got 1e-12"):
        epsilon(EVENT, 1e-12)


def test_too_many_rounds_are_refused(monkeypatch):
    monkeypatch.setattr(monte_carlo_cost, "MOST_NUMBERS", 2_000_000)
    with pytest.raises(CannotAccount, match=r"rounds must be <= 10 with .*, got 12"):
        epsilon(EVENT)


def test_with_other_releases_each_has_its_share_of_delta():
    gaussian = GdpAccountant().epsilon_of({dp_event.GaussianDpEvent(3.0): 1}, DELTA / 2, ZERO_OUT)
    both = epsilon(EVENT, **{"Gaussian(z=3.0)": 1})
    assert both == pytest.approx(epsilon(EVENT, DELTA / 2) + gaussian, rel=1e-3)
    twice = PldAccountant().epsilon_of({EVENT: 2}, DELTA, ZERO_OUT)
    assert twice == pytest.approx(2 * epsilon(EVENT, DELTA / 2))


def test_a_profile_is_what_the_samples_certify():
    deltas = PldAccountant().deltas_of({EVENT: 1}, EPSILONS, ZERO_OUT)
    assert (np.diff(deltas) <= 0).all()
    place = np.searchsorted(EPSILONS, epsilon(EVENT))
    assert deltas[place] == DELTA
    assert deltas[0] > DELTA


def test_it_is_a_line_of_a_ledger():
    text = "BMinSep(n=12, b=4, q=0.3, warm_start=True, c=(1.0, 0.5, 0.25), Gaussian(z=2.0))"
    assert describe_event(EVENT) == text
    assert parse_event(text) == EVENT
    one = attr.evolve(EVENT, column=(1.0,), warm_start=False)
    assert parse_event(describe_event(one)) == one


@pytest.mark.parametrize(
    "change",
    [
        "b=0", "b=13", "n=0", "q=0.0", "q=nan", "q=2.0", "warm_start=3", "warm_start=(", "c=1.0", "c=()",
        "c=(0.0,)", "c=(inf,)", "c=('a',)", "c=(1.0, 1.0, 1.0, 1.0, 1.0)", "Poisson(q=0.5, Gaussian(z=2.0))",
    ],
)  # fmt: skip
def test_what_is_no_such_event_is_not_read(change):
    name = change.partition("=")[0]
    parts = {
        "n": "n=12",
        "b": "b=4",
        "q": "q=0.3",
        "warm_start": "warm_start=True",
        "c": "c=(1.0, 0.5)",
    }
    parts["Poisson(q"] = "Gaussian(z=2.0)"
    text = f"BMinSep({', '.join({**parts, name: change}.values())})"
    with pytest.raises(ValueError, match=r"not|malformed"):
        parse_event(text)


def test_who_knows_it():
    assert PldAccountant().supports(EVENT, ZERO_OUT) is None
    assert "b-min-sep" in PldAccountant().supports(EVENT, REPLACE_ONE)
    for other in (RdpAccountant(), GdpAccountant()):
        assert "b-min-sep" in other.supports(EVENT, ZERO_OUT)


@pytest.mark.parametrize(("more", "says_so"), [(0, False), (-1, True)])
def test_sampling_that_takes_long_says_so(more, says_so, monkeypatch, capsys):
    monkeypatch.setattr(monte_carlo_cost, "_SILENT", 1000 * EVENT.rounds + more)
    sampling, multiplier = monte_carlo_cost._on_grid(EVENT)
    monte_carlo_cost._sampled(sampling, multiplier, 1000)
    assert ("sampling the privacy loss" in capsys.readouterr().err) == says_so
