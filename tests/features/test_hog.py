from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.data.digits import Digits
from fedpriv.features import Hog
from fedpriv.features.dataset import Featured

# skimage.feature.hog of scikit-image 0.26.0 on ``image``, in the order of ours: image, (orientations, cell,
# block), shape, Σ h, Σ h_i sin i, and of some channels the first and the last number
SCIKIT_IMAGE = [
    ((1, 28, 28), (9, 4, 2), (36, 6, 6), 131.1241845, 4.1766658,
     {0: (0.396411, 0.253178), 12: (0.0, 0.14419), 19: (0.00424169, 0.33112), 35: (0.378406, 0.0281598)}),
    ((3, 32, 32), (9, 4, 2), (36, 7, 7), 142.5677753, -1.9300849,
     {0: (0.185984, 0.0), 12: (0.310863, 0.0), 19: (0.0, 0.0912994), 35: (0.0, 0.0)}),
    ((3, 20, 25), (8, 5, 3), (72, 2, 3), 23.6829729, 0.1274489,
     {0: (0.0879907, 0.012191), 24: (0.0406541, 0.0111602), 37: (0.0, 0.0), 71: (0.0, 0.0)}),
    ((1, 8, 8), (6, 2, 1), (6, 4, 4), 20.0296749, 1.6120709,
     {0: (0.707107, 0.706985), 2: (0.0, 0.0), 4: (0.0, 0.0), 5: (0.0, 0.706985)}),
]  # fmt: skip


def image(colours: int, height: int, width: int) -> torch.Tensor:
    y, x = np.mgrid[:height, :width]
    c = np.arange(colours)[:, None, None]
    pixels = (
        0.5 + 0.3 * np.sin(0.7 * x + (0.2 + 0.9 * c) * y) + 0.2 * np.cos(0.05 * (x + 3 * c) * y)
    )
    return torch.from_numpy(pixels.astype(np.float32))[None]


@pytest.mark.parametrize(("size", "keys", "shape", "total", "weighted", "some"), SCIKIT_IMAGE)
def test_the_numbers_are_those_of_scikit_image(size, keys, shape, total, weighted, some):
    features = Hog(*keys)
    found = features.coefficients(image(*size))[0].double()
    assert tuple(found.shape) == features.output_shape(size) == shape
    assert float(found.sum()) == pytest.approx(total, rel=1e-5)
    order = torch.arange(found.numel(), dtype=torch.float64).sin()
    assert float(found.flatten() @ order) == pytest.approx(weighted, abs=1e-4)
    for channel, (first, last) in some.items():
        values = found[channel].flatten()
        assert (float(values[0]), float(values[-1])) == pytest.approx((first, last), abs=2e-5)


def test_an_image_is_described_alone_and_left_as_it_is():
    images = torch.rand(7, 3, 12, 12, generator=torch.Generator().manual_seed(0))
    before = images.clone()
    together = Hog().coefficients(images)
    alone = torch.cat([Hog().coefficients(one) for one in images.split(1)])
    assert torch.allclose(together, alone, atol=1e-6)
    assert torch.equal(images, before)


@pytest.mark.parametrize("degrees", [0, 25, 50, 90, 130, 170])
def test_a_slope_is_in_the_bin_of_its_direction_whichever_way_it_goes(degrees):
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    slope = x * math.cos(math.radians(degrees)) + y * math.sin(math.radians(degrees))
    for sign in (1, -1):
        found = Hog(block=1).coefficients((sign * slope / 20)[None, None])
        assert int(found[0, :, 1, 1].argmax()) == degrees // 20
        assert float(found[0, :, 1, 1].max()) == pytest.approx(1, abs=1e-3)


@pytest.mark.parametrize("orientations", [4, 8, 12])
def test_a_direction_between_two_bins_is_in_the_upper_one(orientations):
    y, x = torch.meshgrid(torch.arange(12.0), torch.arange(12.0), indexing="ij")
    features = Hog(orientations, block=1)
    for degrees, slope in ((0, x), (45, x + y), (90, y), (135, y - x)):
        for sign in (1, -1):
            found = features.coefficients((sign * slope / 64)[None, None])
            assert int(found[0, :, 1, 1].argmax()) == degrees * orientations // 180


