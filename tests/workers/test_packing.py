"""Messages between processes: what goes in comes out, bit for bit, and nothing is executed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from fedpriv.common.exact import exact_digest
from fedpriv.workers.packing import UnsendableError, pack, unpack


@dataclass(frozen=True)
class Chunk:
    clients: np.ndarray
    sums: torch.Tensor
    rest: tuple


CLASSES = {"Chunk": Chunk}
NUMBERS = arrays.arrays(
    st.sampled_from(["?", "u1", "i4", "i8", "f4", "f8"]),
    arrays.array_shapes(min_dims=0, min_side=0),
)
TENSORS = NUMBERS.map(lambda array: torch.from_numpy(np.array(array)))
PLAIN = (
    st.none()
    | st.booleans()
    | st.integers(-(2**60), 2**60)
    | st.floats(allow_nan=False)
    | st.text(max_size=9)
)
VALUES = st.recursive(
    PLAIN | NUMBERS | TENSORS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.lists(inner, max_size=3).map(tuple)
        | st.dictionaries(st.text(max_size=4) | st.integers(0, 9), inner, max_size=3)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_a_value_comes_out_as_it_went_in(value):
    assert exact_digest(unpack(pack(value, {}), {})) == exact_digest(value)


def test_what_is_no_number_stays_so():
    assert str(unpack(pack([float("nan"), float("-inf")], {}), {})) == "[nan, -inf]"


def test_data_classes_come_out_as_such():
    chunk = Chunk(np.arange(3), torch.randn(2, 3).t(), (1, None))
    again = unpack(pack({"chunks": [chunk]}, CLASSES), CLASSES)["chunks"][0]
    assert isinstance(again, Chunk)
    assert exact_digest(again) == exact_digest(chunk)


def test_tensors_are_aligned_as_torch_s_own_are():
    message = pack([torch.ones(1), "a text", torch.ones(3), torch.ones(5)], {})
    tensors = [value for value in unpack(message, {}) if torch.is_tensor(value)]
    assert [tensor.data_ptr() % 64 for tensor in tensors] == [0, 0, 0]


@pytest.mark.parametrize(
    "value", [object(), {1, 2}, b"bytes", Chunk(np.arange(1), torch.ones(1), ())]
)
def test_other_objects_are_refused(value):
    with pytest.raises(UnsendableError, match=type(value).__name__):
        pack({"state": [value]}, {})
