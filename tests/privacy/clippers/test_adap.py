from __future__ import annotations

import math

import pytest
import torch
from clippers.suite import ClipperSuite
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.clippers import AdapClipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import DOUBLED, Unprotected

laws = settings(max_examples=examples(80))
norm = st.floats(0.0, 100.0) | st.sampled_from([1e30, 1e300, math.inf])
lots = st.lists(norm, min_size=0, max_size=20)


class TestSound(ClipperSuite):
    def make(self):
        return AdapClipper("sound", initial_clip_norm=1.0)


class TestScalar(ClipperSuite):
    def make(self):
        return AdapClipper("scalar", initial_clip_norm=1.0, alpha=0.9)


class TestVector(ClipperSuite):
    def make(self):
        return AdapClipper("vector", initial_clip_norm=1.0, alpha=0.9)


class TestUnclipped(ClipperSuite):
    def make(self):
        return AdapClipper("unclipped", initial_clip_norm=1.0, alpha=0.9)


def started(reading: str, initial: float = 1.0, clients: int = 1, **keys) -> AdapClipper:  # type: ignore[no-untyped-def]
    clipper = AdapClipper(reading, initial_clip_norm=initial, **keys)
    clipper.start(clients, "cpu", None)
    return clipper


def ask(clipper: AdapClipper, norms: list[float], clip_norm: float) -> tuple[float, float]:
    """The statistic of one client's lot and its sensitivity, in float64."""
    values = torch.tensor(norms, dtype=torch.float64)
    owners = torch.zeros(len(norms), dtype=torch.long)
    answer = clipper.statistic(values, owners, values.new_tensor([clip_norm]))
    assert answer.replaced == DOUBLED == 2.0
    assert answer.divided_by == 1.0
    return answer.values.item(), answer.sensitivity.item()


def observe(  # type: ignore[no-untyped-def]
    clipper: AdapClipper, statistic: float | None, *, holders=(0,), gradients=None, denominators
) -> None:
    """What was released of client 0, or of ``holders``."""
    clipper.observe(
        torch.tensor(holders),
        None if statistic is None else Unprotected(torch.tensor([statistic])),
        Unprotected(torch.zeros(1, 3) if gradients is None else gradients),
        torch.tensor(denominators),
    )


def noiseless_round(clipper: AdapClipper, norms: torch.Tensor) -> float:
    """One round of client 0 with the whole of ``norms`` as lot and no noise; the new clip norm."""
    client = torch.tensor([0])
    answer = None
    if clipper.asks(0):
        bounded = StepClip(clipper, 0, client).statistic(
            norms, torch.zeros(len(norms), dtype=torch.long)
        )
        answer = Unprotected(bounded.values)
    gradients = Unprotected(torch.zeros(1, 3))
    clipper.observe(client, answer, gradients, torch.tensor([float(len(norms))]))
    return clipper.clip_norm(0, client).item()


# ---- sensitivity, by brute force


@laws
@given(
    reading=st.sampled_from(["sound", "scalar"]),
    lot=lots,
    record=norm,
    clip_norm=st.floats(1e-3, 50.0),
)
def test_one_record_moves_the_statistic_by_at_most_its_sensitivity(reading, lot, record, clip_norm):
    clipper = started(reading)
    without, sensitivity = ask(clipper, lot, clip_norm)
    including, _ = ask(clipper, [*lot, record], clip_norm)
    rounding = 1e-12 * clip_norm * (len(lot) + 1)
    assert abs(including - without) <= sensitivity + rounding


@laws
@given(
    reading=st.sampled_from(["sound", "scalar"]),
    lot=lots,
    record=norm,
    other=norm,
    clip_norm=st.floats(1e-3, 50.0),
)
def test_a_replaced_record_moves_the_statistic_by_at_most_twice_its_sensitivity(
    reading, lot, record, other, clip_norm
):
    clipper = started(reading)
    first, sensitivity = ask(clipper, [*lot, record], clip_norm)
    second, _ = ask(clipper, [*lot, other], clip_norm)
    assert abs(first - second) <= 2 * sensitivity + 1e-12 * clip_norm * (len(lot) + 1)


def test_the_sensitivity_of_a_centred_bit_is_reached():
    clipper = started("sound")
    assert ask(clipper, [0.5], 1.0) == (0.5, 0.5)
    assert ask(clipper, [2.0], 1.0) == (-0.5, 0.5)


def test_the_sensitivity_of_the_clipped_norm_is_the_clip_norm():
    assert ask(started("scalar"), [100.0], 3.0) == (3.0, 3.0)


def test_the_unclipped_mean_has_no_finite_sensitivity():
    assert ask(started("unclipped"), [1e6], 3.0) == (1e6, math.inf)


def test_the_sensitivity_is_of_the_clip_norm_before_the_round():
    clipper = started("scalar", initial=2.0)
    clip = StepClip(clipper, 0, torch.tensor([0]))
    noiseless_round(clipper, torch.tensor([0.1, 0.1]))
    answer = clip.statistic(torch.tensor([1.0]), torch.tensor([0]))
    assert clipper.clip_norm(0, torch.tensor([0])).item() == pytest.approx(0.1)
    assert answer.sensitivity.tolist() == [2.0]