def test_twice_the_contrast_is_the_same_and_what_is_constant_is_zero():
    one = image(1, 16, 16)
    assert torch.allclose(Hog().coefficients(one), Hog().coefficients(2 * one), atol=1e-4)
    assert not Hog().coefficients(torch.full((1, 3, 16, 16), 0.7)).any()


def test_at_each_pixel_the_colour_with_the_longest_gradient_counts():
    one = image(1, 16, 16)
    left, right = one.clone(), one.clone()
    left[..., 8:], right[..., :8] = 0, 0  # each is flat where the other is not
    apart = [Hog(block=1).coefficients(half) for half in (left, right)]
    both = Hog(block=1).coefficients(torch.cat([left, right], 1))
    assert torch.allclose(both[..., 0], apart[0][..., 0], atol=1e-5)
    assert torch.allclose(both[..., 3], apart[1][..., 3], atol=1e-5)
    faint = torch.cat([0.5 * one, one], 1)
    assert torch.allclose(Hog().coefficients(faint), Hog().coefficients(one), atol=1e-6)


def test_a_data_set_with_them_in_the_place_of_images(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    featured = Featured(Digits(), Hog(cell=2))
    found = featured.load()
    assert featured.input_shape == tuple(found.test.inputs.shape[1:]) == (36, 3, 3)
    expected = Hog(cell=2).coefficients(Digits().load().test.inputs[:9])
    assert torch.allclose(found.test.inputs[:9], expected, atol=1e-3)
    assert "hog, 36 x 3 x 3 numbers, not normalized" in " ".join(featured.notes)
    grouped = Featured(Digits(), Hog(cell=2, normalization="groups", groups=4)).load().test.inputs
    assert torch.allclose(
        grouped[:9].unflatten(1, (4, 9)).mean((2, 3, 4)), torch.zeros(9, 4), atol=1e-4
    )
    assert len(list((tmp_path / "fedpriv" / "encoded").iterdir())) == 1


def test_public_statistics_are_those_of_the_images(mnist_folder):
    from fedpriv.data.mnist import Mnist

    images = Mnist(mnist_folder, download=False).load().train.inputs[:6000]
    used = Hog(normalization="statistics", statistics="mnist")
    found = used.normalize(used.coefficients(images)).transpose(0, 1).flatten(1)
    assert torch.allclose(found.mean(1), torch.zeros(36), atol=0.05)
    assert torch.allclose(found.var(1), torch.ones(36), atol=0.05)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"orientations": 0}, "orientations must be a whole number"),
        ({"orientations": 181}, "orientations must be a whole number"),
        ({"cell": 0}, "cell must be a whole number >= 1, got 0"),
        ({"block": 1.5}, "block must be a whole number >= 1, got 1.5"),
        (
            {"normalization": "statistics", "statistics": "mnist", "cell": 2},
            "default sizes of scattering and hog",
        ),
        ({"normalization": "statistics", "statistics": "other"}, "one of fashion_mnist, mnist"),
    ],
)
def test_arguments_that_are_not_allowed(arguments, sentence):
    with pytest.raises(ArgumentError, match=sentence):
        Hog(**arguments)


@pytest.mark.parametrize(
    ("arguments", "shape", "sentence"),
    [
        ({"cell": 5}, (1, 8, 9),
         "features.cell must be <= 4: images have 8 x 9 pixels, a block has 2 x 2 cells, got 5"),
        ({"block": 9}, (1, 8, 9), "features.block must be <= 8: images have 8 x 9 pixels, got 9"),
        ({"normalization": "groups", "groups": 5}, (1, 8, 9),
         "features.groups must be a divisor of the 36 channels, got 5"),
        ({}, (8,), "holds no images"),
    ],
)  # fmt: skip
def test_data_that_have_no_such_features(arguments, shape, sentence):
    dataset = type("Shaped", (Digits,), {"input_shape": shape})()
    with pytest.raises(ConfigError, match=sentence):
        Featured(dataset, Hog(**arguments))


def test_the_largest_cell_that_is_named_is_allowed():
    for side in range(2, 20):
        for block in range(1, side + 1):
            assert Hog(cell=side // block, block=block).output_shape((1, side, side))[1] >= 1
