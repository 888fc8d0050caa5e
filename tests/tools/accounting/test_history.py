"""``fedpriv account --history``: what other frameworks ran, at their own numbers, and files that are none."""

from __future__ import annotations

import warnings

import pytest
import torch
from dp_accounting import dp_event
from histories import GAUSSIAN, POISSON, epsilon, flower, opacus, plain

from fedpriv.privacy.accountants import GdpAccountant, PldAccountant, RdpAccountant
from fedpriv.privacy.core.names import ADD_OR_REMOVE, REPLACE_ONE
from fedpriv.privacy.core.sampling import PoissonSampling
from fedpriv.tools.accounting.event_json import releases_of

# ---- Opacus


@pytest.mark.parametrize("name", ["state.pt", "state.json"])
@pytest.mark.parametrize("mechanism", ["rdp", "gdp", "prv"])
def test_an_opacus_state_costs_what_opacus_says(history, name, mechanism):
    """Opacus, tests/accountants_test.py: RDP 7.32911117143 of σ = 1.5, q = .04, T = 2250."""
    found = history(name, opacus(mechanism), "--accountant", "rdp")
    assert epsilon(found, "rdp") == pytest.approx(7.32911117143, rel=2e-3)
    assert mechanism in found["releases"]["history"]
    assert "assumed" in found["releases"]["sampling"]
    assert "assumed" in found["releases"]["neighbours"]


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
        found = history(name, content, "--accountant", "rdp")
        assert epsilon(found, "rdp") <= known * (1 + 1e-9)
        assert epsilon(found, "rdp") == pytest.approx(known, rel=0.05)
        assert found["steps"] == 3


@pytest.mark.thorough
def test_flags_say_what_opacus_does_not(history):
    found = history("state.pt", opacus(entries=[(8.0, 0.01, 10)]), "--sampling", "none")
    assert epsilon(found, "gdp") == pytest.approx(
        GdpAccountant().epsilon_of({dp_event.GaussianDpEvent(8.0): 10}, 1e-5, ADD_OR_REMOVE)
    )
    assert found["releases"]["sampling"] == "none (by its flag)"
    shuffled = history("state.pt", opacus(entries=[(8.0, 0.01, 10)]), "--sampling",
                       "without_replacement", "--records", "1000", "--accountant", "rdp")  # fmt: skip
    assert shuffled["neighbours"] == REPLACE_ONE


# ---- CSV


def test_a_csv_of_stretches(history):
    found = history(
        "run.csv",
        "noise_multiplier,sample_rate,steps\n1.5,.04,20\n1.5,.04,25\n",
        "--accountant", "pld",
    )  # fmt: skip
    assert epsilon(found, "pld") == PldAccountant().epsilon_of({POISSON: 45}, 1e-5, ADD_OR_REMOVE)
    assert "assumed: neither a column nor a flag says" in found["releases"]["sampling"]


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
        "--accountant", "gdp",
    )  # fmt: skip
    events = {dp_event.GaussianDpEvent(8.0): 6, dp_event.GaussianDpEvent(4.0): 1}
    assert epsilon(found, "gdp") == GdpAccountant().epsilon_of(events, 1e-5, ADD_OR_REMOVE)
    assert "the worst of 2 clients" in found["releases"]["history"]


def test_a_flag_is_for_what_no_column_says(history, refused):
    rows = "noise_multiplier,steps\n1.5,10\n"
    assert history("run.csv", rows, "--sample-rate", ".04")["steps"] == 10
    assert "sample_rate is missing" in refused("run.csv", rows)
    both = "noise_multiplier,sample_rate,sampling\n1.5,.04,poisson\n"
    assert "--sampling cannot be given" in refused("run.csv", both, "--sampling", "none")
    assert "--sample-rate cannot be given" in refused("run.csv", both, "--sample-rate", ".1")


def test_a_row_that_says_nothing_is_told_apart(history):
    rows = "noise_multiplier,sample_rate,sampling\n4,.1,poisson\n8,.1,\n"
    found = history("run.csv", rows, "--accountant", "rdp")
    assert "assumed" in found["releases"]["sampling"]
    flag = history(
        "run.csv", rows.replace("poisson", ""), "--sampling", "poisson", "--accountant", "rdp"
    )
    assert found["accountants"] == flag["accountants"]
    assert "by its flag" in flag["releases"]["sampling"]


def test_too_many_clients_are_refused(refused):
    rows = "".join(f"4,none,{client}\n" for client in range(1001))
    assert "more than 1,000 clients" in refused(
        "run.csv", f"noise_multiplier,sampling,client\n{rows}"
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


def test_a_cap_is_kept():
    event = dp_event.TruncatedSubsampledGaussianDpEvent(100, 0.1, 20, 2.0)
    found = list(releases_of(plain(event), ADD_OR_REMOVE))
    assert found == [(event, 1)]


def test_an_event_alone_is_a_history(history):
    found = history("e.json", {"module_name": "dp_accounting.dp_event", **plain(GAUSSIAN)})
    assert "assumed" in found["releases"]["neighbours"]
    assert (
        "flag"
        in history("e.json", plain(GAUSSIAN), "--neighbours", REPLACE_ONE)["releases"]["neighbours"]
    )


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
