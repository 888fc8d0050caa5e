"""``fedpriv bench --accounting``: the time that accounting takes with thousands of noise multipliers."""

from __future__ import annotations

import time

from dp_accounting import dp_event

from fedpriv.common.words import round_up
from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.accountants.pld import forget
from fedpriv.privacy.core.names import ADD_OR_REMOVE
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.store.display import console
from fedpriv.store.table import Column, Table

ROUNDS, DISTINCT = 15_000, 6_800
BARS = {"rdp": 1.0, "pld": 5.0}
"""Largest acceptable time of each accountant, in seconds."""


def composition() -> dict[dp_event.DpEvent, int]:
    """Return the releases of Adap DP-FL on MNIST: q = .013, and σ falling from 6 by .9999 in each round."""
    lots = PoissonSampling(0.013)
    counts = {lots.event(6.0 * 0.9999**i): ROUNDS // DISTINCT for i in range(DISTINCT)}
    counts[lots.event(6.0)] += ROUNDS - sum(counts.values())
    return counts


def run(repeats: int) -> int:
    """Print the median time of each accountant, and return the exit status, which is 0 also above a bar.

    Args:
        repeats: Number of answers by each accountant, 1 or more.
    """
    title = f"Accounting: {ROUNDS:,} rounds, {DISTINCT:,} noise multipliers"
    numbers = (Column(name, right=True) for name in ("epsilon", "seconds", "bar"))
    table = Table(title, ("accountant", *numbers))
    published = RdpAccountant(orders=tuple(map(float, range(2, 65))), conversion="classical")
    for accountant in (RdpAccountant(), published, PldAccountant()):
        seconds = []
        for _ in range(repeats):
            counts = composition()
            # Without this all answers but the first would come from the cache.
            forget()
            started = time.perf_counter()
            epsilon = accountant.epsilon_of(counts, 1e-5, ADD_OR_REMOVE)
            seconds.append(time.perf_counter() - started)
        median = sorted(seconds)[len(seconds) // 2]
        bar = f"<= {BARS[accountant.name]:g}"
        table.add(accountant.describe(), round_up(epsilon, 4), f"{median:.2f}", bar)
    console().print(table)
    return 0
