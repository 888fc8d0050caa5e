"""``fedpriv account --history``: lots of a fixed size, and what a file may say beside its releases."""

from __future__ import annotations

import pytest
from dp_accounting import dp_event
from histories import (
    EXPONENTIAL,
    GAUSSIAN,
    POISSON_FLAGS,
    described,
    epsilon,
    fixed_lots,
    flower,
    opacus,
    plain,
    poisson,
)

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
    rdp = ("--accountant", "rdp", "--orders", "2..4")  # lots without replacement take long at each
    rows = (
        "noise_multiplier,sample_rate,sampling,neighbours,records\n"
        "4,0.01,without_replacement,replace_one,100\n"
        "4,0.2999999999,without_replacement,replace_one,100\n"
    )
    found = history("run.csv", rows, *rdp)
    assert found["releases"]["lot size"] == "1 of 100, 30 of 100"
    found = history("f.json", flower("without-replacement", "replace-one"), *rdp, delta=())
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


# ---- what contradicts, and what is told


def test_a_sample_rate_without_sampling_is_refused(refused):
    both = "noise_multiplier,sample_rate,sampling\n4,.1,none\n"
    flag = "noise_multiplier,sampling\n4,none\n"
    neighbours = ("--neighbours", "add_or_remove")
    assert "run.csv, line 2: sample_rate must be empty" in refused("run.csv", both, *neighbours)
    assert "--sample-rate cannot be given" in refused(
        "run.csv", flag, *neighbours, "--sample-rate", ".1"
    )


def test_another_delta_than_that_of_the_file_is_told(history):
    found = history("f.json", flower(), "--accountant", "rdp", delta=("--delta", "1e-3"))
    assert found["releases"]["delta"] == "1e-05 in the file, another by --delta"
    assert "delta" not in history("f.json", flower(), "--accountant", "rdp")["releases"]


@pytest.mark.usefixtures("wide_cells")
def test_the_dearest_choice_is_named(refused):
    said = refused("state.pt", opacus(entries=[(1.5, 0.1, 100)]), "--accountant", "pld")
    assert "by --sampling none --neighbours replace_one" in said


@pytest.mark.parametrize(
    ("event", "sampling", "mechanism"),
    [
        (EXPONENTIAL, "none", "exponential mechanisms"),
        (poisson(0.1, EXPONENTIAL), "poisson", "exponential mechanisms"),
        (plain(GAUSSIAN), "none", "Gaussians"),
    ],
)
def test_sampling_and_mechanism_of_events_have_a_row_each(history, event, sampling, mechanism):
    said = history("e.json", {"event": event, "neighbours": "add_or_remove"}, "--accountant", "pld")
    assert said["releases"]["sampling"] == f"{sampling} (the file tells)"
    assert said["releases"]["mechanism"] == mechanism


def test_an_infinite_epsilon_has_a_reason(history):
    for delta, words in ((1e-3, "one event alone spends delta = 0.001"), (8e-6, "add up to more")):
        event = described("EpsilonDelta", epsilon=0.5, delta=delta)
        twice = described("SelfComposed", event=event, count=2)
        said = history("e.json", {"event": twice, "neighbours": "add_or_remove"})
        assert words in said["accountants"]["pld"]["settings"]
        assert "delta > 0" in said["accountants"]["rdp"]["reason"]
    none = {"event": described("NonPrivate"), "neighbours": "add_or_remove"}
    assert "no noise" in history("e.json", none)["accountants"]["pld"]["settings"]


def test_one_number_with_discrete_gaussian_noise_moves_by_whole_numbers(history):
    """By every accountant, and not by PLD alone."""
    epsilons = []
    for sensitivity in (1.0, 1.5):
        event = described("DiscreteGaussian", sigma=2.0, sensitivity=sensitivity, dimension=1)
        content = {"event": event, "neighbours": "add_or_remove"}
        epsilons.append(epsilon(history("e.json", content, "--accountant", "rdp"), "rdp"))
    assert epsilons[0] == epsilons[1]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("run.csv", "noise_multiplier,sample_rate,sampling\n4,.1,without_replacement\n", "--records"),
        ("run.csv", b"noise_multiplier\n\xff\n", "not text in UTF-8"),
        ("cut.pt", b"PK\x03\x04abc\xff", "cut short"),
        ("e.json", {"event": EXPONENTIAL, "neighbors": "x"}, "did you mean neighbours?"),
        ("e.json", {"event": described("DiscreteGaussian", dimension=1), "neighbours": "add_or_remove"},
            "its fields are sigma, sensitivity, dimension"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_with_what_to_do(refused, name, content, words):
    said = refused(name, content)
    assert words in said
    assert "codec" not in said
    assert "null" not in said


def test_one_reason_stands_for_all_accountants(refused):
    content = {"event": fixed_lots(100, 10, EXPONENTIAL), "neighbours": "add_or_remove"}
    said = refused("e.json", content)
    assert said.count("exponential mechanisms") == 1
    assert "nor can prv, rdp, gdp, zcdp" in said


def test_a_huge_epsilon_is_short_and_the_smallest_order_is_told(command, place):
    (place / "run.csv").write_text(
        "noise_multiplier,sampling,neighbours\n1e-50,none,add_or_remove\n"
    )
    said = command("account", "--history", "run.csv", "--delta", "1e-5", "--accountant", "rdp").out
    assert "e+99" in said or "e+100" in said
    assert "0000000000" not in said
    assert "smallest tried" in said
