"""A convolution as a linear layer on its unfolded input."""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def unfold(layer: nn.Conv2d, inputs: torch.Tensor) -> torch.Tensor:
    """Return the patch that the kernel sees at each output position.

    The channels are innermost, so for a channels_last input each row of the kernel is one
    contiguous run of kw · c values to copy.

    Args:
        layer: The convolution.
        inputs: Images [n, c, h, w].

    Returns:
        Patches [n, positions, kh · kw · c].
    """
    padded = _padded(layer, inputs)
    n, channels, height, width = padded.shape
    (kh, kw), (sh, sw), (dh, dw) = layer.kernel_size, layer.stride, layer.dilation
    rows = (height - dh * (kh - 1) - 1) // sh + 1
    columns = (width - dw * (kw - 1) - 1) // sw + 1
    step_n, step_c, step_h, step_w = padded.stride()
    windows = padded.as_strided(
        (n, rows, columns, kh, kw, channels),
        (step_n, sh * step_h, sw * step_w, dh * step_h, dw * step_w, step_c),
    )
    return windows.reshape(n, rows * columns, kh * kw * channels)


def _padded(layer: nn.Conv2d, inputs: torch.Tensor) -> torch.Tensor:
    if layer.padding == "valid" or layer.padding == (0, 0):
        return inputs
    if layer.padding == "same":
        totals = [d * (k - 1) for d, k in zip(layer.dilation, layer.kernel_size, strict=True)]
        (top, bottom), (left, right) = [(total // 2, total - total // 2) for total in totals]
    else:
        top, left = (int(side) for side in layer.padding)
        bottom, right = top, left
    return functional.pad(inputs, (left, right, top, bottom))
