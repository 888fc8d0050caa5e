"""Partitions: rules that assign the training records to clients.

A partition is a function of the labels (or of the records' authors) and of its seed. ``assign`` returns
the record indices of each client: int64, sorted, disjoint, never empty. It raises ConfigError if the data
cannot be split by the settings; constructors raise ArgumentError.

Files of the user's own are dealt by ``deal`` instead, where a partition is ``stable``: by the coin of each
record's unit, so that one more record changes no other record's client.
"""

from __future__ import annotations

import numpy as np

from fedpriv.common.errors import ArgumentError, ConfigError
from fedpriv.common.fields import (
    boolean,
    declared,
    field,
    number,
    or_null,
    random_seed,
    whole,
)
from fedpriv.common.random_streams import numpy_stream
from fedpriv.common.words import in_short
from fedpriv.data.base import Partition
from fedpriv.data.client_records import ClientRecords
from fedpriv.data.roles import Units, coin, keys_of_names


@declared
class Iid(Partition):
    """Partition into shuffled, equal shares: client sizes differ by at most one.

    Files of the user's own are dealt by coins, so client sizes differ more; ``equal`` makes them equal.

    Example:
        >>> clients = Iid(clients=2).assign(np.arange(4))
        >>> [len(indices) for indices in clients]
        [2, 2]
    """

    by_count = True

    clients: int = field(whole(at_least=1), default=10, help="number of clients")
    seed: int = field(random_seed, default=0, help="seed that shuffles the records")
    equal: bool | None = field(
        or_null(boolean),
        default=None,
        help="true: equal shares of files of your own too, where one more record moves others; null: coins",
    )

    def __attrs_post_init__(self) -> None:
        vars(self)["stable"] = not self.equal

    def deal(self, units: Units) -> ClientRecords:
        """Return the indices of each client, of which some may have none."""
        owners = (units.coins("partition_iid") * self.clients).astype(np.int64)
        return ClientRecords.by_owner(owners, self.clients)

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> ClientRecords:
        """Return the indices of each client; ``labels`` [n] gives only the number of records.

        Raises:
            ConfigError: There are too few records.
        """
        refuse_more_clients_than_records(self.clients, len(labels))
        shuffled = numpy_stream(self.seed, "partition_iid").permutation(len(labels))
        owners = np.repeat(np.arange(self.clients), even_shares(len(labels), self.clients))
        return ClientRecords.by_owner(owners, self.clients, shuffled)


@declared
class FixedSize(Partition):
    """Partition with exactly ``records`` records for every client, drawn without replacement.

    The ``clients * records`` records are drawn from all training records. The other records are not used.

    Source:
        Wei et al., CDP with communication rounds discounting: 50 clients of 128 records.

    Example:
        >>> clients = FixedSize(clients=2, records=1).assign(np.arange(4))
        >>> [len(indices) for indices in clients]
        [1, 1]
    """

    by_count = True

    clients: int = field(whole(at_least=1), default=50, help="number of clients")
    records: int = field(
        whole(at_least=1),
        default=128,
        help="number of records of each client; 128 by default, fewer in a small data set",
    )
    seed: int = field(random_seed, default=0, help="seed that draws the records")

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> ClientRecords:
        """Return the indices of each client; ``labels`` [n] gives only the number of records.

        Raises:
            ConfigError: There are too few records.
        """
        refuse_more_clients_than_records(self.clients, len(labels))
        most = len(labels) // self.clients
        if self.records > most:
            allowed = f"<= {most} ({len(labels)} training records over {self.clients} clients)"
            raise ConfigError("partition.records", self.records, allowed)
        shuffled = numpy_stream(self.seed, "partition_fixed_size").permutation(len(labels))
        drawn = shuffled[: self.clients * self.records]
        owners = np.repeat(np.arange(self.clients), self.records)
        return ClientRecords.by_owner(owners, self.clients, drawn)


