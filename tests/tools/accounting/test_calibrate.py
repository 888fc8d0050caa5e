"""``fedpriv calibrate``: published values through the command, its guarantee, and bad input."""

from __future__ import annotations

import math

import pytest

DELTA = ("--delta", "1e-5")


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("epsilon", "accountant", "multiplier"),
    [("3", "rdp", 0.744), ("8", "rdp", 0.534), ("3", "pld", 0.686)],
)
def test_the_noise_of_naseris_setting(epsilon, accountant, multiplier, answer):
    """K=3383, 30 clients a round, 300 rounds, δ=1e-5, to ± .001."""
    found = answer("calibrate", "--epsilon", epsilon, *DELTA, "--sample-rate", str(30 / 3383),
                   "--steps", "300", "--accountant", accountant)  # fmt: skip
    assert found["noise_multiplier"] == pytest.approx(multiplier, abs=1e-3)
    assert 0.99 * float(epsilon) <= found["epsilon"] <= float(epsilon)


@pytest.mark.few(1)
@pytest.mark.parametrize(("accountant", "multiplier"), [("rdp", 1.3562), ("prv", 1.2915)])
def test_the_noise_of_opacus(accountant, multiplier, answer):
    """Opacus, tests/accountants_test.py: ε=8, q=.04, T=2000, to .01 in ε."""
    found = answer("calibrate", "--epsilon", "8", *DELTA, "--sample-rate", "0.04",
                   "--steps", "2000", "--accountant", accountant)  # fmt: skip
    assert found["noise_multiplier"] == pytest.approx(multiplier, abs=1.5e-3)


@pytest.mark.thorough
def test_the_noise_and_the_steps_of_jax_privacy(answer):
    """jax_privacy, accounting.py: q=.1, δ=1e-6: σ=9.66 for ε=1 and T=512; T=155 for ε=2 and σ=3."""
    common = ("--delta", "1e-6", "--sample-rate", "0.1", "--accountant", "pld")
    noise = answer("calibrate", "--epsilon", "1", "--steps", "512", *common)
    assert noise["noise_multiplier"] == pytest.approx(9.66, abs=5e-3)
    steps = answer("calibrate", "--epsilon", "2", "--noise-multiplier", "3", *common)
    assert steps["steps"] == 155


@pytest.mark.parametrize(
    ("epsilon", "delta", "multiplier"), [("1", "1e-5", 3.7306316348), ("0.1", "1e-6", 36.3046904)]
)
def test_the_analytic_gaussian(epsilon, delta, multiplier, answer):
    """Balle & Wang 2018, to the six digits given, rounded up."""
    found = answer("calibrate", "--sampling", "none", "--epsilon", epsilon, "--delta", delta,
                   "--steps", "1")  # fmt: skip
    assert found["accountant"] == "gdp"
    assert multiplier <= found["noise_multiplier"] <= multiplier * (1 + 1e-5)


def test_the_rounds_of_adap_dpfl(answer):
    found = answer("calibrate", "--epsilon", "2", *DELTA, "--noise-multiplier", "3",
                   "--sample-rate", "0.013", "--orders", "2..64", "--conversion", "classical")  # fmt: skip
    assert found["steps"] == 7921
    assert found["accountant"] == "rdp"


@pytest.mark.usefixtures("wide_cells")
def test_every_unknown_leads_back_to_the_others(answer):
    known = {"--noise-multiplier": "2", "--sample-rate": "0.05", "--steps": "400"}

    def flags(**changed: str | None) -> list[str]:
        values = {**known, **{f"--{k.replace('_', '-')}": v for k, v in changed.items()}}
        return [part for k, v in values.items() if v is not None for part in (k, v)]

    epsilon = answer("calibrate", *flags(), *DELTA)["epsilon"]
    target = ("--epsilon", repr(epsilon), *DELTA)
    assert answer("calibrate", *flags(steps=None), *target)["steps"] == 400
    noise = answer("calibrate", *flags(noise_multiplier=None), *target)
    assert noise["noise_multiplier"] == pytest.approx(2.0, rel=1e-4)
    assert noise["epsilon"] <= epsilon
    rate = answer("calibrate", *flags(sample_rate=None), *target)
    assert rate["sample_rate"] == pytest.approx(0.05, rel=1e-4)
    assert rate["epsilon"] <= epsilon


