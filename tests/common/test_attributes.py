"""Which objects are the user's own."""

from __future__ import annotations

from fedpriv.common.attributes import is_own
from fedpriv.privacy.clippers import ConstantClipper


class Mine(ConstantClipper):
    pass


def test_own_is_what_stands_outside_fedpriv():
    assert is_own(Mine(1.0))
    assert not is_own(ConstantClipper(1.0))
