"""What is made other than in the reference run: the data or the upload of one unit, or who takes part."""

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

from fedpriv.data.federated import FederatedData
from fedpriv.experiment.loop import Loop
from fedpriv.privacy.budget import Budget

Craft = Callable[[Tensor, int], Tensor]
"""(the uploads of some clients [c, d], the row of one of them) → what that one sends instead [d]."""


@dataclass(frozen=True)
class Variation:
    """What is other than in the reference run.

    Attributes:
        name: In words.
        data: The training data, of the same clients; None: the same.
        within: The same, written into the data for a while instead of into a copy of them.
        absent: A client that is never sampled; None: nobody.
        upload: (client, what it sends instead).
        silent: A client that takes part and contributes zeros to every answer; None: nobody.
        nobody: Whether no client takes part in any round.
    """

    name: str
    data: Callable[[FederatedData], FederatedData] | None = None
    within: Callable[[FederatedData], AbstractContextManager[None]] | None = None
    absent: int | None = None
    upload: tuple[int, Craft] | None = None
    nobody: bool = False
    silent: int | None = None


AS_IT_IS = Variation("as it is")


def follow(loop: Loop, round_numbers: Sequence[int]) -> None:
    """Let a loop run these rounds, t = 0 first, each at the state that those before it left."""
    announce, left = loop._announce, iter(round_numbers)

    def announced() -> Any:
        loop.rounds_done = next(left, loop.rounds_done)
        return announce()

    loop._announce = announced  # type: ignore[method-assign]


def leave_out(budget: Budget, client: int) -> None:
    """Let a client never be sampled, as if it were not there; the places of the others stay."""
    eligible = budget.eligible

    def others(announcement: Any) -> np.ndarray:
        found = eligible(announcement).copy()
        found[client] = False
        return found

    budget.eligible = others  # type: ignore[method-assign]


def uploaders(loop: Loop) -> list[Any]:
    """Return the objects of a loop that compute uploads before the server has them, by ``of``."""
    computation = vars(loop.trainer.computation).values()
    return [computes for computes in computation if callable(getattr(computes, "of", None))]


def replace_upload(loop: Loop, client: int, craft: Craft) -> None:
    """Let one client send something else than what it computed: what a malicious one can do."""

    def sends(compute: Callable[..., Any], round_index: int, clients: np.ndarray) -> Any:
        batch = compute(round_index, clients)
        rows = np.flatnonzero(np.asarray(clients) == client)
        if not len(rows):
            return batch
        uploads = batch.uploads.clone()
        uploads[rows[0]] = craft(batch.uploads, int(rows[0])).to(uploads)
        return replace(batch, uploads=uploads)

    for computes in uploaders(loop):
        computes.of = partial(sends, computes.of)


def silence(loop: Loop, client: int) -> None:
    """Let a client that is seen to take part contribute nothing: zeros clipped, shifted, scaled or compared
    with a clip norm would be something."""
    computation: Any = loop.trainer.computation
    clipped = computation.compute_cohort
    in_rows = loop.parts.algorithm.discrete is not None

    def without(local_step: Any, *more: Any) -> Any:
        of_all = computation.denominator(local_step.cohort)
        computation.denominator = lambda cohort: of_all
        others = local_step.cohort != client
        try:
            found = clipped(replace(local_step, cohort=local_step.cohort[others]), *more)
        finally:
            del computation.denominator
        if in_rows and not others.all():  # the client still adds a share of noise, to zeros
            values = found.answer.values.new_zeros(len(others), found.answer.values.shape[1])
            values[torch.from_numpy(others)] = found.answer.values
            found.answer.values = values
        return found

    computation.compute_cohort = without


def unequal_clients(data: FederatedData, seed: int) -> FederatedData:
    """Return data whose clients keep between a quarter and all of their records, in random order."""
    shares = np.linspace(0.25, 1.0, data.client_count)[
        np.random.default_rng([seed, 1]).permutation(data.client_count)
    ]
    kept = [
        own[: max(1, math.ceil(share * len(own)))]
        for own, share in zip(data.clients, shares, strict=True)
    ]
    return replace(data, clients=kept)
