"""Roles by coins: one more record changes the client, or the role, of nobody else.

A permutation of n records moves everybody as soon as the file has another n, and no ε covers that. Here a
role (client, validation, test, unused) follows from the unit's own key, a public seed and a declared share:

    coin = BLAKE2b(split_seed, purpose, key) in [0, 1)

The coin is public. It decides who is protected, and is no noise.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from fedpriv.common.random_streams import stream_key
from fedpriv.data.records import LoadedDataset, Records


def coin(seed: int, purpose: str, keys: Sequence[bytes]) -> np.ndarray:
    """Return a number in [0, 1) for each key [n], which follows from that key alone.

    Args:
        seed: ``dataset.split_seed``.
        purpose: Name of the purpose, such as ``test``.
        keys: Key of the unit of each record.
    """
    secret = stream_key(seed, purpose).to_bytes(8, "little")
    of_key: dict[bytes, float] = {}
    for key in keys:
        if key not in of_key:
            digest = hashlib.blake2b(key, digest_size=8, key=secret).digest()
            of_key[key] = (int.from_bytes(digest, "little") >> 11) / 2**53
    return np.array([of_key[key] for key in keys])


def told_apart(names: Iterable[bytes]) -> list[bytes]:
    """Return a key for each record: its name, and the number of records before it with that name.

    Records with one name are equal, so one more of them changes no key of the others.
    """
    times_seen: dict[bytes, int] = {}
    keys = []
    for name in names:
        times_seen[name] = times_seen.get(name, -1) + 1
        keys.append(times_seen[name].to_bytes(8, "little") + name)
    return keys


def keys_of_names(names: Iterable[object]) -> list[bytes]:
    """Return a key for each name of a person, of a client or of a record; equal names are one unit."""
    return [bytes(8) + str(name).encode("utf-8", "surrogatepass") for name in names]


def digests_of(records: Records) -> list[bytes]:
    """Return a digest of the inputs and the target of each record."""
    inputs, targets = records.inputs.cpu().numpy(), records.targets.cpu().numpy()
    return [
        hashlib.blake2b(x.tobytes() + y.tobytes(), digest_size=16).digest()
        for x, y in zip(inputs, targets, strict=True)
    ]


@dataclass(frozen=True)
class Units:
    """The units of training records.

    Attributes:
        seed: Public seed of the coins.
        labels: Labels of the records [n], or their sequences of targets [n, L].
        client_ids: User, or holder, of each record, int64 [n], or None.
        names: Name of each user or holder by its id.
        keys: Key of the unit of each record.
    """

    seed: int
    labels: np.ndarray
    client_ids: np.ndarray | None
    names: Sequence[object]
    keys: Sequence[bytes]

    @classmethod
    def of(cls, loaded: LoadedDataset, seed: int, known: bool) -> Units:
        """Return the units of a data set: records by their keys, else their users, else what they hold.

        Args:
            loaded: The data set.
            seed: Public seed of the coins.
            known: No record needs a key: the files are published ones, which stay as they are.
        """
        ids, names = loaded.client_ids, loaded.client_names
        if names is None:
            names = range(0 if ids is None else int(ids.max()) + 1)
        keys = loaded.keys
        if keys is None and not known:
            keys = told_apart(digests_of(loaded.train))
            if ids is not None:
                keys = keys_of_names(names[k] for k in ids)
        return cls(seed, loaded.train.targets.numpy(), ids, names, keys or ())

    def subset(self, indices: np.ndarray) -> Units:
        """Return the units of the records at ``indices`` [m]."""
        ids = None if self.client_ids is None else self.client_ids[indices]
        keys = [self.keys[i] for i in indices] if self.keys else ()
        return Units(self.seed, self.labels[indices], ids, self.names, keys)

    def coins(self, purpose: str) -> np.ndarray:
        """Return the coin of each record's unit [n]."""
        return coin(self.seed, purpose, self.keys)

    def coins_of_clients(self, purpose: str) -> np.ndarray:
        """Return the coin of each user or holder, by its id."""
        return coin(self.seed, purpose, keys_of_names(self.names))
