from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from fedpriv.features.wavelets import ScatteringTransform, channels, output_size

# kymatio 0.3.0 (Scattering2D, numpy) on ``image``: size, J, L, Σ S, Σ S², and of some channels the first and
# the last coefficient
KYMATIO = [
    ((28, 28), 2, 8, 61.79419708, 16.317545598,
     {0: (0.897293, 0.55377), 1: (0.0279652, 0.0485438), 27: (0.0035888, 0.00894002),
      40: (0.00174608, 0.00242518), 80: (0.00406578, 0.00453005)}),
    ((32, 32), 3, 6, 26.192476273, 5.344088886,
     {0: (0.79479, 0.50701), 1: (0.0299656, 0.0718104), 42: (0.00271844, 0.00446199),
      63: (0.00316722, 0.00212472), 126: (0.0109468, 0.00200014)}),
    ((20, 24), 1, 4, 79.652198792, 40.512164286,
     {0: (0.827627, 0.602632), 1: (0.0289533, 0.0422873), 2: (0.0186706, 0.0371374),
      4: (0.0581364, 0.0364307)}),
    ((8, 8), 3, 8, 2.104788542, 0.687678567,
     {0: (0.797583, 0.797583), 1: (0.0309345, 0.0309345), 72: (0.00194553, 0.00194553),
      108: (0.00130087, 0.00130087), 216: (0.0149048, 0.0149048)}),
]  # fmt: skip


def image(height: int, width: int) -> torch.Tensor:
    y, x = np.mgrid[:height, :width]
    pixels = 0.5 + 0.3 * np.sin(0.7 * x + 0.2 * y) + 0.2 * np.cos(0.05 * x * y)
    return torch.from_numpy(pixels.astype(np.float32))[None]


@pytest.mark.parametrize(("size", "scales", "angles", "total", "squares", "some"), KYMATIO)
def test_coefficients_are_those_of_kymatio(size, scales, angles, total, squares, some):
    found = ScatteringTransform(size, scales, angles)(image(*size))[0].double()
    assert found.shape == (channels(scales, angles), *(output_size(s, scales) for s in size))
    # kymatio's π is 3.1415, so its wavelets are longer by 3e-5
    assert float(found.sum()) == pytest.approx(total, rel=1e-4)
    assert float(found.square().sum()) == pytest.approx(squares, rel=2e-4)
    for channel, (first, last) in some.items():
        values = found[channel].flatten()
        assert (float(values[0]), float(values[-1])) == pytest.approx((first, last), rel=1.5e-4)


def test_an_image_is_transformed_alone():
    images = torch.rand(7, 16, 16, generator=torch.Generator().manual_seed(0))
    transform = ScatteringTransform((16, 16))
    alone = torch.cat([transform(one) for one in images.split(1)])
    assert torch.allclose(transform(images), alone, atol=1e-6)


def test_what_is_constant_has_its_value_and_no_waves():
    found = ScatteringTransform((12, 12))(torch.full((1, 12, 12), 0.7))[0]
    assert torch.allclose(found[0], torch.tensor(0.7), atol=1e-5)
    assert float(found[1:].abs().max()) < 1e-5


def test_twice_the_image_is_twice_the_coefficients():
    once, twice = (ScatteringTransform((16, 16))(k * image(16, 16)) for k in (1, 2))
    assert torch.allclose(twice, 2 * once, rtol=1e-4, atol=1e-6)


def test_a_wave_is_seen_by_the_wavelet_of_its_direction_and_frequency():
    y, x = np.mgrid[:32, :32]
    transform = ScatteringTransform((32, 32), scales=3)
    for turn in range(8):
        angle = (3 - turn) * math.pi / 8
        for scale in range(3):
            along = y * math.cos(angle) + x * math.sin(angle)
            wave = torch.from_numpy(np.cos(0.75 * math.pi / 2**scale * along)).float()[None]
            first = transform(wave)[0, 1:25].mean((1, 2))
            assert int(first.argmax()) == 8 * scale + turn
