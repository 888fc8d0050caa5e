"""Signals that a launcher handles itself wait until the round is over."""

from __future__ import annotations

import signal

import pytest

from fedpriv.experiment.interrupts import Interrupts


@pytest.fixture
def handled():
    """(handler) → it handles SIGUSR2, until the test is over."""
    before = signal.getsignal(signal.SIGUSR2)
    yield lambda handler: signal.signal(signal.SIGUSR2, handler)
    signal.signal(signal.SIGUSR2, before)


def test_a_signal_of_the_launcher_ends_the_run_and_is_passed_on(handled):
    heard = []
    handled(lambda number, frame: heard.append(number))
    with Interrupts() as interrupts:
        assert not interrupts.requested
        signal.raise_signal(signal.SIGUSR2)
        assert interrupts.requested
        assert heard == []
    assert heard == [signal.SIGUSR2]


def test_it_is_a_request_even_after_another_signal(handled):
    heard = []
    handled(lambda number, frame: heard.append(number))
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGUSR2)
        assert interrupts.requested
    assert heard == [signal.SIGUSR2]


def test_the_launcher_may_end_the_process(handled):
    def leave(number, frame):
        raise SystemExit(3)

    handled(leave)
    with pytest.raises(SystemExit), Interrupts():
        signal.raise_signal(signal.SIGUSR2)


def test_the_run_ends_in_its_own_way_where_the_launcher_will_not_start_it_again(handled):
    def refuse(number, frame):
        raise RuntimeError("timed out too many times")

    handled(refuse)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGUSR2)
    assert interrupts.requested


def test_a_signal_that_nobody_handles_is_left_alone(handled):
    handled(signal.SIG_IGN)
    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGUSR2)
        assert not interrupts.requested
    assert signal.getsignal(signal.SIGUSR2) == signal.SIG_IGN
