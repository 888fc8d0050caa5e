"""Rules of the user's own: a function of one unit, and nothing is kept of private values."""

from __future__ import annotations

import pytest
import torch

from fedpriv.common.errors import ReleaseError
from fedpriv.common.exact import exact_digest
from fedpriv.privacy.clippers import ConstantClipper, QuantileClipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import GaussianQuery
from fedpriv.privacy.mechanisms.bounded import bounded_sum

NORMS = torch.tensor([0.5, 2.0, 7.0, 3.0])
OWNERS = torch.zeros(4, dtype=torch.int64)
HOLDERS = torch.zeros(1, dtype=torch.int64)


def clip(clipper) -> StepClip:
    clipper.start(1, "cpu", lambda: 1.0)
    return StepClip(clipper, 0, HOLDERS)


class ByTheLargest(ConstantClipper):
    def factors(self, norms, clip_norms):
        return (clip_norms / norms.max()).clamp_max(1.0)


class ByTheMedian(ConstantClipper):
    def factors(self, norms, clip_norms):
        return norms.median() / norms


class ByTheSmallest(ConstantClipper):
    def factors(self, norms, clip_norms):
        return norms.min() * clip_norms / norms


@pytest.mark.parametrize("made", [ByTheLargest, ByTheMedian, ByTheSmallest])
def test_a_scale_that_looks_at_other_units_is_refused(made):
    """One more record, with a huge norm, once moved every other one's scale."""
    with pytest.raises(ReleaseError, match="another factor when another unit was huge"):
        clip(made(1.0)).factors(NORMS, OWNERS)


class DropsOutliers(ConstantClipper):
    """A huge unit hardly moves the median, so that another one being huge shows nothing."""

    def factors(self, norms, clip_norms):
        outlier = norms > 10 * norms.median()
        return torch.where(outlier, 0.0, (clip_norms / norms).clamp_max(1.0))


def test_a_scale_that_drops_outliers_is_refused():
    norms = torch.linspace(1.0, 2.0, 9)
    with pytest.raises(ReleaseError, match="another factor when the others were tiny"):
        clip(DropsOutliers(1.0)).factors(norms, torch.zeros(9, dtype=torch.int64))


class RunningMaximum(ConstantClipper):
    largest = 0.0

    def factors(self, norms, clip_norms):
        self.largest = max(self.largest, float(norms.max()))
        return clip_norms / self.largest


class InATensor(ConstantClipper):
    def __init__(self, clip_norm):
        super().__init__(clip_norm)
        self.seen = torch.zeros(1)

    def factors(self, norms, clip_norms):
        self.seen.copy_(norms[0])
        return super().factors(norms, clip_norms)


class KeepsTheMedian(ConstantClipper):
    """The likeliest mistake: the next clip norm is the median of this lot's."""

    def clip_norm(self, round_index, holders):
        return torch.full((len(holders),), float(getattr(self, "median", 1.0)))

    def factors(self, norms, clip_norms):
        self.median = norms.median()
        return super().factors(norms, clip_norms)


class InAListOfTheClass(ConstantClipper):
    seen: list = []  # noqa: RUF012

    def clip_norm(self, round_index, holders):
        return torch.full((len(holders),), max([*self.seen, 1.0]))

    def factors(self, norms, clip_norms):
        self.seen.append(float(norms.max()))
        return super().factors(norms, clip_norms)


class OfNoNumbers:
    def __init__(self):
        self.count = 0


class InAnObject(ConstantClipper):
    def __init__(self, clip_norm):
        super().__init__(clip_norm)
        self.notes = OfNoNumbers()

    def factors(self, norms, clip_norms):
        self.notes.count += 1
        return super().factors(norms, clip_norms)


class RaisesItsOwnNorm(ConstantClipper):
    def factors(self, norms, clip_norms):
        self._norms.clamp_min_(float(norms.max()))
        return super().factors(norms, clip_norms)


