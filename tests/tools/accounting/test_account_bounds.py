"""``fedpriv account``: an ε of PLD that is RDP's upper bound, or has another reason to be told."""

from __future__ import annotations

from baseline import BASELINE, DELTA


def test_an_epsilon_that_pld_did_not_compute_is_said_to_be_a_bound(command, answer):
    """Above an RDP bound of 100,000, PLD takes the bound, which may be ten times ε."""
    tiny = ("--noise-multiplier", ".01", "--sample-rate", ".5", "--steps", "30", *DELTA)
    said = command("account", *tiny)
    assert "not computed: RDP's upper bound" in said.out
    assert "PLD was not computed" in said.out
    assert "epsilon is at most" in said.out
    assert "lower" not in said.out
    settings = answer("account", *tiny)["accountants"]["pld"]["settings"]
    assert "not computed: RDP's upper bound" in settings
    computed = command("account", *BASELINE, *DELTA)
    assert "at most 1." not in computed.out
    assert "not computed" not in computed.out


def test_rdp_answers_where_rounding_is_too_large_for_pld_and_it_is_said(command):
    """At δ = 1e-30, rounding in the transforms of PLD is too large."""
    tiny_delta = (
        "--noise-multiplier",
        "5",
        "--sample-rate",
        ".01",
        "--steps",
        "10",
        "--delta",
        "1e-30",
    )
    said = command("account", *tiny_delta).out
    assert "rounding may move delta" in " ".join(said.split())
    assert "at most 0.501" not in said
