"""The work of a round, once for records and for clients:

    clip → sample → release → optimiser step, as often as there are local steps;   then the server step

What differs is whose units are clipped and who holds the clip norm (:class:`Work`): the records of every
client's lot, or the uploads of a cohort.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.optimizers import Optimizer
from fedpriv.algorithms.problem import Problem
from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.common.errors import ArgumentError, ReleaseError
from fedpriv.engine.parts import layers_of
from fedpriv.engine.saved_state import SavedState
from fedpriv.privacy.clippers.clip import Clip
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    Bounded,
    OpenRound,
    Visible,
)
from fedpriv.privacy.mechanisms.bounded import sum_per_owner


@dataclass(frozen=True)
class Turn:
    """One local step of one round. ``cohort`` [c]: who takes part, ascending."""

    round_index: int
    step: int
    cohort: np.ndarray


@dataclass(frozen=True)
class Clipped:
    """What clipping gives, and exact statistics of it (diagnostics for the analyst).

    Attributes:
        answer: The clipped sum, or mean, of each holder [h, d].
        norms: Of each unit before clipping [n], or of its parts [n, G]; 0 for one that is not finite.
        owners: The position of each unit's holder [n].
        units: The position in the cohort of the client that each norm is of [n].
    """

    answer: Bounded
    norms: Tensor
    owners: Tensor
    units: Tensor
    train_loss: float
    gradient_norm: float
    not_finite: int


class Work(Protocol):
    """What the clients of a round compute, and whose clip norm bounds it.

    Attributes:
        steps: Local steps of a round.
        divides: Whether ``mean`` divides what was released by the denominators.
        has_weight_decay: Whether the gradient of λ/2‖θ‖² joins after the noise (it reads no record).
        proximal: μ of FedProx's μ/2 ‖w - θ‖², whose gradient joins there too.
    """

    steps: int
    divides: bool
    has_weight_decay: bool
    proximal: float

    def holders(self, cohort: np.ndarray) -> Tensor:
        """Who holds the clip norms, and the optimiser's state, of a round [h]."""

    def clipped(self, turn: Turn, changes: Tensor | None, clip: Clip) -> Clipped:
        """The clipped answer at weights + ``changes`` [h, d] (None: at the global weights)."""

    def mean(self, released: Tensor, cohort: np.ndarray) -> tuple[Tensor, Tensor]:
        """(the mean of each holder [h, d] from what was released, the public denominators [h])."""

    def sent(self, turn: Turn, changes: Visible) -> Visible:
        """What reaches the server: the changes, unless attackers send something else."""

    def initial_norm(self) -> float:
        """Mean norm of a unit on random records: no data is read, so it is free."""

    def holder_count(self) -> int:
        """How many there are in all."""


@dataclass
class RoundOutcome:
    """What the loop is told of a round: exact statistics, for the analyst.

    ``healthy``: whether the new global weights are finite, a function of what was released;
    ``clip_norms`` [h], ``norms`` [n], ``units`` [n] (positions in the cohort) are those of the last step;
    ``facts``: further columns of the round's row.
    """

    train_loss: float
    gradient_norm: float
    not_finite: int
    healthy: bool
    clip_norms: np.ndarray
    norms: Tensor
    units: Tensor
    facts: Mapping[str, object] = field(default_factory=dict)

    def gradient_norm_per_client(self, clients: int) -> np.ndarray:
        """Mean gradient norm before clipping of each participant [c]; nan for an empty lot."""
        sums = sum_per_owner(self.norms, self.units, clients)
        counts = sum_per_owner(torch.ones_like(self.norms), self.units, clients)
        return (sums / counts).cpu().numpy()


