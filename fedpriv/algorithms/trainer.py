"""One round of training, the same for all algorithms.

    for each local step:   fix clip norms → clients draw lots, clip, sum → release → optimiser
    then:                  the server step

Algorithms differ in the units that are clipped: the records of every client's lot, or the uploads of a
cohort. They also differ in who holds the clip norm and the optimiser. Both differences are in
:mod:`fedpriv.algorithms.client_computation`. At client level there is one local step here: the training of a
client on its own data is part of its upload (:mod:`fedpriv.algorithms.uploads`).
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.client_computation import ClientComputation, CohortAnswer, LocalStep
from fedpriv.algorithms.optimizers import Optimizer
from fedpriv.algorithms.public_root import PublicRoot
from fedpriv.algorithms.run_context import RunContext
from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.common.base_classes import fact
from fedpriv.common.errors import ArgumentError, ReleaseError
from fedpriv.engine.parts import layers_of
from fedpriv.privacy.clippers.parts import whole_norms
from fedpriv.privacy.clippers.step_clip import StepClip
from fedpriv.privacy.mechanisms import CLIP_STATISTIC, GRADIENT, OpenRound, Visible
from fedpriv.privacy.mechanisms.bounded import sum_per_owner


@dataclass
class RoundOutcome:
    """Exact statistics of a round, for the analyst alone: no part of training reads them.

    A unit is a record or, at client level, the upload of a client.

    Attributes:
        train_loss: Mean loss of the records of the last local step.
        gradient_norm: Mean norm of the units of the last local step, before clipping.
        not_finite: Number of units that were not finite, in all local steps.
        healthy: Whether the new global weights are finite; a function of what was released.
        clip_norms: Clip norm of each holder in the last local step [h].
        norms: Norm of each unit of the last local step, before clipping [n].
        units: Position in the cohort of the client that each unit belongs to [n].
        facts: Further columns of the round's row in ``metrics.csv``.
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
        """Return each participant's mean gradient norm before clipping [c]; nan for an empty lot.

        Args:
            clients: Number of participants c.
        """
        sums = sum_per_owner(self.norms, self.units, clients)
        counts = sum_per_owner(torch.ones_like(self.norms), self.units, clients)
        return (sums / counts).cpu().numpy()


