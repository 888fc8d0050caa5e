"""All of a model that may be saved, to see that nothing but a server step changes it.

Weights are compared bit by bit, and so is what stands beside them in a state dict: buffers, and what
``get_extra_state`` gives. A version counter would not do, as writes through ``.data`` leave it as it is.
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
    """A copy of all that a model may save, made at one moment.

    Args:
        model: The model.
        beside_weights: What stood beside the weights at an earlier moment; None: what stands there now.

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
        """Name what differs in the model now; None: nothing does."""
        if not (same_bits(self._model.flat, self.weights) and self._model.is_flat()):
            return "the global weights were"
        if weights_alone:
            return None
        before, now = self.beside_weights, _beside_weights(self._model)
        for name in {**before, **now}:
            if name not in now or name not in before or not _same(now[name], before[name]):
                return f"{name} in the model's saved state was"
        return None

    def state_dict(self) -> dict[str, object]:
        """Return the model's state dict: its present weights, and beside them what was copied."""
        module = self._model.module
        weights = dict(module.named_parameters(remove_duplicate=False))
        return {
            name: weights[name].detach().clone()
            if name in weights
            else copy.deepcopy(self.beside_weights[name])
            for name in module.state_dict()
            if name in weights or name in self.beside_weights
        }


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors have one shape, one type and the same bits."""
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    words = {4: torch.int32, 8: torch.int64}.get(one.element_size(), torch.uint8)
    if one.dim() != 1:
        one, other = one.detach().reshape(-1), other.detach().reshape(-1)
    return torch.equal(one.contiguous().view(words), other.contiguous().view(words))


_METHODS = (
    *("state_dict", "_save_to_state_dict", "get_extra_state", "modules", "named_modules"),
    *("named_parameters", "named_buffers", "_named_members"),
)
"""The methods of a module by which it says what it holds."""
_of = attrgetter(*_METHODS)
_USUAL = _of(nn.Module)


def _beside_weights(model: FlatModel) -> dict[str, Any]:
    """Buffers, also those that are not saved, and all in the state dict that is no parameter."""
    if _has_weights_alone(model.module):
        return {}
    weights = {name for name, _ in model.module.named_parameters(remove_duplicate=False)}
    saved = {
        name: value for name, value in model.module.state_dict().items() if name not in weights
    }
    return {**dict(model.module.named_buffers()), **saved}


def _has_weights_alone(module: nn.Module) -> bool:
    """Return whether a state dict could hold nothing but parameters now: no layer has a buffer, a hook, or
    methods of its own that say what it holds. This is looked up in a fraction of the time of a state dict."""
    layers = list(nn.Module.modules(module))
    for layer in layers:
        if layer._buffers or layer._state_dict_hooks or layer._state_dict_pre_hooks:
            return False
        if not vars(layer).keys().isdisjoint(_METHODS):
            return False
    return all(_of(kind) == _USUAL for kind in set(map(type, layers)))


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return same_bits(one, other)
    return pickle.dumps(one) == pickle.dumps(other)
