from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fedpriv.common.random_streams import numpy_stream, stream_key, torch_stream

seeds = st.integers(0, 2**63 - 1)
small = st.integers(0, 10**6)


def numpy_draws(*name, count: int = 4000) -> np.ndarray:  # type: ignore[no-untyped-def]
    return numpy_stream(*name).standard_normal(count)


def torch_draws(*name, count: int = 4000) -> np.ndarray:  # type: ignore[no-untyped-def]
    return torch.randn(count, generator=torch_stream(*name)).numpy()


# ---- keys


@given(seed=seeds, round_index=small, client=small)
def test_a_key_fits_63_bits(seed, round_index, client):
    assert 0 <= stream_key(seed, "gradient_noise", round_index, client) < 2**63


@given(seed=seeds, round_index=small)
def test_neighbouring_seeds_and_rounds_have_different_keys(seed, round_index):
    near = [(s, t) for s in (seed, seed + 1) for t in (round_index, round_index + 1)]
    assert len({stream_key(s, "lot", t) for s, t in near}) == 4


@given(seed=seeds, round_index=small)
def test_different_purposes_have_different_keys(seed, round_index):
    assert stream_key(seed, "lot", round_index) != stream_key(seed, "cohort", round_index)


def test_a_seed_and_a_round_are_not_added_up():
    assert stream_key(1, "lot", 0) != stream_key(0, "lot", 1)


def test_coordinates_are_kept_apart():
    keys = {stream_key(0, "lot", *c) for c in [(1, 23), (12, 3), (123,), (0, 123), (123, 0), ()]}
    assert len(keys) == 6


def test_many_keys_are_all_different():
    keys = {stream_key(s, "lot", t, k) for s in range(10) for t in range(100) for k in range(10)}
    assert len(keys) == 10_000


def test_seed_zero_is_a_seed_like_any_other():
    assert stream_key(0, "lot", 5) != stream_key(1, "lot", 5)
    assert numpy_draws(0, "lot").std() == pytest.approx(1.0, abs=0.05)
    assert numpy_draws(0, "lot").tolist() == numpy_draws(0, "lot").tolist()


def test_numpy_integers_name_the_same_stream():
    assert stream_key(np.int64(3), "lot", np.int32(4)) == stream_key(3, "lot", 4)


def test_a_key_is_the_same_in_every_process():
    code = "from fedpriv.common.random_streams import stream_key; print(stream_key(7, 'lot', 1, 2))"
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(other.stdout) == stream_key(7, "lot", 1, 2)


def test_keys_never_change_between_versions():
    """A published run must be repeatable: BLAKE2b-64 of "0/gradient_noise/0/0", one bit dropped."""
    assert stream_key(0, "gradient_noise", 0, 0) == 6006384251552869180


# ---- streams


@pytest.mark.parametrize("draws", [numpy_draws, torch_draws])
def test_a_stream_repeats(draws):
    assert draws(3, "noise", 1, 2).tolist() == draws(3, "noise", 1, 2).tolist()


@pytest.mark.parametrize("draws", [numpy_draws, torch_draws])
@pytest.mark.parametrize(
    "other", [(1, "noise", 0), (0, "noise", 1), (0, "lot", 0)], ids=["seed", "round", "purpose"]
)
def test_neighbouring_streams_are_uncorrelated(draws, other):
    first, second = draws(0, "noise", 0), draws(*other)
    assert abs(np.corrcoef(first, second)[0, 1]) < 4.5 / np.sqrt(len(first))


@pytest.mark.parametrize("draws", [numpy_draws, torch_draws])
def test_the_noise_of_neighbouring_rounds_adds_up_like_independent_noise(draws):
    total = sum(draws(0, "noise", t) for t in range(25))
    assert total.std() == pytest.approx(5.0, rel=0.06)


@pytest.mark.parametrize("stream", [numpy_stream, torch_stream])
def test_what_was_drawn_before_does_not_matter(stream):
    def draw(generator):  # type: ignore[no-untyped-def]
        if isinstance(generator, torch.Generator):
            return torch.randn(5, generator=generator).tolist()
        return generator.standard_normal(5).tolist()

    clients = [0, 1, 2]
    forwards = {k: draw(stream(9, "noise", 4, k)) for k in clients}
    backwards = {k: draw(stream(9, "noise", 4, k)) for k in reversed(clients)}
    alone = draw(stream(9, "noise", 4, 1))
    assert forwards == backwards
    assert alone == forwards[1]


def test_a_torch_stream_leaves_the_global_one_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    torch_draws(0, "noise")
    assert torch.equal(torch.get_rng_state(), before)


def test_a_numpy_stream_leaves_the_global_one_alone():
    np.random.seed(0)
    before = np.random.get_state()[1].tolist()
    numpy_draws(0, "noise")
    assert np.random.get_state()[1].tolist() == before
