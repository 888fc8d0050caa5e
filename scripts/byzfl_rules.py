"""Write tests/aggregation/byzfl_rules.json: what ByzFL's rules return for given vectors.

    python -m venv ENV --system-site-packages && ENV/bin/pip install --no-deps byzfl==0.0.11
    ENV/bin/python scripts/byzfl_rules.py

ByzFL pins old versions of NumPy and torch, hence the environment of its own. What is wrong in that version
is left out: Krum's scores have one neighbour more than the paper's, and CAF takes one step of a power
iteration from a random vector. ARC writes into its input, so it gets a copy.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from types import ModuleType

import numpy as np

# The benchmark imports data sets and plots, which the rules do not need.
sys.modules["byzfl.benchmark"] = ModuleType("byzfl.benchmark")

from byzfl.aggregators import (  # noqa: E402
    CenteredClipping,
    GeometricMedian,
    Median,
    TrMean,
)
from byzfl.aggregators.preaggregators import ARC, NNM  # noqa: E402

OUT = Path(__file__).resolve().parents[1] / "tests" / "aggregation" / "byzfl_rules.json"
COUNT, SIZE, TOLERATED = 11, 12, 3


def main() -> None:
    """Write the file."""
    generator = np.random.default_rng(39)
    vectors = generator.normal(0.3, 1.0, (COUNT, SIZE)).astype(np.float32)
    vectors[2], vectors[5], vectors[9] = vectors[2] * 9, vectors[5] + 4, -vectors[9] * 3
    vectors = vectors.astype(np.float64)
    later = np.round(vectors[::-1] * 0.5, 6)
    clipping = CenteredClipping(L=3, tau=2.0)
    results = {
        "median": Median()(vectors),
        "median of 10": Median()(vectors[:10]),
        "trimmed_mean": TrMean(TOLERATED)(vectors),
        "geometric_median": GeometricMedian(nu=1e-6, T=3000)(vectors),
        "centered_clipping": clipping(vectors),
        "centered_clipping again": clipping(later),
        "nnm, median": Median()(NNM(TOLERATED)(vectors)),
        "arc, trimmed_mean": TrMean(TOLERATED)(ARC(TOLERATED)(vectors.copy())),
        "nnm, arc, geometric_median": GeometricMedian(nu=1e-6, T=3000)(
            ARC(TOLERATED)(NNM(TOLERATED)(vectors))
        ),
    }
    facts = {"byzfl": "0.0.11", "command": "python scripts/byzfl_rules.py", "tolerated": TOLERATED}
    stored = {
        **facts,
        "vectors": vectors.tolist(),
        "later": later.tolist(),
        "results": {name: np.asarray(result).tolist() for name, result in results.items()},
    }
    OUT.write_text(json.dumps(stored, indent=1) + "\n", "utf-8")


if __name__ == "__main__":
    main()
