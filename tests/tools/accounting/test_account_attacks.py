"""``fedpriv account``: the best attack on what was priced."""

from __future__ import annotations

import pytest
from baseline import DELTA


@pytest.mark.thorough
def test_the_best_attack_is_told_beside_epsilon(answer, command):
    """μ = 1: Φ(Φ^-1(.001) + 1) = 1.83 %."""
    one = ("account", "--sampling", "none", "--noise-multiplier", "1", "--steps", "1", *DELTA)
    rates = answer(*one)["largest_tpr"]
    assert rates["at_0.1_percent_fpr"] == pytest.approx(0.018303, rel=1e-3)
    assert rates["at_1_percent_fpr"] == pytest.approx(0.092362, rel=1e-3)
    assert (
        "any attack: TPR at most 1.84 % at an FPR of 0.1 %, at most 9.24 % at 1 %"
        in command(*one).out
    )
    rough = answer(*one, "--accountant", "rdp")["largest_tpr"]
    assert rough["at_1_percent_fpr"] > rates["at_1_percent_fpr"]


def test_the_best_attack_on_a_run_is_that_of_its_statement(answer, train):
    run = train("algorithm=dp_fl", "rounds=3", "epsilon=null")
    stated = run.privacy["largest_tpr"]
    found = answer("account", "--run", str(run.folder))["largest_tpr"]
    assert found == pytest.approx(stated, rel=1e-9)
    assert answer("account", "--run", str(run.folder), "--view", "published")["largest_tpr"] is None


def test_of_noise_that_adapted_the_statement_alone_bounds_attacks(answer, train):
    run = train("rounds=3", "epsilon=2")
    assert answer("account", "--run", str(run.folder))["largest_tpr"] == run.privacy["largest_tpr"]
