"""The privacy statement says what happened: in numbers for programs, in words for people."""

from __future__ import annotations

import json

import pytest

from fedpriv.common.words import percent_up, round_up
from fedpriv.store.caveats import CAVEATS
from fedpriv.store.statement import first_clause, privacy_words


class Statement:
    """The two files of a statement."""

    def __init__(self, result):
        self.result = result
        self.facts = json.loads((result.folder / "privacy.json").read_text())
        self.words = " ".join((result.folder / "privacy.txt").read_text().split())


@pytest.fixture
def statement(train):
    return lambda *overrides, name="run": Statement(train(*overrides, name=name))


def test_the_baseline_states_three_numbers_from_tight_to_loose(statement):
    said = statement("algorithm=dp_fl", "epsilon=1", "accountant.orders=wide")
    assert said.facts["private"]
    assert said.facts["epsilon"] <= 1
    assert 0.8 * said.facts["epsilon"] < said.facts["epsilon_sound"] <= said.facts["epsilon"]
    assert "PLD" in said.facts["reasons"]["epsilon_sound"]
    assert said.facts["epsilon_published"] >= said.facts["epsilon_sound"]  # a weaker conversion


def test_the_views_name_unit_trust_and_neighbours(statement):
    views = statement("algorithm=dp_fl", "rounds=1").facts["views"]
    for view in ("sound", "published"):
        assert (views[view]["unit"], views[view]["trust"]) == ("record", "local")
        assert views[view]["neighbours"] == "add_or_remove"
    assert "theorem 1" in views["published"]["source"]


@pytest.mark.thorough
@pytest.mark.usefixtures("wide_cells")
def test_lots_of_fixed_size_change_the_neighbours_of_the_sound_view(statement):
    said = statement("algorithm=dp_fl", "algorithm.sampling=fixed_size", "epsilon=null", "rounds=2")
    assert said.facts["views"]["sound"]["neighbours"] == "replace_one"
    assert said.facts["views"]["published"]["neighbours"] == "add_or_remove"
    assert "sampling without replacement" in said.words
    assert "one record replaced" in said.words


def test_the_statement_has_delta_accountant_order_and_spread(statement):
    facts = statement("algorithm=dp_fl", "rounds=3").facts
    assert facts["delta"] == 1e-5
    assert facts["accountant"].startswith("RDP")
    assert facts["order"] > 1
    for key in ("epsilon", "epsilon_published", "epsilon_sound"):
        spread = facts["spread"][key]
        assert spread["lowest"] <= spread["median"] <= spread["highest"] == facts[key]


def test_every_number_has_its_reason(statement):
    facts = statement("algorithm=dp_fl", "rounds=1").facts
    assert facts["reasons"].keys() == {"epsilon", "epsilon_published", "epsilon_sound"}
    assert all(facts["reasons"].values())


def test_without_a_budget_nothing_is_called_enforced(statement):
    said = statement("algorithm=dp_fl", "epsilon=null", "rounds=2")
    assert "Composed: epsilon = " in said.words
    assert "Enforced" not in said.words
    assert "10 of 10 took part, with 2 lots each; epsilon_sound 0." in said.words


@pytest.mark.thorough
def test_the_sound_number_of_a_filtered_run_is_its_budget(statement):
    said = statement("epsilon=1.5")
    assert said.facts["epsilon_sound"] == 1.5
    assert said.facts["epsilon"] <= 1.5
    assert "the whole budget of the privacy filter" in said.words.lower()
    assert "(1.500, 1e-05)-differential privacy" in said.words


def test_a_filtered_run_that_ends_early_still_claims_its_whole_budget(statement):
    """The time of stopping may depend on what was released."""
    assert statement("rounds=2").facts["epsilon_sound"] == 2.0


def test_a_filtered_run_says_which_order_was_fixed_in_advance(statement):
    said = statement("rounds=1", "accountant.filter_order=7")
    assert said.facts["order"] == 7
    assert "Renyi filter of order 7, fixed in advance" in said.words


def test_the_unclipped_reading_is_said_not_to_be_private(statement):
    said = statement("clipper.reading=unclipped", "budget_view=published", "rounds=2")
    assert said.facts["epsilon_sound"] == float("inf")
    assert said.words.startswith("This run is NOT differentially private")
    assert "reading=unclipped" in said.words
    assert said.facts["epsilon_published"] < 2


@pytest.mark.thorough
def test_where_no_noise_is_added_no_claim_is_told(statement):
    said = statement("algorithm=norm_bounding", "dataset=digits", "rounds=2")
    assert said.facts["epsilon_published"] == said.facts["epsilon_sound"] == float("inf")
    words = " ".join(said.words.split())
    assert "No published analysis claims a finite epsilon of it." in words
    assert "Not protected: one client" in words
    assert "inf at delta" not in words
    assert "The claim is about" not in words


def test_a_claim_without_a_finite_value_does_not_undo_a_guarantee(statement):
    facts = {**statement("rounds=1").facts, "epsilon_published": float("inf")}
    words = privacy_words(facts)
    assert " ".join(words.split()).startswith(
        "Simulation: if seed and noise_seed are secret, every training record of every client is "
        "protected by ("
    )
    assert "\n\nProtected: one record" in words


def test_an_adaptive_run_that_no_sound_filter_guards_claims_nothing(statement):
    said = statement("budget_view=published", "rounds=2")
    assert said.facts["epsilon_sound"] == float("inf")
    assert "budget_view=sound gives a finite value" in said.words