def test_each_clients_records_are_counted_for_that_client():
    clipper = started("sound", clients=3)
    norms = torch.tensor([0.5, 9.0, 0.1, 0.2, 9.0])
    owners = torch.tensor([0, 0, 2, 2, 2])
    answer = clipper.statistic(norms, owners, torch.ones(3))
    assert answer.values.tolist() == [0.0, 0.0, 0.5]


@pytest.mark.parametrize(
    ("reading", "multiplier"),
    [("sound", 40.0), ("scalar", 3.0), ("vector", None), ("unclipped", 0.0)],
)
def test_what_each_reading_asks_is_priced(reading, multiplier):
    """σ_b = 20 on a sensitivity of ½; σ on C; nothing asked; asked without noise."""
    query = started(reading, bit_noise=20.0).query(0, 3.0)
    assert (query and query.noise_multiplier) == multiplier


# ---- sound: the quantile of the norms

FIXED_NORMS = torch.linspace(0.5, 5.0, 1000)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("quantile", "initial"), [(0.1, 1e-3), (0.9, 1e3)], ids=["from below", "from above"]
)
def test_the_clip_norm_converges_to_the_quantile(quantile, initial):
    clipper = started("sound", initial, target_quantile=quantile, quantile_learning_rate=0.2)
    for _ in range(1200):
        clip_norm = noiseless_round(clipper, FIXED_NORMS)
    assert clip_norm == pytest.approx(torch.quantile(FIXED_NORMS, quantile).item(), rel=0.02)


def test_the_clip_norm_grows_where_too_many_records_are_clipped():
    clipper = started("sound", 1.0, target_quantile=0.5)
    assert noiseless_round(clipper, torch.tensor([0.5, 2.0, 2.0, 2.0])) > 1.0


def test_the_clip_norm_shrinks_where_too_few_records_are_clipped():
    clipper = started("sound", 1.0, target_quantile=0.5)
    assert noiseless_round(clipper, torch.tensor([0.5, 0.5, 0.5, 2.0])) < 1.0


def test_the_step_is_geometric_in_the_unclipped_fraction():
    """Andrew et al. 2021: C ← C exp(-η_C (b - γ)), b the fraction not clipped."""
    clipper = started("sound", 2.0, target_quantile=0.3, quantile_learning_rate=0.2)
    clip_norm = noiseless_round(clipper, torch.tensor([0.5, 1.0, 1.5, 8.0]))
    assert clip_norm == pytest.approx(2.0 * math.exp(-0.2 * (0.75 - 0.3)))


def test_the_fraction_is_taken_of_the_public_denominator():
    """A lot of 2 where 4 were expected: b̃ = (½ + ½)/4 + ½."""
    clipper = started("sound", 1.0, target_quantile=0.5, quantile_learning_rate=0.2)
    observe(clipper, 1.0, denominators=[4.0])
    assert clipper.clip_norm(0, torch.tensor([0])).item() == pytest.approx(math.exp(-0.2 * 0.25))


def test_an_empty_lot_moves_the_clip_norm_as_if_half_were_clipped():
    clipper = started("sound", 1.0, target_quantile=0.5)
    observe(clipper, 0.0, denominators=[4.0])
    assert clipper.clip_norm(0, torch.tensor([0])).item() == 1.0


@pytest.mark.parametrize("released", [-1e30, 1e30])
def test_an_absurd_answer_leaves_the_clip_norm_within_its_limits(released):
    clipper = started("sound", 1.0)
    client = torch.tensor([0])
    observe(clipper, released, denominators=[4.0])
    assert 1e-6 * 0.999 <= clipper.clip_norm(0, client).item() <= 1e12


# ---- the other readings


@laws
@given(
    lot=st.lists(st.floats(0.0, 2.0**20, width=32), min_size=1, max_size=20),
    alpha=st.floats(0.01, 1.0),
    initial=st.floats(0.01, 100.0),
)
def test_scalar_does_not_grow_without_noise(lot, alpha, initial):
    clipper = started("scalar", initial, alpha=alpha)
    assert noiseless_round(clipper, torch.tensor(lot)) <= initial * (1 + 1e-6)


def test_scalar_is_alpha_times_the_mean_clipped_norm():
    clipper = started("scalar", 2.0, alpha=0.5)
    assert noiseless_round(clipper, torch.tensor([1.0, 2.0, 100.0, 1.0])) == pytest.approx(0.75)


def test_scalar_folds_a_negative_answer():
    clipper = started("scalar", 2.0, alpha=0.5)
    observe(clipper, -8.0, denominators=[4.0])
    assert clipper.clip_norm(0, torch.tensor([0])).item() == pytest.approx(1.0)


def test_vector_is_alpha_times_the_norm_of_the_noised_mean():
    clipper = started("vector", alpha=0.5, clients=2)
    gradients = torch.tensor([[3.0, 4.0], [0.0, 2.0]])
    observe(clipper, None, holders=[1, 0], gradients=gradients, denominators=[1.0, 1.0])
    assert clipper.clip_norm(0, torch.arange(2)).tolist() == [1.0, 2.5]


