"""What an engine takes and gives: per-record clipped gradient sums for many clients at once.

For records i with gradients g_i, clients k and scale factors c_i = factors(‖g_i‖, k_i),

    sums[k] = Σ_{i of client k} c_i g_i,        c_i = 0 where g_i is not finite.

Where a record is K copies, g_i is the mean of their gradients (:class:`Copies`).

Dividing by a denominator and adding noise is the caller's business.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

Factors = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(norms [n], client_of_record [n]) → the factor [n] each record's gradient is multiplied by. Factors that
:func:`fedpriv.engine.parts.asking_for` parts get and give [n, G]."""


@dataclass(frozen=True)
class ClippedSums:
    """The outcome of one forward and backward pass over the records of all clients.

    Attributes:
        sums: Clipped sum of each client [clients, d], flat in the order of ``model.parameters()``;
            parameters that do not require a gradient have zeros. float64 if there are lots of more
            than ``PIECE`` records (:mod:`fedpriv.engine.lots`).
        norms: L2 norm of each record's gradient before clipping [n], or of its parts [n, G]; never smaller
            than it is (:mod:`fedpriv.engine.norms`); empty if no factors were asked for.
        losses: Loss of each record [n].
        finite: Whether the loss and the norm of the record are finite [n]; where False the record
            contributed exactly zero.
    """

    sums: torch.Tensor
    norms: torch.Tensor
    losses: torch.Tensor
    finite: torch.Tensor


class Sliced(Protocol):
    """Records that give a tensor for a slice of them."""

    def __len__(self) -> int:
        """The number of records n."""

    def __getitem__(self, place: slice) -> torch.Tensor:
        """These records [m, …]."""


class Copies(Sliced, Protocol):
    """Records of which each is K copies: the gradient of one is the mean of its copies', its loss the mean of
    their losses. What is measured and clipped is that mean.

    Attributes:
        copies: K ≥ 1.
    """

    @property
    def copies(self) -> int: ...

    def __getitem__(self, place: slice) -> torch.Tensor:
        """The copies of these records [m, K, …]."""


class Engine(Protocol):
    """Computes clipped sums of the gradients of one model."""

    @property
    def name(self) -> str:
        """The engine in use, as ``runtime.engine`` names it."""

    def clipped_sums(
        self,
        inputs: torch.Tensor | Sliced,
        targets: torch.Tensor | Sliced,
        client_of_record: torch.Tensor,
        clients: int,
        factors: Factors | None,
    ) -> ClippedSums:
        """Clipped sums of every client at the model's current weights.

        Args:
            inputs: Records [n, …], those of a client together, clients in ascending order; a tensor, or
                what gives one for a slice, or :class:`Copies`.
            targets: Targets [n, …].
            client_of_record: Client of each record [n], int64, non-decreasing, in [0, clients).
                Best kept on the CPU: the sizes of the lots are needed there.
            clients: Number of clients, also those without a record.
            factors: Scale of each record. None sums the gradients as they are, measures no norms
                and lets a gradient that is not finite through.

        Raises:
            ConfigError: The model is one this engine cannot treat.
            ValueError: The arguments do not fit together.
        """
        ...


def plain_gradient(
    engine: Engine,
    inputs: torch.Tensor,
    targets: torch.Tensor,
    client_of_record: torch.Tensor,
    clients: int,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Sums of the gradients of each client without clipping [clients, d] and the losses [n]."""
    result = engine.clipped_sums(inputs, targets, client_of_record, clients, None)
    return result.sums, result.losses
