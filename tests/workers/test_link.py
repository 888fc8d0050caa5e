"""The connection between rank 0 and a worker."""

from __future__ import annotations

import json
import socket
import threading

import pytest
import torch
import torch.distributed as dist

from fedpriv.workers import link as links
from fedpriv.workers.link import Link, LostError, accepted, connected
from fedpriv.workers.places import LOCAL_HOST


def linked(host: str | None) -> dict[int, Link]:
    """Both ends of a link over TCP, in this process."""
    store, made = dist.HashStore(), {}
    other = threading.Thread(target=lambda: made.update({1: Link(connected(store, "link"), {})}))
    other.start()
    made[0] = Link(accepted(store, "link", host), {})
    other.join()
    return made


@pytest.fixture(params=["pair of sockets", "TCP"])
def ends(request):
    if request.param == "TCP":
        return linked(LOCAL_HOST)
    return {end: Link(one, {}) for end, one in enumerate(socket.socketpair())}


@pytest.mark.parametrize("name", ["localhost", "no.such.machine.invalid"])
def test_without_an_address_it_listens_where_the_name_of_the_machine_points(monkeypatch, name):
    monkeypatch.setattr(links.socket, "gethostname", lambda: name)
    ends = linked(None)
    ends[1].send({"x": 1})
    assert ends[0].receive(30) == {"x": 1}


def test_a_name_that_is_the_loopback_interface_here_is_looked_up_by_other_machines(monkeypatch):
    """Debian has 127.0.1.1 for the machine's own name: no other machine could connect to that."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    store = dist.HashStore()
    listening = threading.Thread(target=lambda: accepted(store, "link", None).close())
    with monkeypatch.context() as patch:
        patch.setattr(links.socket, "gethostname", lambda: "node1")
        patch.setattr(links.socket, "getaddrinfo", lambda *_, **__: found)
        listening.start()
        store.wait(["link/address"])
    host, port, token = json.loads(store.get("link/address"))
    assert host == "node1"
    for address in (LOCAL_HOST, "127.0.0.2"):  # on all interfaces
        with socket.create_connection((address, port)) as connection:
            connection.sendall(bytes.fromhex(token) if address != LOCAL_HOST else bytes(16))
    listening.join()


def test_a_stranger_is_not_taken_for_the_worker(monkeypatch):
    monkeypatch.setattr(links, "_STRANGER_SECONDS", 0.2)
    store, made = dist.HashStore(), []
    listening = threading.Thread(
        target=lambda: made.append(Link(accepted(store, "link", LOCAL_HOST), {}))
    )
    listening.start()
    store.wait(["link/address"])
    host, port, _ = json.loads(store.get("link/address"))
    with (
        socket.create_connection((host, port)) as silent,
        socket.create_connection((host, port)) as wrong,
    ):
        wrong.sendall(bytes(16))
        worker = Link(connected(store, "link"), {})
        listening.join()
        assert silent.recv(1) == b""
    worker.send({"x": 1})
    assert made[0].receive(30) == {"x": 1}


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


def test_nobody_at_the_other_end(monkeypatch):
    monkeypatch.setattr(links, "CONNECT_SECONDS", 0.3)
    with pytest.raises(LostError, match="no connection"):
        accepted(dist.HashStore(), "link", LOCAL_HOST)


def test_a_worker_waits_for_a_rank_0_that_reads_its_data_first(monkeypatch):
    monkeypatch.setattr(links, "CONNECT_SECONDS", 0.2)
    store, made = dist.HashStore(), []
    worker = threading.Thread(target=lambda: made.append(connected(store, "link")))
    worker.start()
    worker.join(0.4)
    accepted(store, "link", LOCAL_HOST).close()
    worker.join()
    assert len(made) == 1
    made[0].close()


def test_a_machine_that_is_gone_without_a_word_is_noticed():
    """The system's own patience is two hours."""
    link = linked(LOCAL_HOST)[1]
    assert link._socket.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
    assert link._socket.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) <= 60
