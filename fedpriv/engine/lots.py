"""Sums over the records of each client, for lots of unequal size and empty ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

_LOOP_CLIENTS = 32  # up to here one matrix product per client beats padding
_LOOP_ELEMENTS = 2**18  # from here reading the rows once beats one product for all clients
_BLOCK_CLIENTS = 256  # bounds the padded copies and per-client temporaries
_BLOCK_RECORDS = 4096  # bounds activations and per-record gradients


@dataclass(frozen=True)
class Block:
    """Records ``[start, stop)``, which belong to clients ``[first, last)``.

    ``continued`` marks a further piece of a client too large for one block.
    """

    start: int
    stop: int
    first: int
    last: int
    continued: bool


def blocks(counts: list[int]) -> Iterator[Block]:
    """Cut clients with these numbers of records into blocks of bounded memory, in order."""
    first = start = stop = 0
    for client, count in enumerate(counts):
        full = client - first >= _BLOCK_CLIENTS or stop - start + count > _BLOCK_RECORDS
        if full and client > first:
            yield Block(start, stop, first, client, False)
            first, start = client, stop
        stop += count
        if count > _BLOCK_RECORDS:
            for piece in range(start, stop, _BLOCK_RECORDS):
                end = min(piece + _BLOCK_RECORDS, stop)
                yield Block(piece, end, client, client + 1, piece > start)
            first, start = client + 1, stop
    if first < len(counts):
        yield Block(start, stop, first, len(counts), False)


def lot_sizes(client_of_record: torch.Tensor, clients: int) -> list[int]:
    """Number of records of each client.

    Raises:
        ValueError: The clients are not in [0, clients) in non-decreasing order.
    """
    on_host = client_of_record.cpu()
    if on_host.dim() != 1 or on_host.dtype != torch.int64:
        raise ValueError("client_of_record must be int64 of shape [n]")
    if len(on_host) and (
        on_host[0] < 0 or on_host[-1] >= clients or bool((on_host.diff() < 0).any())
    ):
        raise ValueError(f"client_of_record must be non-decreasing in [0, {clients})")
    return torch.bincount(on_host, minlength=clients).tolist()


class Lots:
    """The lots of one block.

    Args:
        counts: Records of each client [K].
        client_of_record: Client of each record [n], counted from 0 within the block, on the device.
    """

    def __init__(self, counts: list[int], client_of_record: torch.Tensor):
        self.counts = counts
        self.client_of_record = client_of_record
        self.starts = [0]
        for count in counts:
            self.starts.append(self.starts[-1] + count)

    def row_sums(self, rows: torch.Tensor, scale: torch.Tensor, out: torch.Tensor) -> None:
        """out[k] = Σ_{i of k} scale_i rows_i for rows [n, p], out [K, p] (zeros before)."""
        clients = len(self.counts)
        if clients == 1 or (clients <= _LOOP_CLIENTS and rows.numel() >= _LOOP_ELEMENTS):
            for client, start, stop in self._segments():
                torch.mv(rows[start:stop].t(), scale[start:stop], out=out[client])
            return
        # A product with a matrix that holds scale_i at (client of i, i): a few clients at a time,
        # so that the zeros cost little.
        for first in range(0, clients, _LOOP_CLIENTS):
            last = min(first + _LOOP_CLIENTS, clients)
            start, stop = self.starts[first], self.starts[last]
            if start == stop:
                continue
            selector = scale.new_zeros(last - first, stop - start)
            index = (self.client_of_record[start:stop] - first).unsqueeze(0)
            selector.scatter_(0, index, scale[start:stop].unsqueeze(0))
            torch.mm(selector, rows[start:stop], out=out[first:last])

    def outer_sums(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        """out[k] = Σ_{i of k} Σ_t left_it right_itᵀ for left [n, T, O], right [n, T, I],
        out [K, O, I] (zeros before)."""
        if len(self.counts) <= _LOOP_CLIENTS:
            for client, start, stop in self._segments():
                torch.mm(
                    left[start:stop].flatten(0, 1).t(),
                    right[start:stop].flatten(0, 1),
                    out=out[client],
                )
            return
        if len(set(self.counts)) == 1:
            out.copy_(_batched_outer(left, right, len(self.counts)))
            return
        for clients, records, padding in self._padded(left.device):
            padded = left[records].masked_fill_(padding[:, None, None], 0)
            out[clients] = _batched_outer(padded, right[records], len(clients))

    def _segments(self) -> Iterator[tuple[int, int, int]]:
        for client, count in enumerate(self.counts):
            if count:
                yield client, self.starts[client], self.starts[client + 1]

    def _padded(
        self, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Clients whose lots have the same number of binary digits, so that padding them to the
        largest at most doubles the work: (clients [B], records [B·L], is padding [B·L])."""
        counts = torch.tensor(self.counts)
        starts = torch.tensor(self.starts[:-1])
        digits = torch.frexp(counts.double()).exponent
        for digit in range(1, int(digits.max()) + 1):
            clients = (digits == digit).nonzero().squeeze(1)
            if not len(clients):
                continue
            position = torch.arange(int(counts[clients].max()))
            padding = position >= counts[clients, None]
            records = (starts[clients, None] + position).masked_fill_(padding, 0)
            yield clients.to(device), records.flatten().to(device), padding.flatten().to(device)


def _batched_outer(left: torch.Tensor, right: torch.Tensor, clients: int) -> torch.Tensor:
    left = left.reshape(clients, -1, left.shape[-1])
    right = right.reshape(clients, -1, right.shape[-1])
    return torch.bmm(left.transpose(1, 2), right)
