"""Objects of classes outside fedpriv: which these are, and whether what they keep has changed."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence, Set
from typing import Any

PACKAGE = "fedpriv."


def is_own(part: object) -> bool:
    """Return whether the class of an object stands outside fedpriv."""
    return not type(part).__module__.startswith(PACKAGE)


def attribute_digests(part: object, ignored: Collection[int] = ()) -> dict[str, str]:
    """Return a digest of each attribute of an object, and of its class's own ones, by name.

    Tensors and arrays count bit for bit, containers and objects of classes outside fedpriv by what they hold.
    Objects of fedpriv and modules of torch count as unchanged: their state is kept elsewhere.

    Args:
        part: The object.
        ignored: Addresses of memory whose values are somebody else's, such as the model's weights.
    """
    found = {}
    for kind in reversed(type(part).__mro__):
        if not kind.__module__.startswith((PACKAGE, "builtins")):
            plain = {k: v for k, v in vars(kind).items() if _is_plain(v) and not k.startswith("__")}
            found.update(plain)
    found.update(getattr(part, "__dict__", {}))
    digests = {}
    for name, value in found.items():
        digest = hashlib.blake2b(digest_size=16)
        _add(value, digest, frozenset(ignored), set())
        digests[name] = digest.hexdigest()
    return digests


def changed_attributes(before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return the names whose digests differ, sorted."""
    return sorted(name for name in {*before, *after} if before.get(name) != after.get(name))


def _is_plain(value: object) -> bool:
    """Return whether a class attribute can hold state: a container or an array, say, but no method."""
    return isinstance(value, (Mapping, Sequence, Set, int, float)) or hasattr(value, "dtype")


def _add(value: Any, digest: Any, ignored: frozenset[int], seen: set[int]) -> None:
    """Add a value to a digest. ``seen``: the objects that hold it, so that a circle ends."""
    kind = type(value)
    digest.update(f"{kind.__module__}.{kind.__qualname__}(".encode())
    if isinstance(value, (str, bytes, int, float, complex, bool, type(None))):
        digest.update(repr(value).encode())
    elif id(value) in seen:
        return
    elif hasattr(value, "untyped_storage"):
        if value.untyped_storage().data_ptr() not in ignored:
            array = value.detach().cpu().contiguous()
            digest.update(repr((tuple(array.shape), array.dtype)).encode())
            digest.update(array.reshape(-1).view(_bytes()).numpy().tobytes())
    elif hasattr(value, "tobytes"):
        digest.update(
            repr((getattr(value, "shape", ()), str(getattr(value, "dtype", "")))).encode()
        )
        digest.update(value.tobytes())
    elif isinstance(value, (Mapping, Sequence, Set)) or hasattr(value, "popleft"):
        items = value.items() if isinstance(value, Mapping) else value
        for item in sorted(items, key=repr) if isinstance(value, Set) else items:
            for one in item if isinstance(value, Mapping) else (item,):
                _add(one, digest, ignored, seen | {id(value)})
    elif hasattr(value, "get_state"):  # a generator of torch or numpy
        _add(value.get_state(), digest, ignored, seen)
    elif hasattr(value, "bit_generator"):
        _add(value.bit_generator.state, digest, ignored, seen)
    elif hasattr(value, "getstate"):
        _add(value.getstate(), digest, ignored, seen)
    elif callable(value) or not is_own(value) or hasattr(value, "named_parameters"):
        return
    elif hasattr(value, "__dict__"):
        _add(vars(value), digest, ignored, seen | {id(value)})
    else:
        digest.update(repr(value).encode())


def _bytes() -> Any:
    import torch

    return torch.uint8
