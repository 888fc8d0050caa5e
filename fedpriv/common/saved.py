"""State of a part in the checkpoint, declared by the names of its attributes."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

StateDict: TypeAlias = Mapping[str, Any]
"""Contents of a checkpoint by name, as in torch. Who wrote them knows their types, and nobody else."""


class Saved:
    """A part that may have state for the next round.

    A subclass lists its state in ``saved_attributes``; most parts have none. A part with other state
    overrides ``state_dict`` and ``load_state_dict``.

    Attributes:
        saved_attributes: Name in the checkpoint → name of the attribute. The attribute is a number, a tensor
            or a deque.

    Example:
        >>> class Counter(Saved):
        ...     saved_attributes = {"count": "count"}
        ...     count = 3
        >>> Counter().state_dict()
        {'count': 3}
    """

    saved_attributes: ClassVar[Mapping[str, str]] = {}

    def state_dict(self) -> dict[str, object]:
        """Return the state that the next round needs, as tensors and plain values, for the checkpoint."""
        return {
            key: _copy(getattr(self, name)) for key, name in type(self).saved_attributes.items()
        }

    def load_state_dict(self, state: Mapping[str, object]) -> None:
        """Restore a state that ``state_dict`` returned. A tensor is filled in place and keeps its device.

        Raises:
            KeyError: The state lacks one of ``saved_attributes``.
        """
        saved: Mapping[str, Any] = state
        for key, name in type(self).saved_attributes.items():
            current = getattr(self, name)
            if _is_tensor(current):
                current.copy_(saved[key])
            elif isinstance(current, deque):
                setattr(self, name, deque(saved[key], current.maxlen))
            else:
                setattr(self, name, saved[key])


def _copy(value: Any) -> Any:
    if _is_tensor(value):
        return value.clone()
    return list(value) if isinstance(value, deque) else value


def _is_tensor(value: Any) -> bool:
    return hasattr(value, "copy_")
