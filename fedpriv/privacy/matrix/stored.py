"""Cache of strategies that take minutes to optimise: one file for each in the user's cache folder."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from fedpriv.privacy.core.array_cache import cached_file, read_arrays, write_arrays
from fedpriv.privacy.matrix.banded import Banded
from fedpriv.privacy.matrix.workload import Workload

VERSION = 1
"""Number of the optimisers. It rises whenever one of them would find other numbers."""


def remembered(
    workload: Workload, bands: int, objective: str, find: Callable[[], Banded]
) -> Banded:
    """Return the strategy that the user's cache holds, or else find it and write it there.

    Sensitivity and noise follow from the numbers in the file, whatever they are. A file that was tampered
    with costs accuracy and no privacy.

    Args:
        workload: The map from noised sums to iterates.
        bands: Number of bands.
        objective: ``mean`` or ``max`` of the squared errors of the rounds.
        find: Function that optimises the strategy, which may take minutes.
    """
    key = f"{VERSION} {bands} {objective} {workload!r}"
    path = cached_file(f"banded-{workload.rounds}-{bands}", key, digest_size=8)
    entries = read_arrays(path).get("entries")
    if (
        entries is not None
        and entries.shape == (workload.rounds, bands)
        and entries.dtype == np.float64
        and np.isfinite(entries).all()
        and entries[:, 0].min() > 0
    ):
        return Banded(entries)
    strategy = find()
    write_arrays(path, {"entries": strategy.entries})
    return strategy