class Trainer:
    """Runs the rounds of one algorithm on one problem."""

    def __init__(self, problem: Problem, work: Work, optimizer: Optimizer, server: ServerStep):
        self.problem, self.work, self.server = problem, work, server
        self._optimizer = optimizer
        self._beside_weights: dict[str, Any] | None = None
        self._held: SavedState | None = None  # the model as the last round left it
        self._observe_noise = getattr(optimizer, "observe_noise", None)
        try:
            problem.clipper.see_layers(layers_of(problem.model))
        except ArgumentError as error:
            raise error.within("clipper") from None
        problem.clipper.start(work.holder_count(), problem.model.device, work.initial_norm)

    def round(self, opened: OpenRound) -> RoundOutcome:
        """Run one round and move the global weights. Raises ReleaseError before anything is applied."""
        cohort = opened.cohort
        if (attack := self.problem.attack) is not None:
            attack.observe(opened.round_index, self.problem.model.flat.clone())
        holders = self.work.holders(cohort)
        if opened.aborted:
            return self._nothing(opened, holders)
        before, self._held = self._held or self.saved_state(), None
        self._optimizer.begin_round(holders)
        changes: Visible | None = None
        found: list[tuple[Clipped, Clip]] = []
        for step in range(self.work.steps):
            turn = Turn(opened.round_index, step, cohort)
            gradients = self._released(opened, turn, holders, changes, found)
            change = gradients.then(lambda values: self._optimizer.step(holders, values))
            changes = change if changes is None else _added(changes, change)
        opened.refuse_unless_complete()
        self._refuse_changed(before, opened.round_index)
        self.server.apply(cohort, self.work.sent(turn, changes))
        return self._outcome(found, opened)

    def saved_state(self) -> SavedState:
        """Copy what the model may save: its weights as they are, and the rest as it was when the first round
        began; without privacy the rest too as it is, running statistics say."""
        state = SavedState(self.problem.model, self._beside_weights)
        if self.problem.private:
            self._beside_weights = state.beside_weights
        return state

    def hold_state(self) -> None:
        """Copy what the model may save, as a round left it: it must be so until the next server step."""
        self._held = self.saved_state()

    def refuse_changed(self, round_index: int) -> None:
        """Raise ReleaseError if the model is no longer as it was at :meth:`hold_state`."""
        self._refuse_changed(self._held, round_index)

    def _refuse_changed(self, state: SavedState, round_index: int) -> None:
        changed = state.change(weights_alone=not self.problem.private)
        if changed is not None:
            raise ReleaseError(
                f"round {round_index + 1}: {changed} changed outside the server step"
            )

    def _nothing(self, opened: OpenRound, holders: Tensor) -> RoundOutcome:
        """Of a round in which nothing was released: the weights stay."""
        clip, none = Clip(self.problem.clipper, opened.round_index, holders), torch.zeros(0)
        norms = clip.norms.cpu().numpy()
        return RoundOutcome(
            math.nan, math.nan, 0, True, norms, none, none.long(), dict(opened.facts)
        )

    def _released(
        self,
        opened: OpenRound,
        turn: Turn,
        holders: Tensor,
        changes: Visible | None,
        found: list[tuple[Clipped, Clip]],
    ) -> Visible:
        """The noised mean gradient of each holder [h, d]; notes in ``found`` what it was made of."""
        model, clipper = self.problem.model, self.problem.clipper
        clip = Clip(clipper, turn.round_index, holders)
        before = None if changes is None else changes.values
        opened.streams.note("step", clip.rule, before)
        opened.begin_step(model.size)
        clipped = self.work.clipped(turn, before, clip)
        found.append((clipped, clip))
        answers = {GRADIENT: clipped.answer}
        if clipper.asks(turn.round_index):
            answers[CLIP_STATISTIC] = clip.statistic(clipped.norms, clipped.owners)
        visible = opened.release(answers)
        mean, denominators = self.work.mean(visible[GRADIENT].values, turn.cohort)
        mean = clip.restored(mean)
        gradients = visible[GRADIENT].then(lambda _: mean)
        if self._observe_noise is not None or clipper.transforms:
            noise = self._noise(opened, clip, denominators)
            if self._observe_noise is not None:
                self._observe_noise(noise)
            if clipper.transforms:
                clipper.observe_restored(holders, gradients, noise)
        clipper.observe(holders, visible.get(CLIP_STATISTIC), gradients, denominators)
        if model.weight_decay and self.work.has_weight_decay:
            weights = model.flat if changes is None else model.flat + changes.values
            mean.add_(weights, alpha=model.weight_decay)
        if changes is not None and self.work.proximal:
            mean.add_(changes.values, alpha=self.work.proximal)
        return gradients

    def _noise(self, opened: OpenRound, clip: Clip, denominators: Tensor) -> Tensor:
        """The standard deviation of the noise in the means of the last release [h, 1] or [h, d]: public."""
        std = opened.noise_std(GRADIENT)
        noise = denominators.new_tensor([0.0] if std is None else std)
        if self.work.divides:
            noise = noise / denominators
        return clip.restored_noise(noise[:, None])

    def _outcome(self, found: list[tuple[Clipped, Clip]], opened: OpenRound) -> RoundOutcome:
        last, clip = found[-1]
        return RoundOutcome(
            train_loss=last.train_loss,
            gradient_norm=last.gradient_norm,
            not_finite=sum(clipped.not_finite for clipped, _ in found),
            healthy=bool(self.problem.model.flat.isfinite().all()),
            clip_norms=clip.norms.cpu().numpy(),
            norms=whole_norms(last.norms),
            units=last.units,
            facts=dict(opened.facts),
        )

    def state_dict(self) -> dict[str, Any]:
        state = {
            "weights": self.problem.model.flat.clone(),
            "optimizer": self._optimizer.state_dict(),
            "clipper": self.problem.clipper.state_dict(),
        }
        server = self.server.state_dict()
        return {**state, "server": server} if server else state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.problem.model.set(state["weights"])
        self._held = None
        self._optimizer.load_state_dict(state["optimizer"])
        self.problem.clipper.load_state_dict(state["clipper"])
        self.server.load_state_dict(state.get("server", {}))


def _added(changes: Visible, change: Visible) -> Visible:
    """Their sum, in place; both of one kind, for they are of one round."""
    changes.values.add_(change.values)
    return changes
