"""Data of a shadow run: the clients of another run, with half of a pool of records instead of their own.

The pool holds every record of these clients and equally many records that no client holds (or all of them,
if there are fewer). Shadow runs 2j and 2j+1 train on the two halves of the pool's jth permutation. Each
record is therefore in exactly half of an even number of shadow runs. A half is assigned to the clients by
client size and label alone, whichever client held a record before. Records are numbered: first the
training records from 0, then the test records.

Source of the design: Carlini et al., "Membership inference attacks from first principles", S&P 2022.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from fedpriv.common.errors import ConfigError
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.client_records import ClientRecords
from fedpriv.data.names import HELD_OUT, TEST, Shadow
from fedpriv.data.records import Records

if TYPE_CHECKING:
    from fedpriv.data.federated import FederatedData


def records_at(data: FederatedData, numbers: np.ndarray) -> Records:
    """Return the records with these numbers, in their order.

    Args:
        data: Federated data of the audited run.
        numbers: Numbers of records [m]; the test records follow the training records.
    """
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
    """Return the numbers of the records that no client holds.

    Args:
        data: Federated data of the audited run.
        nonmembers: ``test`` for the test records, ``held_out`` for training records without a client.
    """
    count = len(data.train)
    if nonmembers == TEST:
        return np.arange(count, count + len(data.test))
    return np.setdiff1d(np.arange(count), data.clients.indices)


def outside_pool(data: FederatedData, nonmembers: str, seed: int) -> np.ndarray:
    """Return the numbers of the pool's records that no client holds, ascending.

    They are drawn at random, as many as the clients hold together, or all of them if there are fewer.

    Args:
        data: Federated data of the audited run.
        nonmembers: ``test`` or ``held_out``, see :func:`outside`.
        seed: Seed of the draw.
    """
    nonmember_numbers, member_count = outside(data, nonmembers), int(data.records_per_client.sum())
    return np.sort(numpy_stream(seed, "shadow_pool").permutation(nonmember_numbers)[:member_count])


def shadow_clients(data: FederatedData, shadow: Shadow) -> ClientRecords:
    """Return the record numbers of each client in the shadow run, ascending."""
    nonmembers = outside_pool(data, shadow.nonmembers, shadow.seed)
    pool = np.concatenate([data.clients.indices, nonmembers])
    pair, is_second_half = divmod(shadow.half, 2)
    order = numpy_stream(shadow.seed, "shadow_half", pair).permutation(np.sort(pool))
    middle = len(order) // 2
    half = order[middle:] if is_second_half else order[:middle]
    return _deal(data, half, numpy_stream(shadow.seed, "shadow_deal", shadow.half))


def of_shadow(data: FederatedData, shadow: Shadow) -> FederatedData:
    """Return the federated data of the shadow run.

    With ``nonmembers="test"`` the test records are appended to the training records. They also stay the test
    records, so the shadow run's own accuracy means nothing.

    Args:
        data: Federated data of the audited run.
        shadow: The half that the shadow run trains on.

    Raises:
        ConfigError: There are fewer records than clients.
    """
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


def _deal(data: FederatedData, half: np.ndarray, stream: np.random.Generator) -> ClientRecords:
    """Assign the records of a half to clients.

    Each client gets as many records as before, with about the same labels. If the half has fewer records
    than the clients had, every client gets a smaller share.
    """
    sizes = data.clients.sizes
    if len(half) < len(sizes):
        raise ConfigError(
            f"a shadow run has {len(half)} records for {len(sizes)} clients: there are too few records "
            "that no client has"
        )
    labels = _labels(data)
    owners = data.clients.owners
    position = np.concatenate([stream.permutation(size) for size in sizes])
    # The slots of every client are spread evenly over [0, 1). Taking the first ones gives each client a
    # slot first (position 0) and then shrinks all clients in proportion to their size.
    slots = np.argsort(position / np.repeat(sizes, sizes), kind="stable")[: len(half)]
    wanted_labels = labels[data.clients.indices][slots]
    slots_by_label = slots[np.lexsort((stream.random(len(slots)), wanted_labels))]
    sorted_half = half[np.lexsort((stream.random(len(half)), labels[half]))]
    return ClientRecords.by_owner(owners[slots_by_label], len(sizes), sorted_half)


def _labels(data: FederatedData) -> np.ndarray:
    """Return the label of every record; all 0 if a record has a sequence of targets."""
    parts = (data.train.targets, data.test.targets)
    if data.train.targets.ndim != 1:
        return np.zeros(sum(map(len, parts)), dtype=np.int64)
    return np.concatenate([part.cpu().numpy() for part in parts])
