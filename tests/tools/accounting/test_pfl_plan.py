"""``fedpriv account --history``: the parameters of an accountant of pfl-research."""

from __future__ import annotations

import pytest
from dp_accounting import dp_event
from histories import POISSON_FLAGS, SIZES, TOLD, pfl

from fedpriv.privacy.accountants import PldAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE

FAST = ("--accountant", "pld")


def epsilon(found: dict, name: str = "pld", delta: str = "1e-06") -> float:
    return found["accountants"][name]["epsilon"][delta]


@pytest.mark.parametrize(
    ("kind", "noise", "expected"),
    [
        ("pld", 0.5918741226196289, 2.0),
        # RDPPrivacyAccountant of the same budget finds more noise, and PLD then a smaller ε.
        ("rdp", 0.7005691528320312, 2.0),
    ],
)
def test_the_parameters_of_an_accountant_cost_its_epsilon(history, kind, noise, expected):
    """Noise that pfl 0.6 solved for; its search stops within a thousandth of δ."""
    content = {"accountant": pfl(noise_parameter=noise), **TOLD}
    found = history("pfl.json", content, "--accountant", kind, delta=())
    assert epsilon(found, kind) == pytest.approx(expected, rel=2e-3)
    assert found["delta"] == [1e-6]
    assert "accountant of pfl-research" in found["releases"]["history"]


def test_epsilon_of_given_noise_is_pfls(history):
    """PLDPrivacyAccountant(10, 0.1, mechanism, noise_parameter=2, delta=1e-6).epsilon of pfl 0.6."""
    for mechanism, expected in (("gaussian", 0.9614215827819521), ("laplace", 0.586313616239963)):
        plan = pfl(num_compositions=10, sampling_probability=0.1, noise_parameter=2.0, noise_scale=1.0,
                   mechanism=mechanism, epsilon=None)  # fmt: skip
        found = history("pfl.json", plan, *POISSON_FLAGS, *FAST, delta=())
        assert epsilon(found) == pytest.approx(expected, rel=1e-4)
        assert "population" not in found["releases"]


def test_imagined_and_simulated_users_are_both_priced_and_labelled(history):
    content = {
        "accountant": pfl(num_compositions=20),
        **SIZES,
        **TOLD,
        "simulated_population": 1000,
    }
    found = history("pfl.json", content, *FAST, delta=())
    imagined, simulated = found, found["simulated"]
    events = [
        dp_event.PoissonSampledDpEvent(0.001, dp_event.GaussianDpEvent(0.5918741226196289)),
        dp_event.PoissonSampledDpEvent(0.05, dp_event.GaussianDpEvent(0.5918741226196289 * 0.05)),
    ]
    for part, event in zip((imagined, simulated), events, strict=True):
        assert epsilon(part) == PldAccountant().epsilon_of({event: 20}, 1e-6, ADD_OR_REMOVE)
    assert imagined["releases"]["population"].startswith("imagined: 1,000,000 users")
    assert simulated["releases"]["population"].startswith("simulated: 1,000 users")
    assert epsilon(simulated) > 1000 * epsilon(imagined)
    assert "drawn with replacement, are not priced" in simulated["releases"]["population"]


def test_the_tables_name_their_population(command, place, history):
    content = {"accountant": pfl(num_compositions=2), **SIZES, **TOLD, "simulated_population": 1000}
    history("pfl.json", content, *FAST, delta=())
    said = command("account", "--history", "pfl.json", *FAST).out
    assert said.index("imagined: 1,000,000 users") < said.index("simulated: 1,000 users")
    assert said.count("tightest: ") == 2


def test_scaled_noise_is_labelled_though_no_population_is_given(history):
    found = history("pfl.json", pfl(num_compositions=2), *POISSON_FLAGS, *FAST, delta=())
    assert found["releases"]["population"].startswith("imagined: users (how many is not said)")


def test_cohorts_of_a_fixed_size_take_the_population_of_the_file(history, wide_cells):
    content = {"accountant": pfl(num_compositions=2), **SIZES}
    found = history(
        "pfl.json", content, "--sampling", "without_replacement", "--accountant", "rdp", delta=()
    )
    half = dp_event.GaussianDpEvent(0.5918741226196289 / 2)
    event = dp_event.SampledWithoutReplacementDpEvent(10**6, 1000, half)
    assert epsilon(found, "rdp") == RdpAccountant().epsilon_of({event: 2}, 1e-6, REPLACE_ONE)


def test_sampling_and_neighbours_are_asked_for(refused, wide_cells):
    said = refused("pfl.json", pfl(num_compositions=2))
    assert "does not say how lots were drawn or which data sets are neighbours" in said
    assert "as pfl's accountants assume" in said


BAD = [
    ({**pfl(), "more": 1}, "unknown key more"),
    ({"accountant": pfl(), "cohort": 3}, "unknown key cohort"),
    ({"accountant": [1]}, "accountant must be an object"),
    ({"num_compositions": 5}, "has no sampling_probability"),
    (pfl(noise_parameter=None), "has no noise_parameter"),
    (pfl(noise_parameter=-1.0), "noise_parameter must be > 0"),
    (pfl(noise_parameter="1"), "noise_parameter must be a number"),
    (pfl(noise_parameter=float("nan")), "noise_parameter must be finite"),
    (pfl(sampling_probability=1.5), "sampling_probability must be > 0 and <= 1"),
    (pfl(num_compositions=10**10), "num_compositions must be a whole number"),
    (pfl(num_compositions=True), "num_compositions must be a whole number"),
    (pfl(noise_scale=2), "noise_scale must be > 0 and <= 1"),
    (pfl(mechanism="banded"), "mechanism must be one of gaussian, laplace"),
    (pfl(delta=1), "delta must be > 0 and < 1"),
    ({"accountant": pfl(), "population": 10**6}, "cohort_size must be given where population is"),
    ({"accountant": pfl(), **SIZES, "noise_cohort_size": 500}, "noise_scale must be"),
    ({"accountant": pfl(), **SIZES, "population": 10**5}, "sampling_probability must be"),
    ({"accountant": pfl(), **SIZES, "simulated_population": 10}, "cohort_size must be at most"),
    ({"accountant": pfl(), **SIZES, "cohort_size": "many"}, "cohort_size must be a whole number"),
    ({"accountant": pfl(), "sampling": "odd", "neighbours": "add_or_remove"}, "sampling must be one of"),
    ({"accountant": pfl(), "sampling": 3, "neighbours": "add_or_remove"}, "sampling must be one of"),
]  # fmt: skip


@pytest.mark.parametrize(("content", "words"), BAD, ids=lambda v: v if isinstance(v, str) else "")
def test_parameters_that_are_none(refused, content, words):
    said = refused("pfl.json", content)
    assert words in said
    assert "pfl.json" in said


def test_a_flag_that_the_file_contradicts(refused):
    content = {"accountant": pfl(), **TOLD}
    assert "--sampling cannot be given" in refused("pfl.json", content, "--sampling", "none")
