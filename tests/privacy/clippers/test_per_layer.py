"""Layers clipped by themselves: the sensitivity is the root of the squares, the bits are charged."""

from __future__ import annotations

import math

import pytest
import torch
from checkpoints import saved

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.clippers import PerLayerClipper, PerLayerQuantileClipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import Unprotected
from fedpriv.privacy.mechanisms.bounded import bounded_rows

LAYERS = [("0", slice(0, 4)), ("2", slice(4, 9)), ("head", slice(9, 10))]
OWNERS = torch.tensor([0, 0, 1])
NORMS = torch.tensor([[0.001, 5.0, 0.1], [1e30, 0.2, 0.0], [2.0, 2.0, 2.0]])


def started(clipper, clients: int = 2):
    clipper.see_layers(LAYERS)
    clipper.start(clients, "cpu", None)
    return clipper


def test_the_clip_norm_is_shared_out_evenly():
    clipper = started(PerLayerClipper(0.6))
    clip = StepClip(clipper, 0, torch.arange(2))
    factors = clip.factors(NORMS, OWNERS)
    own = 0.6 / math.sqrt(3)
    torch.testing.assert_close(factors * NORMS, NORMS.clamp_max(own))
    sensitivity = clip.bounded(torch.ones(2, 10)).sensitivity
    torch.testing.assert_close(sensitivity, torch.full((2,), 0.6))


def test_given_clip_norms_are_each_layers_and_the_sensitivity_is_the_root_of_their_squares():
    clip = StepClip(started(PerLayerClipper(None, [0.3, 0.4, 1.2])), 0, torch.arange(2))
    torch.testing.assert_close(clip.norms, torch.full((2,), 1.3))
    kept = clip.factors(NORMS, OWNERS) * NORMS
    assert (kept <= torch.tensor([0.3, 0.4, 1.2]) * (1 + 1e-6)).all()


class SaysLess(PerLayerClipper):
    """Says that C of each layer is the clip norm of all."""

    def clip_norm(self, round_index, holders):
        return self._norms[holders, 0]


def test_what_a_clipper_says_of_the_whole_is_not_what_is_charged():
    clip = StepClip(started(SaysLess(None, [1.0, 1.0, 1.0])), 0, torch.arange(2))
    torch.testing.assert_close(clip.norms, torch.full((2,), math.sqrt(3.0)))


class ClipsNothing(PerLayerClipper):
    def factors(self, norms, clip_norms):
        return torch.ones_like(norms)


def test_no_rule_exceeds_the_clip_norms():
    clip = StepClip(started(ClipsNothing(0.6)), 0, torch.arange(2))
    kept = clip.factors(NORMS, OWNERS) * NORMS
    assert (kept <= 0.6 / math.sqrt(3) * (1 + 1e-6)).all()


def test_layers_may_be_named_by_number():
    clipper = PerLayerClipper(0.6, groups=[[0, "head"], [2]])
    clipper.see_layers(LAYERS)
    assert clipper.parts.names == ("0+head", "2")


def test_groups_are_clipped_together():
    clipper = PerLayerClipper(None, [0.3, 0.4], groups=[["0", "head"], ["2"]])
    clipper.see_layers(LAYERS)
    assert clipper.parts.names == ("0+head", "2")
    assert [clipper.parts.part_at(column) for column in (0, 3, 4, 8, 9)] == [0, 0, 1, 1, 0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"groups": [["0"], ["2"]]}, "groups must be a list of lists that has each layer once: 0, 2, head"),
        ({"groups": [["0", "2"], ["2", "head"]]}, "each layer once"),
        ({"clip_norm": None, "clip_norms": [1.0, 2.0]}, "clip_norms must be 3 numbers: 0, 2, head"),
        ({"clip_norms": [1.0, 2.0, 3.0]}, "clip_norms must be null, or a list with clip_norm=null"),
        ({"clip_norm": None, "clip_norms": [1.0, -1.0, 2.0]}, "clip_norms must be > 0"),
        ({"clip_norm": None}, "clip_norms must be a list, or clip_norm a number, got null"),
        ({"groups": [[0.5], ["2"]]}, "groups must be a list of lists of names of layers"),
        ({"clip_norm": 0.0}, "clip_norm must be > 0"),
        ({"groups": "all"}, "groups must be a list of lists of names of layers"),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_model_is_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        started(PerLayerClipper(**settings))


# ---- adaptive


def quantile(**settings) -> PerLayerQuantileClipper:
    return PerLayerQuantileClipper(**{"initial_clip_norm": 1.0, "bit_noise": 2.0, **settings})


def test_the_bits_of_all_layers_move_by_half_the_root_of_their_number():
    clip = StepClip(started(quantile()), 0, torch.arange(2))
    answer = clip.statistic(NORMS, OWNERS)
    expected = torch.tensor([[0.0, 0.0, 1.0], [-0.5, -0.5, -0.5]], dtype=torch.float64)
    torch.testing.assert_close(answer.values, expected, rtol=1e-6, atol=0.0)
    torch.testing.assert_close(answer.sensitivity, torch.full((2,), math.sqrt(3) / 2))


def test_the_price_of_the_bits_does_not_depend_on_the_number_of_layers():
    """It is known before there is a model: 2 σ_b, which ``split`` takes out of the gradient's."""
    clipper = quantile()
    assert clipper.query(0, 1.0).noise_multiplier == 4.0
    z = clipper.gradient_multiplier(1.0)
    assert z**-2 + 4.0**-2 == pytest.approx(1.0)


def test_each_layer_moves_towards_its_own_quantile():
    clipper = started(quantile(quantile_learning_rate=0.5), clients=1)
    holders, zero = torch.tensor([0]), torch.zeros(200, dtype=torch.long)
    spread = torch.linspace(0.01, 1.0, 200)[:, None] * torch.tensor([10.0, 1.0, 0.1])
    for round_index in range(200):
        clip = StepClip(clipper, round_index, holders)
        heard = Unprotected(clip.statistic(spread, zero).values)
        clipper.observe(holders, heard, Unprotected(torch.ones(1, 10)), torch.tensor([200.0]))
    torch.testing.assert_close(
        clipper.part_norms(0, holders)[0], torch.tensor([5.0, 0.5, 0.05]), rtol=0.05, atol=0.0
    )


def test_a_restored_clipper_goes_on_exactly():
    clipper, restored = started(quantile()), started(quantile())
    holders = torch.arange(2)
    moved = Unprotected(torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.5, 0.5]]))
    clipper.observe(holders, moved, moved, torch.full((2,), 3.0))
    restored.load_state_dict(saved(clipper.state_dict()))
    assert torch.equal(restored.part_norms(1, holders), clipper.part_norms(1, holders))


def test_rows_that_are_longer_than_stated_are_shortened():
    values = torch.tensor([[3.0, 4.0], [0.3, 0.4], [float("nan"), 1.0]])
    answer = bounded_rows(values, torch.tensor([1.0]), torch.zeros(3, dtype=torch.long))
    torch.testing.assert_close(answer.values[0], torch.tensor([0.9, 2.2], dtype=torch.float64))
