"""Changes of a run: other data or another upload of one unit, or other participants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.data.client_records import ClientRecords
from fedpriv.data.federated import FederatedData
from fedpriv.experiment.loop import Loop
from fedpriv.privacy.budget import Budget

Craft = Callable[[Tensor, int], Tensor]
"""Function (uploads of some clients [c, d], row of one client) -> the upload [d] that it sends instead."""


@dataclass(frozen=True)
class Variation:
    """The difference between a run and the reference run.

    Attributes:
        name: Name of the variation.
        data: Function that returns changed training data of the same clients; None: data stay.
        within: Context manager that makes the same change in place, and undoes it at the end.
        absent: Client that is never sampled; None: no client.
        upload: Client and the function that makes its upload; None: uploads stay.
        silent: Client that takes part and contributes zeros to every answer; None: no client.
        nobody: No client takes part in any round.
        moved: Client, and how many buckets after its own it is, where sums of buckets are released; None: no
            client.
    """

    name: str
    data: Callable[[FederatedData], FederatedData] | None = None
    within: Callable[[FederatedData], AbstractContextManager[None]] | None = None
    absent: int | None = None
    upload: tuple[int, Craft] | None = None
    nobody: bool = False
    silent: int | None = None
    moved: tuple[int, int] | None = None


AS_IT_IS = Variation("as it is")


def follow(loop: Loop, round_numbers: Sequence[int]) -> None:
    """Make a loop run the rounds ``round_numbers``, each at the state that the one before it left.

    Args:
        loop: A loop before its first round, which is changed in place.
        round_numbers: Indices t of the rounds, ascending; rounds between them are left out.
    """
    announce, remaining = loop._announce, iter(round_numbers)

    def announced() -> Any:
        loop.rounds_done = next(remaining, loop.rounds_done)
        return announce()

    loop._announce = announced  # type: ignore[method-assign]


def leave_out(budget: Budget, client: int) -> None:
    """Make a client ineligible in every round. The numbers of the other clients stay."""
    eligible = budget.eligible

    def others(announcement: Any) -> np.ndarray:
        mask = eligible(announcement).copy()
        mask[client] = False
        return mask

    budget.eligible = others  # type: ignore[method-assign]


def uploaders(loop: Loop) -> list[Any]:
    """Return the objects of a loop whose method ``of`` computes uploads."""
    members = vars(loop.trainer.computation).values()
    return [member for member in members if callable(getattr(member, "of", None))]


def replace_upload(loop: Loop, client: int, craft: Craft) -> None:
    """Replace the upload of one client by what ``craft`` makes, as a malicious client can do.

    Args:
        loop: A loop before its first round, whose objects with a method ``of`` are changed in place.
        client: Number of the client.
        craft: Function that makes the upload.
    """

    def sends(compute: Callable[..., Any], round_index: int, clients: np.ndarray) -> Any:
        batch = compute(round_index, clients)
        # Clients are computed in chunks, and the client is in one of them.
        rows = np.flatnonzero(np.asarray(clients) == client)
        if not len(rows):
            return batch
        uploads = batch.uploads.clone()
        uploads[rows[0]] = craft(batch.uploads, int(rows[0])).to(uploads)
        return replace(batch, uploads=uploads)

    for uploader in uploaders(loop):
        uploader.of = partial(sends, uploader.of)


def move(loop: Loop, client: int, buckets: int) -> None:
    """Put a client ``buckets`` buckets after its own, where sums of buckets are released."""
    computation: Any = loop.trainer.computation
    drawn = computation.buckets_of

    def moved(local_step: Any) -> Tensor:
        places = drawn(local_step)
        is_client = torch.from_numpy(local_step.cohort == client).to(places.device)
        return torch.where(is_client, (places + buckets) % computation.buckets, places)

    computation.buckets_of = moved


def silence(loop: Loop, client: int) -> None:
    """Make a client that takes part contribute zeros to every answer.

    An upload of zeros is not enough: after it is clipped, shifted, scaled or compared with a clip norm, it
    would contribute something. So the cohort is computed without the client, and the denominator stays.
    """
    computation: Any = loop.trainer.computation
    clipped = computation.compute_cohort
    in_rows = loop.parts.algorithm.discrete is not None

    def without(local_step: Any, *more: Any) -> Any:
        denominator = computation.denominator(local_step.cohort)
        computation.denominator = lambda cohort: denominator
        others = local_step.cohort != client
        try:
            result = clipped(replace(local_step, cohort=local_step.cohort[others]), *more)
        finally:
            del computation.denominator
        if in_rows and not others.all():  # the client still adds its share of noise, to zeros
            values = result.answer.values.new_zeros(len(others), result.answer.values.shape[1])
            values[torch.from_numpy(others)] = result.answer.values
            result.answer.values = values
        return result

    computation.compute_cohort = without


def unequal_clients(data: FederatedData, seed: int) -> FederatedData:
    """Return data whose clients have between a quarter and all of their records, in random order."""
    shares = np.linspace(0.25, 1.0, data.client_count)[
        np.random.default_rng([seed, 1]).permutation(data.client_count)
    ]
    clients = [
        indices[: max(1, math.ceil(share * len(indices)))]
        for indices, share in zip(data.clients, shares, strict=True)
    ]
    return replace(data, clients=ClientRecords.of(clients))
