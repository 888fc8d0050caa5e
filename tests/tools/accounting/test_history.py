"""``fedpriv account --history``: what other frameworks ran, at their own numbers, and files that are none."""

from __future__ import annotations

import warnings

import pytest
import torch
from dp_accounting import dp_event
from histories import (
    EXPONENTIAL,
    GAUSSIAN,
    POISSON,
    POISSON_FLAGS,
    described,
    epsilon,
    fixed_lots,
    flower,
    opacus,
    plain,
    poisson,
)

from fedpriv.common.words import round_up
from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.profile_events import (
    DiscreteGaussianEvent,
    EpsilonDeltaEvent,
    ExponentialMechanismEvent,
    PermuteAndFlipEvent,
)
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.tools.accounting.event_json import releases_of

# ---- Opacus


@pytest.mark.parametrize("name", ["state.pt", "state.json"])
@pytest.mark.parametrize("mechanism", ["rdp", "gdp", "prv"])
def test_an_opacus_state_costs_what_opacus_says(history, name, mechanism):
    """Opacus, tests/accountants_test.py: RDP 7.32911117143 of σ = 1.5, q = .04, T = 2250."""
    found = history(name, opacus(mechanism), "--accountant", "rdp", *POISSON_FLAGS)
    assert epsilon(found, "rdp") == pytest.approx(7.32911117143, rel=2e-3)
    assert mechanism in found["releases"]["history"]
    assert found["releases"]["sampling"] == "poisson (by its flag)"
    assert found["releases"]["neighbours"] == "add_or_remove (by its flag)"


def test_what_opacus_itself_saves_is_read(history):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from opacus.accountants import RDPAccountant

        accountant = RDPAccountant()
        for sigma in (1.1, 1.1, 1.3):
            accountant.step(noise_multiplier=sigma, sample_rate=0.01)
        known = accountant.get_epsilon(1e-5)
    checkpoint = {
        "module_state_dict": {"w": torch.zeros(3)},
        "privacy_accountant_state_dict": accountant.state_dict(),
    }
    for name, content in (("state.pt", accountant.state_dict()), ("checkpoint.pt", checkpoint)):
        found = history(name, content, "--accountant", "rdp", *POISSON_FLAGS)
        assert epsilon(found, "rdp") <= known * (1 + 1e-9)
        assert epsilon(found, "rdp") == pytest.approx(known, rel=0.05)
        assert found["steps"] == 3


@pytest.mark.thorough
def test_flags_say_what_opacus_does_not(history):
    ten = opacus(entries=[(8.0, 0.01, 10)])
    found = history("state.pt", ten, "--sampling", "none", "--neighbours", "add_or_remove")
    assert epsilon(found, "gdp") == pytest.approx(
        GdpAccountant().epsilon_of({dp_event.GaussianDpEvent(8.0): 10}, 1e-5, ADD_OR_REMOVE)
    )
    assert found["releases"]["sampling"] == "none (by its flag)"
    fixed = history("state.pt", ten, "--sampling",
                    "without_replacement", "--records", "1000", "--accountant", "rdp")  # fmt: skip
    assert fixed["neighbours"] == REPLACE_ONE
    assert fixed["releases"]["neighbours"] == "replace_one (which such lots need)"


# ---- what ε depends on is told, not assumed


def test_a_state_of_opacus_asks_for_sampling_and_neighbours_with_the_price_of_each(
    refused, wide_cells
):
    said = refused("state.pt", opacus(entries=[(1.5, 0.1, 100)]))
    assert "does not say how lots were drawn or which data sets are neighbours" in said
    sampled = PldAccountant().epsilon_of(
        {PoissonSampling(0.1).event(1.5): 100}, 1e-5, ADD_OR_REMOVE
    )
    gaussians = {dp_event.GaussianDpEvent(1.5): 100}
    whole = GdpAccountant().epsilon_of(gaussians, 1e-5, ADD_OR_REMOVE)
    assert f"{round_up(sampled)} by --sampling poisson --neighbours add_or_remove" in said
    assert f"{round_up(whole)} by --sampling none --neighbours add_or_remove" in said
    assert "--sampling poisson --neighbours replace_one" in said


def test_what_is_still_open_is_asked_for_alone(refused):
    said = refused("state.pt", opacus(), "--sampling", "none")
    assert "which data sets are neighbours" in said
    assert "how lots were drawn" not in said
    said = refused("state.pt", opacus(), "--neighbours", "add_or_remove")
    assert "how lots were drawn" in said
    assert "which data sets are neighbours" not in said


