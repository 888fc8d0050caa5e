"""2-D wavelet scattering: averages of moduli of wavelet transforms. It reads no data and has no weights.

    S₀ = x ⋆ φ_J,   S₁ = |x ⋆ ψ_λ| ⋆ φ_J,   S₂ = ||x ⋆ ψ_λ| ⋆ ψ_μ| ⋆ φ_J,   λ = (j, θ), μ = (j', θ'), j' > j

The wavelets ψ are Morlet wavelets at J scales and L angles; φ_J is a Gaussian. Convolutions are products of
Fourier transforms, and band-limited signals are kept at their lower resolution. The borders of an image are
mirrored.

Sources: J. Bruna, S. Mallat, "Invariant scattering convolution networks", TPAMI 2013; E. Oyallon,
S. Mallat, "Deep roto-translation scattering for object classification", CVPR 2015. Wavelets, order of
the channels and size of the border are those of kymatio (Andreux et al., JMLR 2020), whose π has four digits.
"""

from __future__ import annotations

from math import pi

import numpy as np
import torch

_PERIODS = range(-2, 3)
"""Shifts, in image sizes, over which a wavelet is summed to make it periodic."""


def channels(scales: int, angles: int) -> int:
    """Return the number of coefficients of orders 0, 1 and 2 of one input channel.

        1 + J L + L² J (J - 1) / 2

    Args:
        scales: J.
        angles: L.
    """
    return 1 + scales * angles + angles**2 * scales * (scales - 1) // 2


def output_size(size: int, scales: int) -> int:
    """Return the number of values along a side of ``size`` pixels: one for every 2^J pixels."""
    return _padded(size, scales) // 2**scales - 2