def test_vector_may_explode_only_to_the_ceiling():
    """With σ=3, d=26010, L=78 the noise alone multiplies C by 6.2 in each round."""
    clipper, client = started("vector", alpha=1.0), torch.tensor([0])
    for _ in range(100):
        noised = 6.2 * clipper.clip_norm(0, client).unsqueeze(1)
        observe(clipper, None, gradients=noised, denominators=[1.0])
    assert clipper.clip_norm(0, client).item() == pytest.approx(1e12)


def test_unclipped_is_alpha_times_the_mean_norm():
    clipper = started("unclipped", 1.0, alpha=0.5)
    assert noiseless_round(clipper, torch.tensor([1.0, 3.0, 20.0])) == pytest.approx(4.0)


@pytest.mark.parametrize("reading", ["scalar", "vector", "unclipped"])
def test_a_vanishing_clip_norm_stops_at_the_floor(reading):
    clipper = started(reading, 1.0, alpha=0.01, min_clip_norm=1e-3)
    for _ in range(5):
        clip_norm = noiseless_round(clipper, torch.zeros(4))
    assert clip_norm == pytest.approx(1e-3)


def test_the_sound_clip_norm_stops_at_the_floor():
    clipper = started("sound", 1.0, min_clip_norm=0.5, quantile_learning_rate=1.0)
    for _ in range(20):
        clip_norm = noiseless_round(clipper, torch.zeros(4))
    assert clip_norm == 0.5


# ---- the first clip norm


def test_the_first_clip_norm_is_the_configured_one():
    assert started("sound", 0.3, clients=2).clip_norm(0, torch.arange(2)).tolist() == pytest.approx(
        [0.3] * 2
    )


def test_without_one_the_first_clip_norm_is_the_norm_measured_on_noise():
    clipper = AdapClipper("sound")
    clipper.start(2, "cpu", lambda: 4.5)
    assert clipper.clip_norm(0, torch.arange(2)).tolist() == [4.5, 4.5]


def test_a_configured_clip_norm_needs_no_norm_measured_on_noise():
    clipper = AdapClipper("sound", initial_clip_norm=0.3)
    clipper.start(2, "cpu", None)
    assert clipper.clip_norm(0, torch.arange(2)).tolist() == pytest.approx([0.3, 0.3])


@pytest.mark.parametrize(("measured", "clip_norm"), [(0.0, 1e-6), (math.inf, 1e12)])
def test_an_extreme_measured_norm_is_brought_within_the_limits(measured, clip_norm):
    clipper = AdapClipper("sound")
    clipper.start(1, "cpu", lambda: measured)
    assert clipper.clip_norm(0, torch.tensor([0])).item() == pytest.approx(clip_norm)


# ---- arguments


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"reading": "best"}, "reading must be one of sound, scalar, vector, unclipped, got best"),
        ({"initial_clip_norm": 0}, "initial_clip_norm must be > 0 and <= 1e+12, got 0"),
        ({"alpha": -0.5}, "alpha must be > 0, got -0.5"),
        (
            {"initial_clip_norm": 1.0, "min_clip_norm": 2},
            "min_clip_norm must be <= 1, which is initial_clip_norm, got 2",
        ),
        ({"target_quantile": 1.0}, "target_quantile must be > 0 and < 1, got 1.0"),
        ({"target_quantile": 0}, "target_quantile must be > 0 and < 1, got 0"),
        ({"bit_noise": 0}, "bit_noise must be > 0, got 0"),
        ({"quantile_learning_rate": 0}, "quantile_learning_rate must be > 0, got 0"),
        ({"min_clip_norm": math.inf}, "min_clip_norm must be finite, > 0, got inf"),
    ],
    ids=lambda x: next(iter(x)) if isinstance(x, dict) else "",
)
def test_an_argument_that_cannot_be_is_refused(keys, message):
    with pytest.raises(ArgumentError) as caught:
        AdapClipper(**keys)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("reading", "keys", "expected"),
    [
        ("unclipped", {}, 0.06),
        ("scalar", {}, 0.06),
        ("vector", {}, 0.06),
        ("sound", {}, 3.0),
        ("unclipped", {"initial_alpha": 1.0}, 3.0),
        ("unclipped", {"initial_clip_norm": 0.5}, 0.5),
    ],
)
def test_the_first_clip_norm_is_alpha_times_the_mean_norm_on_noise(reading, keys, expected):
    clipper = AdapClipper(reading, alpha=0.02, **keys)
    clipper.start(2, "cpu", lambda: 3.0)
    torch.testing.assert_close(
        clipper.clip_norm(0, torch.arange(2)), torch.full((2,), expected), rtol=1e-6, atol=0
    )


@pytest.mark.parametrize("factor", [0.5, 1.0])
def test_any_positive_factor_of_the_first_clip_norm_is_allowed(factor):
    assert AdapClipper("scalar", initial_alpha=factor).initial_alpha == factor
