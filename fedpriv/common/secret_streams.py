"""The secret randomness of a run: who takes part, lots, batches, noise.

Every stream is ChaCha20's, under a key of 256 bits of its own:

    key = BLAKE2b-256( purpose, round, step, client;  keyed by the run's key )

and the run's key holds the seeds, the run identity, and digests of the data, the initial weights and the
user's own code. So two streams of a run never coincide, nor do those of two runs that release something
else: another value of a key of the configuration, T included, or another record gives other lots, cohorts
and noise. Nothing depends on what was drawn before (a resumed run draws what an uninterrupted one would),
on who else takes part, or on device and threads.

Code of the user's own may read what no digest holds, a file for instance. Where it takes part, the keys also
hold a :class:`History`: what the run announced and released so far, bit for bit.

A cryptographic generator is only as secret as its key. With ``seed`` and ``noise_seed`` from a
configuration the run is a simulation; with ``publish=true`` the key comes from the operating system
(:mod:`fedpriv.experiment.secrets`).

Sources: RFC 8439 (ChaCha20); RFC 7693 (BLAKE2); the normals are Box and Muller's, in double precision.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from fedpriv.common.exact import exact_digest

if TYPE_CHECKING:
    from torch import Tensor

STREAM_VERSION = 2
"""Rises whenever a seed would give other numbers; 1 was Philox and Mersenne Twister."""
KEY_BYTES = 32
PAIRS_AT_ONCE = 2**16
"""Pairs of normals made at a time, so that they stay in a processor's cache. Part of the definition of the
stream."""
_ZEROS = memoryview(bytes(2**20))


def derived_key(key: bytes, *parts: str | int) -> bytes:
    """A key of 256 bits that only who knows ``key`` (of up to 64 bytes) can compute."""
    named = [part if isinstance(part, str) else int(part) for part in parts]
    return hashlib.blake2b(json.dumps(named).encode(), digest_size=KEY_BYTES, key=key).digest()


OF_THE_WHOLE_RUN = frozenset({"cohort_order", "cohort_start"})
"""Purposes whose numbers are drawn again in later rounds, and must come out the same."""


class History:
    """What a run announced and released so far, as a chain of digests.

    Attributes:
        now: The last link.
        first: The link that the first announcement made.
    """

    def __init__(self) -> None:
        self.now = self.first = ""

    def bind(self, what: str, *values: object) -> None:
        """Add a link: what happened, and public values that tell how."""
        self.now = exact_digest(self.now, what, values)
        self.first = self.first or self.now

    def state_dict(self) -> dict[str, str]:
        return {"now": self.now, "first": self.first}

    def load_state_dict(self, state: Mapping[str, str]) -> None:
        self.now, self.first = state["now"], state["first"]


@dataclass(frozen=True)
class SecretStreams:
    """The secret streams of one run.

    Attributes:
        sampling_key: Of lots, cohorts and batches.
        noise_key: Of noise.
        history: What the keys of streams also hold, in a run with code of the user's own; None: nothing more.
    """

    sampling_key: bytes
    noise_key: bytes
    history: History | None = None

    @classmethod
    def of_run(cls, root: bytes, run: str) -> SecretStreams:
        """Those of the run that ``run`` stands for (a digest), under a secret ``root``."""
        sampling, noise = (
            derived_key(root, "fedpriv", STREAM_VERSION, run, use) for use in ("sampling", "noise")
        )
        return cls(sampling, noise)

    @classmethod
    def simulated(cls, seed: int, noise_seed: int, run: str = "") -> SecretStreams:
        """Those that seeds of a configuration give: secret only as far as the seeds are."""
        return cls.of_run(derived_key(b"simulated", seed, noise_seed), run)

    def with_noise(self, noise_key: bytes) -> SecretStreams:
        """The same lots and cohorts with other noise."""
        return replace(self, noise_key=noise_key)

    def bind(self, what: str, *values: object) -> None:
        """Take note of something public that happened; the streams that follow depend on it where the run
        has a history."""
        if self.history is not None:
            self.history.bind(what, *values)

    def sampling(self, purpose: str, *coordinates: int) -> Stream:
        """What decides who takes part, which records, in which order."""
        return self._stream(self.sampling_key, purpose, coordinates)

    def noise(self, purpose: str, *coordinates: int) -> Stream:
        """The noise of one release."""
        return self._stream(self.noise_key, purpose, coordinates)

    def _stream(self, key: bytes, purpose: str, coordinates: tuple[int, ...]) -> Stream:
        if self.history is None:
            return Stream(derived_key(key, purpose, *coordinates))
        link = self.history.first if purpose in OF_THE_WHOLE_RUN else self.history.now
        return Stream(derived_key(key, purpose, link, *coordinates))


class Stream:
    """Random numbers from one key. The methods are those of :class:`numpy.random.Generator` that samplers
    need, so that either may draw a lot."""

    def __init__(self, key: bytes):
        # a nonce of zeros: no key serves twice
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()

    def bits(self, count: int) -> np.ndarray:
        """Uniform whole numbers of 64 bits, uint64 [count]."""
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8")

    @overload
    def random(self, size: None = None) -> float: ...

    @overload
    def random(self, size: int) -> np.ndarray: ...

    def random(self, size: int | None = None) -> float | np.ndarray:
        """Uniform on [0, 1) in steps of 2^-53: a float, or float64 [size]."""
        drawn = (self.bits(1 if size is None else size) >> np.uint64(11)) * 2.0**-53
        return float(drawn[0]) if size is None else drawn

    def permutation(self, x: int | np.ndarray) -> np.ndarray:
        """0 … x-1, or the rows of ``x``, in random order."""
        rows = np.arange(x) if isinstance(x, (int, np.integer)) else np.asarray(x)
        return rows[np.argsort(self.bits(len(rows)), kind="stable")]

    def choice(
        self, a: int | np.ndarray, size: int, replace: bool = False, shuffle: bool = False
    ) -> np.ndarray:
        """``size`` distinct ones among 0 … a-1, or among the rows of ``a``, all subsets alike."""
        if replace:
            raise ValueError("only without replacement")
        count = a if isinstance(a, (int, np.integer)) else len(a)
        if size > count:
            raise ValueError(f"cannot choose {size} of {count}")
        return self.permutation(a)[:size]

    @overload
    def standard_normal(self, size: None = None) -> float: ...

    @overload
    def standard_normal(self, size: int) -> np.ndarray: ...

    def standard_normal(self, size: int | None = None) -> float | np.ndarray:
        """Normals, as a float or float64 [size]."""
        drawn = standard_normals([self], 1 if size is None else size)[0]
        return float(drawn[0]) if size is None else drawn.numpy()

    def write_words(self, into: memoryview) -> None:
        """Fill ``into`` with the next bytes of the stream."""
        for first in range(0, len(into), len(_ZEROS)):
            part = into[first : first + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)


def standard_normals(streams: Sequence[Stream], size: int) -> Tensor:
    """Independent standard normals, a row of ``size`` from each stream: float64 [m, size] on the CPU.

    Row by row the stream gives, for every ``PAIRS_AT_ONCE`` pairs (fewer at the end), the radii's words and
    then the angles'. Rows are made together as far as they fit into a processor's cache.
    """
    import torch

    out = torch.empty(len(streams), size, dtype=torch.float64)
    for column in range(0, size, 2 * PAIRS_AT_ONCE):
        part = out[:, column : column + 2 * PAIRS_AT_ONCE]
        pairs = (part.shape[1] + 1) // 2
        together = max(1, PAIRS_AT_ONCE // pairs)
        memory = memoryview(bytearray(16 * pairs * min(together, len(streams))))
        words = torch.frombuffer(memory, dtype=torch.int64).view(-1, 2, pairs)
        for first in range(0, len(streams), together):
            rows = part[first : first + together]
            for k, stream in enumerate(streams[first : first + together]):
                stream.write_words(memory[16 * pairs * k : 16 * pairs * (k + 1)])
            write_normals(words[: len(rows), 0], words[: len(rows), 1], rows)
    return out


def write_normals(radii: Tensor, angles: Tensor, out: Tensor) -> None:
    """Box and Muller: r cos φ and r sin φ from whole numbers of 64 bits each [m, p], which are overwritten,
    into ``out`` [m, 2p] (or one fewer).

        u = (k + ½) 2^-63,  k the lower 63 bits of the first;   r = √(-2 log u);   φ = π 2^-63 · the second

    r goes up to 9.42 and is finer than 2^-14 up to 8.4, beyond which lies 5·10^-16 of the mass: k keeps
    its relative precision when it is small, where float32 (or a quotient of whole numbers) would not.
    """
    import torch

    pairs = radii.shape[1]
    r = radii.bitwise_and_(0x7FFFFFFFFFFFFFFF).to(torch.float64).add_(0.5).mul_(2.0**-63)
    np.log(r.numpy(), out=r.numpy())  # three times as fast as torch's
    r.mul_(-2.0).sqrt_()
    phi = angles.to(torch.float64).mul_(math.pi * 2.0**-63)
    rest = out.shape[1] - pairs
    torch.mul(phi.cos(), r, out=out[:, :pairs])
    torch.mul(phi.sin_()[:, :rest], r[:, :rest], out=out[:, pairs:])