def _padded(size: int, scales: int) -> int:
    """Return the length of a side with mirrored borders: a multiple of 2^J, 2^J + 1 to 2^(J+1) longer."""
    return (size // 2**scales + 2) * 2**scales


class ScatteringTransform:
    """Scattering coefficients of orders 0 to 2 of grey images of one size.

    Args:
        shape: Height and width in pixels, each at least 2^J.
        scales: J; a coefficient averages over about 2^J pixels.
        angles: L, the number of orientations of the wavelets, in [0, π).
        device: Device of the images.
    """

    def __init__(
        self,
        shape: tuple[int, int],
        scales: int = 2,
        angles: int = 8,
        device: torch.device | str = "cpu",
    ):
        def moved(filters: list[np.ndarray]) -> list[torch.Tensor]:
            return [torch.from_numpy(f.astype(np.float32)).to(device) for f in filters]

        self.scales = scales
        self._border = [_padded(size, scales) - size for size in shape]
        padded = (_padded(shape[0], scales), _padded(shape[1], scales))
        averages = zip(*(_averages(size, scales) for size in padded), strict=True)
        self._low = moved([np.kron(rows, columns).T for rows, columns in averages])
        self._values = tuple(output_size(size, scales) for size in shape)
        self._band = [moved(_wavelets(padded, j, angles)) for j in range(scales)]

    @torch.no_grad()
    def __call__(self, images: torch.Tensor) -> torch.Tensor:
        """Compute the coefficients [n, channels, height / 2^J, width / 2^J] of images [n, height, width]."""
        image = self._mirrored(images)[:, None]
        spectrum = torch.fft.fft2(image)
        orders = [[self._average(image, 0)], [], []]
        for j in range(self.scales):
            first_order = self._modulus(spectrum, self._band[j][0], j)  # [n, L, …]
            orders[1].append(self._average(first_order, j))
            coarser = range(j + 1, self.scales)
            if coarser:
                inner = torch.fft.fft2(first_order)
                # [n, L, L, …] at each scale. Complex numbers of one first angle are in memory at a time.
                second_order = [
                    torch.stack(
                        [
                            self._modulus(spectrum[:, None], self._band[k][j], k - j)
                            for spectrum in inner.unbind(1)
                        ],
                        dim=1,
                    )
                    for k in coarser
                ]
                averages = [
                    self._average(moduli, k)
                    for k, moduli in zip(coarser, second_order, strict=True)
                ]
                orders[2].append(torch.cat(averages, dim=2).flatten(1, 2))
        return torch.cat([part for order in orders for part in order], dim=1)

    def _mirrored(self, images: torch.Tensor) -> torch.Tensor:
        up, left = (more // 2 for more in self._border)
        down, right = self._border[0] - up, self._border[1] - left
        if max(down, right) < min(images.shape[1:]):
            sides = (left, right, up, down)
            return torch.nn.functional.pad(images[:, None], sides, mode="reflect")[:, 0]
        # A border at least as wide as the image is mirrored more than once, which torch cannot do.
        borders = ((0, 0), (up, down), (left, right))
        mirrored = np.pad(images.cpu().numpy(), borders, mode="reflect")
        return torch.from_numpy(mirrored).to(images.device)

    @staticmethod
    def _modulus(spectrum: torch.Tensor, band: torch.Tensor, halvings: int) -> torch.Tensor:
        """Return |· ⋆ ψ| of an image with this spectrum, with the resolution halved ``halvings`` times."""
        filtered = torch.fft.ifft2(_subsampled(spectrum * band, 2**halvings))
        return (filtered.real.square() + filtered.imag.square()).sqrt_()

    def _average(self, image: torch.Tensor, level: int) -> torch.Tensor:
        """Return · ⋆ φ_J, one value every 2^J pixels, without borders; ``image`` has resolution 2^-level."""
        return (image.flatten(-2) @ self._low[level]).unflatten(-1, self._values)


def _averages(size: int, scales: int) -> list[np.ndarray]:
    """Return a matrix [values, pixels] for each resolution 2^-level, which averages along one axis.

    φ_J is a round Gaussian, so it can be applied to one axis after the other.
    """
    width = 0.8 * 2 ** (scales - 1)
    pixels = np.arange(size) + size * np.array(_PERIODS)[:, None]
    gaussian = np.exp(-0.5 * (pixels / width) ** 2).sum(0) / (np.sqrt(2 * pi) * width)
    spectrum = np.real(np.fft.fft(gaussian))
    matrices = []
    for level in range(scales):
        band = spectrum[_frequencies(size, level)]
        smooth = np.real(np.fft.ifft(np.fft.fft(np.eye(len(band))) * band)).T
        matrices.append(smooth[:: 2 ** (scales - level)][1:-1])
    return matrices


def _wavelets(size: tuple[int, int], scale: int, angles: int) -> list[np.ndarray]:
    """Return the (real) Fourier transforms of ψ at this scale and every angle, for each needed resolution."""
    directions = [(angles - angles // 2 - 1 - index) * pi / angles for index in range(angles)]
    waves = [_morlet(size, 0.8 * 2**scale, a, 0.75 * pi / 2**scale, 4 / angles) for a in directions]
    spectra = np.real(np.fft.fft2(np.stack(waves)))
    # A wavelet of the second order is applied to images of finer scales only.
    levels = range(max(scale, 1))
    bands = [(_frequencies(size[0], level), _frequencies(size[1], level)) for level in levels]
    return [spectra[:, rows[:, None], columns] for rows, columns in bands]


def _morlet(
    size: tuple[int, int], width: float, angle: float, frequency: float, slant: float
) -> np.ndarray:
    """Return a Morlet wavelet g(u) (exp(iξᵀu) - β), where β makes the mean zero.

    The envelope g is a Gaussian that is longer across the direction ξ.
    """
    wave, envelope = np.zeros(size, dtype=complex), np.zeros(size)
    for up in _PERIODS:
        for across in _PERIODS:
            y, x = np.mgrid[: size[0], : size[1]].astype(float)
            y, x = y + up * size[0], x + across * size[1]
            along = y * np.cos(angle) + x * np.sin(angle)
            across_wave = x * np.cos(angle) - y * np.sin(angle)
            gaussian = np.exp(-(along**2 + (slant * across_wave) ** 2) / (2 * width**2))
            envelope += gaussian
            wave += gaussian * np.exp(1j * frequency * along)
    return (wave - wave.sum() / envelope.sum() * envelope) * slant / (2 * pi * width**2)


def _frequencies(size: int, level: int) -> np.ndarray:
    """Return the indices of the frequencies of ``size`` pixels that remain at resolution 2^-level."""
    remaining = size // 2**level
    return np.r_[: (remaining + 1) // 2, size - remaining // 2 : size]


def _subsampled(spectrum: torch.Tensor, step: int) -> torch.Tensor:
    """Return the spectrum of every ``step``-th pixel: the mean over the frequencies that alias."""
    if step == 1:
        return spectrum
    *rest, height, width = spectrum.shape
    return spectrum.reshape(*rest, step, height // step, step, width // step).mean((-4, -2))
