"""Bounds that one report prints share its confidence: each is tested at its share."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from fedpriv.tools.audit import epsilon_evaluate
from fedpriv.tools.audit.epsilon_evaluate import ESTIMATE, AuditSetup, evaluate, numbers
from fedpriv.tools.audit.epsilon_guesses import Scores


def scores(seed: int) -> Scores:
    stream = np.random.default_rng(seed)
    included = np.arange(400) % 2 == 0
    return Scores(stream.normal(size=400) + 2.0 * included, included)


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("delta", [0.0, 1e-5])
@pytest.mark.parametrize("observers", [("scores",), ("releases", "black_box")])
def test_each_bound_of_a_report_is_tested_at_its_share(observers, delta, independent):
    setup = AuditSetup(delta, 0.95, independent, Counter())
    given = {observer: scores(i) for i, observer in enumerate(observers)}
    found = evaluate(given, setup)
    bounds = [number for number in found if number.kind != ESTIMATE]
    shared = AuditSetup(delta, 1 - 0.05 / len(bounds), independent, Counter())
    for number in found:
        alone = number.observer != epsilon_evaluate.BLACK_BOX or independent
        single = numbers(given[number.observer], shared, None, None, alone)
        assert number.epsilon == pytest.approx(single[number.method], rel=1e-9)