def test_without_a_delta_the_flags_are_named(command, place):
    (place / "run.csv").write_text("noise_multiplier,sample_rate\n4,.1\n")
    said = command("account", "--history", "run.csv")
    assert said.status == 2
    assert "give --delta and --sampling poisson --neighbours add_or_remove" in said.err


@pytest.mark.parametrize(
    "event", [GAUSSIAN, dp_event.LaplaceDpEvent(3.0)], ids=["gaussian", "laplace"]
)
def test_an_event_without_neighbours_asks_for_them(refused, event):
    for content in (plain(event), {"event": plain(event)}):
        said = refused("e.json", content)
        assert "by --neighbours add_or_remove (as dp_accounting's accountants assume" in said
        assert "by --neighbours replace_one" in said


def test_many_kinds_of_releases_are_priced_quickly_in_the_question(refused):
    rows = "".join(f"{4 + k / 100},.1\n" for k in range(60))
    assert "is at most " in refused("run.csv", f"noise_multiplier,sample_rate\n{rows}")


# ---- CSV


def test_a_csv_of_stretches(history):
    found = history(
        "run.csv",
        "noise_multiplier,sample_rate,steps\n1.5,.04,20\n1.5,.04,25\n",
        "--accountant", "pld", *POISSON_FLAGS,
    )  # fmt: skip
    assert epsilon(found, "pld") == PldAccountant().epsilon_of({POISSON: 45}, 1e-5, ADD_OR_REMOVE)
    assert "by its flag" in found["releases"]["sampling"]


@pytest.mark.thorough
def test_a_csv_says_sampling_and_neighbours(history):
    found = history(
        "run.csv",
        "noise_multiplier,sample_rate,sampling,neighbours,records\n4,.1,without_replacement,replace_one,100\n"
        "8,,none,replace_one,\n",
        "--accountant",
        "rdp",
    )
    assert found["neighbours"] == REPLACE_ONE
    assert found["releases"]["sampling"] == "without_replacement and none (the file tells)"
    assert found["steps"] == 2


def test_the_worst_client_of_a_csv_is_priced_with_what_all_released(history):
    found = history(
        "run.csv",
        "noise_multiplier,steps,sampling,client\n8,3,none,ann\n8,6,none,bob\n4,1,none,\n",
        "--accountant", "gdp", "--neighbours", "add_or_remove",
    )  # fmt: skip
    events = {dp_event.GaussianDpEvent(8.0): 6, dp_event.GaussianDpEvent(4.0): 1}
    assert epsilon(found, "gdp") == GdpAccountant().epsilon_of(events, 1e-5, ADD_OR_REMOVE)
    assert "the worst of 2 clients" in found["releases"]["history"]


def test_a_flag_is_for_what_no_column_says(history, refused):
    rows = "noise_multiplier,steps\n1.5,10\n"
    assert history("run.csv", rows, "--sample-rate", ".04", *POISSON_FLAGS)["steps"] == 10
    assert "sample_rate is missing" in refused("run.csv", rows)
    both = "noise_multiplier,sample_rate,sampling\n1.5,.04,poisson\n"
    assert "--sampling cannot be given" in refused("run.csv", both, "--sampling", "none")
    assert "--sample-rate cannot be given" in refused("run.csv", both, "--sample-rate", ".1")


def test_a_row_that_says_nothing_beside_rows_that_do_is_refused(refused):
    rows = "noise_multiplier,sample_rate,sampling\n4,.1,poisson\n8,.1,\n"
    assert "sampling is empty in some rows" in refused(
        "run.csv", rows, "--neighbours", "add_or_remove"
    )


def test_too_many_clients_are_refused(refused):
    rows = "".join(f"4,none,{client}\n" for client in range(1001))
    assert "more than 1,000 clients" in refused(
        "run.csv",
        f"noise_multiplier,sampling,client\n{rows}",
        "--neighbours",
        "add_or_remove",
    )


EVENTS = [
    (
        dp_event.SelfComposedDpEvent(dp_event.PoissonSampledDpEvent(0.04, GAUSSIAN), 7),
        ADD_OR_REMOVE,
    ),
    (dp_event.ComposedDpEvent([GAUSSIAN, dp_event.NoOpDpEvent(), GAUSSIAN]), ADD_OR_REMOVE),
    (dp_event.LaplaceDpEvent(3.0), ADD_OR_REMOVE),
    (dp_event.PoissonSampledDpEvent(0.1, dp_event.LaplaceDpEvent(3.0)), ADD_OR_REMOVE),
    (dp_event.DiscreteLaplaceDpEvent(0.3, 1), ADD_OR_REMOVE),
    (dp_event.RandomizedResponseDpEvent(0.3, 2), REPLACE_ONE),
    (dp_event.NonPrivateDpEvent(), ADD_OR_REMOVE),
    (dp_event.PoissonSampledDpEvent(1.0, GAUSSIAN), ADD_OR_REMOVE),
]


