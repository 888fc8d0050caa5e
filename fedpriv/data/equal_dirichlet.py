"""A partition into clients of equal size, each with label shares of its own."""

from __future__ import annotations

import numpy as np

from fedpriv.common.fields import declared, field, number, random_seed, whole
from fedpriv.common.random_streams import numpy_stream
from fedpriv.data.base import Partition
from fedpriv.data.partitions import refuse_more_clients_than_records, refuse_sequences


@declared
class EqualDirichlet(Partition):
    """Partition into clients of equal size, the label shares of each drawn from Dirichlet(alpha, …, alpha).

    Every client gets ``n // clients`` records, and the records that are left over are not used. A client
    draws the labels of its records from its shares, among the labels that still have records. Where all
    labels with a share have run out, the client takes records of any label, so the last clients are less
    uneven.

    ``Dirichlet`` divides each label among the clients instead, which makes clients of unequal size.

    Source:
        Hsu, Qi, Brown 2019, Measuring the Effects of Non-Identical Data Distribution; pfl-research's CIFAR-10
        benchmark uses it with alpha = 0.1.

    Example:
        >>> labels = np.repeat([0, 1], 50)
        >>> clients = EqualDirichlet(clients=4, alpha=0.1).assign(labels)
        >>> [len(indices) for indices in clients]
        [25, 25, 25, 25]
    """

    by_count = True

    clients: int = field(whole(at_least=1), default=10, help="number of clients")
    alpha: float = field(
        number(above=0, at_most=1e6),
        default=0.1,
        help="concentration; a small value gives each client few labels",
    )
    seed: int = field(random_seed, default=0, help="seed that draws the shares and the records")

    def assign(self, labels: np.ndarray, client_ids: np.ndarray | None = None) -> list[np.ndarray]:
        """Return the indices of each client from the labels [n].

        Raises:
            ConfigError: There are too few records, or a record has a sequence of targets.
        """
        refuse_sequences("dirichlet_equal", labels)
        refuse_more_clients_than_records(self.clients, len(labels))
        stream = numpy_stream(self.seed, "partition_dirichlet_equal")
        kinds, label_of = np.unique(labels, return_inverse=True)
        pools = [stream.permutation(np.flatnonzero(label_of == k)) for k in range(len(kinds))]
        used = np.zeros(len(kinds), dtype=np.int64)
        sizes = np.array([len(pool) for pool in pools])
        parts = []
        for _ in range(self.clients):
            shares = stream.dirichlet(np.full(len(kinds), self.alpha))
            counts = np.zeros(len(kinds), dtype=np.int64)
            while missing := len(labels) // self.clients - counts.sum():
                left = sizes - used - counts
                open_shares = np.where(left > 0, shares, 0.0)
                if (
                    not open_shares.sum() > 0
                ):  # also where all shares are too small to be told from 0
                    open_shares = (left > 0).astype(float)
                drawn = stream.multinomial(missing, open_shares / open_shares.sum())
                counts += np.minimum(drawn, left)
            chosen = [pools[k][used[k] : used[k] + counts[k]] for k in np.flatnonzero(counts)]
            used += counts
            parts.append(np.sort(np.concatenate(chosen)))
        return parts
