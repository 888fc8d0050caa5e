"""What the privacy statement says of runs whose unit is the client: unit, trust, and whom to believe."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from scipy import stats

from fedpriv.common.words import round_up

DELTA = 1e-5
LDP = (
    "algorithm=ldp_fedsgd", "partition.clients=20", "noise_schedule=constant", "epsilon=null",
    "noise_schedule.noise_multiplier=4", "rounds=4", "evaluation_interval=4",
)  # fmt: skip
CDP = (
    "algorithm=cdp_fedavg", "partition.clients=20", "algorithm.client_rate=0.3", "epsilon=null",
    "noise_schedule=constant", "noise_schedule.noise_multiplier=2", "rounds=4",
    "evaluation_interval=4",
)  # fmt: skip
QUANTILE = ("clipper=quantile", "clipper.bit_noise=5", "clipper.initial_clip_norm=0.1")
HISTOGRAM = ("clipper=median_histogram", "clipper.updates=2", "clipper.update_interval=2",
             "clipper.epsilon=0.8", "clipper.delta=1e-5")  # fmt: skip
RESPONSE = (
    "clipper=quantile", "clipper.bit_mechanism=randomized_response", "clipper.noised_by=client",
    "clipper.bit_epsilon=0.5", "accountant=rdp",
)  # fmt: skip

SIMULATION = "Simulation: if seed and noise_seed are secret, "


class Statement:
    """The two files of a statement."""

    def __init__(self, folder: Path):
        self.folder = folder
        self.facts = json.loads((folder / "privacy.json").read_text())
        self.words = " ".join((folder / "privacy.txt").read_text().split())


@pytest.fixture
def statement(ran):
    return lambda *overrides: Statement(ran(*overrides).folder)


def delta_of(epsilon: float, mu: float) -> float:
    """The exact δ of a Gaussian of sensitivity ÷ noise μ."""
    low = stats.norm.cdf(-epsilon / mu - mu / 2)
    return stats.norm.cdf(-epsilon / mu + mu / 2) - math.exp(epsilon) * low


# ---- local trust


def test_reports_are_stated_as_local_differential_privacy_of_every_client(statement):
    said = statement(*LDP)
    assert said.words.startswith(
        SIMULATION
        + "every client, with all its training records, is protected by (4.378, 1e-05)-local "
        "differential privacy against the server."
    )
    views = said.facts["views"]
    for view in ("sound", "published"):
        named = [views[view][key] for key in ("unit", "trust", "neighbours")]
        assert named == ["client", "local", "replace_one"]


def test_reports_are_protected_whatever_two_data_sets_a_client_may_have(statement):
    words = statement(*LDP).words
    assert "one client (client level, user level; replace-one adjacency: any two data" in words
    assert "every upload of that client, the server included (local trust)" in words


def test_reports_are_counted_over_clients(statement):
    said = statement(*LDP, "algorithm.clients_per_round=5")
    clients = said.facts["clients"]
    assert clients["total"] == 20
    assert clients["draws_fewest"] < clients["draws_most"]
    assert f"with {clients['draws_fewest']} to {clients['draws_most']} reports each" in said.words


def test_the_published_number_of_reports_names_its_work_and_its_sensitivity(statement):
    said = statement(*LDP)
    assert said.facts["epsilon_published"] < said.facts["epsilon_sound"]
    assert "LDP-FedSGD and the clipping size" in said.words
    assert "sensitivity C" in said.words


@pytest.mark.few(1)
@pytest.mark.parametrize("clipper", [QUANTILE, HISTOGRAM], ids=["quantile", "histogram"])
def test_with_an_aggregator_the_two_parties_one_must_trust_are_told_apart(clipper, statement):
    said = statement(*LDP, *clipper)
    parts = said.facts["parts"]
    assert parts.keys() == {"client", "aggregator"}
    assert "Whom one must trust: the reports alone, noised by the clients" in said.words
    assert max(parts.values()) < said.facts["epsilon_sound"] < sum(parts.values())


def test_the_reports_alone_cost_what_their_gaussians_cost(statement):
    """μ = 2 √R / z_Δ."""
    parts = statement(*LDP, *QUANTILE).facts["parts"]
    z_delta = (4.0**-2 - 10.0**-2) ** -0.5
    assert delta_of(parts["client"], 2 * math.sqrt(4) / z_delta) == pytest.approx(DELTA, rel=1e-6)


def test_the_bits_of_the_aggregator_cost_what_their_gaussians_cost(statement):
    """A bit replaced moves the sum by one: μ = √R / σ_b."""
    parts = statement(*LDP, *QUANTILE).facts["parts"]
    assert delta_of(parts["aggregator"], math.sqrt(4) / 5) == pytest.approx(DELTA, rel=1e-6)


@pytest.mark.parametrize(
    ("clipper", "words"),
    [(QUANTILE, "every client's exact bit"), (HISTOGRAM, "every client's exact bin")],
    ids=["quantile", "histogram"],
)
def test_the_caveats_name_the_aggregator_and_that_it_is_simulated(clipper, words, statement):
    caveats = " ".join(statement(*LDP, *clipper).facts["caveats"])
    assert words in caveats
    assert "simulated" in caveats


NOBODY = {
    "constant": ("clipper=constant",),
    "bits noised by the clients": (*QUANTILE, "clipper.noised_by=client"),
    "randomized response": RESPONSE,
    "adap": ("clipper=adap", "clipper.bit_noise=5"),
}


@pytest.mark.few(1)
@pytest.mark.parametrize("clipper", NOBODY)
def test_without_an_aggregator_nobody_is_said_to_need_trust(clipper, statement):
    said = statement(*LDP, *NOBODY[clipper])
    assert said.facts["parts"] is None
    assert "aggregator" not in said.words


def test_reports_too_say_when_delta_is_too_large_for_the_clients(statement):
    """One client in K may be published outright under either trust."""
    assert "1/K" in statement(*LDP, "delta=0.06").words
    assert "1/K" not in statement(*LDP, "delta=0.04").words


def test_who_took_part_is_no_secret_among_reports(statement):
    said = statement(*LDP)
    assert not [item for item in said.facts["diagnostics"] if "participation" in item]


# ---- central trust


def test_the_average_is_stated_as_privacy_of_every_client_against_all_but_the_server(statement):
    said = statement(*CDP)
    assert said.words.startswith(
        SIMULATION + "every client, with all its training records, is protected by ("
    )
    headline = said.words.partition(". ")[0]
    assert "-differential privacy against everyone but the server, which is trusted" in headline
    assert "local" not in headline
    views = said.facts["views"]
    for view in ("sound", "published"):
        named = [views[view][key] for key in ("unit", "trust", "neighbours")]
        assert named == ["client", "central", "add_or_remove"]


def test_the_average_is_protected_for_data_sets_with_a_client_more_or_less(statement):
    words = statement(*CDP).words
    assert "data sets that differ by one client more or less" in words
    assert "the server sees the updates and who took part and is trusted" in words
    assert "The number holds for every client, however often it took part" in words


def test_all_clients_of_an_average_are_said_to_have_the_same(statement):
    assert "all 20 have the same epsilon; each is charged for 4 releases" in statement(*CDP).words


def test_a_trusted_server_is_no_second_party(statement):
    said = statement(*CDP, *QUANTILE)
    assert said.facts["parts"] is None
    assert "aggregator" not in said.words


def test_who_took_part_is_listed_as_a_secret(statement):
    said = statement(*CDP)
    assert any(item.startswith("participation.csv") for item in said.facts["diagnostics"])
    assert "who took part must stay secret" in said.words
    assert (said.folder / "participation.csv").exists()


def test_without_diagnostics_who_took_part_is_not_written(statement):
    said = statement(*CDP, "runtime.diagnostics=false")
    assert not (said.folder / "participation.csv").exists()
    assert said.facts["diagnostics"] == []
    assert "were left out of this folder" in said.words


@pytest.mark.parametrize(("delta", "warned"), [(0.049, False), (0.05, True)])
def test_a_delta_of_one_in_k_and_more_is_warned_of(delta, warned, statement):
    """K = 20."""
    said = statement(*CDP, f"delta={delta}")
    assert ("Delta is not smaller than 1/K" in said.words) == warned


@pytest.mark.parametrize("overrides", [LDP, CDP], ids=["ldp", "cdp"])
def test_what_every_reader_needs_comes_first_and_is_short(overrides, statement):
    said = statement(*overrides)
    short, _, details = (said.folder / "privacy.txt").read_text().partition("\n\nDetails\n\n")
    lines = short.splitlines()
    assert len(lines) <= 25
    assert max(map(len, lines)) <= 110
    sound = lines.index(next(line for line in lines if line.startswith("Epsilon, sound ")))
    assert round_up(said.facts["epsilon_sound"]) in lines[sound]
    assert round_up(said.facts["epsilon"]) in lines[sound + 1]
    assert round_up(said.facts["epsilon_published"]) in lines[sound + 2]
    assert "Sound: epsilon =" in details


@pytest.mark.parametrize("overrides", [LDP, CDP], ids=["ldp", "cdp"])
def test_the_number_of_clients_is_said_to_be_public_and_not_that_of_their_records(
    overrides, statement
):
    said = statement(*overrides)
    assert "The number of clients K is public" in said.words
    assert "The sizes n_k" not in said.words


def test_the_words_carry_the_caveats_of_the_facts(statement):
    said = statement(*LDP, *HISTOGRAM)
    assert all(" ".join(caveat.split()) in said.words for caveat in said.facts["caveats"])


def test_a_run_without_noise_is_said_not_to_be_private(statement):
    said = statement("algorithm=cdp_fedavg", "noise_schedule=none", "epsilon=null", "rounds=1",
                     "partition.clients=20")  # fmt: skip
    assert said.facts["epsilon_sound"] == math.inf
    assert said.words.startswith("This run is NOT differentially private")
    assert "The number holds" not in said.words


def test_fedsgd_states_that_there_is_no_privacy(statement):
    said = statement("algorithm=fedsgd", "rounds=1")
    assert said.facts["private"] is False
    assert "epsilon" not in json.dumps(said.facts)
