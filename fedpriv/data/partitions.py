"""How training records are spread over clients.

A partition is a function of the labels (or of the records' users) and its seed. ``assign`` returns
one array of record indices per client: int64, sorted, disjoint, never empty. It raises ConfigError
where the data cannot be split as asked; constructors raise ArgumentError.
"""

from __future__ import annotations

import numpy as np

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import declared, field, number, or_null, random_seed, whole
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.words import in_short
from fedpriv.data.base import Partition


@declared
class Iid(Partition):
    """Records shuffled and dealt out evenly: client sizes differ by at most one."""

    by_count = True

    clients: int = field(whole(at_least=1), default=10, help="number of clients")
    seed: int = field(random_seed, default=0, help="shuffles the records")

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> list[np.ndarray]:
        """Indices per client; ``labels`` [n] gives only the number of records."""
        _refuse_more_clients_than_records(self.clients, len(labels))
        shuffled = numpy_stream(self.seed, "partition_iid").permutation(len(labels))
        return [np.sort(part) for part in np.array_split(shuffled, self.clients)]


@declared
class FixedSize(Partition):
    """Every client has exactly ``records`` records, drawn without replacement by ``seed``.

    The ``clients * records`` records are drawn from all training records; the rest is not used.

    Source: Wei et al., CDP with communication rounds discounting: 50 clients of 128 records.
    """

    by_count = True

    clients: int = field(whole(at_least=1), default=50, help="number of clients")
    records: int = field(
        whole(at_least=1),
        default=128,
        help="records of each client; 128 by default, fewer of a small data set",
    )
    seed: int = field(random_seed, default=0, help="draws the records")

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> list[np.ndarray]:
        """Indices per client; ``labels`` [n] gives only the number of records."""
        _refuse_more_clients_than_records(self.clients, len(labels))
        most = len(labels) // self.clients
        if self.records > most:
            allowed = f"<= {most} ({len(labels)} training records over {self.clients} clients)"
            raise ConfigError("partition.records", self.records, allowed)
        shuffled = numpy_stream(self.seed, "partition_fixed_size").permutation(len(labels))
        drawn = shuffled[: self.clients * self.records]
        return list(np.sort(drawn.reshape(self.clients, self.records), axis=1))


@declared
class Shards(Partition):
    """Records sorted by label, cut into equal shards, a fixed number of random shards per client.

    ``shards = clients * shards_per_client``; either of the two may be null and follows from the
    other. Records of one label keep their order in the file, shard sizes differ by at most one and
    every record is used. Few shards per client leave a client few labels.

    Source: McMahan et al. 2017, section 3 (2 shards per client); Fu et al. 2022 (Adap DP-FL) with
    400 "fragments", 40 for each of 10 clients.
    """

    by_count = True

    clients: int = field(whole(at_least=1), default=10, help="number of clients")
    shards: int | None = field(
        or_null(whole(at_least=1)),
        default=None,
        help="number of shards; null: clients * shards_per_client",
    )
    shards_per_client: int | None = field(
        or_null(whole(at_least=1)),
        default=None,
        help="shards of each client; null: shards / clients",
    )
    seed: int = field(random_seed, default=0, help="deals out the shards")

    def __attrs_post_init__(self) -> None:
        if self.shards is None and self.shards_per_client is None:
            allowed = "a whole number when shards_per_client is null"
            raise ArgumentError("shards", None, allowed)
        if self.shards_per_client is None and self.shards is not None:
            self.shards_per_client, left = divmod(self.shards, self.clients)
            if left:
                upto = min(self.shards, 1000)
                divisors = [str(n) for n in range(1, upto + 1) if self.shards % n == 0]
                allowed = f"a divisor of partition.shards = {self.shards} ({in_short(divisors)})"
                hint = f"or set partition.shards to a multiple of {self.clients}"
                raise ArgumentError("clients", self.clients, allowed, hint)
        assert self.shards_per_client is not None
        total = self.clients * self.shards_per_client
        if self.shards not in (None, total):
            rule = (
                f"clients * shards_per_client = {self.clients} * {self.shards_per_client} = {total}"
            )
            raise ArgumentError("shards", self.shards, f"{rule}, or null")
        self.shards = total

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> list[np.ndarray]:
        """Indices per client from the labels [n]."""
        _refuse_sequences("shards", labels)
        _refuse_more_clients_than_records(self.clients, len(labels))
        assert self.shards is not None
        assert self.shards_per_client is not None
        if self.shards > len(labels):
            allowed = f"<= {len(labels)} (the number of training records)"
            raise ConfigError("partition.shards", self.shards, allowed)
        pieces = np.array_split(np.argsort(labels, kind="stable"), self.shards)
        lots = numpy_stream(self.seed, "partition_shards").permutation(self.shards)
        return [
            np.sort(np.concatenate([pieces[shard] for shard in own]))
            for own in lots.reshape(self.clients, self.shards_per_client)
        ]