@pytest.mark.thorough
def test_an_adaptive_run_of_fixed_length_is_priced_at_the_smallest_sigma(statement):
    short = ("epsilon=null", "rounds=12", "evaluation_interval=12")
    said = statement(*short, "noise_schedule.beta=0.95")
    lower = statement(*short, "noise_schedule.beta=0.9", name="lower")
    assert said.facts["epsilon_sound"] < lower.facts["epsilon_sound"] < float("inf")


def test_fedavg_states_that_there_is_no_privacy(statement):
    said = statement("algorithm=fedavg", "rounds=1")
    assert said.facts["private"] is False
    assert "no privacy" in said.words
    assert "epsilon" not in json.dumps(said.facts)


def test_a_public_validation_split_is_a_caveat(statement):
    assert "treated as public" in statement("rounds=1").words


def test_the_words_carry_the_caveats_of_the_facts(statement):
    said = statement("rounds=1")
    assert all(caveat in said.words for caveat in said.facts["caveats"])


def test_each_caveat_is_named_in_short_before_the_details(statement):
    said = statement("rounds=1")
    short, _, details = (said.result.folder / "privacy.txt").read_text().partition("\nDetails\n")
    assert len(short.splitlines()) <= 25
    assert short.count("\n- ") == len(said.facts["caveats"])
    assert "\n- seed and noise_seed must stay secret\n" in short
    assert "the initial weights tell" in details


def test_a_caveat_begins_with_a_short_sentence():
    long = {name for name, text in CAVEATS.items() if len(first_clause(text)) > 98}
    assert long == set(), (
        "the short part of the statement shows a caveat up to its first full stop or colon"
    )


def test_the_headline_says_that_seeds_make_a_simulation(statement):
    """Who guesses seed (default 0) knows lots and cohorts: epsilon 2 becomes 26."""
    for diagnostics in ("true", "false"):
        said = statement("rounds=1", f"runtime.diagnostics={diagnostics}", name=diagnostics)
        assert said.words.startswith("Simulation: if seed and noise_seed are secret")
        assert (
            "seed and noise_seed must stay secret: lots, cohorts, batches and noise follow"
            in said.words
        )
        assert said.facts["randomness"] == "seeds of the configuration"
    assert "take publish=true" in said.words


def test_no_statement_advises_a_seed(statement):
    """A large random noise_seed was advised, whose noise could be searched for in 35 minutes."""
    said = statement("rounds=1", "runtime.diagnostics=false")
    assert "large random number" not in said.words


def test_the_secrets_of_a_published_run_are_named(statement):
    said = statement("rounds=1", "publish=true")
    assert said.words.startswith("Every training record of every client is protected")
    assert "256 bits of the operating system's entropy" in said.words


def test_a_person_with_several_records_at_one_client_is_a_caveat(statement):
    assert "A person with k records at one client" in statement("rounds=1").words


def test_what_floating_point_leaves_is_told_with_a_number(statement):
    few, many = (
        statement("algorithm=dp_fl", f"rounds={t}", "epsilon=null", name=str(t)) for t in (2, 20)
    )
    # 2.4e-16 for each of 650 numbers a round
    assert "adds at most 3e-13 to delta" in few.words
    assert "adds at most 3e-12 to delta" in many.words


def test_the_diagnostics_are_listed(statement):
    said = statement("rounds=1")
    assert "This folder is not private" in said.words
    assert all(" ".join(item.split()) in said.words for item in said.facts["diagnostics"])


@pytest.mark.parametrize(
    ("epsilon", "shown"), [(1.9991, "2.000"), (2.0, "2.000"), (0.0, "0.000"), (1e-9, "0.001")]
)
def test_epsilon_is_never_shown_smaller_than_it_is(epsilon, shown):
    assert round_up(epsilon) == shown


def test_the_statement_says_how_well_the_best_attack_can_do(statement):
    said = statement("algorithm=dp_fl", "rounds=5", "epsilon=null")
    rates = said.facts["largest_tpr"]
    low, high = rates["at_0.1_percent_fpr"], rates["at_1_percent_fpr"]
    assert 0.001 < low < high < 0.2
    sentence = (
        "Even the best attack that decides whether a given record was used has a true positive rate"
    )
    assert sentence in said.words
    assert f"at most {percent_up(low)} at a false positive rate of 0.1 %" in said.words
    assert f"of at most {percent_up(high)} at 1 %." in said.words
    summary = said.result.summary
    assert summary["largest_tpr_at_0.1_percent_fpr"] == low
    assert summary["largest_tpr_at_1_percent_fpr"] == high


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("algorithm", "decides"),
    [
        ("cdp_fedavg", "decides whether a given client was among those that train"),
        ("ldp_fedsgd", "tells two data sets of a client apart"),
        ("wei_cdp", "tells two values of a record apart"),
    ],
)
def test_the_best_attack_decides_what_the_neighbours_differ_in(statement, algorithm, decides):
    said = statement(f"algorithm={algorithm}", "rounds=1", name=algorithm)
    assert f"Even the best attack that {decides}" in said.words


def test_without_a_finite_epsilon_no_attack_is_ruled_out(statement):
    said = statement("budget_view=published", "epsilon=2", "rounds=1")
    assert set(said.facts["largest_tpr"].values()) == {1.0}
    assert (
        "is ruled out: its true positive rate may be 100 % at a false positive rate of 0.1 %"
        in said.words
    )


def test_a_filter_bounds_attacks_by_the_budget_it_guards(statement):
    """Not by what was spent when the run ended."""
    some, more = (statement(f"rounds={n}", "epsilon=2", name=f"of_{n}").facts for n in (3, 6))
    assert some["noise_adapts"]
    assert some["largest_tpr"] == more["largest_tpr"]
