"""A model whose trained parameters are views into one flat vector, the form in which weights travel.

Frozen parameters (``requires_grad`` is False) stay outside the vector: nothing clips, noises, sends or moves
them.

Training minimises

    F(θ) = mean of ℓ(f(x; θ), y) + λ/2 ‖θ‖²

A module may bring ℓ (``record_loss``; default: cross entropy) and λ (``weight_decay``; default: 0). The
second term reads no record, so its gradient λθ is added outside clipping and noise. A module may also bring
the answers that accuracy counts (``record_correct``; default: one answer for each record).
"""

from __future__ import annotations

import copy
import hashlib
import math
import pickle
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import nn
from torch.nn import functional

from fedpriv.common.errors import ConfigError
from fedpriv.models.text_networks import LanguageModel

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
"""(outputs [n, …], targets [n, …]) → loss of each record [n]."""


def cross_entropy(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return the cross entropy of each record [n], for outputs [n, classes] and targets [n].

    For outputs [n, L, tokens] of a language model it is the mean over the next tokens.
    """
    if outputs.dim() == 3:
        return LanguageModel.record_loss(outputs, targets)
    return functional.cross_entropy(outputs, targets, reduction="none")


Correct = Callable[[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]
"""(outputs [n, …], targets [n, …]) → (right answers of each record [n], answers that count [n])."""


def one_answer(outputs: torch.Tensor, targets: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Count one answer for each record.

    The predicted class is that of the largest output; with one output, a score, it is 1 where score > 0. For
    outputs [n, L, tokens] of a language model each known next token counts.

    Args:
        outputs: Outputs [n, classes] or scores [n, 1].
        targets: Classes [n].

    Returns:
        (mask of the right answers [n], ones [n]).
    """
    if outputs.dim() == 3:
        return LanguageModel.record_correct(outputs, targets)
    predicted = outputs.squeeze(1) > 0 if outputs.shape[1] == 1 else outputs.argmax(1)
    right = predicted == targets
    return right, torch.ones_like(right)


def channels_last(inputs: torch.Tensor) -> torch.Tensor:
    """Lay out images [n, c, h, w] with the channels innermost; return other inputs as they are.

    Convolutions and pools are two to three times faster on the CPU in this layout. A tensor that has the
    layout already is not copied.
    """
    return inputs.to(memory_format=torch.channels_last) if inputs.dim() == 4 else inputs


def flat_gradient(
    parameters: Sequence[nn.Parameter], gradients: Mapping[nn.Parameter, torch.Tensor | None]
) -> torch.Tensor:
    """Return the gradients of parameters as one vector [d], with zeros where there is no gradient."""
    pairs = zip(parameters, map(gradients.get, parameters), strict=True)
    return torch.cat([(torch.zeros_like(p) if g is None else g).reshape(-1) for p, g in pairs])


class FlatModel:
    """A module whose trained parameters all lie in one vector.

    Args:
        module: The model. Its trained parameters are moved into the vector, in the order of
            ``module.parameters()``; they stay ordinary parameters of the module. A module belongs to
            one FlatModel: wrapping it again takes its parameters out of the first vector.
            The module may have ``record_loss(outputs, targets)`` → [n], ``weight_decay``,
            ``record_correct(outputs, targets)`` → (right answers [n], answers that count [n]), and
            ``values_per_record``: about how many numbers a pass over a record holds, to bound memory.

    Attributes:
        module: The wrapped module.
        flat: The parameters θ [d]. Writing into the vector (``flat.add_(…)``) changes the model.
        size: Number of trained parameters d.
        columns: Place of each trained parameter in ``flat``.
        device: Device of the parameters.
        loss: (outputs, targets) → loss ℓ of each record [n].
        correct: (outputs, targets) → (right answers [n], answers that count [n]) of each record.
        weight_decay: λ ≥ 0, over the parameters θ.

    Raises:
        ConfigError: The trained parameters differ in dtype or device, or there are none.
        ValueError: ``weight_decay`` is negative or not finite.

    Example:
        >>> model = FlatModel(nn.Linear(3, 2))
        >>> model.size
        8
        >>> model.set(torch.zeros(8))
        >>> model.module.weight.abs().sum().item()
        0.0
    """

    def __init__(self, module: nn.Module):
        self.module = module
        self.loss: Loss = getattr(module, "record_loss", cross_entropy)
        self.correct: Correct = getattr(module, "record_correct", one_answer)
        self.weight_decay = float(getattr(module, "weight_decay", 0.0))
        if not 0 <= self.weight_decay < math.inf:
            raise ValueError(f"weight_decay must be >= 0 and finite, got {self.weight_decay}")
        self._images = any(isinstance(layer, nn.Conv2d) for layer in module.modules())
        self._flatten()

    def __setstate__(self, state: dict[str, object]) -> None:
        # A copy, or what comes out of a pickle, has parameters with memory of their own.
        vars(self).update(state)
        if not self.is_flat():
            self._flatten()

    @property
    def digest(self) -> str:
        """SHA-256 of the present weights, with the names and shapes of all parameters and buffers."""
        digest = hashlib.sha256()
        for name, values in self.module.state_dict().items():
            if not isinstance(values, torch.Tensor):  # extra state of a layer
                digest.update(f"{name} ".encode() + pickle.dumps(values))
                continue
            digest.update(f"{name} {values.dtype} {tuple(values.shape)}\n".encode())
            values = values.detach().cpu().contiguous()
            digest.update(values.view(-1).view(torch.uint8).numpy().data)
        return digest.hexdigest()

    def parameters(self) -> list[nn.Parameter]:
        """Return the trained parameters in their order in ``flat``."""
        return list(self.columns)

    def is_flat(self) -> bool:
        """Return whether every trained parameter still lies at its place in ``flat``."""
        first, width = self.flat.data_ptr(), self.flat.element_size()
        places = self.columns.items()
        return all(p.data_ptr() == first + place.start * width for p, place in places if p.numel())

    def with_frozen(self, weights: torch.Tensor) -> torch.Tensor:
        """Return weights [d] with the frozen parameters in their places, a vector of its own."""
        places = ((p, self.columns.get(p)) for p in self.module.parameters())
        return torch.cat(
            [p.detach().reshape(-1) if at is None else weights[at] for p, at in places]
        )

    def without_frozen(self, weights: torch.Tensor) -> torch.Tensor:
        """Return the weights [d] of which :meth:`with_frozen` made a longer vector."""
        parameters = list(self.module.parameters())
        parts = zip(weights.split([p.numel() for p in parameters]), parameters, strict=True)
        return torch.cat([part for part, p in parts if p in self.columns])

    def set(self, flat: torch.Tensor) -> None:
        """Copy the weights [d] into the model."""
        self.flat.copy_(flat)

    def to(self, device: str | torch.device) -> FlatModel:
        """Move the model and return it; ``flat`` becomes a new tensor unless the model is there already."""
        if torch.device(device) != self.device:
            self.module.to(device)
            self._flatten()
        return self

    def __call__(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the outputs for inputs [n, …]."""
        return self.module(self._laid_out(inputs))

    def _laid_out(self, inputs: torch.Tensor) -> torch.Tensor:
        return channels_last(inputs) if self._images else inputs

    def copied(self, weights: torch.Tensor | None = None) -> tuple[nn.Module, list[nn.Parameter]]:
        """Copy the module with all its state.

        Args:
            weights: Weights of the copy [d]; None: those of the model.

        Returns:
            (the copy, its parameters in their order in ``flat``). Nothing that the copy does to its
            parameters, or to objects that hang on it, reaches the module.

        Raises:
            ConfigError: The module cannot be copied.
        """
        values = (self.flat if weights is None else weights).detach().clone()
        parameters = [
            nn.Parameter(values[place].view(p.shape), requires_grad=p.requires_grad)
            for p, place in self.columns.items()
        ]
        # deepcopy takes these for copies that it has made already
        memo = {id(p): copied for p, copied in zip(self.columns, parameters, strict=True)}
        try:
            return copy.deepcopy(self.module, memo), parameters
        except (RuntimeError, TypeError, NotImplementedError) as error:
            first = str(error).splitlines()[0]
            raise ConfigError(
                f"this model cannot be copied ({first}); keep what is computed from records out of its "
                "attributes"
            ) from error

    @torch.no_grad()
    def record_losses(self, inputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Compute the loss of each record [n]."""
        return self.loss(self(inputs), targets)

    def penalty(self, weights: torch.Tensor) -> torch.Tensor:
        """Return λ/2 ‖θ‖², a number for weights [d] or one for each row of weights [c, d]."""
        return torch.linalg.vector_norm(weights, dim=-1).square() * (self.weight_decay / 2)

    def evaluate(
        self,
        inputs: torch.Tensor,
        targets: torch.Tensor,
        batch: int = 250,
        answers: list[torch.Tensor] | None = None,
    ) -> tuple[float, float]:
        """Evaluate the model in evaluation mode, which is restored afterwards.

        Args:
            inputs: Inputs [n, …].
            targets: Targets [n, …].
            batch: Records in a forward pass.
            answers: A list that gets, of each batch, the right answers and the answers that count [2, b].

        Returns:
            (F(θ) on the records, accuracy). Accuracy is the number of right answers of all records over the
            number of answers that count (:func:`one_answer`, unless the module brings something else); nan
            if none counts. Both are nan for no records.
        """
        n = len(targets)
        if n == 0:
            return float("nan"), float("nan")
        totals = torch.zeros(3, dtype=torch.float64, device=self.device)
        training = self.module.training
        self.module.eval()
        try:
            with torch.inference_mode():
                for x, y in zip(inputs.split(batch), targets.split(batch), strict=True):
                    outputs = self(x)
                    totals[0] += self.loss(outputs, y).sum()
                    correct, counted = self.correct(outputs, y)
                    totals[1] += correct.sum()
                    totals[2] += counted.sum()
                    if answers is not None:
                        answers.append(torch.stack([correct.double(), counted.double()]))
        finally:
            self.module.train(training)
        loss, right, answers = totals.tolist()
        mean_loss, accuracy = loss / n, right / answers if answers else float("nan")
        if self.weight_decay:
            mean_loss += float(self.penalty(self.flat))
        return mean_loss, accuracy

    @torch.inference_mode()
    def losses(self, inputs: torch.Tensor, targets: torch.Tensor, batch: int = 250) -> torch.Tensor:
        """Return ℓ of each record [n], in the module's present mode.

        Losses are computed in double precision: in single precision those of confident predictions are all 0.

        Args:
            inputs: Inputs [n, …].
            targets: Targets [n, …].
            batch: Records in a forward pass.
        """
        pairs = zip(inputs.split(batch), targets.split(batch), strict=True)
        return torch.cat([self.loss(self(x).double(), y) for x, y in pairs]).double()

    @torch.no_grad()
    def _flatten(self) -> None:
        # Walking through the modules takes as long as a small layer, so it is done once.
        parameters = [p for p in self.module.parameters() if p.requires_grad]
        if len({(p.dtype, p.device) for p in parameters}) != 1:
            raise ConfigError("model needs parameters that train, all of one dtype on one device")
        self.flat = torch.cat([p.detach().reshape(-1) for p in parameters])
        self.size, self.device = self.flat.numel(), self.flat.device
        self.columns: dict[nn.Parameter, slice] = {}
        offset = 0
        for p in parameters:
            self.columns[p] = slice(offset, offset + p.numel())
            p.data = self.flat[self.columns[p]].view(p.shape)
            offset += p.numel()