@pytest.mark.parametrize(("event", "neighbours"), EVENTS, ids=lambda v: type(v).__name__[:24])
def test_events_cost_what_dp_accounting_says(history, event, neighbours):
    from dp_accounting.pld.pld_privacy_accountant import PLDAccountant

    from fedpriv.privacy.core.rdp import RELATION

    known = PLDAccountant(RELATION[neighbours]).compose(event).get_epsilon(1e-5)
    found = history(
        "e.json", {"event": plain(event), "neighbours": neighbours}, "--accountant", "pld"
    )
    assert float(epsilon(found, "pld")) == pytest.approx(known, rel=1e-3)
    assert found["releases"]["neighbours"] == f"{neighbours} (the file tells)"


LATER = [
    (EXPONENTIAL, ExponentialMechanismEvent(0.5)),
    (described("PermuteAndFlip", epsilon=0.5), PermuteAndFlipEvent(0.5)),
    (described("EpsilonDelta", epsilon=0.5, delta=1e-7), EpsilonDeltaEvent(0.5, 1e-7)),
    (described("DiscreteGaussian", sigma=2.0, sensitivity=1.0, dimension=1),
        DiscreteGaussianEvent(2.0, 1.0, 1)),
    (poisson(0.1, EXPONENTIAL), dp_event.PoissonSampledDpEvent(0.1, ExponentialMechanismEvent(0.5))),
    (poisson(1.0, EXPONENTIAL), ExponentialMechanismEvent(0.5)),
    (poisson(0.1, plain(dp_event.DiscreteLaplaceDpEvent(0.3, 2))),
        dp_event.PoissonSampledDpEvent(0.1, dp_event.DiscreteLaplaceDpEvent(0.3, 2))),
]  # fmt: skip


@pytest.mark.parametrize(("content", "event"), LATER, ids=lambda v: str(v)[:30])
def test_events_of_the_development_version_are_read_and_counted(history, content, event):
    repeated = described("SelfComposed", event=content, count=30)
    both = described("Composed", events=[repeated, described("NoOp"), content])
    found = history("e.json", {"event": both, "neighbours": ADD_OR_REMOVE}, "--accountant", "pld")
    assert epsilon(found, "pld") == PldAccountant().epsilon_of({event: 31}, 1e-5, ADD_OR_REMOVE)
    assert found["steps"] == 31


def test_zcdp_and_vectors_with_discrete_gaussian_noise_are_priced_by_rdp(history):
    """Both are α ρ at order α, with ρ = Δ²/(2σ²)."""
    for content in (
        described("ZC", rho=0.125, xi=0.0),
        described("DiscreteGaussian", sigma=2.0, sensitivity=1.0, dimension=None),
    ):
        found = history("e.json", {"event": content, "neighbours": ADD_OR_REMOVE})
        gaussian = RdpAccountant().epsilon_of({GAUSSIAN: 1}, 1e-5, ADD_OR_REMOVE)
        assert epsilon(found, "rdp") == pytest.approx(gaussian)
        assert "pld cannot account for" in found["accountants"]["pld"]["reason"]
        sampled = {"event": poisson(0.01, content), "neighbours": ADD_OR_REMOVE}
        assert epsilon(history("e.json", sampled), "rdp") < epsilon(found, "rdp") / 5


@pytest.mark.parametrize(("content", "event"), [
    # an ε is that of the relation; noise and sensitivity of a sum of records are not
    (EXPONENTIAL, ExponentialMechanismEvent(0.5)),
    (plain(dp_event.LaplaceDpEvent(3.0)), dp_event.LaplaceDpEvent(1.5)),
    (plain(dp_event.DiscreteLaplaceDpEvent(0.3, 2)), dp_event.DiscreteLaplaceDpEvent(0.3, 4)),
    (fixed_lots(100, 10, EXPONENTIAL),
        dp_event.SampledWithoutReplacementDpEvent(100, 10, ExponentialMechanismEvent(0.5))),
    (fixed_lots(100, 10, plain(dp_event.LaplaceDpEvent(3.0))),
        dp_event.SampledWithoutReplacementDpEvent(100, 10, dp_event.LaplaceDpEvent(1.5))),
    (fixed_lots(100, 10, plain(dp_event.RandomizedResponseDpEvent(0.3, 2))),
        dp_event.SampledWithoutReplacementDpEvent(100, 10, dp_event.RandomizedResponseDpEvent(0.3, 2))),
], ids=lambda v: str(v)[:30])  # fmt: skip
def test_replacing_a_unit_moves_sums_twice_and_no_epsilon(history, content, event):
    found = history("e.json", {"event": content, "neighbours": REPLACE_ONE}, "--accountant", "pld")
    assert epsilon(found, "pld") == PldAccountant().epsilon_of({event: 1}, 1e-5, REPLACE_ONE)


