"""What the PLD accountant leaves in memory after many different ε."""

from __future__ import annotations

import ctypes
import gc

import pytest
from dp_accounting import dp_event

from fedpriv.privacy.accountants import pld
from fedpriv.privacy.core.names import ADD_OR_REMOVE

_FIELDS = "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost"


class _Mallinfo2(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in _FIELDS.split()]


@pytest.fixture
def bytes_in_use():
    """Bytes that were allocated through malloc and not freed, native ones too."""
    mallinfo2 = getattr(ctypes.CDLL(None), "mallinfo2", None)
    if mallinfo2 is None:
        pytest.skip("the C library has no mallinfo2")
    mallinfo2.restype = _Mallinfo2

    def count():
        gc.collect()
        found = mallinfo2()
        return found.uordblks + found.hblkhd

    return count


def test_epsilons_after_many_rounds_leave_nothing_behind(bytes_in_use):
    """Transforms of other lengths for other numbers of rounds: their plans took 100 MB."""
    event = dp_event.PoissonSampledDpEvent(0.5, dp_event.GaussianDpEvent(12.0))
    accountant = pld.PldAccountant()
    accountant.epsilon_of({event: 2}, 1e-5, ADD_OR_REMOVE)
    pld.forget()
    before = bytes_in_use()
    for rounds in range(400, 1000, 200):
        accountant.epsilon_of({event: rounds}, 1e-5, ADD_OR_REMOVE)
    pld.forget()
    assert bytes_in_use() - before < 1 << 20
