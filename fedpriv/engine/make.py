"""The choice of the engine for a model."""

from __future__ import annotations

import torch
from torch import nn

from fedpriv.common import checks
from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.engine.base import BlockEngine, Unsupported
from fedpriv.engine.fast import FastEngine
from fedpriv.engine.flat_model import FlatModel, Loss
from fedpriv.engine.interface import ClippedSums, Engine, Factors, Sliced

ENGINES = ("auto", "opacus", "fast")


def make_engine(
    model: FlatModel | nn.Module, loss: Loss | None = None, engine: str = "auto"
) -> Engine:
    """Return the engine for a model.

    The types of the layers and what the model does with them decide, never a timing, so a run takes the same
    path on every machine.

    Args:
        model: The model; a plain module is wrapped in a :class:`FlatModel`.
        loss: (outputs, targets) → loss of each record [n]; None: the model's.
        engine: ``fast`` (book-keeping), ``opacus`` (the reference), or ``auto``: fast where every
            layer has a rule, otherwise opacus.

    Raises:
        ConfigError: The name is unknown, or ``fast`` cannot treat a layer (the error names it).

    Example:
        >>> engine = make_engine(nn.Linear(3, 2))
        >>> engine.name
        'fast'
        >>> inputs, targets = torch.randn(4, 3), torch.tensor([0, 1, 1, 0])
        >>> client_of_record = torch.tensor([0, 0, 0, 1])
        >>> def clip(norms, clients):
        ...     return (0.1 / norms).clamp(max=1)
        >>> result = engine.clipped_sums(inputs, targets, client_of_record, 2, clip)
        >>> result.sums.shape, result.norms.shape
        (torch.Size([2, 8]), torch.Size([4]))
        >>> bool(result.sums[1].norm() <= 0.1)
        True
    """
    try:
        checks.one_of("engine", engine, ENGINES)
    except ArgumentError as error:
        raise error.within("runtime") from error
    if isinstance(model, nn.Module):
        model = FlatModel(model)
    return _Chosen(model, model.loss if loss is None else loss, engine)


class _Chosen:
    """The chosen engine.

    Under ``auto`` it changes to Opacus, once, when a forward pass shows what the types of the layers could
    not show: for example a layer that is called twice.
    """

    def __init__(self, model: FlatModel, loss: Loss, choice: str):
        self._model, self._loss, self._choice = model, loss, choice
        try:
            self._engine = self._opacus() if choice == "opacus" else FastEngine(model, loss)
        except Unsupported as error:
            self._engine = self._instead_of("fast", error)

    @property
    def name(self) -> str:
        """Name of the engine in use, ``fast`` or ``opacus``."""
        return self._engine.name

    def clipped_sums(
        self,
        inputs: torch.Tensor | Sliced,
        targets: torch.Tensor | Sliced,
        client_of_record: torch.Tensor,
        clients: int,
        factors: Factors | None,
    ) -> ClippedSums:
        """Compute the clipped sum of every client; see :meth:`fedpriv.engine.Engine.clipped_sums`."""
        arguments = (inputs, targets, client_of_record, clients, factors)
        try:
            return self._engine.clipped_sums(*arguments)
        except Unsupported as error:
            self._engine = self._instead_of(self.name, error)
            return self.clipped_sums(*arguments)

    def _instead_of(self, name: str, error: Unsupported) -> BlockEngine:
        """Return the engine to use where the named one cannot treat the model."""
        if name == "opacus":
            raise ConfigError(f"model has no per-record gradients: {error}") from error
        if self._choice == "fast":
            allowed = "auto or opacus for this model"
            raise ConfigError("runtime.engine", "fast", allowed, str(error)) from error
        return self._opacus()

    def _opacus(self) -> BlockEngine:
        # Opacus takes seconds to import, and most runs do not need it.
        from fedpriv.engine.with_opacus import OpacusEngine

        return OpacusEngine(self._model, self._loss)
