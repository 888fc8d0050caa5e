"""Whatever a model may save is seen to change, in its weights and beside them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from fedpriv.engine import FlatModel
from fedpriv.engine.saved_state import SavedState


class Counts(nn.Linear):
    """A layer whose extra state a class attribute gives."""

    seen = 0

    def get_extra_state(self):
        return self.seen

    def set_extra_state(self, state):
        pass


class Tells(nn.Linear):
    """A layer that adds to its state dict."""

    seen = 0

    def state_dict(self, *given, **named):
        return {**super().state_dict(*given, **named), "seen": self.seen}


class Saves(nn.Linear):
    seen = 0

    def _save_to_state_dict(self, destination, prefix, keep_vars):
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[f"{prefix}seen"] = self.seen


def plain() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 2), nn.ReLU())


def see(module: nn.Module) -> None:
    next(layer for layer in module.modules() if hasattr(layer, "seen")).seen += 1


def a_buffer(module: nn.Module) -> None:
    module[0].register_buffer("kept", torch.ones(1), persistent=False)


def a_hook(module: nn.Module) -> None:
    module[0].register_state_dict_post_hook(lambda layer, found, *_: found.update(kept=1))


def a_method(module: nn.Module) -> None:
    module.state_dict = lambda: {**nn.Module.state_dict(module), "kept": 1}


def another_class(module: nn.Module) -> None:
    module[0].__class__ = Counts


@pytest.mark.parametrize("kind", [Counts, Tells, Saves])
@pytest.mark.parametrize("inside", [False, True])
def test_what_a_layer_adds_to_the_state_dict_is_compared(kind, inside):
    module = nn.Sequential(nn.ReLU(), kind(3, 2)) if inside and kind is not Tells else kind(3, 2)
    model = FlatModel(module)
    state = SavedState(model)
    assert state.change() is None
    see(module)
    assert "seen" in state.change() or "_extra_state" in state.change()


@pytest.mark.parametrize("adds", [a_buffer, a_hook, a_method, another_class])
def test_what_comes_beside_the_weights_later_is_seen(adds):
    module = plain()
    state = SavedState(FlatModel(module))
    assert state.change() is None
    adds(module)
    assert "saved state" in state.change()


@pytest.mark.parametrize("values", [torch.zeros(2), torch.tensor([1.0, -0.0]), torch.ones(2) * 2])
def test_other_weights_are_seen_to_the_sign_of_zero(values):
    model = FlatModel(nn.Linear(1, 1))
    model.set(torch.tensor([1.0, 0.0]))
    state = SavedState(model)
    model.set(values)
    assert state.change() == "the global weights were"
