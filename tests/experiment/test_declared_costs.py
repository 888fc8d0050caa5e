"""The sound ε is fedpriv's own: by its accountants, of events that its classes state. Else it is declared."""

from __future__ import annotations

import json

import pytest

ACCOUNTANT = """
from fedpriv.privacy.accountants import RdpAccountant


class Mine(RdpAccountant):
    def rdp(self, event, neighbours):
        return super().rdp(event, neighbours) / 100
"""
QUERY = """
import dataclasses

from fedpriv.algorithms import DpFl
from fedpriv.privacy.mechanisms import GaussianQuery, JointQuery, Mechanism


class Cheap(GaussianQuery):
    pass


class Joins(Mechanism):
    def joint(self, sampling, noise_multiplier, round_index):
        joint = super().joint(sampling, noise_multiplier, round_index)
        return JointQuery(sampling, tuple(Cheap(**dataclasses.asdict(q)) for q in joint.queries))


class Mine(DpFl):
    def mechanism(self, clipper, schedule):
        return Joins(self, clipper, schedule)
"""
SAMPLING = """
from dataclasses import dataclass

from fedpriv.algorithms import DpFl
from fedpriv.privacy.core.sampling import PoissonSampling


class Rare(PoissonSampling):
    def event(self, noise_multiplier):
        return PoissonSampling(self.sample_rate / 10).event(noise_multiplier)


class Mine(DpFl):
    def sampling_of(self, records):
        return Rare(self.sample_rate)
"""
STRATEGY = """
from fedpriv.algorithms import DpFtrl
from fedpriv.privacy.matrix.identity import Identity


class Light(Identity):
    def sensitivity(self, participation):
        return 0.1 * super().sensitivity(participation)


class Mine(DpFtrl):
    def find_strategy(self):
        return Light(self.rounds)
"""
CLIPPER = """
from fedpriv.privacy.clippers import ConstantClipper


class Mine(ConstantClipper):
    def __init__(self):
        super().__init__(clip_norm=1.0)
"""
SCHEDULE = """
from fedpriv.privacy.noise_schedules import ConstantNoise


class Mine(ConstantNoise):
    def __init__(self):
        super().__init__(noise_multiplier=4.0)
"""
RUN = ("rounds=6", "epsilon=null")
NOISE = "noise_schedule.noise_multiplier=2"


@pytest.fixture
def facts(tmp_path):
    return lambda: json.loads((tmp_path / "run" / "privacy.json").read_text())


def words(tmp_path) -> str:
    return " ".join((tmp_path / "run" / "privacy.txt").read_text().split())


@pytest.mark.parametrize(
    ("code", "base", "more", "stated"),
    [
        (QUERY, "dp_fl", (NOISE,), ("Joins", "Cheap")),
        (SAMPLING, "dp_fl", (NOISE,), ("Rare",)),
        (STRATEGY, "dp_ftrl", ("epsilon=8", "algorithm.min_separation=3"), ("Light",)),
    ],
)
def test_what_states_events_is_named_and_nothing_is_proven(
    code, base, more, stated, plug_in, facts, tmp_path
):
    said = plug_in("algorithm", "Mine", code, *RUN, *more, base=base)
    assert said.status == 0, said.err
    names = facts()["declared_by"]
    assert {name.rpartition(".")[2] for name in names} == set(stated)
    said = words(tmp_path)
    assert "proven for this run" not in said
    assert f"as declared by {' and '.join(names)}, " in said.partition("Epsilon, sound")[0]
    assert facts()["epsilon_published"] is None


@pytest.mark.thorough
def test_an_accountant_of_ones_own_is_no_sound_epsilon(plug_in, facts, tmp_path):
    said = plug_in("accountant", "Mine", ACCOUNTANT, *RUN, NOISE, "epsilon=100")
    assert said.status == 0, said.err
    found = facts()
    assert found["epsilon_sound"] > 3 * found["epsilon"]
    assert "declared_by" not in found
    assert "proven for this run" in words(tmp_path)
    rates = found["largest_tpr"]
    plug_in(
        "accountant", "Mine", ACCOUNTANT.replace("/ 100", "* 100"), *RUN, NOISE, "runtime.run_dir=b"
    )
    again = json.loads((tmp_path / "b" / "privacy.json").read_text())
    assert (again["epsilon_sound"], again["largest_tpr"]) == (found["epsilon_sound"], rates)


@pytest.mark.thorough
def test_the_plan_shows_the_sound_epsilon_beside_that_of_an_accountant_of_ones_own(plug_in, facts):
    given = ("noise_schedule=calibrated", "epsilon=2", "rounds=6")
    plug_in("accountant", "Mine", ACCOUNTANT, *given)
    said = plug_in("accountant", "Mine", ACCOUNTANT, *given, "dry_run=true")
    shown = " ".join(said.out.replace("│", " ").split())
    assert float(shown.partition("; sound: ")[2].split(",")[0]) == pytest.approx(
        facts()["epsilon_sound"], rel=1e-4
    )


def test_a_filter_of_ones_own_is_declared(plug_in, facts):
    given = ("noise_schedule.beta=0.9", "epsilon=2")
    assert plug_in("accountant", "Mine", ACCOUNTANT, *given, base="adap_dpfl").status == 0
    assert [name.rpartition(".")[2] for name in facts()["declared_by"]] == ["Mine"]


@pytest.mark.parametrize(("group", "code"), [("clipper", CLIPPER), ("noise_schedule", SCHEDULE)])
def test_a_part_in_the_place_of_a_papers_has_no_published_epsilon(group, code, plug_in, facts):
    assert plug_in(group, "Mine", code, *RUN).status == 0
    assert facts()["epsilon_published"] is None
    assert "declared_by" not in facts()
    said = plug_in(group, "Mine", code, *RUN, "budget_view=published", "runtime.run_dir=b")
    assert "budget_view must be sound" in said.sentence


@pytest.mark.parametrize(("group", "code"), [("accountant", ACCOUNTANT), ("algorithm", SAMPLING)])
def test_a_search_is_charged_by_fedprivs_own_classes(group, code, plug_in):
    said = plug_in(
        group, "Mine", code, "-m", "hydra/sweeper=search", "hydra.sweeper.epsilon=8",
        "hydra.sweeper.trials=2", "epsilon=null", "rounds=2", NOISE, "noise_schedule=constant",
        "algorithm.learning_rate=interval(0.1,0.2)",
    )  # fmt: skip
    assert said.status == 2
    assert "a search is charged by fedpriv's own classes" in said.sentence
