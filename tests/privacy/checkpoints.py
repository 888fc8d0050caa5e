"""A state as it comes back from a checkpoint, which holds nothing but plain values."""

from __future__ import annotations

import io
from typing import Any

import torch


def saved(state: Any) -> Any:
    """``state``, written and read with ``weights_only``: tensors, numbers, texts, lists, tuples and dicts."""
    refuse_what_is_not_plain(state)
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def size(state: Any) -> int:
    """Bytes of the checkpoint."""
    file = io.BytesIO()
    torch.save(state, file)
    return file.tell()


def refuse_what_is_not_plain(state: Any, where: str = "state") -> None:
    """Walk a state; a subclass, such as a numpy float, is not the type itself."""
    if isinstance(state, dict):
        for key, value in state.items():
            refuse_what_is_not_plain(key, f"{where}, a key")
            refuse_what_is_not_plain(value, f"{where}[{key!r}]")
    elif isinstance(state, (list, tuple)):
        for i, value in enumerate(state):
            refuse_what_is_not_plain(value, f"{where}[{i}]")
    plain = (dict, list, tuple, str, int, float, bool, type(None), torch.Tensor)
    assert type(state) in plain, f"{where} is a {type(state).__name__}"