class Trainer:
    """The rounds of one algorithm on one federation.

    The trainer is the only place where the global weights move. Everything that decides how they move has
    been released before: the clients' answers reach the optimiser, the clipper and the server step only
    through :meth:`fedpriv.privacy.mechanisms.OpenRound.release`.

    Making a trainer hands the aggregation rule, if there is one, to the server step. It also prepares the
    clipper, which gets the model's layers and makes its first clip norms.

    Args:
        context: Data, model, engine, clipper and secret streams of the run.
        computation: The clients' part of a local step.
        optimizer: The optimiser of the holders of a clip norm: each client, or the server.
        server: The step that moves the global weights.

    Attributes:
        context: As given.
        computation: As given.
        server: As given.

    Raises:
        ArgumentError: The clipper names layers that the model does not have.
    """

    def __init__(
        self,
        context: RunContext,
        computation: ClientComputation,
        optimizer: Optimizer,
        server: ServerStep,
    ):
        self.context, self.computation, self.server = context, computation, server
        self._optimizer = optimizer
        self._initial_state = copy.deepcopy(context.model.module.state_dict())
        self._observe_noise = getattr(optimizer, "observe_noise", None)
        if context.rule is not None:
            server.rule = context.rule
            if context.rule.settings.reads_validation:
                context.rule.rule.trust(PublicRoot(context, computation))
        try:
            context.clipper.see_layers(layers_of(context.model))
        except ArgumentError as error:
            raise error.within("clipper") from None
        context.clipper.start(
            computation.holder_count(), context.model.device, computation.initial_norm
        )

    @fact
    def optimizer(self) -> Optimizer:
        """The optimiser of each holder of a clip norm."""
        return self._optimizer

    def round(self, opened: OpenRound) -> RoundOutcome:
        """Run one round and move the global weights.

        Args:
            opened: The round as the mechanism announced it, with its cohort.

        Returns:
            Statistics of the round.

        Raises:
            ReleaseError: Something else was released than announced (before the weights move), or the model
                changed outside the server step. Nothing of the round is charged or saved.
        """
        computation, model = self.computation, self.context.model
        t, cohort = opened.round_index, opened.cohort
        if (attack := self.context.attack) is not None:
            attack.observe(t, model.flat.clone())
        if (rule := self.context.rule) is not None:
            rule.begin(t)
        holders = computation.holders(cohort)
        if opened.aborted:
            return self._aborted(opened, holders)

        # The local steps. The global weights stay as they are: ``changes`` is what would be added to them.
        weights_before = model.flat.clone()
        self._optimizer.begin_round(holders)
        changes: Visible | None = None  # [h, d]
        not_finite = 0
        for step in range(computation.steps):
            local_step = LocalStep(t, step, cohort)
            clip = StepClip(self.context.clipper, t, holders)
            so_far = None if changes is None else changes.values
            computed, change = self._local_step(opened, local_step, clip, holders, so_far)
            if changes is None:
                changes = change
            else:
                changes.values.add_(change.values)
            not_finite += computed.not_finite
        opened.refuse_unless_complete()
        # Clients that train in place start from what others before them computed.
        if not (torch.equal(model.flat, weights_before) and model.is_flat()):
            raise ReleaseError(
                f"round {t + 1}: the global weights were changed outside the server step; train on a copy of "
                "the weights that are handed out"
            )

        # The server step.
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
            # quicker than to look at each weight: nan is the least and the largest of all
            healthy=bool(torch.stack(model.flat.aminmax()).isfinite().all()),
            clip_norms=clip.norms.cpu().numpy(),
            norms=whole_norms(computed.norms),
            units=computed.units,
            facts=dict(opened.facts),
        )

    def _local_step(
        self,
        opened: OpenRound,
        local_step: LocalStep,
        clip: StepClip,
        holders: Tensor,
        so_far: Tensor | None,
    ) -> tuple[CohortAnswer, Visible]:
        """Run one local step of a round.

        Args:
            opened: The round.
            local_step: The step and its cohort.
            clip: The clip norms of the step.
            holders: Clients, or the server, to whom the clip norms and the optimiser's state belong [h].
            so_far: What earlier local steps of the round add to the global weights [h, d]; None: nothing.

        Returns:
            (what the cohort computed, the change of weights [h, d] that follows from what was released).
        """
        computation, model, clipper = self.computation, self.context.model, self.context.clipper
        t, cohort = local_step.round_index, local_step.cohort

        # 1. The clients compute, in chunks; the noise is drawn meanwhile.
        opened.begin_step(computation.numbers_released)
        computed = computation.compute_cohort(local_step, so_far, clip)

        # 2. Release: noise is added and the release recorded in one call.
        answers = {GRADIENT: computed.answer}
        if clipper.asks(t):
            answers[CLIP_STATISTIC] = clip.statistic(computed.norms, computed.owners)
        released = opened.release(answers)

        # 3. Mean: divide by the public denominator. From here on everything is post-processing. Where a
        #    rule combines uploads, or means of buckets, the mean is the rule's [1, d].
        mean, denominators = computation.mean(released[GRADIENT].values, cohort)
        gradients = released[GRADIENT].like(mean)
        if computation.combines:
            gradients = computation.received(local_step, gradients)
            gradients = gradients.like(self.server.average(cohort, gradients)[None])
        if self._observe_noise is not None:
            std = opened.noise_std(GRADIENT)  # public: noise multiplier × clip norm
            noise = denominators.new_tensor([0.0] if std is None else std)
            noise = noise / denominators if computation.divides else noise
            self._observe_noise(noise[:, None])
        clipper.observe(holders, released.get(CLIP_STATISTIC), gradients, denominators)

        # 4. Weight decay and the proximal term read no record: they are added after the noise.
        if model.weight_decay and computation.has_weight_decay:
            weights = model.flat if so_far is None else model.flat + so_far
            gradients.values.add_(weights, alpha=model.weight_decay)
        if so_far is not None and computation.proximal:
            gradients.values.add_(so_far, alpha=computation.proximal)

        # 5. The optimiser of each holder turns its mean gradient into a change of weights.
        return computed, gradients.then(partial(self._optimizer.step, holders))

    def _aborted(self, opened: OpenRound, holders: Tensor) -> RoundOutcome:
        """Return the outcome of a round in which nothing was released: the weights stay."""
        clip, empty = StepClip(self.context.clipper, opened.round_index, holders), torch.zeros(0)
        norms = clip.norms.cpu().numpy()
        return RoundOutcome(
            math.nan, math.nan, 0, True, norms, empty, empty.long(), dict(opened.facts)
        )

    def model_state(self) -> dict[str, object]:
        """Return the state dict that ``model.pt`` holds, with the present weights of the model.

        What a module saves beside these (frozen parameters, buffers, extra state) may follow from private
        records, and no noise protects it. So in a private run it is as it was before the first round.
        """
        module, trained = self.context.model.module, self.context.model.columns
        named = module.named_parameters(remove_duplicate=False)
        weights = {name: p for name, p in named if p in trained}
        state = self._initial_state if self.context.private else module.state_dict()
        return {
            name: weights[name].detach().clone() if name in weights else value
            for name, value in state.items()
        }

    # ---- checkpoints

    def state_dict(self) -> dict[str, object]:
        """Return what the next round needs: weights, and the state of optimiser, clipper, server and rule."""
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
        """Restore what :meth:`state_dict` returned."""
        saved: Mapping[str, Any] = state
        self.context.model.set(saved["weights"])
        self._optimizer.load_state_dict(saved["optimizer"])
        self.context.clipper.load_state_dict(saved["clipper"])
        self.server.load_state_dict(saved.get("server", {}))
        if (rule := self.context.rule) is not None:
            rule.load_state_dict(saved["rule"])
