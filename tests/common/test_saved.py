"""State for the checkpoint, declared by the names of attributes."""

from __future__ import annotations

from collections import deque
from typing import ClassVar

import torch

from fedpriv.common.saved import Saved


class Part(Saved):
    saved_attributes: ClassVar = {"norms": "_norms", "losses": "_losses", "decays": "decays"}

    def __init__(self):
        self._norms, self._losses = torch.zeros(2), deque([0.0] * 3, maxlen=3)
        self.decays, self.other = 0, "kept"


def test_the_named_attributes_are_saved_and_restored():
    part = Part()
    part._norms += 1.0
    part._losses.append(5.0)
    part.decays = 2
    state = part.state_dict()
    assert state.keys() == {"norms", "losses", "decays"}
    assert (state["losses"], state["decays"]) == ([0.0, 0.0, 5.0], 2)
    other = Part()
    other.load_state_dict(state)
    assert torch.equal(other._norms, torch.ones(2))
    assert (other._losses, other._losses.maxlen, other.decays) == (part._losses, 3, 2)


def test_the_state_is_a_copy_and_tensors_keep_their_memory():
    part = Part()
    state, memory = part.state_dict(), part._norms.data_ptr()
    part._norms += 1.0
    part._losses.append(1.0)
    assert not state["norms"].any()
    assert state["losses"] == [0.0, 0.0, 0.0]
    part.load_state_dict(state)
    assert not part._norms.any()
    assert part._norms.data_ptr() == memory


def test_a_part_saves_nothing_unless_it_says_so():
    assert Saved().state_dict() == {}
    Saved().load_state_dict({})
