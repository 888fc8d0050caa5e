"""Methods of the user's own that are named almost like those of fedpriv: refused, with what was meant."""

from __future__ import annotations

import pytest

from fedpriv.algorithms import DpFl
from fedpriv.algorithms.fedsgd import LdpFedSgd
from fedpriv.common.errors import ConfigError
from fedpriv.experiment.contracts import refuse_near_misses
from fedpriv.privacy.noise_schedules import ConstantNoise

CLIPPER = """
from fedpriv.privacy.clippers import ConstantClipper

class Mine(ConstantClipper):
    def __init__(self):
        super().__init__(1.0)

    def {name}(self, norms, clip_norms):
        return super().factors(norms, clip_norms)
"""
SERVER_STEP = """
from fedpriv.algorithms import DpFl
from fedpriv.algorithms.server_steps import WeightedAverage

class Step(WeightedAverage):
    def aply(self, cohort, uploads):
        self.model.flat.add_(uploads.values.median(0).values)

class Mine(DpFl):
    def server_step(self, problem):
        return Step(problem.model, problem.data.records_per_client)
"""
TRIGGER = """
from fedpriv.attacks.backdoor import Backdoor

class Trigger:
    def plant(self, data, honest, stream):
        raise NotImplementedError

    def misfits(self, dataset):
        return None

class Mine(Backdoor):
    def __init__(self, trigger, **keys):
        super().__init__(trigger=Trigger(), **keys)
"""


@pytest.mark.few(3)
@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize(
    ("group", "code", "wanted"),
    [
        ("clipper", CLIPPER.format(name="factor"), "Mine.factor; did you mean factors?"),
        ("algorithm", SERVER_STEP, "server step: nothing calls Step.aply; did you mean apply?"),
        ("attack", TRIGGER, "attack.trigger: nothing calls Trigger.misfits; did you mean misfit?"),
    ],
)
def test_a_misspelt_method_is_refused(group, code, wanted, dry, plug_in, tmp_path):
    """Each would run as what it extends, a mean by the name of a median say."""
    if dry and group == "algorithm":
        pytest.skip("a dry run starts no algorithm")
    said = plug_in(group, "Mine", code, f"dry_run={dry}")
    assert said.status == 2, said
    assert wanted in said.sentence
    assert not (tmp_path / "run" / "metrics.csv").exists()


@pytest.mark.parametrize(
    ("base", "name"), [(LdpFedSgd, "server_step"), (DpFl, "uploads"), (DpFl, "denominator")]
)
def test_a_hook_of_the_other_level_is_refused(base, name):
    """Nothing calls it: the run was a mean by the name of a median."""
    mine = type("Mine", (base,), {name: lambda self, context: None})
    with pytest.raises(ConfigError, match=f"nothing calls Mine.{name}"):
        refuse_near_misses("algorithm", mine.__new__(mine))


@pytest.mark.parametrize("adaptive", [False, True])
def test_a_schedule_that_observes_says_that_it_is_adaptive(adaptive):
    observes = {"observe": lambda self, signal: None, "adaptive": adaptive}
    mine = type("Mine", (ConstantNoise,), observes)(noise_multiplier=1.0)
    if adaptive:
        refuse_near_misses("noise_schedule", mine)
        return
    with pytest.raises(ConfigError, match=r"nothing calls Mine\.observe; set adaptive = True"):
        refuse_near_misses("noise_schedule", mine)


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["factors", "_factor", "decay"])
def test_another_name_is_not_refused(name, plug_in):
    said = plug_in("clipper", "Mine", CLIPPER.format(name=name), "dry_run=true")
    assert said.status == 0, said.err
