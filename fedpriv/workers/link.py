"""Messages between rank 0 and one worker, over a connection.

Each link has a connection of its own: so a worker that is lost takes no other link with it, and another
worker can take its place. A worker inherits one end of a pair of sockets, which nobody else can reach.

A message is handed to the system in one piece, and no further thread takes part: on busy cores each thread
that must be woken costs milliseconds. Tensors on a GPU cross through the memory of the host.

    message on the wire = number of bytes (8, little-endian) | what fedpriv.workers.packing.pack returned
"""

from __future__ import annotations

import socket
import struct
import weakref
from collections.abc import Mapping
from typing import Any

import torch

from fedpriv.common.errors import FedprivError
from fedpriv.workers.packing import Classes, pack, unpack

CONNECT_SECONDS = 300.0
"""Time in which a worker must have begun once rank 0 waits for it."""
_HEADER = 8  # bytes
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


def _lost(error: OSError, seconds: float | None) -> LostError:
    """Return an error of the connection as one that says whether the other end was too slow or is gone."""
    if isinstance(error, BlockingIOError):
        return LostError(f"no answer within {seconds:g} s")
    return LostError(error.strerror or str(error))
