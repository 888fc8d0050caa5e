"""State of a part for the checkpoint, declared by the names of its attributes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar


class Saved:
    """A part of which the next round needs some attributes; of most parts none.

    A part whose state is no listing of attributes overrides ``state_dict`` and ``load_state_dict``.

    Attributes:
        saved_attributes: The name of each number, tensor or deque in the checkpoint, and of its attribute.
    """

    saved_attributes: ClassVar[Mapping[str, str]] = {}

    def state_dict(self) -> dict[str, object]:
        """Return what the next round needs of this object, for the checkpoint: tensors and plain values."""
        return {
            key: _copy(getattr(self, name)) for key, name in type(self).saved_attributes.items()
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore what ``state_dict`` gave."""
        saved: Mapping[str, Any] = state
        for key, name in type(self).saved_attributes.items():
            held = getattr(self, name)
            if _is_tensor(held):
                held.copy_(saved[key])
            elif isinstance(held, deque):
                setattr(self, name, deque(saved[key], held.maxlen))
            else:
                setattr(self, name, saved[key])


def _copy(value: Any) -> Any:
    if _is_tensor(value):
        return value.clone()
    return list(value) if isinstance(value, deque) else value


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "copy_")