@declared
class Dirichlet(Partition):
    """Each label is divided among the clients in proportions drawn from Dirichlet(alpha, …, alpha).

    Small ``alpha`` gives each client few labels and clients of unequal size; large ``alpha``
    approaches iid. A draw that leaves a client fewer than ``min_records`` is thrown away and made
    again, at most ``TRIES`` times. Every record is used.

    Source: Yurochkin et al. 2019; the redraw follows Li et al. 2022 (NIID-Bench).
    """

    TRIES = 100

    clients: int = field(whole(at_least=1), default=10, help="number of clients")
    # beyond 1e6 it is iid; far beyond, the sum of numpy's gamma draws overflows
    alpha: float = field(
        number(above=0, at_most=1e6),
        default=0.5,
        help="concentration: a small one gives a client few labels",
    )
    min_records: int = field(
        whole(at_least=1), default=10, help="drawn again until every client has as many records"
    )
    seed: int = field(random_seed, default=0, help="draws the proportions")

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> list[np.ndarray]:
        """Indices per client from the labels [n]."""
        _refuse_sequences("dirichlet", labels)
        _refuse_more_clients_than_records(self.clients, len(labels))
        most = len(labels) // self.clients
        if self.min_records > most:
            allowed = f"<= {most} ({len(labels)} training records over {self.clients} clients)"
            raise ConfigError("partition.min_records", self.min_records, allowed)
        for attempt in range(self.TRIES):
            parts = self._draw(labels, attempt)
            if min(map(len, parts)) >= self.min_records:
                return parts
        raise ConfigError(
            f"partition: {self.TRIES} draws left a client with fewer than "
            f"partition.min_records={self.min_records} records",
            hint="raise partition.alpha, or lower partition.clients or partition.min_records",
        )

    def _draw(self, labels: np.ndarray, attempt: int) -> list[np.ndarray]:
        stream = numpy_stream(self.seed, "partition_dirichlet", attempt)
        owner = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            members = stream.permutation(np.flatnonzero(labels == label))
            shares = stream.dirichlet(np.full(self.clients, self.alpha))
            ends = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            for client, part in enumerate(np.split(members, ends)):
                owner[part] = client
        return [np.flatnonzero(owner == client) for client in range(self.clients)]


@declared
class Natural(Partition):
    """One client per user, the author of the records (for MNIST: per writer), in the order of their ids.

    Makers with fewer than ``min_records`` records are left out. ``clients`` null takes all others;
    a number takes that many, chosen by ``seed`` (a smaller choice is part of a larger one). The
    records of users left out are not used.
    """

    clients: int | None = field(
        or_null(whole(at_least=1)),
        default=None,
        help="number of users, chosen by seed; null: all with enough records",
    )
    min_records: int = field(
        whole(at_least=1), default=1, help="users with fewer records are left out"
    )
    seed: int = field(random_seed, default=0, help="chooses the users")

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> list[np.ndarray]:
        """Indices per client from ``client_ids`` [n]."""
        if client_ids is None:
            raise ConfigError(
                "partition=natural needs to know who made each record, and this data set does not",
                hint="with dataset=mnist put MNIST/train-writers.npy (60000 whole numbers, the "
                "writer of each training image) into the data folder, take dataset=femnist instead "
                "of emnist, or choose another partition",
            )
        authors = self._chosen(*np.unique(client_ids, return_counts=True))
        return [np.flatnonzero(client_ids == author) for author in authors]

    def _chosen(self, authors: np.ndarray, counts: np.ndarray) -> np.ndarray:
        large = authors[counts >= self.min_records]
        if not len(large):
            allowed = f"<= {counts.max()} (the most records anyone made)"
            raise ConfigError("partition.min_records", self.min_records, allowed)
        if self.clients is None:
            return large
        if self.clients > len(large):
            who = f"as many made {self.min_records} or more training records"
            raise ConfigError("partition.clients", self.clients, f"<= {len(large)} ({who})")
        order = numpy_stream(self.seed, "partition_natural").permutation(len(large))
        return np.sort(large[order[: self.clients]])


def _refuse_more_clients_than_records(clients: int, records: int) -> None:
    if clients > records:
        allowed = f"<= {records} (the number of training records)"
        raise ConfigError("partition.clients", clients, allowed)


def _refuse_sequences(partition: str, labels: np.ndarray) -> None:
    if labels.ndim != 1:
        raise ConfigError(
            f"partition={partition} needs one label for each record, and the records of a language "
            "model have a sequence of targets; choose partition=natural, iid or fixed_size"
        )
