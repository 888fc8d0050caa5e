"""One round, the same for all algorithms:

    for each local step:   fix clip norms → clients draw lots, clip, sum → release → optimiser
    then:                  the server step

Algorithms differ in the units that are clipped (the records of every client's lot, or the uploads of a
cohort) and in who holds the clip norm (:mod:`fedpriv.algorithms.client_computation`). At client level there
is one local step here; the training of a client on its own data is part of its upload
(:mod:`fedpriv.algorithms.uploads`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.client_computation import ClientComputation, LocalStep
from fedpriv.algorithms.optimizers import Optimizer
from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ArgumentError, ReleaseError
from fedpriv.engine.parts import layers_of
from fedpriv.engine.saved_state import SavedState
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT, OpenRound, Visible
from fedpriv.privacy.mechanisms.bounded import sum_per_owner


@dataclass
class RoundOutcome:
    """Exact statistics of a round, for the analyst.

    Attributes:
        train_loss: Mean loss of the records of the last local step.
        gradient_norm: Mean norm of the units of the last local step, before clipping.
        not_finite: Units that were not finite, in all local steps.
        healthy: Whether the new global weights are finite; a function of what was released.
        clip_norms: Clip norm of each holder in the last local step [h].
        norms: Norm of each unit of the last local step, before clipping [n].
        units: Position in the cohort of the client that each norm is of [n].
        facts: Further columns of the round's row.
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
    """The rounds of one algorithm."""

    def __init__(
        self,
        context: RunContext,
        computation: ClientComputation,
        optimizer: Optimizer,
        server: ServerStep,
    ):
        self.context, self.computation, self.server = context, computation, server
        self._optimizer = optimizer
        self._beside_weights: dict[str, Any] | None = None
        self._held: SavedState | None = None  # the model as the last round left it
        self._observe_noise = getattr(optimizer, "observe_noise", None)
        if context.rule is not None:
            server.rule = context.rule
        try:
            context.clipper.see_layers(layers_of(context.model))
        except ArgumentError as error:
            raise error.within("clipper") from None
        context.clipper.start(
            computation.holder_count(), context.model.device, computation.initial_norm
        )

    @fact
    def optimizer(self) -> Optimizer:
        """The optimiser of whoever holds a clip norm."""
        return self._optimizer

    def round(self, opened: OpenRound) -> RoundOutcome:
        """Run one round and move the global weights.

        Raises:
            ReleaseError: Something else was released than announced (before the weights move), or the model
                changed outside the server step. Nothing of the round is charged or saved.
        """
        computation, clipper, model = self.computation, self.context.clipper, self.context.model
        t, cohort = opened.round_index, opened.cohort
        if (attack := self.context.attack) is not None:
            attack.observe(t, model.flat.clone())
        if (rule := self.context.rule) is not None:
            rule.begin(t)
        holders = computation.holders(cohort)
        if opened.aborted:
            return self._nothing(opened, holders)
        before, self._held = self._held or self.saved_state(), None
        self._optimizer.begin_round(holders)
        changes: Visible | None = None  # what the local steps so far add to the weights [h, d]
        not_finite = 0
        for step in range(computation.steps):
            so_far = None if changes is None else changes.values
            local_step, clip = LocalStep(t, step, cohort), StepClip(clipper, t, holders)
            # public; with parts of the user's own the streams that follow depend on it
            opened.streams.bind("step", (clip.limits, *(clip.transform or ())), so_far)
            opened.begin_step(model.size)  # noise is drawn while the clients compute
            computed = computation.compute_cohort(
                local_step, so_far, clip
            )  # the clients, in chunks
            answers = {GRADIENT: computed.answer}
            if clipper.asks(t):
                answers[CLIP_STATISTIC] = clip.statistic(computed.norms, computed.owners)
            released = opened.release(answers)  # noise and record, in one step
            mean, denominators = self._mean(released[GRADIENT], clip, cohort)
            self._observe(opened, clip, holders, released, mean, denominators)
            self._add_penalties(mean.values, so_far)
            change = mean.then(partial(self._optimizer.step, holders))
            if changes is None:
                changes = change
            else:
                changes.values.add_(change.values)
            not_finite += computed.not_finite
        opened.refuse_unless_complete()
        self._refuse_changed(before, t)
        assert changes is not None  # there is at least one local step
        self.server.apply(cohort, computation.sent(local_step, changes))
        if rule is not None and not rule.used:
            raise ReleaseError(
                f"round {t + 1}: {type(self.server).__name__}.apply did not call average, so that "
                "aggregation changed nothing; nothing of this round was saved"
            )
        return RoundOutcome(
            train_loss=computed.train_loss,
            gradient_norm=computed.gradient_norm,
            not_finite=not_finite,
            healthy=bool(model.flat.isfinite().all()),
            clip_norms=clip.norms.cpu().numpy(),
            norms=whole_norms(computed.norms),
            units=computed.units,
            facts=dict(opened.facts),
        )

    def _mean(
        self, released: Visible, clip: StepClip, cohort: np.ndarray
    ) -> tuple[Visible, Tensor]:
        """Return the noised mean gradient of each holder [h, d], and the public denominators [h].

        Where a rule combines uploads before the server's optimiser, the mean is the rule's [1, d].
        """
        mean, denominators = self.computation.mean(released.values, cohort)
        gradients = released.like(clip.restored(mean))
        if self.computation.combines:
            gradients = released.like(self.server.average(cohort, gradients)[None])
        return gradients, denominators

    def _observe(
        self,
        opened: OpenRound,
        clip: StepClip,
        holders: Tensor,
        released: Mapping[str, Visible],
        gradients: Visible,
        denominators: Tensor,
    ) -> None:
        """Let the clipper, and an optimiser that corrects for noise, see what was released."""
        clipper = self.context.clipper
        if self._observe_noise is not None or clipper.transforms:
            std = opened.noise_std(GRADIENT)  # public: noise multiplier × clip norm
            noise = denominators.new_tensor([0.0] if std is None else std)
            noise = noise / denominators if self.computation.divides else noise
            noise = clip.restored_noise(noise[:, None])
            if self._observe_noise is not None:
                self._observe_noise(noise)
            if clipper.transforms:
                clipper.observe_restored(holders, gradients, noise)
        clipper.observe(holders, released.get(CLIP_STATISTIC), gradients, denominators)

    def _add_penalties(self, mean: Tensor, so_far: Tensor | None) -> None:
        """Add the gradients of weight decay and of the proximal term, which read no record, in place."""
        model, computation = self.context.model, self.computation
        if model.weight_decay and computation.has_weight_decay:
            weights = model.flat if so_far is None else model.flat + so_far
            mean.add_(weights, alpha=model.weight_decay)
        if so_far is not None and computation.proximal:
            mean.add_(so_far, alpha=computation.proximal)

    def saved_state(self) -> SavedState:
        """Copy what the model may save: its weights as they are, and the rest as it was when the first round
        began; without privacy the rest too as it is, running statistics say."""
        state = SavedState(self.context.model, self._beside_weights)
        if self.context.private:
            self._beside_weights = state.beside_weights
        return state

    def hold_state(self) -> None:
        """Copy what the model may save, as a round left it: it must be so until the next server step."""
        self._held = self.saved_state()

    def refuse_changed(self, round_index: int) -> None:
        """Raise ReleaseError if the model is no longer as it was at :meth:`hold_state`."""
        assert self._held is not None
        self._refuse_changed(self._held, round_index)

    def _refuse_changed(self, state: SavedState, round_index: int) -> None:
        changed = state.change(weights_alone=not self.context.private)
        if changed is not None:
            raise ReleaseError(
                f"round {round_index + 1}: {changed} changed outside the server step"
            )

    def _nothing(self, opened: OpenRound, holders: Tensor) -> RoundOutcome:
        """Of a round in which nothing was released: the weights stay."""
        clip, none = StepClip(self.context.clipper, opened.round_index, holders), torch.zeros(0)
        norms = clip.norms.cpu().numpy()
        return RoundOutcome(
            math.nan, math.nan, 0, True, norms, none, none.long(), dict(opened.facts)
        )

    def state_dict(self) -> dict[str, object]:
        state = {
            "weights": self.context.model.flat.clone(),
            "optimizer": self._optimizer.state_dict(),
            "clipper": self.context.clipper.state_dict(),
        }
        if server := self.server.state_dict():
            state["server"] = server
        if (rule := self.context.rule) is not None:
            state["rule"] = rule.state_dict()
        return state

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        saved: Mapping[str, Any] = state
        self.context.model.set(saved["weights"])
        self._held = None
        self._optimizer.load_state_dict(saved["optimizer"])
        self.context.clipper.load_state_dict(saved["clipper"])
        self.server.load_state_dict(saved.get("server", {}))
        if (rule := self.context.rule) is not None:
            rule.load_state_dict(saved["rule"])
