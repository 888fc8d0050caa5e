"""Messages as bytes: plain values as JSON, numbers of tensors behind them; nothing is pickled.

    message = length of the text (int64) | JSON text | numbers of tensor 0 | numbers of tensor 1 | …

Every tensor begins at a multiple of 64 bytes, as torch's own tensors do: some kernels add up numbers in
another order at another alignment.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from fedpriv.common.errors import FedprivError

_ALIGNMENT = 64
_LENGTH = 8  # bytes of the length of the text
_DTYPES = {
    str(dtype).removeprefix("torch."): dtype
    for dtype in (
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
    )
}

Classes = Mapping[str, type]
"""Data classes that a message may hold, by name."""


class UnsendableError(FedprivError):
    """A value cannot be sent, as it holds an object of a class that messages do not know."""


def _empty(size: int) -> Tensor:
    return torch.empty(size, dtype=torch.uint8)


def pack(value: object, classes: Classes, allocate: Callable[[int], Tensor] = _empty) -> Tensor:
    """Return a message (uint8) that holds a value.

    Args:
        value: Tensors, arrays, plain values, the data classes ``classes``, and lists, tuples and mappings
            of all these.
        classes: Data classes by name.
        allocate: Number of bytes → memory for the message (uint8).

    Raises:
        UnsendableError: The value holds anything else.

    Example:
        >>> message = pack({"weights": torch.ones(2), "round": 3}, {})
        >>> unpack(message, {})
        {'weights': tensor([1., 1.]), 'round': 3}
    """
    tensors: list[Tensor] = []
    text = json.dumps(_plain(value, classes, tensors)).encode()
    sizes = [tensor.numel() * tensor.element_size() for tensor in tensors]
    start = _padded(_LENGTH + len(text))
    message = allocate(start + sum(map(_padded, sizes)))
    beginning = len(text).to_bytes(_LENGTH, "little") + text
    message[: len(beginning)] = torch.frombuffer(bytearray(beginning), dtype=torch.uint8)
    for tensor, size in zip(tensors, sizes, strict=True):
        message[start : start + size].view(tensor.dtype).copy_(tensor.reshape(-1))
        start += _padded(size)
    return message


def unpack(message: Tensor, classes: Classes, device: torch.device | None = None) -> Any:
    """Return the value of which :func:`pack` made a message; its tensors share the message's memory.

    Args:
        message: The message (uint8).
        classes: Data classes by name.
        device: Device for tensors that were on an accelerator; None: they stay on the CPU.
    """
    length = int.from_bytes(message[:_LENGTH].numpy().tobytes(), "little")
    text = message[_LENGTH : _LENGTH + length].numpy().tobytes()
    return _value(json.loads(text), classes, _Numbers(message, _padded(_LENGTH + length), device))


def _padded(size: int) -> int:
    return -(-size // _ALIGNMENT) * _ALIGNMENT


def _plain(value: object, classes: Classes, tensors: list[Tensor]) -> object:
    """Return what JSON can hold for a value. Tensors are put into the list and leave type and shape.

    Plain values stand for themselves. Anything else is a list: the name of its kind, then what it holds.
    """

    def parts(values: Any) -> list[object]:
        return [_plain(part, classes, tensors) for part in values]

    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, np.generic):
        return _plain(value.item(), classes, tensors)
    if isinstance(value, Tensor):
        tensors.append(value.detach())
        kind = "tensor" if value.device.type == "cpu" else "accelerated"
        return [kind, str(value.dtype).removeprefix("torch."), list(value.shape)]
    if isinstance(value, np.ndarray):
        return ["array", _plain(torch.from_numpy(np.asarray(value, order="C")), classes, tensors)]
    if isinstance(value, Mapping):
        return ["dict", parts(value.keys()), parts(value.values())]
    if isinstance(value, (list, tuple)):
        return ["list" if isinstance(value, list) else "tuple", *parts(value)]
    name = type(value).__name__
    if is_dataclass(value) and classes.get(name) is type(value):
        return ["class", name, *parts(getattr(value, field.name) for field in fields(value))]
    raise UnsendableError(f"a {name} cannot be sent to workers")


class _Numbers:
    """The tensors of a message, taken out one after the other."""

    def __init__(self, message: Tensor, start: int, device: torch.device | None):
        self._message, self._start, self.device = message, start, device

    def next(self, dtype: torch.dtype, shape: list[int]) -> Tensor:
        size = int(np.prod(shape)) * dtype.itemsize
        numbers = self._message[self._start : self._start + size].view(dtype).reshape(shape)
        self._start += _padded(size)
        return numbers


def _value(plain: Any, classes: Classes, numbers: _Numbers) -> Any:
    """Return the value that :func:`_plain` turned into ``plain``."""
    if not isinstance(plain, list):
        return plain
    kind, *content = plain
    if kind in ("tensor", "accelerated"):
        tensor = numbers.next(_DTYPES[content[0]], content[1])
        return tensor if kind == "tensor" else tensor.to(numbers.device)
    if kind == "array":
        return _value(content[0], classes, numbers).numpy()
    if kind == "dict":
        keys = [_value(key, classes, numbers) for key in content[0]]
        return dict(zip(keys, (_value(part, classes, numbers) for part in content[1]), strict=True))
    values = [_value(part, classes, numbers) for part in content[kind == "class" :]]
    if kind == "class":
        return classes[content[0]](*values)
    return values if kind == "list" else tuple(values)
