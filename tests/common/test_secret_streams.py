from __future__ import annotations

import json
import math
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.common.secret_streams import (
    PAIRS_AT_ONCE,
    SecretStreams,
    Stream,
    below,
    derived_key,
    standard_normals,
    uniform,
    write_normals,
)

STREAMS = SecretStreams.simulated(0, 0, "a run")
small = st.integers(0, 10**6)


def stream(*name) -> Stream:  # type: ignore[no-untyped-def]
    return STREAMS.noise("noise", *name)


# ---- keys


def test_the_cipher_is_chacha20():
    """RFC 8439, appendix A.1, test vector 1: key, nonce and counter zero."""
    block = Stream(bytes(32)).bits(2).tobytes()
    assert block.hex() == "76b8e0ada0f13d90405d6ae55386bd28"


def test_a_key_has_256_bits():
    assert len(derived_key(b"secret", "noise", 1, 2)) == 32
    assert len(STREAMS.noise_key) == len(STREAMS.sampling_key) == 32


def test_all_of_a_key_matters():
    """A generator that kept 32 or 64 bits of its key would repeat."""
    base = bytes(32)
    firsts = {Stream(base).bits(1)[0]}
    for bit in range(256):
        key = bytearray(base)
        key[bit // 8] ^= 1 << bit % 8
        firsts.add(Stream(bytes(key)).bits(1)[0])
    assert len(firsts) == 257


@given(round_index=small, step=small, client=small)
def test_neighbouring_names_have_different_keys(round_index, step, client):
    names = {
        (round_index + a, step + b, client + c) for a in (0, 1) for b in (0, 1) for c in (0, 1)
    }
    assert len({derived_key(b"k", "noise", *name) for name in names}) == 8


def test_coordinates_and_purposes_are_kept_apart():
    names = [
        ("lot", 1, 23),
        ("lot", 12, 3),
        ("lot", 123),
        ("lot/1", 23),
        ("lot", "1", 23),
        ("lot1",),
    ]
    assert len({derived_key(b"k", *name) for name in names}) == len(names)


@pytest.mark.thorough
def test_no_two_streams_of_a_long_run_coincide():
    """The run that found the old streams wanting: 7,921 rounds of ten clients, where 3 of 6 seeds had
    noise twice. Two keys out of 80,000 agree in 64 bits with probability 2e-10."""
    firsts = [
        STREAMS.noise("gradient_sum", t, 0, k).bits(1)[0] for t in range(7921) for k in range(10)
    ]
    assert len(set(firsts)) == len(firsts)


def test_runs_seeds_and_uses_have_streams_of_their_own():
    runs = [
        SecretStreams.simulated(s, n, run) for s in (0, 1) for n in (0, 1) for run in ("a", "b")
    ]
    firsts = {
        use("lot", 3).bits(1)[0] for streams in runs for use in (streams.sampling, streams.noise)
    }
    assert len(firsts) == 16


def test_an_entropy_root_makes_other_streams_than_any_seed():
    one, other = (SecretStreams.of_run(bytes([b]) * 32, "a run") for b in (0, 1))
    assert len({s.noise("noise").bits(1)[0] for s in (one, other, STREAMS)}) == 3


@pytest.mark.thorough
def test_a_stream_is_the_same_in_every_process():
    code = (
        "import json; from fedpriv.common.secret_streams import SecretStreams as S; "
        "s = S.simulated(7, 8, 'run').noise('noise', 1); print(json.dumps(s.standard_normal(3).tolist()))"
    )
    other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    here = SecretStreams.simulated(7, 8, "run").noise("noise", 1).standard_normal(3)
    assert json.loads(other.stdout) == here.tolist()


def test_streams_never_change_without_a_new_version():
    """A seed must go on giving the run it gave: version 3."""
    assert STREAMS.noise("gradient_sum", 1, 0, 2).bits(1)[0] == 6290933022474884893
    found = STREAMS.noise("gradient_sum", 1, 0, 2).standard_normal(2)
    np.testing.assert_allclose(found, [-0.8005325449979643, 0.35271838515910564], rtol=1e-12)


# ---- uniform numbers, subsets, orders


@given(
    probability=st.floats(2.0**-60, 1.0),
    words=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=20),
)
def test_whole_numbers_are_compared_as_the_uniform_numbers_are(probability, words):
    threshold = math.ceil(probability * 2.0**53) << 11  # the first word that is not below
    beside = [min(max(threshold + step, 0), 2**64 - 1) for step in (-2049, -2048, -1, 0, 1, 2048)]
    drawn = np.array(words + beside, dtype=np.uint64)
    assert np.array_equal(below(drawn, probability), uniform(drawn) < probability)


def test_uniform_numbers_are_uniform():
    drawn = stream().random(200_000)
    assert 0 <= drawn.min() < drawn.max() < 1
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    assert isinstance(stream().random(), float)


@given(n=st.integers(0, 200), seed=small)
def test_a_permutation_has_everything_once(n, seed):
    assert sorted(stream(seed).permutation(n)) == list(range(n))
    rows = np.arange(n) * 10
    assert sorted(stream(seed).permutation(rows)) == rows.tolist()


def test_all_orders_of_three_are_alike():
    orders = [tuple(stream(i).permutation(3)) for i in range(6000)]
    counts = [orders.count(order) for order in set(orders)]
    assert len(counts) == 6
    assert stats.chisquare(counts).pvalue > 1e-4


def test_all_pairs_of_five_are_alike():
    pairs = [tuple(sorted(stream(i).choice(5, 2))) for i in range(6000)]
    counts = [pairs.count(pair) for pair in set(pairs)]
    assert len(counts) == 10
    assert stats.chisquare(counts).pvalue > 1e-4


