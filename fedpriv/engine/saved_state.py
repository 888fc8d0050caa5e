"""Copies of everything that a model saves, to check that nothing but a server step changes it.

Weights are compared bit by bit, and so is the rest of the state dict: buffers, and what ``get_extra_state``
returns. Version counters would not do, because writes through ``.data`` do not move them.
"""

from __future__ import annotations

import copy
import pickle
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor, nn

from fedpriv.engine.flat_model import FlatModel


class SavedState:
    """A copy of everything that a model saves, made at one moment.

    Args:
        model: The model.
        beside_weights: Buffers and extra state of an earlier moment, to be used in the place of the present
            ones; None: the present ones.

    Attributes:
        weights: The weights [d].
        beside_weights: Buffers and extra state by name.
    """

    def __init__(self, model: FlatModel, beside_weights: dict[str, object] | None = None):
        self._model = model
        self.weights = model.flat.clone()
        if beside_weights is None:
            beside_weights = copy.deepcopy(_beside_weights(model))
        self.beside_weights = beside_weights

    def change(self, weights_alone: bool = False) -> str | None:
        """Return a phrase that names what differs in the model now, or None where nothing does.

        The phrase ends in "was" or "were", so that messages go on with "changed".

        Args:
            weights_alone: Whether only the weights are compared.
        """
        if not (same_bits(self._model.flat, self.weights) and self._model.is_flat()):
            return "the global weights were"
        if weights_alone:
            return None
        before, now = self.beside_weights, _beside_weights(self._model)
        for name in {**before, **now}:
            if name not in now or name not in before or not _are_equal(now[name], before[name]):
                return f"{name} in the model's saved state was"
        return None

    def state_dict(self) -> dict[str, object]:
        """Return the model's state dict with its present weights and the copied buffers and extra state."""
        module = self._model.module
        weights = dict(module.named_parameters(remove_duplicate=False))
        return {
            name: weights[name].detach().clone()
            if name in weights
            else copy.deepcopy(self.beside_weights[name])
            for name in module.state_dict()
            if name in weights or name in self.beside_weights
        }


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Return whether two tensors have the same shape, type and bits; nan equals nan."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return False
    words = {4: torch.int32, 8: torch.int64}.get(first.element_size(), torch.uint8)
    if first.dim() != 1:
        first, second = first.detach().reshape(-1), second.detach().reshape(-1)
    return torch.equal(first.contiguous().view(words), second.contiguous().view(words))


_METHODS = (
    *("state_dict", "_save_to_state_dict", "get_extra_state", "modules", "named_modules"),
    *("named_parameters", "named_buffers", "_named_members"),
)
"""Methods of a module that decide what its state dict holds."""
_methods_of = attrgetter(*_METHODS)
_TORCH_METHODS = _methods_of(nn.Module)


def _beside_weights(model: FlatModel) -> dict[str, Any]:
    """Return all buffers, saved or not, and everything in the state dict that is no parameter."""
    if _has_weights_alone(model.module):
        return {}
    weights = {name for name, _ in model.module.named_parameters(remove_duplicate=False)}
    saved = {
        name: value for name, value in model.module.state_dict().items() if name not in weights
    }
    return {**dict(model.module.named_buffers()), **saved}


def _has_weights_alone(module: nn.Module) -> bool:
    """Return whether the state dict can hold nothing but parameters.

    That is so where no layer has a buffer, a hook, or its own version of a method that decides what the state
    dict holds. The check takes a fraction of the time of making a state dict.
    """
    layers = list(nn.Module.modules(module))
    for layer in layers:
        if layer._buffers or layer._state_dict_hooks or layer._state_dict_pre_hooks:
            return False
        if not vars(layer).keys().isdisjoint(_METHODS):
            return False
    return all(_methods_of(kind) == _TORCH_METHODS for kind in set(map(type, layers)))


def _are_equal(first: Any, second: Any) -> bool:
    if isinstance(first, Tensor) and isinstance(second, Tensor):
        return same_bits(first, second)
    return pickle.dumps(first) == pickle.dumps(second)
