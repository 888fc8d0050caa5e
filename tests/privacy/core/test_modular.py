"""Sums modulo 2^b: rotation, rounding, wrapping around."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from law_examples import examples
from scipy import stats

from fedpriv.common.secret_streams import Stream, derived_key
from fedpriv.privacy.core.discrete_events import SkellamSharesDpEvent
from fedpriv.privacy.core.integer_noise import WeightTable, discrete_gaussian
from fedpriv.privacy.core.modular import (
    Coding,
    aggregate,
    conditionally_rounded,
    decoded,
    hadamard,
    random_signs,
    rotate,
    rotated_back,
)
from fedpriv.privacy.mechanisms.discrete import (
    SUMS,
    VECTORS,
    largest_cells,
    padded,
    rounded_norm,
    wrap_probability,
)
from fedpriv.privacy.mechanisms.discrete_count import DiscreteCount

SILENT = WeightTable([2**300, 1])  # zero, but for one draw in 2^128


def streams(name: str, count: int) -> list[Stream]:
    return [Stream(derived_key(b"test", name, k)) for k in range(count)]


def rows(clients: int, size: int, norm: float = 1.0, seed: int = 0) -> torch.Tensor:
    found = torch.randn(clients, size, generator=torch.Generator().manual_seed(seed))
    return norm * found / found.norm(dim=1, keepdim=True)


def coding(size: int, cells: float = 1000.0, bits: int = 24, conditional: bool = True) -> Coding:
    dimension = padded(size)
    bound = rounded_norm(cells, dimension, VECTORS) if conditional else None
    return Coding(1.0 / cells, cells, bound, dimension, bits)


# ---- rotation


@pytest.mark.parametrize("dimension", [1, 2, 8, 1024])
def test_the_transform_is_orthogonal_and_its_own_inverse(dimension):
    basis = torch.eye(dimension, dtype=torch.float64)
    matrix = torch.stack([hadamard(row) for row in basis])
    assert torch.allclose(matrix @ matrix.T, basis, atol=1e-12)
    assert torch.allclose(matrix @ matrix, basis, atol=1e-12)
    assert torch.allclose(matrix.abs(), torch.full_like(matrix, 1 / math.sqrt(dimension)))


@pytest.mark.parametrize("size", [1, 5, 650])
def test_the_rotation_keeps_norms_and_is_turned_back(size):
    vector = torch.randn(size, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    signs = random_signs(*streams("signs", 1), padded(size))
    turned = rotate(vector, signs)
    assert float(turned.norm()) == pytest.approx(float(vector.norm()), rel=1e-12)
    assert torch.allclose(rotated_back(turned, signs)[:size], vector, atol=1e-12)


def test_the_rotation_flattens_a_vector_of_one_coordinate():
    vector = torch.zeros(1000, dtype=torch.float64)
    vector[3] = 1.0
    turned = rotate(vector, random_signs(*streams("signs", 1), 1024))
    assert float(turned.abs().max()) == pytest.approx(1 / 32)


@pytest.mark.parametrize(("size", "found"), [(1, 1), (2, 2), (3, 4), (650, 1024), (1024, 1024)])
def test_vectors_are_padded_to_a_power_of_two(size, found):
    assert padded(size) == found


# ---- rounding


@settings(max_examples=examples(60))
@given(st.integers(0, 7), st.floats(0.01, 300.0), st.integers(0, 10**6), st.floats(0.0, 2.0))
def test_a_conditionally_rounded_vector_never_exceeds_its_bound(power, longest, seed, times):
    """Whatever the vector, also one that is longer than it may be."""
    generator = np.random.default_rng(seed)
    vector = generator.normal(size=2**power)
    vector *= times * longest / np.linalg.norm(vector)
    bound = rounded_norm(longest, 2**power, VECTORS)
    found = conditionally_rounded(vector, longest, bound, *streams(f"round {seed}", 1))
    assert found @ found <= bound**2
    shortened = vector * min(1.0, longest / max(np.linalg.norm(vector), 1e-300))
    assert not found.any() or (np.abs(found - shortened) < 1 + 1e-9).all()


def test_it_is_drawn_again_until_it_does():
    """Every coordinate ½: a quarter of all roundings would be too long for this bound, none is."""
    vector, bound = np.full(16, 0.5), 2.9
    for stream in streams("again", 300):
        found = conditionally_rounded(vector, 2.0, bound, stream)
        assert found.sum() <= 8
    plain = [np.floor(vector + s.random(16)).sum() for s in streams("plain", 300)]
    assert max(plain) > 8


def test_roundings_are_unbiased_where_nothing_is_too_long():
    vector = np.linspace(-2, 2, 64)
    found = [conditionally_rounded(vector, 1e3, 1e6, s) for s in streams("mean", 2000)]
    np.testing.assert_allclose(np.mean(found, axis=0), vector, atol=0.06)


@pytest.mark.parametrize("rounding", [VECTORS, SUMS])
def test_the_bounds_of_norms(rounding):
    """Never more than k + √d (and what floating point hides), never less than the vector itself."""
    for cells in (0.1, 1.0, 30.0, 1e4):
        for dimension in (1, 64, 2**15):
            found = rounded_norm(cells, dimension, rounding)
            assert cells <= found <= (cells + math.sqrt(dimension)) * (1 + 1e-5)
    assert rounded_norm(1e4, 1024, VECTORS) < rounded_norm(1e4, 1024, SUMS)


# ---- the sum


@pytest.mark.parametrize("conditional", [True, False])
@pytest.mark.parametrize("size", [3, 650])
def test_without_noise_the_server_has_the_sum_up_to_rounding(size, conditional):
    own = rows(20, size)
    code = coding(size, conditional=conditional)
    found = aggregate(own, code, SILENT, *streams("rotation", 1), streams("own", 20))
    error = (found - own.double().sum(0)).norm()
    assert error < 3 * code.unit * math.sqrt(20 * code.dimension / 4)


def test_a_sum_that_is_too_large_wraps_around():
    """2^b apart is the same number: of all clients alike the sum comes back another one."""
    own = torch.ones(40, 1)
    small = Coding(0.01, 100.0, rounded_norm(100.0, 1, VECTORS), 1, 12)
    found = aggregate(own, small, SILENT, *streams("rotation", 1), streams("own", 40))
    assert float(found) == pytest.approx(40 - 4096 / 100, abs=1e-9)
    large = Coding(0.01, 100.0, rounded_norm(100.0, 1, VECTORS), 1, 14)
    found = aggregate(own, large, SILENT, *streams("rotation", 1), streams("own", 40))
    assert float(found) == pytest.approx(40.0, abs=1e-9)


def test_whole_numbers_come_back_whether_or_not_the_modulus_was_passed_on_the_way():
    signs = random_signs(*streams("signs", 1), 8)
    code = Coding(1.0, 1.0, None, 8, 10)
    numbers = rotate(torch.arange(8.0, dtype=torch.float64) * math.sqrt(8), signs)
    whole = numbers.round().numpy().astype(np.int64)
    for added in (0, 1024, -5 * 1024):
        assert torch.equal(decoded(whole + added, code, signs, 8), decoded(whole, code, signs, 8))


def test_the_noise_of_the_sum_is_that_of_all_shares():
    clients, cells = 30, 200.0
    code = coding(64, cells)
    variance = (2.0 * cells) ** 2 / clients
    found = aggregate(
        torch.zeros(clients, 64), code, discrete_gaussian(variance), *streams("rotation", 1),
        streams("own", clients),
    )  # fmt: skip
    assert float(found.square().mean().sqrt()) == pytest.approx(2.0, rel=0.3)


# ---- wrapping around


@pytest.mark.parametrize("family", ["discrete_gaussian", "skellam"])
def test_the_bound_on_wrapping_around_holds_for_the_worst_sum(family):
    """All clients send the same vector of full norm; the signs are what is random."""
    clients, dimension, bits, cells = 10, 64, 9, 30.0
    variance = 60.0
    bound = wrap_probability(family, cells, variance, clients, dimension, bits)
    generator = np.random.default_rng(0)
    wrapped, tries = 0, 1000
    for _ in range(tries):
        signs = generator.choice([-1.0, 1.0], dimension)
        vector = np.full(dimension, clients * cells / math.sqrt(dimension))
        rotated = hadamard(torch.from_numpy(vector * signs)).numpy()
        noise = generator.normal(0, math.sqrt(clients * variance), dimension)
        wrapped += np.abs(rotated + noise + clients * 0.5).max() >= 2 ** (bits - 1)
    assert stats.binom.sf(wrapped - 1, tries, bound) > 1e-3
    assert bound < 0.2


@pytest.mark.parametrize("family", ["discrete_gaussian", "skellam"])
def test_the_finest_grid_is_the_finest_that_keeps_to_the_limit(family):
    setting = (2.0, 100, 80, 1024)
    for bits in (10, 12, 14, 16, 18):
        cells = largest_cells(family, *setting, bits, 1e-3)

        def wraps(k: float, bits: int = bits) -> float:
            return wrap_probability(family, k, (2.0 * k) ** 2 / 80, 100, 1024, bits)

        assert wraps(cells) <= 1e-3 < wraps(1.01 * cells)
    assert largest_cells(family, *setting, 7, 1e-3) == 0.0  # 100 roundings alone are more than 2^6


def test_the_event_of_a_count_has_the_variance_of_all_shares():
    count = DiscreteCount("bits", 3.0, "skellam", 1.0, honest=4)
    assert count.event() == SkellamSharesDpEvent(1.0, 9.0, 1)
