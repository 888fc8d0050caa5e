"""``fedpriv account --history``: lots of a fixed size, and what a file may say beside its releases."""

from __future__ import annotations

from dp_accounting import dp_event
from histories import GAUSSIAN, POISSON_FLAGS, epsilon, flower, opacus, plain

from fedpriv.privacy.accountants import GdpAccountant
from fedpriv.privacy.core.names import REPLACE_ONE

# ---- lots of a fixed size are whole


def test_a_lot_that_is_not_whole_is_refused(refused, command, place):
    """A rate between two lot sizes would be priced at the smaller lot: less than it costs."""
    rows = (
        "noise_multiplier,sample_rate,steps,sampling,neighbours,records\n"
        "1,0.0149,10,without_replacement,replace_one,100\n"
    )
    fixed = ("--sampling", "without_replacement", "--records")
    state = opacus(entries=[(1.5, 0.1, 10)])
    for said in (
        refused("run.csv", rows),
        refused("state.pt", state, *fixed, "15"),
        command("account", "--noise-multiplier", "1", "--sample-rate", ".0149", "--steps", "10",
                *fixed, "100", "--delta", "1e-5").err,
        command("calibrate", "--epsilon", "2", "--sample-rate", ".0149", "--steps", "10",
                *fixed, "100", "--delta", "1e-5").err,
    ):  # fmt: skip
        assert "Traceback" not in said
        assert "whole" in said
        assert "0.0149" in said or "0.1" in said
    (place / "steps.csv").write_text("noise_multiplier,sample_rate\n1,.0149\n")
    said = command("account", "--schedule", "steps.csv", *fixed, "100", "--delta", "1e-5").err
    assert "steps.csv, line 2: sample_rate must be" in said


def test_the_table_says_how_large_lots_of_a_fixed_size_are(history):
    rows = (
        "noise_multiplier,sample_rate,sampling,neighbours,records\n"
        "4,0.01,without_replacement,replace_one,100\n"
        "4,0.2999999999,without_replacement,replace_one,100\n"
    )
    found = history("run.csv", rows, "--accountant", "rdp")
    assert found["releases"]["lot size"] == "1 of 100, 30 of 100"
    found = history(
        "f.json", flower("without-replacement", "replace-one"), "--accountant", "rdp", delta=()
    )
    assert found["releases"]["lot size"] == "10 of 100"


# ---- keys of a state of Opacus


def test_a_state_of_opacus_may_say_sampling_and_neighbours(history, refused):
    told = {**opacus(entries=[(1.5, 0.1, 100)]), "sampling": "none", "neighbours": "replace_one"}
    found = history("state.json", told, "--accountant", "gdp")
    halved = {dp_event.GaussianDpEvent(0.75): 100}
    assert epsilon(found, "gdp") == GdpAccountant().epsilon_of(halved, 1e-5, REPLACE_ONE)
    assert found["releases"]["sampling"] == "none (the file tells)"
    said = refused("state.json", told, "--sampling", "poisson")
    assert "--sampling cannot be given" in said


def test_a_state_of_opacus_with_other_keys_is_refused(refused):
    assert "unknown key sample" in refused("s.json", {**opacus(), "sample": 1}, *POISSON_FLAGS)
    for content in (
        {**opacus(), "event": plain(GAUSSIAN)},
        {**opacus(), "compositions": []},
        {**opacus(), "accountant": {}},
    ):
        assert "unknown key" in refused("s.json", content, *POISSON_FLAGS)
