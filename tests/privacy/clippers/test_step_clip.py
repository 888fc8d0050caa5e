"""One use of a clipper: whatever its rule does, what it scales is bounded and said to be no smaller."""

from __future__ import annotations

import math

import pytest
import torch

from fedpriv.common.errors import ReleaseError
from fedpriv.privacy.clippers import AutomaticClipper, ConstantClipper, NoClipper, QuantileClipper
from fedpriv.privacy.clippers.step_clip import StepClip

OWNERS = torch.tensor([0, 0, 1])
NORMS = torch.tensor([0.001, 5.0, 1e30])
HOLDERS = torch.arange(2)


def clip(clipper) -> StepClip:
    clipper.start(2, "cpu", lambda: 1.0)
    return StepClip(clipper, 0, HOLDERS)


class ClipsNothing(ConstantClipper):
    def factors(self, norms, clip_norms):
        return torch.ones_like(norms)


class Flips(ConstantClipper):
    def factors(self, norms, clip_norms):
        return -torch.ones_like(norms)


class NotANumber(ConstantClipper):
    def factors(self, norms, clip_norms):
        return torch.full_like(norms, math.nan)


class RaisesItsNorm(ConstantClipper):
    def factors(self, norms, clip_norms):
        return clip_norms.fill_(1.0)


class LowersNorms(ConstantClipper):
    def factors(self, norms, clip_norms):
        norms.clamp_(max=0.01)
        return torch.ones_like(norms)


@pytest.mark.parametrize(
    "made", [ClipsNothing, Flips, NotANumber, RaisesItsNorm, LowersNorms, ConstantClipper]
)
def test_no_rule_exceeds_the_clip_norm(made):
    one = clip(made(0.01))
    norms = NORMS.clone()
    factors = one.factors(norms, OWNERS)
    assert (factors.abs() * NORMS <= 0.01 * (1 + 1e-6)).all()
    assert torch.equal(norms, NORMS)  # they are asked for again, by the statistic
    assert torch.equal(one.norms, torch.full((2,), 0.01))


@pytest.mark.parametrize("made", [lambda: ConstantClipper(0.01), AutomaticClipper])
def test_a_right_rule_is_left_as_it_is_bit_for_bit(made):
    clipper = made()
    one = clip(clipper)
    expected = clipper.factors(NORMS, one.norms[OWNERS])
    assert torch.equal(one.factors(NORMS, OWNERS), expected)


class ShrinksInItsStatistic(QuantileClipper):
    def statistic(self, norms, owners, clip_norms):
        answer = super().statistic(norms, owners, clip_norms)
        clip_norms.mul_(0.01)
        norms.zero_()
        return answer


def test_a_statistic_that_writes_into_what_it_is_given_changes_no_sensitivity():
    one = clip(ShrinksInItsStatistic(0.5))
    norms = NORMS.clone()
    one.factors(norms, OWNERS)
    one.statistic(norms, OWNERS)
    assert torch.equal(norms, NORMS)
    assert torch.equal(one.bounded(torch.ones(2, 3)).sensitivity, torch.full((2,), 0.5))


class ShrinksAfterwards(ConstantClipper):
    """Hands out its own tensor and moves it later."""

    def start(self, clients, device, initial_norm):
        self.own = torch.full((clients,), 0.5)

    def clip_norm(self, round_index, holders):
        return self.own


def test_a_clip_norm_that_moves_later_is_that_of_the_round_in_the_record():
    clipper = ShrinksAfterwards(0.5)
    one = clip(clipper)
    clipper.own.mul_(0.1)
    one.factors(NORMS, OWNERS)
    assert torch.equal(one.bounded(torch.ones(2, 3)).sensitivity, torch.full((2,), 0.5))


class SaysItIsUnbounded(ConstantClipper):
    unbounded = True


@pytest.mark.parametrize("made", [lambda: SaysItIsUnbounded(0.01), NoClipper])
def test_what_is_not_clipped_has_an_infinite_sensitivity(made):
    one = clip(made())
    one.factors(NORMS, OWNERS)
    assert torch.isinf(one.bounded(torch.ones(2, 3)).sensitivity).all()


def test_a_sum_that_was_never_scaled_is_not_clipped():
    one = clip(ConstantClipper(0.01))
    one.bounded(torch.zeros(2, 3))  # of empty lots
    with pytest.raises(ReleaseError, match="the clipper was not asked for its factors"):
        one.bounded(torch.ones(2, 3))
