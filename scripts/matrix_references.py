"""Errors of strategies by jax-privacy and pfl-research, for tests/privacy/matrix/test_references.py.

    python3 -m venv refs && refs/bin/pip install 'jax-privacy>=2'    (or 'pfl[pytorch]==0.6.0': they do not
    refs/bin/python scripts/matrix_references.py                      share an environment)

Needs neither fedpriv nor its dependencies. The optimisers of jax-privacy take one to ten minutes for each
row on one core. An error is sensitivity × root of the mean, or largest, squared error of prefix sums: of
rounds at least b apart, at most k of a client.
"""

from __future__ import annotations

import numpy as np

SETTINGS = ((64, 16, 4), (256, 32, 8), (1000, 100, 10))


def of_matrix(matrix: np.ndarray, times: int) -> tuple[float, float]:
    """(mean, largest) error of a banded C whose columns have norm 1 and whose patterns are orthogonal."""
    rounds = len(matrix)
    rows = np.linalg.solve(matrix.T, np.tri(rounds).T).T
    errors = (rows**2).sum(axis=1) * times
    return float(np.sqrt(errors.mean())), float(np.sqrt(errors.max()))


def jax_privacy() -> None:
    import jax
    import jax.numpy as jnp
    from jax_privacy.matrix_factorization import buffered_toeplitz, dense, toeplitz

    jax.config.update("jax_enable_x64", True)
    for rounds, rest, times in SETTINGS:
        for name, reduce in (("mean", jnp.mean), ("max", jnp.max)):
            c = toeplitz.optimize_banded_toeplitz(rounds, rest, reduction_fn=reduce)
            error = reduce(toeplitz.per_query_error(strategy_coef=c, n=rounds))
            square = toeplitz.minsep_sensitivity_squared(
                c, rest, n=rounds, max_participations=times
            )
            print("banded_toeplitz", rounds, rest, times, name, float(error * square) ** 0.5)
            blt = buffered_toeplitz.optimize(
                n=rounds, min_sep=rest, max_participations=times, error=name
            )
            loss = buffered_toeplitz.LossFn.build_min_sep(
                n=rounds, error=name, min_sep=rest, max_participations=times
            ).loss(blt)
            print("blt", rounds, rest, times, name, float(loss) ** 0.5, len(blt.buf_decay))
        if rounds < 1000:
            matrix = dense.optimize(rounds, bands=rest, equal_norm=True, max_optimizer_steps=1000)
            print("banded", rounds, rest, times, *of_matrix(np.asarray(matrix), times))


def pfl_research() -> None:
    from pfl.internal.ops import pytorch_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy.ftrl_mechanism import (
        BandedMatrixFactorizationMechanism,
        FTRLMatrixFactorizer,
    )

    set_framework_module(pytorch_ops)
    for rounds, rest, times in SETTINGS[:2]:
        mask = BandedMatrixFactorizationMechanism._get_banded_matrix_mask(rounds, rest)
        gram = np.asarray(FTRLMatrixFactorizer(np.tri(rounds), mask).optimize(), dtype=float)
        # C'C = gram, as its objective has it; its mechanism takes C C' = gram
        matrix = np.linalg.cholesky(gram[::-1, ::-1]).T[::-1, ::-1]
        print("banded", rounds, rest, times, *of_matrix(matrix, times))


if __name__ == "__main__":
    for compute in (jax_privacy, pfl_research):
        try:
            compute()
        except ImportError as error:
            print(f"{compute.__name__}: not installed here ({error})")
