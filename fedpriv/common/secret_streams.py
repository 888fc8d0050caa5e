"""The secret randomness of a run: cohorts, lots, batches and noise.

Every stream is the key stream of ChaCha20 under a 256-bit key of its own:

    key = BLAKE2b-256( purpose, round, step, client;  keyed by the run's key )

The run's key depends on the seeds, the run identity, and digests of the data, the initial weights and the
user's own code. So no two streams of a run coincide, and neither do streams of two runs that release
different values. Another value of a configuration key, T included, or another record gives other lots,
cohorts and noise. A draw does not depend on earlier draws, on the other participants, on the device or on
the number of threads. So a resumed run draws the same numbers as an uninterrupted one.

A cryptographic generator is only as secret as its key. With ``seed`` and ``noise_seed`` from the
configuration a run is a simulation. With ``publish=true`` the key comes from the operating system
(:mod:`fedpriv.experiment.secrets`).

Reference:
    RFC 8439 (ChaCha20); RFC 7693 (BLAKE2); Box and Muller, "A Note on the Generation of Random Normal
    Deviates", 1958 (normals, here in double precision).
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, overload

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

if TYPE_CHECKING:
    from torch import Tensor

STREAM_VERSION = 3
"""Version of the streams. It rises whenever a seed would give other numbers; 1 was Philox and Mersenne
Twister."""
KEY_BYTES = 32
PAIRS_AT_ONCE = 2**16
"""Pairs of normals that are made at a time, so that they stay in a processor's cache. The number is part of
the definition of the stream: another value would give other noise."""
_ZEROS = memoryview(bytes(2**20))
_FEW_OF = 8  # a choice of less than one in so many sorts only what it chooses


def derived_key(key: bytes, *parts: str | int) -> bytes:
    """Derive a 256-bit key, which nobody can compute without knowing ``key``.

    Args:
        key: Secret key of up to 64 bytes.
        parts: Texts and whole numbers that name the derived key.
    """
    named = [part if isinstance(part, str) else int(part) for part in parts]
    return hashlib.blake2b(json.dumps(named).encode(), digest_size=KEY_BYTES, key=key).digest()


@dataclass(frozen=True)
class SecretStreams:
    """The secret streams of one run.

    Attributes:
        sampling_key: Key of lots, cohorts and batches.
        noise_key: Key of the noise.

    Example:
        >>> streams = SecretStreams.simulated(seed=0, noise_seed=1)
        >>> first = streams.noise("gradient", 3).standard_normal(2)
        >>> again = streams.noise("gradient", 3).standard_normal(2)
        >>> bool((first == again).all())
        True
    """

    sampling_key: bytes
    noise_key: bytes

    @classmethod
    def of_run(cls, root: bytes, run: str) -> SecretStreams:
        """Return the streams of a run.

        Args:
            root: Secret key.
            run: Digest of everything that distinguishes the run from others.
        """
        sampling, noise = (
            derived_key(root, "fedpriv", STREAM_VERSION, run, use) for use in ("sampling", "noise")
        )
        return cls(sampling, noise)

    @classmethod
    def simulated(cls, seed: int, noise_seed: int, run: str = "") -> SecretStreams:
        """Return the streams that the seeds of a configuration give; they are as secret as the seeds.

        Args:
            seed: The key ``seed``.
            noise_seed: The key ``noise_seed``.
            run: Digest of everything that distinguishes the run from others; empty for draws of no run.
        """
        return cls.of_run(derived_key(b"simulated", seed, noise_seed), run)

    def with_noise(self, noise_key: bytes) -> SecretStreams:
        """Return streams with the same lots and cohorts, and other noise."""
        return replace(self, noise_key=noise_key)

    def sampling(self, purpose: str, *coordinates: int) -> Stream:
        """Return the stream that selects clients or records, or orders them.

        Args:
            purpose: Name of the draw. The same purpose and coordinates give the same stream from its
                beginning.
            coordinates: Numbers that tell streams of one purpose apart: the round, then what the purpose
                needs.
        """
        return self._stream(self.sampling_key, purpose, coordinates)

    def noise(self, purpose: str, *coordinates: int) -> Stream:
        """Return the stream of the noise of one release.

        Args:
            purpose: Name of the release. Two releases with one name and coordinates would have the same
                noise.
            coordinates: Numbers that tell streams of one purpose apart: the round, then what the purpose
                needs.
        """
        return self._stream(self.noise_key, purpose, coordinates)

    def _stream(self, key: bytes, purpose: str, coordinates: tuple[int, ...]) -> Stream:
        return Stream(derived_key(key, purpose, *coordinates))


class Stream:
    """Random numbers from one key.

    The methods are those of :class:`numpy.random.Generator` that samplers need, so that a lot can be drawn
    from either.

    Args:
        key: Key of 32 bytes, which no other stream has.
    """

    def __init__(self, key: bytes):
        # The nonce may be zero, because no key is used twice.
        self._cipher = Cipher(algorithms.ChaCha20(key, bytes(16)), None).encryptor()

    def bits(self, count: int) -> np.ndarray:
        """Return uniform whole numbers of 64 bits, uint64 [count]."""
        return np.frombuffer(self._cipher.update(bytes(8 * count)), dtype="<u8")

    @overload
    def random(self, size: None = None) -> float: ...

    @overload
    def random(self, size: int) -> np.ndarray: ...

    def random(self, size: int | None = None) -> float | np.ndarray:
        """Return uniform numbers on [0, 1) in steps of 2^-53: a float, or float64 [size]."""
        drawn = uniform(self.bits(1 if size is None else size))
        return float(drawn[0]) if size is None else drawn

    def permutation(self, x: int | np.ndarray) -> np.ndarray:
        """Return 0 … x-1, or the rows of an array ``x``, in random order."""
        rows = np.arange(x) if isinstance(x, (int, np.integer)) else np.asarray(x)
        return rows[np.argsort(self.bits(len(rows)), kind="stable")]

    def choice(
        self, a: int | np.ndarray, size: int, replace: bool = False, shuffle: bool = False
    ) -> np.ndarray:
        """Return ``size`` distinct numbers among 0 … a-1, or rows of an array ``a``, uniformly at random.

        Their order is random too, whatever ``shuffle`` says: NumPy's generators have this argument.

        Raises:
            ValueError: ``replace`` is true, or there are fewer than ``size`` to choose from.
        """
        if replace:
            raise ValueError("only without replacement")
        count = a if isinstance(a, (int, np.integer)) else len(a)
        if size > count:
            raise ValueError(f"cannot choose {size} of {count}")
        if not 0 < size < count // _FEW_OF:
            return self.permutation(a)[:size]
        # The beginning of that permutation, without sorting the words of all: a cohort of a million clients.
        words = self.bits(count)
        places = np.flatnonzero(words <= np.partition(words, size - 1)[size - 1])
        places = places[np.argsort(words[places], kind="stable")][:size]
        return places if isinstance(a, (int, np.integer)) else np.asarray(a)[places]

    @overload
    def standard_normal(self, size: None = None) -> float: ...

    @overload
    def standard_normal(self, size: int) -> np.ndarray: ...

    def standard_normal(self, size: int | None = None) -> float | np.ndarray:
        """Return standard normals: a float, or float64 [size]."""
        drawn = standard_normals([self], 1 if size is None else size)[0]
        return float(drawn[0]) if size is None else drawn.numpy()

    def write_words(self, into: memoryview) -> None:
        """Fill ``into`` with the next bytes of the stream."""
        for first in range(0, len(into), len(_ZEROS)):
            part = into[first : first + len(_ZEROS)]
            self._cipher.update_into(_ZEROS[: len(part)], part)


def uniform(words: np.ndarray) -> np.ndarray:
    """Return numbers on [0, 1) in steps of 2^-53, float64, made of words of 64 bits."""
    return (words >> np.uint64(11)) * 2.0**-53


def below(words: np.ndarray, probability: float) -> np.ndarray:
    """Return where ``uniform(words) < probability``, a mask; quicker, because whole numbers are compared."""
    # k 2^-53 < q exactly where k < ⌈q 2^53⌉, and q 2^53 is exact
    return (words >> np.uint64(11)) < np.uint64(math.ceil(probability * 2.0**53))


def standard_normals(streams: Sequence[Stream], size: int) -> Tensor:
    """Draw independent standard normals, one row from each stream.

    A stream gives, for every ``PAIRS_AT_ONCE`` pairs (fewer at the end), first the words of all radii and
    then the words of all angles. As many rows are made together as fit into a processor's cache; that changes
    no number.

    Args:
        streams: The streams [m].
        size: Number of normals from each stream.

    Returns:
        The normals, float64 [m, size] on the CPU.
    """
    import torch

    out = torch.empty(len(streams), size, dtype=torch.float64)
    for column in range(0, size, 2 * PAIRS_AT_ONCE):
        chunk = out[:, column : column + 2 * PAIRS_AT_ONCE]
        pairs = (chunk.shape[1] + 1) // 2  # of an odd number of normals the last sine is dropped
        rows_at_once = max(1, PAIRS_AT_ONCE // pairs)
        random_words = torch.empty(min(rows_at_once, len(streams)), 2, pairs, dtype=torch.int64)
        memory = random_words.numpy().data.cast("B")
        for first in range(0, len(streams), rows_at_once):
            rows = chunk[first : first + rows_at_once]
            for index, stream in enumerate(streams[first : first + rows_at_once]):
                stream.write_words(memory[16 * pairs * index : 16 * pairs * (index + 1)])
            write_normals(random_words[: len(rows), 0], random_words[: len(rows), 1], rows)
    return out


def write_normals(radii: Tensor, angles: Tensor, out: Tensor) -> None:
    """Transform uniform words into standard normals r cos φ and r sin φ, after Box and Muller.

        u = (k + ½) 2^-63,   r = √(-2 log u),   φ = π 2^-63 a

    with k the lower 63 bits of a word of ``radii`` and a the word of ``angles``.

    The radius reaches 9.42. Up to 8.4 neighbouring radii are closer than 2^-14; beyond lies 5·10^-16 of the
    mass. In float64 a small k keeps its relative precision, which float32 or a quotient of whole numbers
    would lose, and with it the tail of the noise.

    Args:
        radii: Words of the radii, int64 [m, p]; overwritten.
        angles: Words of the angles, int64 [m, p].
        out: Result, float64 [m, 2p] or [m, 2p - 1].
    """
    import torch

    pairs = radii.shape[1]
    r = radii.bitwise_and_(0x7FFFFFFFFFFFFFFF).to(torch.float64).add_(0.5).mul_(2.0**-63)
    np.log(r.numpy(), out=r.numpy())  # three times as fast as torch.log
    r.mul_(-2.0).sqrt_()
    phi = angles.to(torch.float64).mul_(math.pi * 2.0**-63)
    rest = out.shape[1] - pairs
    torch.mul(phi.cos(), r, out=out[:, :pairs])
    torch.mul(phi.sin_()[:, :rest], r[:, :rest], out=out[:, pairs:])
