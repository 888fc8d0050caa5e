"""Methods of the user's own that fedpriv could not call, and answers that it could not use: a sentence."""

from __future__ import annotations

import pytest

CLIPPER = """from fedpriv.privacy.clippers import Clipper

class Mine(Clipper):
    def clip_norm(self, round_index, holders):
        return holders + 1.0

"""
SCHEDULE = """from fedpriv.privacy.noise_schedules import NoiseSchedule

class Mine(NoiseSchedule):
    def noise_multiplier(self, round_index):
        return 1.0

"""
ALGORITHM = "from fedpriv.algorithms import DpFl\n\nclass Mine(DpFl):\n"
ATTACK = "from fedpriv.attacks.backdoor import Backdoor\n\nclass Mine(Backdoor):\n"
WRONG = {
    "too few": ("clipper", CLIPPER, "def clip_norm(self, t):", "(self, t)", "holders)"),
    "too many": ("clipper", CLIPPER, "def factors(self, a, b, c):", "(self, a, b, c)", "clip_norms)"),
    "no self": ("clipper", CLIPPER, "def clip_norm():", "clip_norm()", "round_index, holders)"),
    "by name": ("clipper", CLIPPER, "def observe(self, *, kept):", "(self, kept)", "denominators)"),
    "a schedule": ("noise_schedule", SCHEDULE, "def noise_multiplier(self):", "(self)", "round_index)"),
    "an algorithm": ("algorithm", ALGORITHM, "def sampling_of(self):", "(self)", "records)"),
    "an attack": ("attack", ATTACK, "def attacks_in(self):", "(self)", "round_index)"),
}  # fmt: skip


@pytest.mark.few(3)
@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("case", WRONG)
def test_a_method_that_does_not_take_what_it_is_given_is_refused_by_name(
    case, dry, plug_in, tmp_path
):
    group, base, head, found, right = WRONG[case]
    said = plug_in(group, "Mine", f"{base}    {head}\n        return 1.0\n", f"dry_run={dry}")
    method = head.partition("(")[0].removeprefix("def ")
    assert said.status == 2, said
    assert f"{group}: Mine.{method}" in said.sentence
    assert found in said.sentence
    assert f"write def {method}(self, " in said.sentence
    assert right in said.sentence
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("head", "taken"),
    [
        ("def clip_norm(self, t, of):", True),
        ("def clip_norm(self, *given):", True),
        ("def clip_norm(self, round_index, holders, more=None):", True),
        ("def clip_norm(self, round_index, holders, more):", False),
    ],
)
def test_other_names_and_further_defaults_are_taken(head, taken, plug_in):
    code = f"{CLIPPER}    {head}\n        return None\n"
    said = plug_in("clipper", "Mine", code, "dry_run=true")
    assert (said.status == 0) == taken, said


def test_a_property_written_as_a_method_is_refused(plug_in):
    code = f"{SCHEDULE}    def loss_query(self):\n        return None\n"
    said = plug_in("noise_schedule", "Mine", code)
    assert said.status == 2, said
    assert "noise_schedule: Mine.loss_query must be a property" in said.sentence


def test_a_method_written_as_a_number_is_refused(plug_in):
    said = plug_in("clipper", "Mine", f"{CLIPPER}    clip_norm = 1.0\n")
    assert said.status == 2, said
    assert (
        "clipper: Mine.clip_norm must be a method, got 1.0; write def clip_norm(self"
        in said.sentence
    )


def test_a_partition_is_held_against_what_partitions_take(plug_in):
    code = "class Mine:\n    clients = 3\n    def assign(self, labels):\n        return []\n"
    said = plug_in("partition", "Mine", code)
    assert said.status == 2, said
    assert "partition: Mine.assign(self, labels) does not take" in said.sentence


def test_a_server_step_is_held_against_those_of_fedpriv(plug_in):
    code = """
    from fedpriv.algorithms import CdpFedAvg
    from fedpriv.algorithms.server_steps import AddChange

    class Step(AddChange):
        def apply(self, uploads):
            pass

    class Mine(CdpFedAvg):
        def start(self, problem):
            trainer = super().start(problem)
            trainer.server = Step(problem.model)
            return trainer
    """
    said = plug_in("algorithm", "Mine", code, base="cdp_fedavg")
    assert said.status == 2, said
    assert "server step: Step.apply(self, uploads) does not take" in said.sentence
    assert "write def apply(self, cohort, uploads)" in said.sentence


@pytest.mark.few(3)
@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    ("method", "kind"),
    [
        ("sampling_of(self, records)", "Sampling of fedpriv.privacy.core.sampling"),
        ("client_sampling(self, clients)", "Sampling of fedpriv.privacy.core.sampling"),
        ("mechanism(self, clipper, schedule)", "Mechanism of fedpriv.privacy.mechanisms.mechanism"),
    ],
)
def test_an_algorithm_that_answers_none_is_refused(method, kind, dry, plug_in, tmp_path):
    said = plug_in(
        "algorithm", "Mine", f"{ALGORITHM}    def {method}:\n        pass\n", f"dry_run={dry}"
    )
    assert said.status == 2, said
    assert f"algorithm: Mine.{method.partition('(')[0]}" in said.sentence
    assert f"must return a {kind}" in said.sentence
    assert "got None" in said.sentence
    assert not (tmp_path / "run").exists()


def test_a_sampling_that_some_clients_have_not_is_refused(plug_in, tmp_path):
    code = f"""{ALGORITHM}    def sampling_of(self, records):
        return super().sampling_of(records) if records != 206 else None
"""
    said = plug_in("algorithm", "Mine", code, "partition=iid", "partition.clients=7")
    assert said.status == 2, said
    assert "Mine.sampling_of(" in said.sentence
    assert "got None" in said.sentence
