"""The data of a shadow run: the clients of another run, with half of a pool of records in place of theirs.

The pool holds every record of these clients, and as many that none of them has (or all, where there are
fewer). Shadow runs 2j and 2j+1 have the two halves of the pool's jth permutation, so that each record is in
exactly half of an even number of them. A half is dealt to the clients by size and label alone, whoever held
its records. Records are numbered: the training records from 0, then the test records.

Source of the design: Carlini et al., "Membership inference attacks from first principles", S&P 2022.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.names import HELD_OUT, TEST, Shadow
from fedpriv.data.records import Records

if TYPE_CHECKING:
    from fedpriv.data.federated import FederatedData


def records_at(data: FederatedData, numbers: np.ndarray) -> Records:
    """The records of these numbers, in their order."""
    of_test = numbers >= len(data.train)
    train = data.train.subset(numbers[~of_test])
    if not of_test.any():
        return train
    test = data.test.subset(numbers[of_test] - len(data.train))
    order = np.argsort(np.concatenate([np.flatnonzero(~of_test), np.flatnonzero(of_test)]))
    return _together(train, test).subset(order)


def _together(train: Records, test: Records) -> Records:
    import torch

    inputs = torch.cat([train.inputs, test.inputs])
    return Records(inputs, torch.cat([train.targets, test.targets]))


def outside(data: FederatedData, nonmembers: str) -> np.ndarray:
    """The numbers of the records that no client has."""
    count = len(data.train)
    if nonmembers == TEST:
        return np.arange(count, count + len(data.test))
    return np.setdiff1d(np.arange(count), np.concatenate(data.clients))


def outside_pool(data: FederatedData, nonmembers: str, seed: int) -> np.ndarray:
    """The numbers of those in the pool that no client has, ascending."""
    found, most = outside(data, nonmembers), int(data.records_per_client.sum())
    return np.sort(numpy_stream(seed, "shadow_pool").permutation(found)[:most])


def shadow_clients(data: FederatedData, shadow: Shadow) -> list[np.ndarray]:
    """The numbers of each client's records in the shadow run, ascending."""
    pool = np.concatenate([*data.clients, outside_pool(data, shadow.nonmembers, shadow.seed)])
    pair, second = divmod(shadow.half, 2)
    order = numpy_stream(shadow.seed, "shadow_half", pair).permutation(np.sort(pool))
    middle = len(order) // 2
    half = order[middle:] if second else order[:middle]
    return _deal(data, half, numpy_stream(shadow.seed, "shadow_deal", shadow.half))


def of_shadow(data: FederatedData, shadow: Shadow) -> FederatedData:
    """What the shadow run trains on. Raises ConfigError where a client would get nothing."""
    clients = shadow_clients(data, shadow)
    if shadow.nonmembers == HELD_OUT:
        return replace(data, clients=clients)
    numbers = np.arange(len(data.train)) if data.numbers is None else data.numbers
    added = numbers.max() + 1 + np.arange(len(data.test))
    return replace(
        data,
        train=_together(data.train, data.test),
        clients=clients,
        numbers=np.append(numbers, added),
    )


def _deal(data: FederatedData, half: np.ndarray, stream: np.random.Generator) -> list[np.ndarray]:
    """Each client gets as many as it had, of about the same labels; of fewer each gets a smaller share."""
    sizes = data.records_per_client
    if len(half) < len(sizes):
        raise ConfigError(
            f"a shadow run has {len(half)} records for {len(sizes)} clients: there are too few records "
            "that no client has"
        )
    labels = _labels(data)
    owner = np.repeat(np.arange(len(sizes)), sizes)
    place = np.concatenate([stream.permutation(size) for size in sizes])
    # a place in each client first, then evenly
    taken = np.argsort(place / np.repeat(sizes, sizes), kind="stable")[: len(half)]
    wanted = labels[np.concatenate(data.clients)][taken]
    slots = taken[np.lexsort((stream.random(len(taken)), wanted))]
    dealt = half[np.lexsort((stream.random(len(half)), labels[half]))]
    return [np.sort(dealt[owner[slots] == client]) for client in range(len(sizes))]


def _labels(data: FederatedData) -> np.ndarray:
    """Of every record; all alike where a record has a sequence of targets."""
    parts = (data.train.targets, data.test.targets)
    if data.train.targets.ndim != 1:
        return np.zeros(sum(map(len, parts)), dtype=np.int64)
    return np.concatenate([part.cpu().numpy() for part in parts])
