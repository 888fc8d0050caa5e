"""Noise as it is really added: which outputs are possible, and how they are distributed."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from fedpriv.common.secret_streams import SecretStreams, write_normals
from fedpriv.privacy.core import noise as module
from fedpriv.privacy.core.noise import GRID_BITS, Noise, add_on_grid, grid_of

STREAMS = SecretStreams.simulated(0, 0, "test")


def streams(count: int, first: int = 0) -> list:
    return [STREAMS.noise("test", k) for k in range(first, first + count)]


def released(value: float, std: float, count: int, name: int = 0) -> torch.Tensor:
    """That many releases of one coordinate with this value, float32 as in a run."""
    values = torch.full((1, count), value)
    return Noise(streams(1, name), count).add_to(values, torch.tensor([std]))[0]


# ---- the grid


@given(std=st.floats(1e-30, 1e30))
def test_the_grid_is_a_power_of_two_that_depends_on_the_noise_alone(std):
    grid = float(grid_of(torch.tensor([std], dtype=torch.float64)))
    assert math.frexp(grid)[0] == 0.5
    assert std * 2.0 ** -(GRID_BITS + 1) < grid <= std * 2.0**-GRID_BITS


@pytest.mark.parametrize("std", [0.01, 1.0, 3.0, 4.0, 1e6])
@pytest.mark.parametrize("value", [0.0, 0.1, -7.3, 1e-12, 123.456])
def test_every_release_lies_on_the_grid_whatever_the_value(value, std):
    grid = float(grid_of(torch.tensor([std])))
    steps = released(value * std, std, 2000).double() / grid
    assert torch.equal(steps, steps.round())


def reachable(output: float, value: float, std: float) -> bool:
    """Whether some random words lead from ``value`` to ``output``: they are looked for and put in."""
    wanted = (output - value) / std
    for angle in (0.31, 0.9, 1.2, -0.4, 0.05):
        cosine = math.cos(angle) * math.copysign(1.0, wanted or 1.0)
        turn = angle if cosine > 0 else math.pi - angle
        radius = wanted / cosine
        k = round(math.exp(-(radius**2) / 2) * 2.0**63 - 0.5)
        phi = round(turn / math.pi * 2.0**63)
        for step in range(-2, 3):
            if not 0 <= k + step < 2**63 or not -(2**63) <= phi < 2**63:
                continue
            pair = torch.empty(1, 2, dtype=torch.float64)
            words = torch.tensor([[k + step], [phi]])
            write_normals(words[:1], words[1:], pair)
            found = torch.full((1, 1), value)
            add_on_grid(found, pair[:, :1], torch.tensor([std]))
            if float(found) == output:
                return True
    return False


def test_every_release_with_a_record_is_possible_without_it():
    """A coordinate that is 0 without a record and .1 with it, noise of 3: in single precision 4.4 % of the
    outputs were impossible under the neighbour."""
    for one, other in ((0.1, 0.0), (0.0, 0.1)):
        outputs = released(one, 3.0, 150).tolist()
        assert all(reachable(output, other, 3.0) for output in outputs)


@pytest.mark.parametrize("deviations", [5.7, 5.9, 7.0, 8.0])
def test_outputs_far_out_are_possible_under_both(deviations):
    """z = .35, q = 1: in single precision no noise went beyond 5.768 σ, and 83 of 53,973 releases were
    impossible under the neighbour, whose sum is 1/.35 = 2.86 σ away."""
    grid = float(grid_of(torch.tensor([0.35])))
    output = round(deviations * 0.35 / grid) * grid
    assert reachable(output, 0.0, 0.35)
    assert reachable(output, min(1.0, output), 0.35)


def test_a_release_is_exact_in_single_precision():
    values = torch.tensor([[0.3, 700.0, -1000.0]])
    exact = values.double()
    drawn = torch.zeros(1, 3, dtype=torch.float64)
    std = torch.tensor([1.0])
    assert torch.equal(add_on_grid(values, drawn, std).double(), add_on_grid(exact, drawn, std))


# ---- its distribution


@pytest.mark.parametrize("std", [0.35, 3.0, 1000.0])
def test_the_noise_has_its_standard_deviation(std):
    drawn = released(0.25 * std, std, 400_000).double() / std - 0.25
    assert float(drawn.std()) == pytest.approx(1.0, abs=5 / math.sqrt(800_000))
    assert stats.kstest(drawn.numpy(), "norm").pvalue > 1e-4


def test_rows_have_noise_of_their_own_standard_deviation_and_stream():
    values = torch.zeros(3, 50_000)
    Noise(streams(3), 50_000).add_to(values, torch.tensor([1.0, 5.0, 0.1]))
    np.testing.assert_allclose(values.std(dim=1), [1.0, 5.0, 0.1], rtol=0.02)
    for row, std, stream in zip(values, (1.0, 5.0, 0.1), streams(3), strict=True):
        expected = std * stream.standard_normal(50_000)
        np.testing.assert_allclose(row, expected, atol=std * 2.0**-14)


@pytest.mark.parametrize("processors", [1, 9])
@pytest.mark.parametrize("rows", [1, 2, 7])
def test_work_is_cut_into_pieces_without_a_trace(rows, processors, monkeypatch):
    """Drawn ahead on another thread, or when it is wanted."""
    expected = Noise(streams(rows), 10).add_to(torch.zeros(rows, 10), torch.ones(rows))
    monkeypatch.setattr(module, "_processors", lambda: processors)
    monkeypatch.setattr(module, "_BLOCK", 20)
    monkeypatch.setattr(module, "_AHEAD", 2)
    found = Noise(streams(rows), 10).add_to(torch.zeros(rows, 10), torch.ones(rows))
    assert torch.equal(found, expected)


def test_noise_serves_once_and_for_all_its_rows():
    noise = Noise(streams(2), 3)
    with pytest.raises(ValueError, match="noise for 2 rows, not for 3"):
        noise.add_to(torch.zeros(3, 3), torch.ones(3))
    noise.add_to(torch.zeros(2, 3), torch.ones(2))
    with pytest.raises(ValueError, match="was used already"):
        noise.add_to(torch.zeros(2, 3), torch.ones(2))


def test_noise_that_nobody_wants_any_more_does_no_harm():
    Noise(streams(2), 1000)
    assert released(0.0, 1.0, 5).isfinite().all()


def test_a_failure_on_the_other_thread_is_raised_where_the_noise_is_wanted():
    class Broken:
        def write_words(self, into):
            raise RuntimeError("no entropy")

    noise = Noise([Broken()], 3)
    with pytest.raises(RuntimeError, match="no entropy"):
        noise.add_to(torch.zeros(1, 3), torch.ones(1))


def test_one_number():
    std, exact = torch.full((1,), 2.0), torch.full((1, 1), 5.0, dtype=torch.float64)
    drawn = [float(Noise([s], 1).add_to(exact.clone(), std)) for s in streams(1000)]
    assert np.mean(drawn) == pytest.approx(5.0, abs=0.3)
    assert np.std(drawn) == pytest.approx(2.0, rel=0.12)
    grid = float(grid_of(torch.tensor([2.0])))
    assert all((x / grid).is_integer() for x in drawn)