@pytest.mark.usefixtures("wide_cells")
def test_lots_without_replacement_are_calibrated_in_whole_records(answer):
    known = (*DELTA, "--sampling", "without_replacement", "--records", "300", "--steps", "20",
             "--noise-multiplier", "4")  # fmt: skip
    epsilon = answer("calibrate", *known, "--sample-rate", "0.04")["epsilon"]
    found = answer("calibrate", *known, "--epsilon", repr(epsilon))
    assert found["accountant"] == "pld"
    assert math.isclose(found["sample_rate"] * 300, 12)


COMPLETE = ("--epsilon", "2", "--noise-multiplier", "3", "--sample-rate", "0.1", "--steps", "10")


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (COMPLETE, "must be left out: it is what is solved for"),
        (COMPLETE[:4], "missing: --sample-rate, --steps"),
        ((), "missing: --epsilon, --noise-multiplier, --sample-rate, --steps"),
        (("--epsilon", "0", *COMPLETE[4:]), "--epsilon must be >= 1e-100, got 0"),
        (("--epsilon", "-1", *COMPLETE[4:]), "--epsilon must be >= 1e-100, got -1"),
        (("--epsilon", "1e-308", *COMPLETE[4:]), "--epsilon must be >= 1e-100, got 1e-308"),
        (("--epsilon", "inf", *COMPLETE[4:]), "--epsilon must be finite"),
        ((*COMPLETE[:2], *COMPLETE[4:], "--orders", ""), "--orders must be wide"),
        ((*COMPLETE[:2], *COMPLETE[4:], "--accountant", ""), "--accountant must be one of"),
        ((*COMPLETE[:2], "--noise-multiplier", "1e308", *COMPLETE[4:6]),
         "--noise-multiplier must be > 0 and <= 1e+06"),
        ((*COMPLETE[:6], "--accountant", "gdp"), "--accountant gdp: gdp is exact"),
        ((*COMPLETE[:6], "--accountant", "moments"), "--accountant must be one of"),
        ((*COMPLETE[:6], "--accountant", "pld", "--orders", "2..64"), "--orders cannot be given"),
        ((*COMPLETE[:6], "--sampling", "none"), "--sample-rate cannot be given with --sampling none"),
        (("--epsilon", "0.001", "--noise-multiplier", "0.5", "--sample-rate", "0.1"),
         "--epsilon must be >= "),
        (("--epsilon", "1e-9", "--steps", "10", "--sample-rate", "0.5", "--accountant", "rdp",
          "--conversion", "classical"), "the least rdp can certify"),
        (("--epsilon", "1", "--steps", "10", "--noise-multiplier", "0.5", "--sampling",
          "without_replacement", "--records", "3", "--neighbours", "replace_one"),
         "the cost with lots of one record"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence_and_status_2(arguments, sentence, command, wide_cells):
    said = command("calibrate", *arguments, *DELTA)
    assert said.status == 2
    assert sentence in said.sentence


def test_an_answer_at_the_limit_of_the_search_says_so(answer, command):
    flags = ("calibrate", "--epsilon", "50", *DELTA, "--steps", "10", "--noise-multiplier", "10")
    found = answer(*flags)
    assert found["sample_rate"] == 1.0
    assert found["at_limit"]
    assert "the target allows more" in command(*flags).out


def test_what_to_use_instead_is_said(command):
    said = command("calibrate", *COMPLETE[:6], *DELTA, "--accountant", "gdp")
    assert "--accountant pld can account for such lots" in said.sentence


def test_an_infinite_epsilon_is_valid_json(answer):
    found = answer("calibrate", *DELTA, "--noise-multiplier", "1e-200", "--sample-rate", "0.1",
                   "--steps", "1")  # fmt: skip
    assert found["epsilon"] == "inf"


@pytest.mark.thorough
def test_a_target_is_solved_for_an_odd_number_of_records(answer, command):
    fixed = (*DELTA, "--sampling", "without_replacement", "--records", "15", "--steps", "3")
    for known in (("--sample-rate", ".2"), ("--noise-multiplier", "9")):
        answer("calibrate", "--epsilon", "4", *fixed, *known)
    said = command("calibrate", *fixed, "--sample-rate", ".1", "--noise-multiplier", "2")
    assert "--sample-rate must be a whole number of 15 records" in said.err
