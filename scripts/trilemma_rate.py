"""Fit the rate of theory to the runs of robust/trilemma.

    python scripts/trilemma_rate.py [outputs/reference/robust/trilemma/ends.csv]

Allouah et al., "On the privacy-robustness-utility trilemma" (ICML 2023), bound the error of n clients, f of
them malicious, from below by terms in 1/(n ε²) (privacy), f/(n ε²) (privacy and robustness together) and f/n
(robustness), up to constants and logarithms. The script fits

    loss(ε, f) = loss_0 + a/(n ε²) + b f/(n ε²) + c f/n,      a, b, c >= 0

to the test losses of all seeds by least squares of relative errors. It prints the constants, the share of the
variance of log loss that the fit explains, and the losses beside the fitted ones.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.optimize import nnls

DEFAULT = Path(__file__).resolve().parents[1] / "outputs/reference/robust/trilemma/ends.csv"
CLIENTS = 20


def main(path: Path) -> None:
    """Print the fit for the runs in ``path``."""
    table = pd.read_csv(path)
    table = table[np.isfinite(table["test_loss"])]
    epsilon = table["point"].to_numpy(dtype=float)
    attackers = table["curve"].str.removeprefix("attackers_").astype(float).to_numpy()
    loss = table["test_loss"].to_numpy(dtype=float)
    privacy = 1.0 / (CLIENTS * epsilon**2)
    terms = np.column_stack([np.ones_like(loss), privacy, attackers * privacy, attackers / CLIENTS])
    constants, _ = nnls(terms / loss[:, None], np.ones_like(loss))
    fitted = terms @ constants
    residual = np.log(loss) - np.log(fitted)
    explained = 1.0 - residual.var() / np.log(loss).var()
    names = ("loss_0", "a", "b", "c")
    print(", ".join(f"{name} = {value:.4g}" for name, value in zip(names, constants, strict=True)))
    print(f"explains {explained:.1%} of the variance of log loss ({len(loss)} runs)")
    table = table.assign(attackers=attackers.astype(int), fitted=fitted)
    print(
        table.groupby(["attackers", "point"])[["test_loss", "fitted"]].mean().round(3).to_string()
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else DEFAULT)
