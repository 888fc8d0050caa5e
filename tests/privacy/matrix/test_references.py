"""Errors of the optimised strategies beside those of jax-privacy and pfl-research, for the same n, b, k.

The stored numbers are what ``scripts/matrix_references.py`` printed with jax-privacy 2.0.0 and pfl 0.6.0:
prefix sums, rounds at least b apart, at most k of a client, noise multiplier 1. A strategy is optimised for
the mean, or for the largest, error.
"""

from __future__ import annotations

import pytest

from fedpriv.privacy.matrix.make import make_strategy
from fedpriv.privacy.matrix.participation import MinSeparation
from fedpriv.privacy.matrix.strategy import error
from fedpriv.privacy.matrix.workload import MAX, MEAN, Workload

JAX_PRIVACY = {
    ("banded_toeplitz", 64, 16, 4): {MEAN: 4.700108745531773, MAX: 5.735034158206568},
    ("banded_toeplitz", 256, 32, 8): {MEAN: 8.730818265146494, MAX: 10.887995020659156},
    ("banded_toeplitz", 1000, 100, 10): {MEAN: 11.572670973957797, MAX: 14.293214377280684},
    ("banded", 64, 16, 4): {MEAN: 4.585262769034568},
    ("banded", 256, 32, 8): {MEAN: 8.55500402173976},
    ("blt", 64, 16, 4): {MEAN: 4.91683830207365, MAX: 5.90765757003954},
    ("blt", 256, 32, 8): {MEAN: 9.245223696332664, MAX: 11.377297400104993},
    ("blt", 1000, 100, 10): {MEAN: 12.193851565550721, MAX: 14.952974918635913},
}

PFL_RESEARCH = {
    ("banded", 64, 16, 4): {MEAN: 4.585235716093074, MAX: 5.562111090133658},
    ("banded", 256, 32, 8): {MEAN: 8.553597657473551, MAX: 10.684779940172502},
}
"""Both of one strategy, optimised for the mean: C'C is the Gram matrix that its optimiser finds."""


@pytest.mark.few(3)
@pytest.mark.parametrize(
    ("setting", "objective"),
    [(setting, of) for setting, found in JAX_PRIVACY.items() for of in found],
)
def test_the_error_is_that_of_jax_privacy(setting, objective):
    name, rounds, rest, times = setting
    workload, participation = Workload(rounds), MinSeparation(rest, times)
    strategy = make_strategy(name, workload, participation, objective=objective)
    found = error(strategy, participation, workload, objective)
    assert found == pytest.approx(JAX_PRIVACY[setting][objective], rel=0.01)


@pytest.mark.parametrize("setting", PFL_RESEARCH, ids=str)
def test_both_errors_are_those_of_pfl_research(setting):
    name, rounds, rest, times = setting
    workload, participation = Workload(rounds), MinSeparation(rest, times)
    strategy = make_strategy(name, workload, participation)
    for objective, wanted in PFL_RESEARCH[setting].items():
        found = error(strategy, participation, workload, objective)
        assert found == pytest.approx(wanted, rel=0.01)
