"""Public random streams, one for each purpose: initial weights, partitions, splits, attackers, audits.

A stream is a function of ``(seed, purpose, …)`` and does not depend on earlier draws. The key is hashed with
BLAKE2b, so neighbouring seeds give unrelated streams, and seed 0 has no special meaning.

The generators are statistical ones with short keys (Philox, Mersenne Twister). They must not decide anything
that the privacy guarantee needs to be secret. Lots, cohorts and noise come from
:mod:`fedpriv.common.secret_streams`.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


def stream_key(seed: int, purpose: str, *coordinates: int) -> int:
    """Return the 63-bit key of one stream.

    Args:
        seed: The seed of the configuration.
        purpose: Name of the purpose, such as ``partition_iid``.
        coordinates: Numbers that distinguish streams of one purpose, such as a client.
    """
    text = "/".join(
        (str(int(seed)), purpose, *(str(int(coordinate)) for coordinate in coordinates))
    )
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def numpy_stream(seed: int, purpose: str, *coordinates: int) -> np.random.Generator:
    """Return a NumPy generator (Philox) for one stream."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, purpose, *coordinates)))


def torch_stream(
    seed: int, purpose: str, *coordinates: int, device: str | torch.device = "cpu"
) -> torch.Generator:
    """Return a torch generator on ``device`` for one stream."""
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(stream_key(seed, purpose, *coordinates))
    return generator


@contextmanager
def seeded_globals(seed: int, purpose: str, *coordinates: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python with the key of one stream, inside the context.

    A user's own code may draw from the global generators. Their states are restored at the end.
    """
    import torch

    key = stream_key(seed, purpose, *coordinates)
    numpy_state, python_state = np.random.get_state(), random.getstate()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(key)
        np.random.seed(key % 2**32)
        random.seed(key)
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