@given(n=st.integers(1, 300), share=st.floats(0, 1), seed=small)
def test_a_choice_is_the_beginning_of_a_permutation(n, share, seed):
    size = int(share * n) if share > 0.3 else int(share * n / 8)
    chosen = stream(seed).choice(n, size)
    assert chosen.tolist() == stream(seed).permutation(n)[:size].tolist()
    rows = 7 * np.arange(n)
    assert stream(seed).choice(rows, size).tolist() == rows[chosen].tolist()


@pytest.mark.parametrize("size", [1, 2, 5, 9])
def test_equal_words_are_chosen_in_their_order(size, monkeypatch):
    words = np.tile(np.array([3, 1, 2, 1], dtype=np.uint64), 25)
    monkeypatch.setattr(Stream, "bits", lambda *_: words)
    expected = np.argsort(words, kind="stable")[:size]
    assert stream(0).choice(100, size).tolist() == expected.tolist()


def test_a_choice_of_too_many_or_with_replacement_is_refused():
    with pytest.raises(ValueError, match="cannot choose 3 of 2"):
        stream().choice(2, 3)
    with pytest.raises(ValueError, match="without replacement"):
        stream().choice(3, 2, replace=True)


# ---- normals


@pytest.mark.parametrize("n", [1, 2, 3, 1001, 2 * PAIRS_AT_ONCE, 2 * PAIRS_AT_ONCE + 1])
def test_any_number_of_normals(n):
    drawn = stream(n).standard_normal(n)
    assert drawn.shape == (n,)
    assert np.isfinite(drawn).all()
    assert len(set(drawn.tolist())) == n


def test_normals_are_normal():
    drawn = stream().standard_normal(1_000_000)
    assert stats.kstest(drawn, "norm").pvalue > 1e-4
    assert drawn.mean() == pytest.approx(0, abs=5e-3)
    assert drawn.std() == pytest.approx(1, abs=4e-3)
    assert stats.kurtosis(drawn) == pytest.approx(0, abs=0.03)
    tail = np.count_nonzero(np.abs(drawn) > 4)
    assert 30 < tail < 105  # 63.3 expected


def test_neighbouring_normals_and_the_halves_of_a_pair_are_uncorrelated():
    drawn = stream().standard_normal(2 * PAIRS_AT_ONCE)
    limit = 5 / math.sqrt(PAIRS_AT_ONCE)
    first, second = drawn[:PAIRS_AT_ONCE], drawn[PAIRS_AT_ONCE:]
    assert abs(np.corrcoef(first, second)[0, 1]) < limit
    assert abs(np.corrcoef(first[:-1], first[1:])[0, 1]) < limit
    assert abs(np.corrcoef(first**2, second**2)[0, 1]) < limit


def test_streams_are_uncorrelated():
    drawn = np.stack([stream(t).standard_normal(4000) for t in range(8)])
    likeness = np.corrcoef(drawn) - np.eye(8)
    assert np.abs(likeness).max() < 5 / math.sqrt(4000)


@pytest.mark.parametrize("size", [5 * PAIRS_AT_ONCE + 3, 70_003])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_normals_do_not_depend_on_threads(threads, size):
    expected = stream().standard_normal(size)
    torch.set_num_threads(threads)
    assert np.array_equal(stream().standard_normal(size), expected)


@pytest.mark.parametrize("size", [1, 10, 999, PAIRS_AT_ONCE, 2 * PAIRS_AT_ONCE + 1])
def test_rows_made_together_are_those_made_alone(size):
    together = standard_normals([stream(k) for k in range(5)], size)
    for k, row in enumerate(together):
        assert np.array_equal(row.numpy(), stream(k).standard_normal(size))


def normals_of(radius: int, angle: int) -> list[float]:
    words = torch.tensor([[radius], [angle]], dtype=torch.int64)
    out = torch.empty(1, 2, dtype=torch.float64)
    write_normals(words[:1], words[1:], out)
    return out[0].tolist()


EXTREMES = [0, 1, 2**53, 2**63 - 1, -1, -(2**63)]


@pytest.mark.parametrize("radius", EXTREMES)
@pytest.mark.parametrize("angle", EXTREMES)
def test_the_transform_is_finite_at_its_extreme_inputs(radius, angle):
    assert all(map(math.isfinite, normals_of(radius, angle)))


def test_the_largest_normal_is_beyond_nine_standard_deviations():
    """A float32 Box and Muller transform ends at 5.768."""
    largest = normals_of(0, 0)[0]
    assert largest == pytest.approx(math.sqrt(2 * 64 * math.log(2)))
    assert largest > 9.4


def test_the_tail_is_fine():
    """Neighbouring inputs at 8.4 standard deviations differ by less than a grid of 2^-14 does."""
    k = round(math.exp(-(8.4**2) / 2) * 2**63)
    near, far = (normals_of(i, 0)[0] for i in (k, k + 1))
    assert near == pytest.approx(8.4, abs=1e-3)
    assert 0 < near - far < 2.0**-14
    exact = math.sqrt(-2 * math.log((k + 0.5) * 2.0**-63))
    assert near == pytest.approx(exact, rel=1e-14)


def test_the_sign_of_the_first_word_does_not_matter_and_the_angle_goes_all_round():
    assert normals_of(12345, 6) == normals_of(12345 - 2**63, 6)
    quarter = 2**61  # of a turn of 2^64 in steps, π/4
    x, y = normals_of(2**60, 2 * quarter)
    assert x == pytest.approx(0, abs=1e-15)
    assert y > 0
    x, y = normals_of(2**60, -(2**63))
    assert x < 0
    assert y == pytest.approx(0, abs=1e-15)
