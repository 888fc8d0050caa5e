"""Public random streams, named by what they are for: initial weights, partitions, splits, attackers, audits.

Every draw is ``f(seed, purpose, …)``: it does not depend on what was drawn before it. The key is hashed with
BLAKE2b, so neighbouring seeds give unrelated streams and seed 0 is a seed like any other.

These are statistical generators (Philox, Mersenne Twister) with short keys. What the guarantee counts on
being secret (lots, cohorts, noise) comes from :mod:`fedpriv.common.secret_streams` instead.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

import numpy as np

if TYPE_CHECKING:
    import torch


def stream_key(seed: int, purpose: str, *coordinates: int) -> int:
    """A 63-bit key for one stream, e.g. ``stream_key(seed, "partition_iid")``."""
    text = "/".join((str(int(seed)), purpose, *(str(int(c)) for c in coordinates)))
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def numpy_stream(seed: int, purpose: str, *coordinates: int) -> np.random.Generator:
    """A NumPy generator (Philox) for one stream."""
    return np.random.Generator(np.random.Philox(key=stream_key(seed, purpose, *coordinates)))


def torch_stream(
    seed: int, purpose: str, *coordinates: int, device: str | torch.device = "cpu"
) -> torch.Generator:
    """A torch generator on ``device`` for one stream."""
    import torch

    generator = torch.Generator(device=device)
    generator.manual_seed(stream_key(seed, purpose, *coordinates))
    return generator


def global_states() -> tuple[object, ...]:
    """Return the states of the global generators of torch, NumPy and Python, to be compared: code of the
    user's own that draws from them is told by that."""
    import torch

    name, keys, *rest = cast("tuple[str, np.ndarray, int, int, float]", np.random.get_state())
    of_devices = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    of_torch = (state.numpy().tobytes() for state in (torch.get_rng_state(), *of_devices))
    return (*of_torch, name, keys.tobytes(), *rest, random.getstate())


@contextmanager
def seeded_globals(seed: int, purpose: str, *coordinates: int) -> Iterator[None]:
    """Seed the global generators of torch, NumPy and Python with the key of one stream, for the time of the
    context: code of the user's own may draw from them. Their states are put back."""
    import torch

    key = stream_key(seed, purpose, *coordinates)
    of_numpy, of_python = np.random.get_state(), random.getstate()
    devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(key)
        np.random.seed(key % 2**32)
        random.seed(key)
        try:
            yield
        finally:
            np.random.set_state(of_numpy)
            random.setstate(of_python)
