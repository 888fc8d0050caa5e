"""Quantile clipping: where C converges, its step, what the bits cost, and the split of the noise."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from clippers.suite import ClipperSuite
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.clippers import QuantileClipper
from fedpriv.privacy.clippers.quantile import split_multiplier
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.core.names import AGGREGATOR, CLIENT, REPLACE_ONE
from fedpriv.privacy.core.sampling import PoissonSampling, WholeData
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    GaussianQuery,
    JointQuery,
    RandomizedBit,
    Unprotected,
    joint_noise_multiplier,
)
from fedpriv.privacy.mechanisms.randomized_response import noised_count

laws = settings(max_examples=examples(60))
RESPONSE = {"bit_mechanism": "randomized_response", "noised_by": CLIENT, "bit_epsilon": 1.0}


class TestGeometric(ClipperSuite):
    def make(self):
        return QuantileClipper(1.0)


class TestLinear(ClipperSuite):
    def make(self):
        return QuantileClipper(1.0, update="linear")


class TestRandomizedResponse(ClipperSuite):
    def make(self):
        return QuantileClipper(1.0, **RESPONSE)


def started(initial: float = 1.0, clients: int = 1, **keys) -> QuantileClipper:  # type: ignore[no-untyped-def]
    clipper = QuantileClipper(initial, **keys)
    clipper.start(clients, "cpu", None)
    return clipper


def noiseless(initial: float, **keys) -> QuantileClipper:  # type: ignore[no-untyped-def]
    return started(initial, bit_noise=0, split=False, **keys)


def round_of(clipper: QuantileClipper, norms: torch.Tensor) -> float:
    """One round of client 0 with the whole of ``norms`` as lot and no noise; the new clip norm."""
    client, owners = torch.tensor([0]), torch.zeros(len(norms), dtype=torch.long)
    answer = StepClip(clipper, 0, client).statistic(norms, owners)
    return observed(clipper, answer.values, float(len(norms)))


def observed(clipper: QuantileClipper, statistic: torch.Tensor, denominator: float) -> float:
    """The clip norm of client 0 once this statistic was released."""
    client, gradients = torch.tensor([0]), Unprotected(torch.zeros(1, 3))
    clipper.observe(client, Unprotected(statistic), gradients, torch.tensor([denominator]))
    return clipper.clip_norm(0, client).item()


# ---- where C goes

FIXED_NORMS = torch.linspace(0.5, 5.0, 1000)


@pytest.mark.thorough
@pytest.mark.parametrize("quantile", [0.1, 0.5, 0.9])
@pytest.mark.parametrize("initial", [1e-2, 20.0], ids=["from below", "from above"])
@pytest.mark.parametrize("update", ["geometric", "linear"])
def test_without_noise_the_clip_norm_converges_to_the_quantile(quantile, initial, update):
    clipper = noiseless(initial, target_quantile=quantile, update=update)
    for _ in range(1200):
        clip_norm = round_of(clipper, FIXED_NORMS)
    assert clip_norm == pytest.approx(torch.quantile(FIXED_NORMS, quantile).item(), rel=0.01)


def test_where_nothing_is_clipped_one_step_shrinks_the_clip_norm_by_exp_of_a_tenth():
    """b = 1, γ = .5, η_C = .2: C ← C exp(-.2 · .5)."""
    clipper = noiseless(3.0, target_quantile=0.5, quantile_learning_rate=0.2)
    assert round_of(clipper, torch.tensor([0.1, 0.2])) == pytest.approx(3.0 * math.exp(-0.1))


def test_where_everything_is_clipped_one_step_grows_the_clip_norm_by_exp_of_a_tenth():
    clipper = noiseless(3.0, target_quantile=0.5, quantile_learning_rate=0.2)
    assert round_of(clipper, torch.tensor([4.0, 5.0])) == pytest.approx(3.0 * math.exp(0.1))


def test_the_geometric_step_is_of_the_fraction_not_clipped():
    clipper = noiseless(2.0, target_quantile=0.3, quantile_learning_rate=0.2)
    clip_norm = round_of(clipper, torch.tensor([0.5, 1.0, 1.5, 8.0]))
    assert clip_norm == pytest.approx(2.0 * math.exp(-0.2 * (0.75 - 0.3)))


def test_the_linear_step_is_of_the_fraction_not_clipped():
    clipper = noiseless(2.0, target_quantile=0.3, quantile_learning_rate=0.2, update="linear")
    clip_norm = round_of(clipper, torch.tensor([0.5, 1.0, 1.5, 8.0]))
    assert clip_norm == pytest.approx(2.0 - 0.2 * (0.75 - 0.3))


def test_a_norm_at_the_clip_norm_counts_as_not_clipped():
    at_it, above_it = noiseless(2.0), noiseless(2.0)
    assert round_of(at_it, torch.tensor([2.0])) < 2.0 < round_of(above_it, torch.tensor([2.01]))


def test_the_fraction_is_of_the_public_denominator():
    """A cohort of 2 where 4 were expected, nobody clipped: b̃ = (½ + ½)/4 + ½."""
    clipper = noiseless(1.0, target_quantile=0.5, quantile_learning_rate=0.2)
    assert observed(clipper, torch.tensor([1.0]), 4.0) == pytest.approx(math.exp(-0.2 * 0.25))


@pytest.mark.parametrize("update", ["geometric", "linear"])
def test_an_empty_cohort_leaves_the_median_where_it_is(update):
    clipper = noiseless(1.0, target_quantile=0.5, update=update)
    assert observed(clipper, torch.zeros(1), 4.0) == 1.0


@pytest.mark.parametrize("update", ["geometric", "linear"])
@pytest.mark.parametrize("released", [-1e30, 1e30])
def test_an_absurd_answer_leaves_the_clip_norm_within_its_limits(update, released):
    clipper = started(1.0, update=update, min_clip_norm=0.5)
    assert 0.5 <= observed(clipper, torch.tensor([released]), 4.0) <= 1e12


# ---- sensitivity


@laws
@given(
    lot=st.lists(st.floats(0.0, 100.0), max_size=20),
    unit=st.floats(0.0, 100.0),
    clip_norm=st.floats(1e-3, 50.0),
)
def test_one_unit_more_moves_the_centred_sum_by_exactly_its_sensitivity(lot, unit, clip_norm):
    def ask(norms: list[float]) -> tuple[float, float]:
        values = torch.tensor(norms, dtype=torch.float64)
        owners = torch.zeros(len(norms), dtype=torch.long)
        answer = started().statistic(values, owners, values.new_tensor([clip_norm]))
        assert answer.divided_by == 1.0
        return answer.values.item(), answer.sensitivity.item()

    (without, sensitivity), (including, _) = ask(lot), ask([*lot, unit])
    assert abs(including - without) == sensitivity == 0.5


# ---- z_Δ: the split


@pytest.mark.parametrize(
    ("z", "bit_noise", "z_delta"),
    [(1.0, 1.0, 1.1547005), (1.0, 10.0, 1.0012523), (0.5, 0.5, 0.5773503)],
)
def test_the_gradients_multiplier_is_that_of_andrew_et_al(z, bit_noise, z_delta):
    assert split_multiplier(z, bit_noise) == pytest.approx(z_delta, abs=5e-8)


@laws
@given(bit_noise=st.floats(1e-3, 1e4), share=st.floats(1e-6, 0.999))
def test_the_split_pair_costs_exactly_what_z_costs(bit_noise, share):
    z = 2 * bit_noise * share
    pair = (split_multiplier(z, bit_noise), 2 * bit_noise)
    assert joint_noise_multiplier(pair) == pytest.approx(z, rel=1e-9)


@pytest.mark.parametrize("sampling", [PoissonSampling(0.01), WholeData(), WholeData(REPLACE_ONE)])
def test_the_joint_query_of_a_split_pair_is_the_event_of_z(sampling):
    clipper = QuantileClipper(1.0, bit_noise=0.8)
    gradient = GaussianQuery(GRADIENT, clipper.gradient_multiplier(1.1))
    event = JointQuery(sampling, (gradient, clipper.query(0, 1.1))).event()
    expected = sampling.event(1.1)
    gaussians = [getattr(e, "event", e).noise_multiplier for e in (event, expected)]
    assert type(event) is type(expected)
    assert gaussians[0] == pytest.approx(gaussians[1], rel=1e-12)


@pytest.mark.parametrize("z", [2.0, 2.1, 1e6])
def test_a_multiplier_that_the_bits_alone_overspend_is_refused_by_the_name_of_their_noise(z):
    with pytest.raises(ArgumentError) as caught:
        QuantileClipper(1.0, bit_noise=1.0).gradient_multiplier(z)
    assert caught.value.argument == "bit_noise"
    assert str(caught.value) == (
        f"bit_noise must be > {z / 2:g}, half the noise multiplier, with split=true, got 1.0"
    )


def test_multipliers_below_twice_the_bits_noise_are_possible_with_a_split():
    clipper = QuantileClipper(1.0, bit_noise=1.5)
    assert clipper.largest_noise_multiplier == 3.0
    assert math.isfinite(clipper.gradient_multiplier(math.nextafter(3.0, 0.0)))


def test_without_noise_the_gradient_gets_none_either():
    assert QuantileClipper(1.0).gradient_multiplier(0.0) == 0.0


@pytest.mark.parametrize("keys", [{"split": False}, RESPONSE], ids=["on top", "response"])
def test_without_a_split_the_gradient_keeps_its_multiplier(keys):
    clipper = QuantileClipper(1.0, **keys)
    assert clipper.gradient_multiplier(100.0) == 100.0
    assert clipper.largest_noise_multiplier == math.inf


# ---- what is asked


@pytest.mark.parametrize("by", [AGGREGATOR, CLIENT])
def test_a_gaussian_bit_is_a_query_of_twice_its_noise(by):
    query = QuantileClipper(1.0, bit_noise=5.0, noised_by=by).query(7, 1.0)
    assert query == GaussianQuery(CLIP_STATISTIC, 10.0, by=by)


def test_randomized_response_is_asked_with_its_epsilon_by_the_client():
    query = QuantileClipper(1.0, **RESPONSE).query(7, 1.0)
    assert query == RandomizedBit(CLIP_STATISTIC, 1.0)
    assert query.by == CLIENT


def test_bits_without_noise_are_asked_without_noise():
    assert QuantileClipper(1.0, bit_noise=0, split=False).query(0, 1.0).noise_multiplier == 0


def test_only_bits_that_an_aggregator_noises_need_its_trust():
    assert "trusted aggregator" in QuantileClipper(1.0).aggregator_caveat
    assert QuantileClipper(1.0, noised_by=CLIENT).aggregator_caveat is None
    assert QuantileClipper(1.0, **RESPONSE).aggregator_caveat is None


# ---- arguments


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"initial_clip_norm": 0}, "initial_clip_norm must be > 0 and <= 1e+12, got 0"),
        ({"target_quantile": 1.0}, "target_quantile must be > 0 and < 1, got 1.0"),
        ({"target_quantile": 0}, "target_quantile must be > 0 and < 1, got 0"),
        ({"quantile_learning_rate": 0}, "quantile_learning_rate must be > 0, got 0"),
        ({"update": "cubic"}, "update must be one of geometric, linear, got cubic"),
        (
            {"bit_mechanism": "laplace"},
            "bit_mechanism must be one of gaussian, randomized_response, got laplace",
        ),
        ({"noised_by": "server"}, "noised_by must be one of aggregator, client, got server"),
        ({"min_clip_norm": 0}, "min_clip_norm must be > 0, got 0"),
        ({"min_clip_norm": 2}, "min_clip_norm must be <= 1, which is initial_clip_norm, got 2"),
        ({"bit_noise": -1}, "bit_noise must be >= 0, got -1"),
        ({"bit_noise": None}, "bit_noise must be a number >= 0, got null"),
        ({"bit_epsilon": 1.0}, "bit_epsilon must be null with bit_mechanism=gaussian, got 1.0"),
        (
            {**RESPONSE, "bit_epsilon": None},
            "bit_epsilon must be a number >= 0.001 and <= 50, got null",
        ),
        ({**RESPONSE, "bit_epsilon": 0}, "bit_epsilon must be >= 0.001 and <= 50, got 0"),
        ({**RESPONSE, "bit_epsilon": 51}, "bit_epsilon must be >= 0.001 and <= 50, got 51"),
        (
            {**RESPONSE, "noised_by": AGGREGATOR},
            "noised_by must be client with bit_mechanism=randomized_response, got aggregator",
        ),
        ({"split": "yes"}, "split must be true or false, got yes"),
    ],
    ids=str,
)
def test_an_argument_that_cannot_be_is_refused(keys, message):
    with pytest.raises(ArgumentError) as caught:
        QuantileClipper(**{"initial_clip_norm": 1.0, **keys})
    assert str(caught.value) == message


def test_the_smallest_epsilon_of_a_bit_that_is_accepted_still_gives_an_estimate():
    """1/(1 + e^ε) rounds to ½ from ε = 1e-16 on, and k̂ divides by 1 - 2f."""
    try:
        query = QuantileClipper(1.0, **{**RESPONSE, "bit_epsilon": 1e-17}).query(0, 1.0)
    except ArgumentError:
        return
    assert math.isfinite(noised_count(3, 10, query.epsilon, np.random.default_rng(0)))
