"""Messages between rank 0 and one worker, over a connection.

Each link has a connection of its own: so a worker that is lost takes no other link with it, and another
worker can take its place. A worker that rank 0 starts inherits one end of a pair of sockets, which nobody
else can reach. Processes that a launcher has started find each other through its store, and speak TCP.

A message is handed to the system in one piece, and no further thread takes part: on busy cores each thread
that must be woken costs milliseconds. Tensors on a GPU cross through the memory of the host.

    message on the wire = number of bytes (8, little-endian) | what fedpriv.workers.packing.pack returned
"""

from __future__ import annotations

import ipaddress
import json
import secrets
import socket
import struct
import time
import weakref
from collections.abc import Mapping
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from fedpriv.common.errors import FedprivError
from fedpriv.workers.packing import Classes, pack, unpack
from fedpriv.workers.places import LOCAL_HOST

CONNECT_SECONDS = 300.0
"""Time in which a worker must have begun once rank 0 waits for it."""
_FOREVER = timedelta(days=3650)
_HEADER = 8  # bytes
_TOKEN = 16  # bytes that a worker sends first, so that nobody else is taken for it
_STRANGER_SECONDS = 5.0  # time for these bytes
# The other machine may be gone without a word: after a minute of silence it is asked six times in a minute.
_KEEPALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 10, "TCP_KEEPCNT": 6}
_MORE = getattr(socket, "MSG_MORE", 0)  # Linux: header and message leave together


class LostError(FedprivError):
    """The other end of a link does not answer any more."""


class Link:
    """One end of the connection between rank 0 and a worker.

    Args:
        connection: The connection, which is closed with the link.
        classes: Data classes that messages may hold.
        device: Device for tensors that were on an accelerator.
    """

    def __init__(
        self, connection: socket.socket, classes: Classes, device: torch.device | None = None
    ):
        self._socket, self._classes, self.device = connection, classes, device
        weakref.finalize(self, connection.close)

    def send(self, message: Mapping[str, Any], seconds: float | None = None) -> None:
        """Send a message.

        Args:
            message: See :func:`fedpriv.workers.packing.pack` for what it may hold.
            seconds: Longest time to wait until the system takes it; None: as long as the other end lives.

        Raises:
            LostError: The other end is gone, or does not take messages in time.
        """
        self.send_packed(pack(message, self._classes), seconds)

    def send_packed(self, packed: torch.Tensor, seconds: float | None = None) -> None:
        """Send a message that is packed already, as :meth:`send` does."""
        header = len(packed).to_bytes(_HEADER, "little")
        self._wait_at_most(socket.SO_SNDTIMEO, seconds)
        try:
            self._socket.sendall(header, _MORE)
            self._socket.sendall(packed.numpy().data)
        except OSError as error:
            raise _lost(error, seconds) from None

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """Wait for a message and return it.

        Args:
            seconds: Longest time to wait; None: as long as the other end lives.

        Raises:
            LostError: The other end is gone, or sent nothing in time.
        """
        header = bytearray(_HEADER)
        self._fill(memoryview(header), seconds)
        packed = torch.empty(int.from_bytes(header, "little"), dtype=torch.uint8)
        self._fill(packed.numpy().data, seconds)
        return unpack(packed, self._classes, self.device)

    def _fill(self, memory: memoryview, seconds: float | None) -> None:
        """Receive as many bytes as the memory holds."""
        self._wait_at_most(socket.SO_RCVTIMEO, seconds)
        filled = 0
        while filled < len(memory):
            try:
                count = self._socket.recv_into(memory[filled:], 0, socket.MSG_WAITALL)
            except OSError as error:
                raise _lost(error, seconds) from None
            if count == 0:
                raise LostError("the connection was closed")
            filled += count

    def _wait_at_most(self, option: int, seconds: float | None) -> None:
        # 0 would be no limit.
        micros = 0 if seconds is None else max(1, round(seconds * 1e6))
        self._socket.setsockopt(
            socket.SOL_SOCKET, option, struct.pack("ll", *divmod(micros, 1_000_000))
        )


def accepted(store: dist.Store, name: str, host: str | None) -> socket.socket:
    """Listen, tell where through the store, and return the connection of whoever read it there.

    Args:
        store: The store through which both ends find each other.
        name: Name of the link, the same at both ends and used once.
        host: Address to listen on; None: the one that the machine's name stands for.

    Raises:
        LostError: The other end did not come in time.
    """
    token, deadline = secrets.token_bytes(_TOKEN), time.monotonic() + CONNECT_SECONDS
    try:
        listener, told_host = _listener(host)
        with listener:
            address = [told_host, listener.getsockname()[1], token.hex()]
            store.set(f"{name}/address", json.dumps(address))
            while True:
                listener.settimeout(max(0.001, deadline - time.monotonic()))
                connection, _ = listener.accept()
                connection.settimeout(_STRANGER_SECONDS)
                with suppress(OSError):
                    if secrets.compare_digest(connection.recv(_TOKEN, socket.MSG_WAITALL), token):
                        return _ready(connection)
                connection.close()
    except (OSError, RuntimeError) as error:
        raise _unconnected(error) from None


def connected(store: dist.Store, name: str) -> socket.socket:
    """Return a connection to where the other end listens, which it may do late: it reads its data before.

    Args:
        store: The store through which both ends find each other.
        name: Name of the link, the same at both ends and used once.

    Raises:
        LostError: The store is gone, and the other end with it, or it does not answer.
    """
    key = f"{name}/address"
    try:
        store.wait([key], _FOREVER)
        host, port, token = json.loads(store.get(key))
        connection = socket.create_connection((host, port), CONNECT_SECONDS)
        connection.sendall(bytes.fromhex(token))
        return _ready(connection)
    except (OSError, RuntimeError) as error:
        raise _unconnected(error) from None


def _ready(connection: socket.socket) -> socket.socket:
    """Return a connection over TCP, set up for messages."""
    connection.settimeout(None)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEPALIVE.items():
        if hasattr(socket, name):  # not everywhere
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
    return connection


def _unconnected(error: Exception) -> LostError:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return LostError(f"no connection ({reason})")


def _listener(host: str | None) -> tuple[socket.socket, str]:
    """Return a socket that listens on a free port, and the host that the other end is told.

    Args:
        host: Address to listen on; None: the one that the machine's name stands for. Where that is the
            loopback interface, as in /etc/hosts of Debian, the socket listens on all interfaces, and the
            other end is told the name: on other machines it stands for another address.
    """
    if host is None:
        name, addresses = socket.gethostname(), []
        with suppress(OSError):
            addresses = socket.getaddrinfo(name, 0, type=socket.SOCK_STREAM)
        for family, *_, address in addresses:
            if not ipaddress.ip_address(address[0]).is_loopback:
                with suppress(OSError):
                    listener = socket.create_server(address[:2], family=family, backlog=1)
                    return listener, listener.getsockname()[0]
        if addresses:
            dual = socket.has_dualstack_ipv6()
            family = socket.AF_INET6 if dual else socket.AF_INET
            return socket.create_server(
                ("", 0), family=family, dualstack_ipv6=dual, backlog=1
            ), name
    host = host or LOCAL_HOST
    return socket.create_server((host, 0), backlog=1), host


def _lost(error: OSError, seconds: float | None) -> LostError:
    """Return an error of the connection as one that says whether the other end was too slow or is gone."""
    if isinstance(error, BlockingIOError):
        return LostError(f"no answer within {seconds:g} s")
    return LostError(error.strerror or str(error))
