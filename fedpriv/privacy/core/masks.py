"""Pairwise masks that cancel in a sum, in honest simulation of secure aggregation.

Source: Bonawitz et al., "Practical secure aggregation for privacy-preserving machine learning", CCS 2017. The
key agreement (X25519) and the cipher (ChaCha20) are those of the ``cryptography`` package.

    client i sends v_i + Σ_{j>i} m_ij - Σ_{j<i} m_ij  mod 2^b,   m_ij = ChaCha20 under H(X25519(i, j))

To the server each such vector is uniform, and the sum is Σ v_i. The simulation leaves out a server that lies
about who takes part, the infrastructure that vouches for public keys, and the recovery of the masks of
clients that drop out after keys were agreed on (Shamir's shares). Here clients drop out before keys are
agreed on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from fedpriv.common.secret_streams import KEY_BYTES, Stream


def pairwise_masks(keys: Sequence[Stream], count: int, bits: int) -> np.ndarray:
    """Return the mask that each client adds, int64 [c, count]; the masks add up to 0 modulo 2^bits.

    Args:
        keys: Secret streams of the clients [c], each of which gives the client's key of this round.
        count: Length of a client's vector.
        bits: b, the size of the modulus.
    """
    private = [X25519PrivateKey.from_private_bytes(k.bits(KEY_BYTES // 8).tobytes()) for k in keys]
    public = [key.public_key() for key in private]
    modulus = np.int64(1) << np.int64(bits)
    masks = np.zeros((len(keys), count), dtype=np.int64)
    for i, own_key in enumerate(private):
        for j in range(i + 1, len(private)):
            mask = mask_of(own_key.exchange(public[j]), count, bits)
            # Reduction after every step keeps the sums within 64 bits.
            masks[i] = (masks[i] + mask) % modulus
            masks[j] = (masks[j] - mask) % modulus
    return masks


def mask_of(shared: bytes, count: int, bits: int) -> np.ndarray:
    """Return m_ij of a shared secret: uniform whole numbers below 2^bits, int64 [count].

    The shared secret is hashed to a key of ChaCha20, whose leading bits are the numbers.
    """
    key = hashlib.blake2b(shared, digest_size=KEY_BYTES, person=b"fedpriv mask").digest()
    return (Stream(key).bits(count) >> np.uint64(64 - bits)).astype(np.int64)
