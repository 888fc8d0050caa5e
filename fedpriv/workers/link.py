"""Messages between rank 0 and one worker, over torch.distributed (gloo).

Each link is a process group of two: so a worker that is lost takes no other link with it, and another worker
can take its place. Tensors on a GPU cross through the memory of the host.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from fedpriv.common.errors import FedprivError
from fedpriv.workers.packing import Classes, pack, unpack

CONNECT_SECONDS = 300.0
"""Time in which both ends of a link must have begun."""
_FOREVER = timedelta(days=3650)


class LostError(FedprivError):
    """The other end of a link does not answer any more."""


class Link:
    """One end of the connection between rank 0 and a worker.

    Args:
        store: The store through which both ends find each other.
        name: Name of the link, the same at both ends and used once.
        end: 0 at rank 0; 1 at the worker.
        host: Address that this end listens on; None: the one that the machine's name stands for.
        classes: Data classes that messages may hold.
        device: Device for tensors that were on an accelerator.

    Attributes:
        sent: Bytes sent.
        received: Bytes received.

    Raises:
        LostError: The other end did not come in time.
    """

    def __init__(
        self,
        store: dist.Store,
        name: str,
        end: int,
        host: str | None,
        classes: Classes,
        device: torch.device | None = None,
    ):
        self._other, self._classes, self.device = 1 - end, classes, device
        self.sent = self.received = 0
        gloo: Any = dist.ProcessGroupGloo  # torch's stubs lack most of it
        options = gloo._Options()
        options._timeout = timedelta(seconds=CONNECT_SECONDS)
        options._devices = [
            gloo.create_default_device() if host is None else gloo.create_device(hostname=host)
        ]
        try:
            self._group = gloo(dist.PrefixStore(name, store), end, 2, options)
        except RuntimeError as error:
            raise LostError(f"no connection ({_first_line(error)})") from None

    def send(self, message: Mapping[str, Any], seconds: float | None = None) -> None:
        """Send a message, and wait until the other end takes it.

        Args:
            message: See :func:`fedpriv.workers.packing.pack` for what it may hold.
            seconds: Longest time to wait; None: as long as the other end lives.

        Raises:
            LostError: The other end is gone, or did not take the message in time.
        """
        self.send_packed(pack(message, self._classes), seconds)

    def send_packed(self, packed: torch.Tensor, seconds: float | None = None) -> None:
        """Send a message that is packed already, as :meth:`send` does."""
        began = time.monotonic()
        try:
            for part in (torch.tensor([len(packed)]), packed):
                self._group.send([part], self._other, 0).wait(_limit(seconds))
        except RuntimeError as error:
            raise _lost(error, began, seconds) from None
        self.sent += len(packed)

    def receive(self, seconds: float | None = None) -> dict[str, Any]:
        """Wait for a message and return it.

        Args:
            seconds: Longest time to wait; None: as long as the other end lives.

        Raises:
            LostError: The other end is gone, or sent nothing in time.
        """
        began = time.monotonic()
        try:
            size = torch.zeros(1, dtype=torch.int64)
            self._group.recv([size], self._other, 0).wait(_limit(seconds))
            packed = torch.empty(int(size), dtype=torch.uint8)
            self._group.recv([packed], self._other, 0).wait(_limit(seconds))
        except RuntimeError as error:
            raise _lost(error, began, seconds) from None
        self.received += len(packed)
        return unpack(packed, self._classes, self.device)


def _limit(seconds: float | None) -> timedelta:
    return _FOREVER if seconds is None else timedelta(seconds=seconds)


def _lost(error: RuntimeError, began: float, seconds: float | None) -> LostError:
    """Return an error of gloo as one that says whether the other end was too slow or is gone."""
    if seconds is not None and time.monotonic() - began >= seconds:
        return LostError(f"no answer within {seconds:g} s")
    return LostError(_first_line(error))


def _first_line(error: BaseException) -> str:
    """Return the first sentence of an error of gloo, without the place in its source."""
    return str(error).splitlines()[0].rpartition("] ")[2].partition(". This is ")[0]
