"""The connection between rank 0 and a worker."""

from __future__ import annotations

import socket
import threading

import pytest
import torch

from fedpriv.workers.link import Link, LostError


@pytest.fixture
def ends():
    return {end: Link(one, {}) for end, one in enumerate(socket.socketpair())}


def test_messages_arrive_in_order(ends):
    sender = threading.Thread(
        target=lambda: [ends[1].send({"x": torch.ones(n)}) for n in (3, 0, 9)]
    )
    sender.start()
    assert [len(ends[0].receive()["x"]) for _ in range(3)] == [3, 0, 9]
    sender.join()


def test_a_message_larger_than_the_buffers_of_the_system_arrives_whole(ends):
    sent = torch.arange(4_000_000)
    sender = threading.Thread(target=lambda: ends[1].send({"x": sent}))
    sender.start()
    assert torch.equal(ends[0].receive(30)["x"], sent)
    sender.join()


def test_a_message_that_is_not_taken_in_time_is_an_error(ends):
    with pytest.raises(LostError, match=r"no answer within 0\.2 s"):
        ends[1].send({"x": torch.zeros(4_000_000)}, 0.2)


@pytest.mark.parametrize("seconds", [0.2, 1e-7])
def test_no_answer_in_time_is_an_error(ends, seconds):
    with pytest.raises(LostError, match=f"no answer within {seconds:g} s"):
        ends[0].receive(seconds)


def test_an_end_that_is_gone_is_an_error(ends):
    del ends[1]
    with pytest.raises(LostError):
        ends[0].receive(30)