@declared
class Shards(Partition):
    """Partition of the records, sorted by label, into equal shards that are dealt to clients at random.

    The number of shards is ``clients * shards_per_client``. Either of ``shards`` and
    ``shards_per_client`` may be None and then follows from the other. Records of one label keep their order
    in the file, shard sizes differ by at most one, and every record is used. Few shards per client leave
    each client few labels.

    Source:
        McMahan et al. 2017, section 3 (2 shards per client); Fu et al. 2022 (Adap DP-FL) with 400
        "fragments", 40 for each of 10 clients.

    Example:
        >>> Shards(clients=2, shards_per_client=1).assign(np.array([0, 1, 0, 1]))[0].tolist()
        [0, 2]
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
    seed: int = field(random_seed, default=0, help="seed that deals out the shards")

    def __attrs_post_init__(self) -> None:
        if self.shards is None and self.shards_per_client is None:
            allowed = "a whole number when shards_per_client is null"
            raise ArgumentError("shards", None, allowed)
        if self.shards_per_client is None and self.shards is not None:
            self.shards_per_client, remainder = divmod(self.shards, self.clients)
            if remainder:
                largest_divisor = min(self.shards, 1000)
                divisors = [str(n) for n in range(1, largest_divisor + 1) if self.shards % n == 0]
                allowed = f"a divisor of partition.shards = {self.shards} ({in_short(divisors)})"
                hint = f"or set partition.shards to a multiple of {self.clients}, or partition=iid"
                raise ArgumentError("clients", self.clients, allowed, hint)
        assert self.shards_per_client is not None
        total = self.clients * self.shards_per_client
        if self.shards not in (None, total):
            rule = (
                f"clients * shards_per_client = {self.clients} * {self.shards_per_client} = {total}"
            )
            raise ArgumentError("shards", self.shards, f"{rule}, or null")
        self.shards = total

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> ClientRecords:
        """Return the indices of each client from the labels [n].

        Raises:
            ConfigError: There are fewer records than shards, or a record has a sequence of targets.
        """
        refuse_sequences("shards", labels)
        refuse_more_clients_than_records(self.clients, len(labels))
        assert self.shards is not None
        assert self.shards_per_client is not None
        if self.shards > len(labels):
            allowed = f"<= {len(labels)} (the number of training records)"
            raise ConfigError("partition.shards", self.shards, allowed)
        by_label = np.argsort(labels, kind="stable")
        shard_order = numpy_stream(self.seed, "partition_shards").permutation(self.shards)
        owner_of_shard = np.empty(self.shards, dtype=np.int64)
        owner_of_shard[shard_order] = np.repeat(np.arange(self.clients), self.shards_per_client)
        owners = np.repeat(owner_of_shard, even_shares(len(labels), self.shards))
        return ClientRecords.by_owner(owners, self.clients, by_label)


@declared
class Dirichlet(Partition):
    """Partition in which each label is divided among clients in proportions ~ Dirichlet(alpha, …, alpha).

    A small ``alpha`` gives each client few labels and clients of unequal size; a large ``alpha`` approaches
    iid. A draw that leaves a client fewer than ``min_records`` records is discarded and repeated, at most
    ``TRIES`` times. Every record is used. Of a file of the user's own, the shares of each label are drawn
    once, whatever the records are, and a record's coin falls into one of them.

    Source:
        Yurochkin et al. 2019; the repeated draw follows Li et al. 2022 (NIID-Bench).

    Example:
        >>> labels = np.repeat([0, 1], 50)
        >>> clients = Dirichlet(clients=2, alpha=1.0).assign(labels)
        >>> sum(len(indices) for indices in clients)
        100
    """

    TRIES = 100
    stable = True

    clients: int = field(whole(at_least=1), default=10, help="number of clients")
    # Beyond 1e6 the partition is practically iid. Far beyond, the sum of numpy's gamma draws overflows.
    alpha: float = field(
        number(above=0, at_most=1e6),
        default=0.5,
        help="concentration; a small value gives each client few labels",
    )
    min_records: int = field(
        whole(at_least=1),
        default=10,
        help=(
            "least number of records of a client; the partition is drawn again until every "
            "client has as many, but of files of your own, which are drawn once"
        ),
    )
    seed: int = field(random_seed, default=0, help="seed that draws the proportions")

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> ClientRecords:
        """Return the indices of each client from the labels [n].

        Raises:
            ConfigError: A record has a sequence of targets, or no draw left every client enough records.
        """
        refuse_sequences("dirichlet", labels)
        refuse_more_clients_than_records(self.clients, len(labels))
        most = len(labels) // self.clients
        if self.min_records > most:
            allowed = f"<= {most} ({len(labels)} training records over {self.clients} clients)"
            raise ConfigError("partition.min_records", self.min_records, allowed)
        for attempt in range(self.TRIES):
            clients = self._draw(labels, attempt)
            if clients.sizes.min() >= self.min_records:
                return clients
        raise ConfigError(
            f"partition: {self.TRIES} draws left a client with fewer than "
            f"partition.min_records={self.min_records} records",
            hint="raise partition.alpha, or lower partition.clients or partition.min_records",
        )

    def deal(self, units: Units) -> ClientRecords:
        """Return the indices of each client, of which some may have none."""
        refuse_sequences("dirichlet", units.labels)
        coins, owners = units.coins("partition_dirichlet"), np.zeros(len(units.labels), np.int64)
        for label in np.unique(units.labels).tolist():
            stream = numpy_stream(units.seed, "partition_dirichlet_shares", label)
            ends = np.cumsum(stream.dirichlet(np.full(self.clients, self.alpha)))
            members = units.labels == label
            owners[members] = np.searchsorted(ends[:-1], coins[members], side="right")
        return ClientRecords.by_owner(owners, self.clients)

    def _draw(self, labels: np.ndarray, attempt: int) -> ClientRecords:
        stream = numpy_stream(self.seed, "partition_dirichlet", attempt)
        owner = np.empty(len(labels), dtype=np.int64)
        for label in np.unique(labels):
            members = stream.permutation(np.flatnonzero(labels == label))
            shares = stream.dirichlet(np.full(self.clients, self.alpha))
            ends = np.rint(np.cumsum(shares)[:-1] * len(members)).astype(np.int64)
            counts = np.diff(ends, prepend=0, append=len(members))
            owner[members] = np.repeat(np.arange(self.clients), counts)
        return ClientRecords.by_owner(owner, self.clients)


@declared
class Natural(Partition):
    """Partition with one client per author of records, in the order of the author ids.

    For MNIST an author is a writer. Authors with fewer than ``min_records`` records are left out. If
    ``clients`` is None all other authors are clients; otherwise ``seed`` chooses that many of them, and a
    smaller choice is part of a larger one. With ``share`` each author is a client by a coin of its own.
    Records of other authors are not used.

    Example:
        >>> clients = Natural().assign(np.zeros(3), client_ids=np.array([7, 9, 7]))
        >>> [indices.tolist() for indices in clients]
        [[0, 2], [1]]
    """

    by_user = True

    clients: int | None = field(
        or_null(whole(at_least=1)),
        default=None,
        help="number of users, chosen by seed; null: all with enough records",
    )
    min_records: int = field(
        whole(at_least=1), default=1, help="users with fewer records are left out"
    )
    seed: int = field(random_seed, default=0, help="seed that chooses the users")
    share: float | None = field(
        or_null(number(above=0, at_most=1)),
        default=None,
        help="share of the users, each chosen by a coin of its own, in place of clients; null: no choice",
    )

    def __attrs_post_init__(self) -> None:
        if self.share is not None and self.clients is not None:
            raise ArgumentError("share", f"{self.share:g}", "null with partition.clients")
        vars(self)["stable"] = self.clients is None

    def deal(self, units: Units) -> ClientRecords:
        coins = None if self.share is None else units.coins_of_clients("partition_natural")
        return self._clients(units.client_ids, coins)

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> ClientRecords:
        """Return the indices of each client from the authors ``client_ids`` [n]; ``labels`` do not count.

        Raises:
            ConfigError: There are no authors, or too few with enough records.
        """
        coins = None
        if self.share is not None and client_ids is not None:
            names = keys_of_names(range(int(client_ids.max()) + 1))
            coins = coin(self.seed, "partition_natural", names)
        return self._clients(client_ids, coins)

    def _clients(self, client_ids: np.ndarray | None, coins: np.ndarray | None) -> ClientRecords:
        if client_ids is None:
            raise ConfigError(
                "partition=natural needs the author of each record, and this data set has no authors",
                hint="with dataset=mnist put MNIST/train-writers.npy (60000 whole numbers, the "
                "writer of each training image) into the data folder, take dataset=femnist instead "
                "of emnist, with dataset=csv name the column of the user in dataset.user, or choose "
                "another partition",
            )
        authors, author_of_record, counts = np.unique(
            client_ids, return_inverse=True, return_counts=True
        )
        chosen = np.flatnonzero(counts >= self.min_records)
        if not len(chosen):
            allowed = f"<= {counts.max()} (the largest number of records of a user)"
            raise ConfigError("partition.min_records", self.min_records, allowed)
        if coins is not None:
            chosen = chosen[coins[authors[chosen]] < self.share]
            if not len(chosen):
                raise ConfigError("partition.share", self.share, "a share with at least one user")
        if self.clients is not None:
            if self.clients > len(chosen):
                requirement = (
                    f"the number of users with at least {self.min_records} training records"
                )
                allowed = f"<= {len(chosen)} ({requirement})"
                raise ConfigError("partition.clients", self.clients, allowed)
            order = numpy_stream(self.seed, "partition_natural").permutation(len(chosen))
            chosen = np.sort(chosen[order[: self.clients]])
        client_of_author = np.full(len(authors), -1)
        client_of_author[chosen] = np.arange(len(chosen))
        return ClientRecords.by_owner(client_of_author[author_of_record], len(chosen))


def even_shares(count: int, parts: int) -> np.ndarray:
    """Return how many of ``count`` things each of ``parts`` gets [parts]; the first ones get one more."""
    shares = np.full(parts, count // parts)
    shares[: count % parts] += 1
    return shares


def refuse_more_clients_than_records(clients: int, records: int) -> None:
    """Raise ConfigError unless every client can have a record."""
    if clients > records:
        allowed = f"<= {records} (the number of training records)"
        raise ConfigError("partition.clients", clients, allowed)


def refuse_sequences(partition: str, labels: np.ndarray) -> None:
    """Raise ConfigError where a record has a sequence of targets, which has no one label."""
    if labels.ndim != 1:
        raise ConfigError(
            f"partition={partition} needs one label for each record, and the records of a language "
            "model have a sequence of targets; choose partition=natural, iid or fixed_size"
        )
