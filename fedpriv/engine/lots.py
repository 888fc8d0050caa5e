"""Sums over the records of each client, for lots of unequal size and empty ones."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch

from fedpriv.data.records import rows_of

_LOOP_CLIENTS = 32  # up to here one matrix product per client beats padding
_LOOP_ELEMENTS = 2**18  # from here reading the rows once beats one product for all clients
BLOCK_CLIENTS = 256  # bounds the padded copies and per-client temporaries
BLOCK_RECORDS = 4096  # bounds activations and per-record gradients
# Numbers held for the records of a block, for models that say how many they hold for a record.
BLOCK_VALUES = 2**28


PIECE = 128
"""Records that are added up in the model's own precision; the sums of pieces are added up in float64.

The rounding errors of a float32 sum of n gradients of norm C that all point one way come to about
2e-8 n^1.5 C: 3e-5 C for 128, but .01 C for 6,000. Of large models fewer, longer pieces are in memory together
(:func:`in_pieces`): 673 records and 4e-4 C for 11 million parameters and a block of 4,096 records."""
_PIECE_VALUES = 2**26  # numbers in the sums of all pieces of a block


def sum_dtype(counts: Sequence[int], dtype: torch.dtype) -> torch.dtype:
    """Return the type of the clipped sums of lots of these sizes, for a model of type ``dtype``."""
    return torch.float64 if max(counts, default=0) > PIECE else dtype


def in_pieces(sizes: list[int], size: int) -> tuple[list[int], list[int]]:
    """Cut lots of these sizes into pieces, for sums of ``size`` numbers.

    Returns:
        (number of records of each piece, client of each piece).
    """
    longest = max(PIECE, math.ceil(sum(sizes) * size / _PIECE_VALUES))
    pieces, owners = [], []
    for client, count in enumerate(sizes):
        for first in range(0, count, longest):
            pieces.append(min(longest, count - first))
            owners.append(client)
    return pieces, owners


@dataclass(frozen=True)
class RecordBlock:
    """Records ``[start, stop)``, which belong to clients ``[first, last)``.

    Attributes:
        start: First record.
        stop: Record after the last one.
        first: First client.
        last: Client after the last one.
        continued: Whether the block is a further piece of a client that is too large for one block.
    """

    start: int
    stop: int
    first: int
    last: int
    continued: bool

    def sizes(self, counts: list[int]) -> list[int]:
        """Return the number of the block's records of each client, given those of all clients."""
        if self.last - self.first == 1:  # perhaps only a piece of a large lot
            return [self.stop - self.start]
        return counts[self.first : self.last]