@pytest.mark.parametrize(
    "made",
    [RunningMaximum, InATensor, KeepsTheMedian, InAListOfTheClass, InAnObject, RaisesItsOwnNorm],
)
def test_state_that_changes_inside_factors_is_refused(made):
    clipper = made(1.0)
    one = clip(clipper)
    before = exact_digest(vars(clipper))
    with pytest.raises(
        ReleaseError, match=f"{made.__name__}.factors changed the clipper's state, or its next"
    ):
        one.factors(NORMS, OWNERS)
    assert exact_digest(vars(clipper)) == before


_LARGEST = [0.0]


class InAGlobal(ConstantClipper):
    def factors(self, norms, clip_norms):
        _LARGEST[0] = max(_LARGEST[0], float(norms.max()))
        return clip_norms / _LARGEST[0]


def test_state_outside_the_clipper_is_seen_when_another_unit_is_huge():
    with pytest.raises(ReleaseError, match="another factor when another unit was huge"):
        clip(InAGlobal(1.0)).factors(NORMS, OWNERS)


class Centred(ConstantClipper):
    """Its statistic is relative to the mean of the lot."""

    def query(self, round_index, noise_multiplier):
        return GaussianQuery("clip_statistic", noise_multiplier)

    def statistic(self, norms, owners, clip_norms):
        return bounded_sum(norms - norms.mean(), torch.ones_like(clip_norms), owners)


class BelowTheMean(Centred):
    def statistic(self, norms, owners, clip_norms):
        return bounded_sum((norms <= norms.mean()).float(), torch.ones_like(clip_norms), owners)


@pytest.mark.parametrize("made", [Centred, BelowTheMean])
def test_a_statistic_that_looks_at_other_units_is_refused(made):
    with pytest.raises(ReleaseError, match="statistic is no sum of what it is for each unit"):
        clip(made(1.0)).statistic(NORMS, OWNERS)


class StatesTheLargest(Centred):
    def statistic(self, norms, owners, clip_norms):
        return bounded_sum(norms, norms.max() * torch.ones_like(clip_norms), owners)


def test_a_sensitivity_that_follows_from_private_values_is_refused():
    with pytest.raises(ReleaseError, match="different sensitivities for different units"):
        clip(StatesTheLargest(1.0)).statistic(NORMS, OWNERS)


class Remembers(QuantileClipper):
    def statistic(self, norms, owners, clip_norms):
        self.last = norms.clone()
        return super().statistic(norms, owners, clip_norms)


def test_state_that_changes_inside_the_statistic_is_refused():
    with pytest.raises(ReleaseError, match=r"Remembers.statistic changed the clipper's state"):
        clip(Remembers(1.0)).statistic(NORMS, OWNERS)


class Inherits(QuantileClipper):
    pass


def test_a_right_statistic_is_the_sum_over_its_units():
    ours, inherited = clip(QuantileClipper(1.0)), clip(Inherits(1.0))
    expected, found = (one.statistic(NORMS, OWNERS) for one in (ours, inherited))
    torch.testing.assert_close(found.values, expected.values)
    assert torch.equal(found.sensitivity, expected.sensitivity)
    assert (found.replaced, found.divided_by) == (expected.replaced, expected.divided_by)


def test_a_lot_of_nobody_is_answered_as_ever():
    nothing = torch.zeros(0)
    assert len(clip(ByTheLargest(1.0)).factors(nothing, OWNERS[:0])) == 0
    assert float(clip(Inherits(1.0)).statistic(nothing, OWNERS[:0]).values) == 0.0


class WithoutNoise(ConstantClipper):
    def clip_norm(self, round_index, holders):
        return 0 * super().clip_norm(round_index, holders)


def test_a_clip_norm_of_zero_is_refused():
    with pytest.raises(
        ReleaseError, match=r"WithoutNoise.clip_norm must return numbers > 0, got 0"
    ):
        clip(WithoutNoise(1.0))
