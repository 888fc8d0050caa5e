"""b-min-sep sampling by all its patterns: slow, and written without what it is held against."""

from __future__ import annotations

from itertools import product

import numpy as np

from fedpriv.privacy.accountants.monte_carlo_patterns import MinSepSampling


def patterns(sampling: MinSepSampling) -> dict[tuple[int, ...], float]:
    """Each pattern and its probability, from all outcomes of a coin for every round and client at rest."""
    n, b, q = sampling.rounds, sampling.separation, sampling.rate
    ready = 1 / (1 + (b - 1) * q)
    firsts = (
        {0: ready, **dict.fromkeys(range(1, b), q * ready)} if sampling.warm_start else {0: 1.0}
    )
    found: dict[tuple[int, ...], float] = {}
    for first, begins in firsts.items():
        for coins in product((False, True), repeat=n):
            pattern, may, probability = [], first, begins
            for t, joins in enumerate(coins):
                if t < may:
                    probability *= 0.5  # a coin that nobody looks at
                else:
                    probability *= q if joins else 1 - q
                    if joins:
                        pattern.append(t)
                        may = t + b
            found[tuple(pattern)] = found.get(tuple(pattern), 0.0) + probability
    return {pattern: p for pattern, p in found.items() if p}


def means(sampling: MinSepSampling) -> tuple[np.ndarray, np.ndarray]:
    """(what each pattern adds [patterns, n + bands - 1], its probability [patterns])."""
    column, known = np.array(sampling.column), patterns(sampling)
    rows = np.zeros((len(known), sampling.rounds + len(column) - 1))
    for row, pattern in zip(rows, known, strict=True):
        for t in pattern:
            row[t : t + len(column)] += column
    return rows, np.array(list(known.values()))


def log_ratio(sampling: MinSepSampling, z: float, answers: np.ndarray) -> np.ndarray:
    """log dP/dQ of ``answers`` [rows, samples]."""
    rows, probabilities = means(sampling)
    logs = rows @ answers / z**2 - (rows**2).sum(axis=1)[:, None] / (2 * z**2)
    return np.log(probabilities @ np.exp(logs))