def blocks(
    counts: list[int], values_per_record: int | None = None, copies: int = 1
) -> Iterator[RecordBlock]:
    """Cut clients into blocks of bounded memory, in order.

    Args:
        counts: Number of records of each client.
        values_per_record: How many numbers a pass over one record holds, if the model says so.
        copies: Number of copies of each record, which are computed together.
    """
    most = max(1, BLOCK_RECORDS // copies)
    if values_per_record is not None:
        most = max(1, min(most, BLOCK_VALUES // (values_per_record * copies)))
    first = start = stop = 0
    for client, count in enumerate(counts):
        full = client - first >= BLOCK_CLIENTS or stop - start + count > most
        if full and client > first:
            yield RecordBlock(start, stop, first, client, False)
            first, start = client, stop
        stop += count
        if count > most:
            for piece in range(start, stop, most):
                end = min(piece + most, stop)
                yield RecordBlock(piece, end, client, client + 1, piece > start)
            first, start = client + 1, stop
    if first < len(counts):
        yield RecordBlock(start, stop, first, len(counts), False)


def lot_sizes(client_of_record: torch.Tensor, clients: int) -> list[int]:
    """Return the number of records of each client.

    Args:
        client_of_record: Client of each record [n].
        clients: Number of clients.

    Raises:
        ValueError: The clients are not in [0, clients) in non-decreasing order.
    """
    if client_of_record.dim() != 1 or client_of_record.dtype != torch.int64:
        raise ValueError("client_of_record must be int64 of shape [n]")
    on_host = client_of_record.cpu().numpy()
    ordered = not len(on_host) or (
        on_host[0] >= 0 and on_host[-1] < clients and bool((on_host[1:] >= on_host[:-1]).all())
    )
    if not ordered:
        raise ValueError(f"client_of_record must be non-decreasing in [0, {clients})")
    return np.bincount(on_host, minlength=clients).tolist()


@dataclass(frozen=True)
class PaddedLots:
    """Lots of a few clients side by side, the shorter ones filled up with their first record.

    Attributes:
        clients: The clients [c].
        records: Positions of their records among those of all clients [c, b].
        present: Mask of the positions that are not filled up [c, b].
    """

    clients: torch.Tensor
    records: torch.Tensor
    present: torch.Tensor


def padded_lots(counts: list[int]) -> Iterator[PaddedLots]:
    """Cut clients with these numbers of records into groups of bounded memory with similar lots.

    Filling up the lots of a group at most doubles the records. A client without records is in no group.
    """
    starts = [0, *accumulate(counts)]
    group: list[int] = []
    total = 0
    for client in sorted(range(len(counts)), key=counts.__getitem__):
        count, size = counts[client], len(group) + 1
        full = size > BLOCK_CLIENTS or size * count > min(2 * (total + count), BLOCK_RECORDS)
        if group and full:
            yield _side_by_side(group, counts, starts)
            group, total = [], 0
        if count:
            group.append(client)
            total += count
    if group:
        yield _side_by_side(group, counts, starts)


def rows_at(values: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
    """Return ``values[positions]`` for positions [c, b]; see :func:`fedpriv.data.records.rows_of`."""
    rows = rows_of(values, positions.flatten())
    return rows.view(*positions.shape, *values.shape[1:])


def _side_by_side(group: list[int], counts: list[int], starts: list[int]) -> PaddedLots:
    group = sorted(group)
    sizes = torch.tensor([counts[client] for client in group])[:, None]
    first = torch.tensor([starts[client] for client in group])[:, None]
    position = torch.arange(int(sizes.max()))
    present = position < sizes
    return PaddedLots(torch.tensor(group), first + position * present, present)


class Lots:
    """The lots of one block, each record with the factor its gradient is multiplied by.

    Args:
        counts: Records of each client [K].
        client_of_record: Client of each record [n], counted from 0 within the block.
        scale: Factor of each record [n].
    """

    def __init__(self, counts: list[int], client_of_record: torch.Tensor, scale: torch.Tensor):
        self.counts = counts
        self.client_of_record = client_of_record
        self.scale = scale
        self._starts = [0, *accumulate(counts)]
        self._selectors: list[tuple[slice, slice, torch.Tensor]] | None = None

    def row_sums(self, rows: torch.Tensor, out: torch.Tensor) -> None:
        """Write Σ_{i of k} scale_i rows_i of each client k.

        Args:
            rows: A row for each record [n, p].
            out: The sums [K, p], zeros before.
        """
        if len(self.counts) <= _LOOP_CLIENTS and rows.numel() >= _LOOP_ELEMENTS:
            parts = zip(
                self.counts,
                rows.split(self.counts),
                self.scale.split(self.counts),
                out,
                strict=True,
            )
            for count, client_rows, client_scale, total in parts:
                if count:
                    torch.mv(client_rows.t(), client_scale, out=total)
            return
        if self._selectors is None:
            # Matrices with scale_i at (client of i, i), for a few clients at a time: their zeros cost little.
            self._selectors = []
            for first in range(0, len(self.counts), _LOOP_CLIENTS):
                last = min(first + _LOOP_CLIENTS, len(self.counts))
                records = slice(self._starts[first], self._starts[last])
                if records.start == records.stop:
                    continue
                selector = self.scale.new_zeros(last - first, records.stop - records.start)
                index = (self.client_of_record[records] - first).unsqueeze(0)
                selector.scatter_(0, index, self.scale[records].unsqueeze(0))
                self._selectors.append((slice(first, last), records, selector))
        for clients, records, selector in self._selectors:
            torch.mm(selector, rows[records], out=out[clients])

    def outer_sums(self, left: torch.Tensor, right: torch.Tensor, out: torch.Tensor) -> None:
        """Write Σ_{i of k} scale_i Σ_t left_it right_itᵀ of each client k.

        Args:
            left: Left factors [n, T, O].
            right: Right factors [n, T, I].
            out: The sums [K, O, I], zeros before.
        """
        left = left * self.scale[:, None, None]
        if len(self.counts) > 1 and len(set(self.counts)) == 1:
            _batched_outer(left, right, len(self.counts), out)
            return
        if len(self.counts) <= _LOOP_CLIENTS:
            rows = [count * left.shape[1] for count in self.counts]
            left, right = left.flatten(0, 1), right.flatten(0, 1)
            parts = zip(rows, left.t().split(rows, 1), right.split(rows), out, strict=True)
            for count, client_left, client_right, total in parts:
                if count:
                    torch.mm(client_left, client_right, out=total)
            return
        for clients, records, padding in self._padded(left.device):
            padded = left[records].masked_fill_(padding[:, None, None], 0)
            sums = out.new_empty(len(clients), *out.shape[1:])
            out[clients] = _batched_outer(padded, right[records], len(clients), sums)

    def _padded(
        self, device: torch.device
    ) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
        """Group clients whose lots have equally many binary digits: padding at most doubles the work.

        Yields:
            (clients [B], records [B · L], mask of the padding [B · L]).
        """
        counts = torch.tensor(self.counts)
        starts = torch.tensor(self._starts[:-1])
        digits = torch.frexp(counts.double()).exponent
        for digit in range(1, int(digits.max()) + 1):
            clients = (digits == digit).nonzero().squeeze(1)
            if not len(clients):
                continue
            position = torch.arange(int(counts[clients].max()))
            padding = position >= counts[clients, None]
            records = (starts[clients, None] + position).masked_fill_(padding, 0)
            yield clients.to(device), records.flatten().to(device), padding.flatten().to(device)


def _batched_outer(
    left: torch.Tensor, right: torch.Tensor, clients: int, out: torch.Tensor
) -> torch.Tensor:
    """Compute :meth:`Lots.outer_sums` for lots of one size, without factors."""
    left = left.reshape(clients, -1, left.shape[-1])
    right = right.reshape(clients, -1, right.shape[-1])
    return torch.bmm(left.transpose(1, 2), right, out=out)
