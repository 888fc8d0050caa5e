"""Max pooling with stride 1: torch's values and gradients, with and without gradients wanted."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from fedpriv.models.pooling import StrideOneMaxPool2d


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_without_gradients_the_values_are_torchs(size, layout):
    inputs = torch.relu(torch.randn(5, 3, 7, 6)).contiguous(memory_format=layout)
    expected = functional.max_pool2d(inputs, size, stride=1)
    with torch.inference_mode():
        assert torch.equal(StrideOneMaxPool2d(size)(inputs), expected)


def test_with_gradients_they_are_torchs_where_neighbours_tie():
    inputs = torch.relu(torch.randn(4, 2, 6, 6)).round()
    ours, theirs = inputs.clone().requires_grad_(), inputs.clone().requires_grad_()
    StrideOneMaxPool2d(2)(ours).square().sum().backward()
    functional.max_pool2d(theirs, 2, stride=1).square().sum().backward()
    assert torch.equal(ours.grad, theirs.grad)
