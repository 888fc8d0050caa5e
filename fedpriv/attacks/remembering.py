"""Attackers that remember what they saw: Neurotoxin's and A3FL's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar, Protocol

import numpy as np
import torch
from torch import Tensor

from fedpriv.algorithms.run_context import RunContext
from fedpriv.attacks.malicious import BackdoorSettings, MaliciousClients
from fedpriv.common.random_streams import numpy_stream

if TYPE_CHECKING:
    from fedpriv.attacks.image_triggers import PixelPattern
    from fedpriv.data.federated import FederatedData

_MOST_RECORDS = 512  # records of all attackers on which a trigger is optimised


class NeurotoxinSettings(BackdoorSettings, Protocol):
    """The settings that these attackers read; :class:`fedpriv.attacks.Neurotoxin` has them."""

    mask_ratio: float


class StayingAside(MaliciousClients):
    """Attackers that train on the coordinates which the last global update moved least (Neurotoxin)."""

    settings: NeurotoxinSettings
    _last: Tensor | None = None  # the global weights of the last round [d]
    _free: Tensor | None = None  # mask of the coordinates that attackers may move [d]

    def observe(self, round_index: int, weights: Tensor) -> None:
        if self._last is not None:
            moved = (weights - self._last).abs()
            count = max(1, int(self.settings.mask_ratio * len(moved)))
            # A stable order, so that ties fall alike everywhere.
            least = moved.argsort(stable=True)[:count]
            self._free = torch.zeros_like(moved, dtype=torch.bool).index_fill_(0, least, True)
        self._last = weights

    def constrain(self, round_index: int, clients: np.ndarray, changes: Tensor) -> Tensor:
        return changes if self._free is None else changes * self._free

    def state_dict(self) -> dict[str, object]:
        return {"last": self._last, "free": self._free}

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        for name in ("last", "free"):
            value = state[name]
            assert value is None or isinstance(value, Tensor)
            setattr(self, f"_{name}", value)


class A3flSettings(BackdoorSettings, Protocol):
    """The settings that these attackers read; :class:`fedpriv.attacks.A3fl` has them."""

    trigger: PixelPattern
    trigger_epochs: int
    trigger_rate: float
    balance: float


class OptimisedTrigger(MaliciousClients):
    """Attackers that optimise the pixels of their trigger against the global model (A3FL).

    The pixels are written into the attackers' poisoned records and into the test records.

    Attributes:
        pattern: The pixels of the trigger [c, size, size].
    """

    settings: A3flSettings
    saved_attributes: ClassVar[Mapping[str, str]] = {"pattern": "pattern"}

    def __init__(self, settings: A3flSettings, data: FederatedData):
        super().__init__(settings, data)
        self.pattern = settings.trigger.square(self.test.inputs)[0].clone()
        images = data.test.inputs
        self._bounds = float(images.min()), float(images.max())
        clean = [self.data.clients[k] for k in self.attackers]
        self._own = np.concatenate(clean) if clean else np.zeros(0, dtype=np.int64)

    def join(self, context: RunContext) -> None:
        super().join(context)
        self._model = context.model

    def observe(self, round_index: int, weights: Tensor) -> None:
        if not self.settings.attacks_in(round_index) or not len(self._own):
            return
        settings, trigger = self.settings, self.settings.trigger
        stream = numpy_stream(settings.seed, "attack_trigger", round_index)
        records = self.data.train.subset(np.sort(stream.permutation(self._own)[:_MOST_RECORDS]))
        wanted = torch.full_like(records.targets, trigger.target)
        loss = self._model.loss
        global_model, _ = self._model.copied(weights)
        unlearning, parameters = self._model.copied(weights)
        inputs = records.inputs.clone()
        square, pattern = trigger.square(inputs), self.pattern.clone()
        for _ in range(settings.trigger_epochs):
            square.copy_(pattern.expand_as(square))
            with torch.enable_grad():
                total = loss(unlearning(inputs), records.targets).mean()
                gradients = torch.autograd.grad(total, parameters, allow_unused=True)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, gradients, strict=True):
                    if gradient is not None:
                        parameter.sub_(gradient, alpha=settings.learning_rate)
            with torch.enable_grad():
                stamped = inputs.detach().requires_grad_()
                total = loss(global_model(stamped), wanted).mean()
                total = total + settings.balance * loss(unlearning(stamped), wanted).mean()
                (slopes,) = torch.autograd.grad(total, [stamped])
            # A pixel of the pattern is in every image, so its slope is the sum of theirs.
            step = trigger.square(slopes).sum(0).nan_to_num().sign()
            pattern = (pattern - settings.trigger_rate * step).clamp(*self._bounds)
        self.pattern = pattern
        self._write_pattern()

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        super().load_state_dict(state)
        self._write_pattern()

    def _write_pattern(self) -> None:
        """Write the pixels into the poisoned records and the test records."""
        square = self.settings.trigger.square
        poisoned = [rows for rows in self._poisoned.values() if len(rows)]
        if poisoned:
            first = int(poisoned[0][0])  # the poisoned records lie behind all others
            square(self.data.train.inputs[first:]).copy_(self.pattern)
        square(self.test.inputs).copy_(self.pattern)
