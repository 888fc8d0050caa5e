"""AdaCLiP: sensitivity 1 in the space of the clipping, noise that follows the spread, back again."""

from __future__ import annotations

import pytest
import torch
from checkpoints import saved

from fedpriv.common.errors import ArgumentError
from fedpriv.privacy.clippers import AdaClipper
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import Unprotected

SIZE = 6
SERVER = torch.zeros(1, dtype=torch.long)


def started(**settings) -> AdaClipper:
    clipper = AdaClipper(**{"initial_clip_norm": 0.5, **settings})
    clipper.see_layers([("0", slice(0, 4)), ("1", slice(4, SIZE))])
    clipper.start(1, "cpu", None)
    return clipper


def observe(clipper, released: torch.Tensor, std: float = 0.0) -> None:
    noise = StepClip(clipper, 0, SERVER).restored_noise(torch.full((1, 1), std))
    clipper.observe_restored(SERVER, Unprotected(released[None]), noise)


def test_at_first_it_clips_at_the_initial_norm():
    clip = StepClip(started(), 0, SERVER)
    uploads = torch.randn(5, SIZE, generator=torch.Generator().manual_seed(0))
    inside = clip.transformed(uploads, SERVER.expand(len(uploads)))
    factors = clip.factors(inside.norm(dim=1), torch.zeros(5, dtype=torch.long))
    back = clip.restored((inside * factors[:, None]).clone())
    expected = uploads * (0.5 / uploads.norm(dim=1)).clamp_max(1.0)[:, None]
    torch.testing.assert_close(back, expected)
    assert clip.bounded(torch.ones(1, SIZE)).sensitivity.tolist() == [1.0]


def test_the_shift_and_the_spread_are_the_averages_of_the_paper():
    clipper = started(shift_decay=0.9, spread_decay=0.8)
    first, released = 0.5 / SIZE**0.5, torch.tensor([0.1, -0.2, 0.3, 0.0, 0.5, -0.4])
    observe(clipper, released, std=0.1)
    noise = 0.1 * 0.5  # b is 0.5 everywhere
    found = (released.double() ** 2 - noise**2).clamp((0.01 * first) ** 2, (10 * first) ** 2)
    variance = 0.8 * first**2 + 0.2 * found
    shift, scale = clipper.transform(1, SERVER)
    spread = variance.sqrt()
    torch.testing.assert_close(shift[0], 0.1 * released)
    torch.testing.assert_close(scale[0].double(), (spread * spread.sum()).sqrt(), rtol=1e-5, atol=0)


def test_coordinates_that_vary_little_get_little_noise():
    clipper, stream = started(), torch.Generator().manual_seed(0)
    spreads = torch.tensor([0.001, 0.001, 0.1, 0.1, 0.1, 0.1])
    for _ in range(100):
        observe(clipper, spreads * torch.randn(SIZE, generator=stream))
    noise = StepClip(clipper, 0, SERVER).restored_noise(torch.ones(1, 1))[0]
    assert noise[:2].max() < 0.5 * noise[2:].min()


def test_a_round_trip_changes_nothing():
    clipper = started()
    observe(clipper, torch.tensor([0.1, -0.2, 0.3, 0.0, 0.5, -0.4]))
    clip, uploads = StepClip(clipper, 0, SERVER), torch.randn(3, SIZE)
    torch.testing.assert_close(
        clip.restored(clip.transformed(uploads, SERVER.expand(len(uploads)))), uploads
    )


def test_a_transform_that_moves_later_is_that_of_the_round():
    clipper = started()
    clip = StepClip(clipper, 0, SERVER)
    before = clip.transformed(torch.ones(1, SIZE), SERVER).clone()
    observe(clipper, torch.full((SIZE,), 3.0))
    assert torch.equal(clip.transformed(torch.ones(1, SIZE), SERVER), before)


def test_a_restored_clipper_goes_on_exactly():
    clipper, restored = started(), started()
    observe(clipper, torch.linspace(-1, 1, SIZE), std=0.01)
    restored.load_state_dict(saved(clipper.state_dict()))
    for own, other in zip(clipper.transform(1, SERVER), restored.transform(1, SERVER), strict=True):
        assert torch.equal(own, other)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"initial_clip_norm": 0}, "initial_clip_norm must be > 0"),
        ({"shift_decay": 1}, "shift_decay must be >= 0 and < 1, got 1"),
        ({"smallest_spread": 2}, "smallest_spread must be > 0 and <= 1, got 2"),
        ({"largest_spread": 0.5}, "largest_spread must be >= 1, got 0.5"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(ArgumentError, match=message):
        AdaClipper(**{"initial_clip_norm": 1.0, **settings})
