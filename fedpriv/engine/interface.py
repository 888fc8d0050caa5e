"""The interface of an engine: clipped sums of per-record gradients for many clients at once.

For records i with gradients g_i, clients k and scale factors c_i = factors(‖g_i‖, k_i),

    sums[k] = Σ_{i of client k} c_i g_i,        c_i = 0 where g_i is not finite.

Where a record is K copies, g_i is the mean of the copies' gradients (:class:`Copies`). An engine neither
divides by a denominator nor adds noise: the caller does both. The records of one client in one call are
called its *lot*.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import torch

Factors = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(norms [n], client_of_record [n]) → the factor of each record's gradient [n].

Factors that ask for parts (:func:`fedpriv.engine.parts.asking_for`) get and give [n, G].
"""


@dataclass(frozen=True)
class ClippedSums:
    """The clipped sum of each client's lot, and a few numbers of each record.

    Nothing here is noised: all of it is private.

    Attributes:
        sums: Clipped sum of each client [clients, d], flat in the order of ``model.parameters()``.
            Parameters that do not require a gradient have zeros. The type is float64 if there is a lot of
            more than ``PIECE`` records (:mod:`fedpriv.engine.lots`), else the model's.
        norms: L2 norm of each record's gradient before clipping [n], or of its parts [n, G]. It is an upper
            bound, so that rounding cannot weaken the clipping (:mod:`fedpriv.engine.norms`). Empty if the
            caller gave no factors.
        losses: Loss of each record [n].
        finite: Mask of the records whose loss and norm are finite [n]; the others contributed exactly zero.
    """

    sums: torch.Tensor
    norms: torch.Tensor
    losses: torch.Tensor
    finite: torch.Tensor


class Sliced(Protocol):
    """Records that are read in slices, so that they need not all be in memory."""

    def __len__(self) -> int:
        """Return the number of records n."""

    def __getitem__(self, place: slice) -> torch.Tensor:
        """Return the records of a slice [m, …]."""


class Copies(Sliced, Protocol):
    """Records of which each is K copies.

    The gradient of a record is the mean of the gradients of its copies, its loss the mean of their losses.
    The engine measures and clips that mean.
    """

    @property
    def copies(self) -> int:
        """Number of copies K ≥ 1 of each record."""

    def __getitem__(self, place: slice) -> torch.Tensor:
        """Return the copies of the records of a slice [m, K, …]."""


class Engine(Protocol):
    """An engine, which computes clipped sums of the gradients of one model."""

    @property
    def name(self) -> str:
        """Name of the engine in use, as in ``runtime.engine``."""

    def clipped_sums(
        self,
        inputs: torch.Tensor | Sliced,
        targets: torch.Tensor | Sliced,
        client_of_record: torch.Tensor,
        clients: int,
        factors: Factors | None,
    ) -> ClippedSums:
        """Compute the clipped sum of every client at the model's current weights.

        Args:
            inputs: Records [n, …], those of a client together, clients in ascending order: a tensor,
                something that gives one for a slice, or :class:`Copies`.
            targets: Targets [n, …].
            client_of_record: Client of each record [n], int64, non-decreasing, in [0, clients).
                Best kept on the CPU: the sizes of the lots are needed there.
            clients: Number of clients, counting those without a record.
            factors: Factor of each record, given its norm and client. None sums the gradients as they are,
                measures no norms, and lets a gradient that is not finite through.

        Returns:
            Sums [clients, d], and norms, losses and finiteness of each record [n].

        Raises:
            ConfigError: The engine cannot treat the model.
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
    """Return the sums of each client's gradients without clipping [clients, d], and the losses [n]."""
    result = engine.clipped_sums(inputs, targets, client_of_record, clients, None)
    return result.sums, result.losses
