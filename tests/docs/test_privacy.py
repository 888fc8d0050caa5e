"""The pages on how ε is computed: every number in them, computed."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from printed_formulas import (
    ldp_epsilon,
    naseri_printed_multipliers,
    wei_noise_std,
    wei_recalculated_noise_std,
    wei_true_epsilon,
)
from scipy import stats

from fedpriv.common.words import round_up
from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.calibration import RepeatedRelease, calibrate_noise_multiplier
from fedpriv.privacy.clippers import MedianHistogramClipper
from fedpriv.privacy.clippers.quantile import split_multiplier
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.rdp import conversion_offset
from fedpriv.privacy.core.sampling import (
    FixedSizeSampling,
    PoissonSampling,
    TruncatedPoissonSampling,
    WholeData,
)
from fedpriv.privacy.mechanisms import (
    CLIP_STATISTIC,
    GRADIENT,
    ONE_HOT,
    GaussianQuery,
    JointQuery,
    RandomizedBit,
    joint_noise_multiplier,
)
from fedpriv.privacy.mechanisms.claims import adap_dpfl, naseri_ldp_multiplier
from fedpriv.store.caveats import TAIL

SAMPLED = stats.binom(7921, 0.013)  # in how many lots a record is
DOCS = Path(__file__).parents[2] / "docs"
PAGES = ("privacy.md", "guarantee.md", "run_folders.md", "published_epsilon.md")
PAGE = " ".join(" ".join((DOCS / page).read_text("utf-8") for page in PAGES).split())
DELTA = 1e-5
PLD, WIDE, PAPER = PldAccountant(), RdpAccountant(), RdpAccountant("2..64", "classical")
LOTS = PoissonSampling(0.013)
GDP, LOCAL = GdpAccountant(), WholeData(REPLACE_ONE)
HISTOGRAM = MedianHistogramClipper(0.01, updates=10, rounds=1000)


def joint(sigma: float):  # type: ignore[no-untyped-def]
    return LOTS.event(joint_noise_multiplier([sigma, sigma]))


def price(accountant, event, steps: int, neighbours: str = ADD_OR_REMOVE) -> float:  # type: ignore[no-untyped-def]
    return accountant.epsilon_of({event: steps}, DELTA, neighbours)


def rounds(accountant, event) -> int:  # type: ignore[no-untyped-def]
    return accountant.steps_allowed(event, 2.0, DELTA, ADD_OR_REMOVE)


def calibrated(accountant, epsilon: float) -> float:  # type: ignore[no-untyped-def]
    return calibrate_noise_multiplier(
        accountant,
        RepeatedRelease(),
        epsilon=epsilon,
        delta=DELTA,
        steps=300,
        sample_rate=30 / 3383,
    )


def by_pld(epsilon: float, written: float) -> float:
    """``written`` if it is the noise multiplier to three decimals, else 0; two prices decide."""
    low, high = (
        price(PLD, PoissonSampling(30 / 3383).event(written + d), 300) for d in (-5e-4, 5e-4)
    )
    return written if high <= epsilon <= low else 0.0


def sigma_of_report(epsilon: float) -> float:
    release = RepeatedRelease("none", REPLACE_ONE)
    return calibrate_noise_multiplier(GDP, release, epsilon=epsilon, delta=DELTA, steps=1)


def flipped(reports: int) -> float:
    """ε of reports of σ = 4, each with a bit by randomized response of ε = 1."""
    report = JointQuery(LOCAL, (GaussianQuery(GRADIENT, 4.0), RandomizedBit(CLIP_STATISTIC, 1.0)))
    return price(PLD, report.event(), reports, REPLACE_ONE)


def with_histogram(queries: list[GaussianQuery]) -> float:
    """ε of one report of σ = 4 with further queries, as the command shows it."""
    report = JointQuery(LOCAL, (GaussianQuery(GRADIENT, 4.0), *queries))
    return float(round_up(price(GDP, report.event(), 1, REPLACE_ONE)))


def capped(cap: int):  # type: ignore[no-untyped-def]
    return TruncatedPoissonSampling(0.013, 6000, cap).event(3.0)


PRINTED = 0.744 / (30 / 3383)
WEI = (10.0, 0.01, 2 / 128)
S = wei_noise_std(*WEI, 1.0, 200)

NUMBERS = {
    "amplified": ("secret lots, ε is 1.552.", lambda: price(PLD, LOTS.event(3.0), 7921), "1.552"),
    "lots of a record": ("was in 103 lots", SAMPLED.mean, "103"),
    "its price where lots are known": (
        "known, ε is 19.51 for",
        lambda: GDP.epsilon_of_sum(103 / 9, DELTA),
        "19.51",
    ),
    "most lots": ("in 147 lots, the largest", lambda: SAMPLED.ppf(1 - 1 / 60_000), "147"),
    "their price": ("known, ε is 24.72 for", lambda: GDP.epsilon_of_sum(147 / 9, DELTA), "24.72"),
    "largest normal": ("up to 9.42 σ", lambda: math.sqrt(2 * 64 * math.log(2)), "9.42"),
    "tail": ("hold 2.4e-16 of", lambda: 1e16 * math.exp(-(8.4**2) / 2) / 2, "2.4"),
    "delta of the tails": ("δ by at most 4.9e-8.", lambda: 1e8 * 26_010 * 7921 * TAIL, "4.9"),
    "a joint norm query": ("costs ε = 2.02 as one", lambda: price(PLD, joint(1.1), 97), "2.02"),
    "the same, split": (
        "charged as 0.94",
        lambda: price(PLD, LOTS.event(1.1), 2 * 97),
        "0.94",
    ),
    "where a filter starts": (
        "is 0.959 for α = 13",
        lambda: float(conversion_offset([13.0], DELTA, "classical")[0]),
        "0.959",
    ),
    "rounds as printed": (
        "allows 109 rounds",
        lambda: rounds(adap_dpfl("as_printed").accountant(), LOTS.event(3.0)),
        "109",
    ),
    "rounds with the logarithm": (
        "against 7921 with",
        lambda: rounds(PAPER, LOTS.event(3.0)),
        "7921",
    ),
    "the paper's price": ("rounds cost 2.00;", lambda: price(PAPER, LOTS.event(3.0), 7921), "2.00"),
    "the tight price": ("by PLD, 1.552", lambda: price(PLD, LOTS.event(3.0), 7921), "1.552"),
    "the norm query by PLD": ("cost 2.37 by PLD", lambda: price(PLD, joint(3.0), 7921), "2.37"),
    "the norm query, paper's orders": (
        "and 2.98 by",
        lambda: price(PAPER, joint(3.0), 7921),
        "2.98",
    ),
    "rounds with the norm query": ("3660 rounds fit", lambda: rounds(PAPER, joint(3.0)), "3660"),
    "without replacement": (
        "then cost 4.65, not 1.552",
        lambda: price(PLD, FixedSizeSampling(6000, 78).event(3.0), 7921, REPLACE_ONE),
        "4.65",
    ),
    "Poisson at half": ("gives ε = 3.77, which", lambda: price(PLD, LOTS.event(1.5), 7921), "3.77"),
    "without replacement, RDP": (
        "(9.24 by RDP)",
        lambda: price(WIDE, FixedSizeSampling(6000, 78).event(3.0), 7921, REPLACE_ONE),
        "9.24",
    ),
    "a cap": ("costs 2.44 instead of 1.552", lambda: price(PLD, capped(90), 7921), "2.44"),
    "a high cap": ("cap of 150 records hardly", lambda: price(PLD, capped(150), 7921), "1.552"),
    "wei 1, 2C": ("claimed ε = 1 is 987", lambda: wei_true_epsilon(1.0, 0.01, 128), "987"),
    "wei 10, 2C": ("claimed ε = 10 is 89,924", lambda: wei_true_epsilon(10.0, 0.01, 128), "89924"),
    "wei, 1": ("| true | 0.525 |", lambda: wei_true_epsilon(1.0, 0.01), "0.525"),
    "wei, 4": ("| 3.37 |", lambda: wei_true_epsilon(4.0, 0.01), "3.37"),
    "wei, 6.25": ("| 6.25 | 12.3", lambda: wei_true_epsilon(6.25, 0.01), "6.25"),
    "wei, 10": ("| 12.3 |", lambda: wei_true_epsilon(10.0, 0.01), "12.3"),
    "wei, 50": ("| 173 |", lambda: wei_true_epsilon(50.0, 0.01), "173"),
    "wei noise": ("s = 0.0670614 (q = 1)", lambda: S, "0.0670614"),
    "wei noise, sampled": ("0.0519456 (q", lambda: wei_noise_std(*WEI, 0.6, 200), "0.0519456"),
    "a discount": (
        "multiplies s by 0.9.",
        lambda: wei_recalculated_noise_std(*WEI, 1.0, 0.81 * 190 + 10, [S] * 10) / S,
        "0.9",
    ),
    "ldp 1": ("| 1 | 1 | 4.38 | 10.00 |", lambda: ldp_epsilon(1, 1, DELTA, 1), "4.38"),
    "ldp 1, 2C": ("| 4.38 | 10.00 |", lambda: ldp_epsilon(1, 1, DELTA, 2), "10.00"),
    "ldp 4": ("| 4 | 1 | 0.93 | 1.99 |", lambda: ldp_epsilon(4, 1, DELTA, 1), "0.93"),
    "ldp 4, 2C": ("| 0.93 | 1.99 |", lambda: ldp_epsilon(4, 1, DELTA, 2), "1.99"),
    "ldp 10": ("| 10 | 100 | 4.38 | 10.00 |", lambda: ldp_epsilon(10, 100, DELTA, 2), "10.00"),
    "ldp 20": ("| 20 | 100 | 1.99 | 4.38 |", lambda: ldp_epsilon(20, 100, DELTA, 2), "4.38"),
    "a report of 8": ("requires σ = 1.20046 and", lambda: sigma_of_report(8.0), "1.20046"),
    "a report of 1": ("ε = 1 requires σ = 7.46127", lambda: sigma_of_report(1.0), "7.46127"),
    "200 reports of 8": (
        "composes to 377 over",
        lambda: price(GDP, LOCAL.event(sigma_of_report(8.0)), 200, REPLACE_ONE),
        "377",
    ),
    "z delta": ("give 4.364.", lambda: split_multiplier(4.0, 5.0), "4.364"),
    "a flipped bit": ("One report has ε = 2.96,", lambda: flipped(1), "2.96"),
    "ten flipped bits": ("16.3 against", lambda: flipped(10), "16.3"),
    "ten gradients": (
        "against 7.5.",
        lambda: price(GDP, LOCAL.event(4.0), 10, REPLACE_ONE),
        "7.5",
    ),
    "noise of ten histograms": ("noise of 28.2 on", lambda: HISTOGRAM.noise_std, "28.2"),
    "a report": ("from 1.994 to", lambda: with_histogram([]), "1.994"),
    "and a histogram": (
        "to 2.005",
        lambda: with_histogram(
            [GaussianQuery(CLIP_STATISTIC, HISTOGRAM.noise_std, replaced=ONE_HOT)]
        ),
        "2.005",
    ),
    "naseri as printed": (
        "that is 83.9",
        lambda: naseri_printed_multipliers(0.744, 30 / 3383, 3383)["noise_on_mean"],
        "83.9",
    ),
    "naseri as printed costs": (
        "cost 0.005 (RDP)",
        lambda: price(WIDE, PoissonSampling(30 / 3383).event(PRINTED), 300),
        "0.005",
    ),
    "naseri claims": (
        "where 3.00 is claimed",
        lambda: price(WIDE, PoissonSampling(30 / 3383).event(0.744), 300),
        "3.00",
    ),
    "z for 3, RDP": ("| 3 | 0.744 |", lambda: calibrated(WIDE, 3.0), "0.744"),
    "z for 3, PLD": ("| 0.744 | 0.686 |", lambda: by_pld(3.0, 0.686), "0.686"),
    "z for 8, RDP": ("| 8 | 0.533 |", lambda: calibrated(WIDE, 8.0), "0.533"),
    "z for 8, PLD": ("| 0.533 | 0.501 |", lambda: by_pld(8.0, 0.501), "0.501"),
    "naseri ldp": ("C = 1 it is 60", lambda: naseri_ldp_multiplier(1.0, 0.01, 6000, 1.0), "60"),
}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", NUMBERS)
def test_the_number_is_on_the_page_and_is_what_the_code_computes(name):
    words, compute, value = NUMBERS[name]
    assert words in PAGE
    last_digit = 10.0 ** -len(value.partition(".")[2])
    assert compute() == pytest.approx(float(value), abs=last_digit * 0.501)
