"""The connection between rank 0 and a worker."""

from __future__ import annotations

import threading

import pytest
import torch
import torch.distributed as dist

from fedpriv.workers import link as links
from fedpriv.workers.link import Link, LostError
from fedpriv.workers.places import LOCAL_HOST


@pytest.fixture
def ends():
    """Both ends of a link, in this process."""
    store, made = dist.HashStore(), {}

    def make(end):
        made[end] = Link(store, "link", end, LOCAL_HOST, {})

    other = threading.Thread(target=make, args=(1,))
    other.start()
    make(0)
    other.join()
    return made


def test_messages_arrive_in_order_and_bytes_are_counted(ends):
    sender = threading.Thread(
        target=lambda: [ends[1].send({"x": torch.ones(n)}) for n in (3, 0, 9)]
    )
    sender.start()
    assert [len(ends[0].receive()["x"]) for _ in range(3)] == [3, 0, 9]
    sender.join()
    assert ends[0].received == ends[1].sent > 0


def test_no_answer_in_time_is_an_error(ends):
    with pytest.raises(LostError, match=r"no answer within 0\.2 s"):
        ends[0].receive(0.2)


def test_an_end_that_is_gone_is_an_error(ends):
    del ends[1]
    with pytest.raises(LostError):
        ends[0].receive(30)


def test_nobody_at_the_other_end(monkeypatch):
    monkeypatch.setattr(links, "CONNECT_SECONDS", 0.3)
    with pytest.raises(LostError, match="no connection"):
        Link(dist.HashStore(), "link", 0, LOCAL_HOST, {})
