"""The collector is back at work before what takes long."""

from __future__ import annotations

import gc

import pytest

from fedpriv.common import startup


@pytest.fixture(autouse=True)
def as_before():
    before = gc.get_threshold()
    gc.set_threshold(*startup._usual)
    yield
    gc.set_threshold(*before)


def test_after_the_start_garbage_is_collected_as_usual():
    startup.begin()
    assert gc.get_threshold()[0] == 100_000
    startup.over()
    assert gc.get_threshold() == startup._usual
    assert gc.isenabled()


def test_where_nothing_was_begun_nothing_changes():
    frozen = gc.get_freeze_count()
    startup.over()
    assert gc.get_threshold() == startup._usual
    assert gc.get_freeze_count() == frozen
