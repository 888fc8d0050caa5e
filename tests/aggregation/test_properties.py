"""Which rule commutes with what: a permutation, a move, a change of scale, a rotation of all uploads.

What the table of docs/guide/robust-aggregation.md claims holds; what it does not claim has a counterexample.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from rule_runs import RULES, result_of, uploads

PAGE = Path(__file__).parents[2] / "docs" / "guide" / "robust-aggregation.md"
PROPERTIES = ("permutation", "translation", "scale", "rotation")
HOLDS = {
    "median": "permutation translation scale",
    "trimmed_mean": "permutation translation scale",
    "krum": "permutation translation scale rotation",
    "multi_krum": "permutation translation scale rotation",
    "geometric_median": "permutation translation rotation",
    "centered_clipping": "permutation rotation",
    "caf": "permutation translation scale rotation",
    "dnc": "permutation translation scale",
    "rlr": "permutation scale",
    "fltrust": "permutation",
    "foolsgold": "permutation scale rotation",
    "flame": "permutation scale rotation",
    "nnm": "permutation translation scale rotation",
    "bucketing": "translation scale rotation",
    "arc": "permutation scale rotation",
}
SETTINGS = {
    "centered_clipping": {"radius": 1.0},
    "flame": {"noise": 0.0},
    "nnm": {"before": ["nnm"]},
    "bucketing": {"before": ["bucketing"]},
    "arc": {"before": ["arc"]},
}
ROOT = uploads(1, seed=9)[0]
TINY = 1e-8  # below the smoothing of the geometric median


def result(rule: str, rows: np.ndarray) -> np.ndarray:
    option = rule if rule in RULES else "krum"  # which commutes with all of them
    settings = {"tolerated": 2, **SETTINGS.get(rule, {})}
    return result_of(option, rows, root=ROOT, **settings)


def moved(rule: str, property_: str, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the result on changed uploads, and what it would be if the rule commuted with the change."""
    generator = np.random.default_rng(3)
    before = result(rule, rows)
    if property_ == "permutation":
        return result(rule, rows[generator.permutation(len(rows))]), before
    if property_ == "translation":
        shift = generator.normal(0, 3, rows.shape[1])
        return result(rule, rows + shift), before + shift
    if property_ == "scale":
        return result(rule, rows * TINY) / TINY, before
    rotation = np.linalg.qr(generator.normal(size=(rows.shape[1],) * 2))[0]
    return result(rule, rows @ rotation), before @ rotation


@pytest.mark.parametrize("property_", PROPERTIES)
@pytest.mark.parametrize("rule", HOLDS)
def test_a_rule_commutes_with_what_is_claimed_and_with_nothing_else(rule, property_):
    cases = [moved(rule, property_, uploads(11, seed=seed, outliers=2)) for seed in range(6)]
    equal = [np.allclose(found, wanted, rtol=1e-6, atol=1e-7) for found, wanted in cases]
    if property_ in HOLDS[rule]:
        assert all(equal)
    else:
        assert not all(equal)


@pytest.mark.parametrize("rule", HOLDS)
def test_the_page_claims_what_is_tested(rule):
    table = PAGE.read_text("utf-8").partition("## What a rule commutes with")[2]
    (row,) = [line for line in table.splitlines() if line.startswith(f"| `{rule}` |")]
    cells = [cell.strip() for cell in row.strip("|").split("|")][1:5]
    assert cells == ["yes" if name in HOLDS[rule] else "–" for name in PROPERTIES]
