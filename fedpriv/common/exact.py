"""Digests of values: two values have the same digest only if they agree bit for bit.

Numbers, text, arrays, tensors and containers count by their content, other objects by class and attributes.
"""

from __future__ import annotations

import hashlib
import types
from collections.abc import Iterable, Mapping, Set
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np


def _attributes_of(value: object) -> Mapping[str, object]:
    """Return the fields of a dataclass or the attributes of another object; nothing for a class."""
    if isinstance(value, (type, types.ModuleType, types.FunctionType, types.MethodType)):
        return {}
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    return getattr(value, "__dict__", {})


def exact_digest(*values: object) -> str:
    """Return the BLAKE2b-256 digest of values, whose order counts, in 64 hexadecimal digits."""
    walk = _Walk()
    walk.add(values)
    return walk.digest.hexdigest()


class _Walk:
    """A digest while it is computed.

    The containers around the current value are remembered, so that a container that holds itself ends.
    """

    def __init__(self) -> None:
        self.digest = hashlib.blake2b(digest_size=32)
        self._within: list[int] = []

    def add(self, value: Any) -> None:
        """Add a value with everything in it."""
        if value is None or isinstance(value, (bool, int, str, np.bool_, np.integer)):
            self._put(type(value).__name__, str(value).encode("utf-8", "surrogatepass"))
        elif isinstance(value, (float, np.floating)):
            self._put(type(value).__name__, np.asarray(value).tobytes())
        elif isinstance(value, bytes):
            self._put("bytes", value)
        elif isinstance(value, np.ndarray) and value.dtype != object:
            self._put(f"array {value.dtype.str} {value.shape}", np.ascontiguousarray(value))
        elif _is_tensor(value):
            self._add_tensor(value)
        else:
            self._add_compound(value)

    def _add_tensor(self, value: Any) -> None:
        import torch

        plain = value.detach().cpu().contiguous().resolve_conj().resolve_neg()
        bits = plain.view(-1).view(torch.uint8).numpy() if plain.numel() else b""
        self._put(f"tensor {value.dtype} {tuple(value.shape)}", bits)

    def _add_compound(self, value: Any) -> None:
        if id(value) in self._within:
            self._put("cycle", str(self._within.index(id(value))).encode())
            return
        self._within.append(id(value))
        if isinstance(value, Mapping):
            self._add_all("mapping", [part for item in value.items() for part in item])
        elif isinstance(value, (list, tuple)):
            self._add_all(type(value).__name__, value)
        elif isinstance(value, Set):
            self._add_all("set", sorted(exact_digest(v) for v in value))
        else:
            kind, attributes = type(value), sorted(_attributes_of(value).items())
            name = f"{kind.__module__}.{kind.__qualname__}"
            self._add_all(name, [part for item in attributes for part in item])
        self._within.pop()

    def _add_all(self, kind: str, values: Iterable[Any]) -> None:
        parts = list(values)
        self._put(kind, str(len(parts)).encode())
        for part in parts:
            self.add(part)

    def _put(self, kind: str, content: Any) -> None:
        """Add a value's bytes under the name of its kind, with the lengths of both."""
        size = memoryview(content).nbytes
        self.digest.update(f"{len(kind)} {kind} {size} ".encode())
        self.digest.update(content)


def _is_tensor(value: Any) -> bool:
    """Return whether a value is a torch tensor, without importing torch."""
    kinds = (kind for kind in type(value).__mro__)
    return any(k.__module__ == "torch" and k.__name__ == "Tensor" for k in kinds)