def test_sampling_without_a_theorem_is_refused(refused):
    """Poisson lots under replace-one, and fixed lots under add/remove, of other mechanisms than Gaussians."""
    for content, relation in (
        (poisson(0.1, EXPONENTIAL), REPLACE_ONE),
        (fixed_lots(100, 10, EXPONENTIAL), ADD_OR_REMOVE),
    ):
        said = refused("e.json", {"event": content, "neighbours": relation})
        assert "no accountant can account for this" in said
        assert "with exponential mechanisms" in said


def test_a_cap_is_kept():
    event = dp_event.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 2.0)
    found = list(releases_of(plain(event), ADD_OR_REMOVE))
    assert found == [(event, 1)]


def test_an_event_alone_is_a_history(history):
    event = {"module_name": "dp_accounting.dp_event", **plain(GAUSSIAN)}
    found = history("e.json", event, "--neighbours", REPLACE_ONE)
    assert found["releases"]["neighbours"] == "replace_one (by its flag)"


@pytest.mark.few(1)
@pytest.mark.parametrize("kind", ["gaussian", "without_replacement"])
def test_replacing_moves_two_clip_norms(history, kind):
    """As dp_accounting's PLD takes it; its RDP does not double."""
    event, halved = GAUSSIAN, dp_event.GaussianDpEvent(1.0)
    if kind == "without_replacement":
        event, halved = (
            dp_event.SampledWithoutReplacementDpEvent(100, 10, e) for e in (event, halved)
        )
    found = history(
        "e.json", {"event": plain(event), "neighbours": REPLACE_ONE}, "--accountant", "rdp"
    )
    assert epsilon(found, "rdp") == RdpAccountant().epsilon_of({halved: 1}, 1e-5, REPLACE_ONE)


def test_gaussians_on_one_sample_are_one():
    pair = dp_event.ComposedDpEvent([GAUSSIAN, dp_event.SelfComposedDpEvent(GAUSSIAN, 3)])
    found = list(releases_of(plain(dp_event.PoissonSampledDpEvent(0.1, pair)), ADD_OR_REMOVE))
    assert found == [(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(1.0)), 1)]


@pytest.mark.parametrize(
    ("sampling", "relation", "event"),
    [
        ("no-amplification", "add-or-remove-one", dp_event.GaussianDpEvent(4.0)),
        ("poisson", "add-or-remove-one", PoissonSampling(0.1).event(4.0)),
        ("without-replacement", "replace-one", dp_event.SampledWithoutReplacementDpEvent(
            100, 10, dp_event.GaussianDpEvent(2.0))),
    ],
)  # fmt: skip
def test_a_flower_accountant(history, sampling, relation, event):
    found = history("f.json", flower(sampling, relation), "--accountant", "rdp", delta=())
    relation = relation.replace("-", "_").removesuffix("_one") if "add" in relation else REPLACE_ONE
    assert epsilon(found, "rdp") == RdpAccountant().epsilon_of({event: 5}, 1e-5, relation)
    assert found["delta"] == [1e-5]  # of its budget
    assert "the file tells" in found["releases"]["sampling"]


@pytest.mark.parametrize(
    ("sampling", "told"),
    [("no-amplification", 2.2976863995951193), ("poisson", 0.0928405876933219)],
)
def test_a_flower_accountant_costs_what_flower_says(history, sampling, told):
    """RdpAccountant.get_privacy_spent() of flwr 1.42 with dp-accounting 0.6."""
    state = flower(sampling)
    state["compositions"] = [
        {"event": {"noise_multiplier": z, "sample_size": 50, "population_size": 1000}, "count": n}
        for z, n in ((10.0, 20), (8.0, 5))
    ]
    found = history("f.json", state, "--accountant", "rdp", delta=())
    assert epsilon(found, "rdp") == pytest.approx(told, rel=1e-9)
