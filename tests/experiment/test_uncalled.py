"""Methods of the user's own that nothing calls: refused by name, with the one to use."""

from __future__ import annotations

import pytest

SERVER_STEP = """
from fedpriv.algorithms import {base}
from fedpriv.algorithms.server_steps import AddChange


class Median(AddChange):
    def apply(self, cohort, uploads):
        self.model.flat.add_(uploads.values.median(0).values)


class Mine({base}):
    def server_step(self, problem):
        return Median(problem.model)
"""


@pytest.mark.parametrize(
    ("base", "name", "more"),
    [
        ("cdp_fedavg", "CdpFedAvg", ()),
        ("fedsgd", "FedSgd", ("clipper=none", "noise_schedule=none")),
        ("dp_fl_server", "DpFlServer", ()),
    ],
)
def test_a_server_step_of_an_algorithm_that_has_none_is_refused(
    base, name, more, plug_in, tmp_path
):
    """Once it ran, as a mean, by the name of a median."""
    said = plug_in("algorithm", "Mine", SERVER_STEP.format(base=name), *more, base=base)
    assert said.status == 2
    assert "nothing calls Mine.server_step" in said.sentence
    assert f"{name} has " in said.sentence
    assert "start" in said.sentence
    assert not (tmp_path / "run").exists()


def test_a_dry_run_says_so_too(plug_in):
    code = SERVER_STEP.format(base="CdpFedAvg")
    said = plug_in("algorithm", "Mine", code, "dry_run=true", base="cdp_fedavg")
    assert said.status == 2
    assert "nothing calls Mine.server_step (client level)" in said.sentence
    assert "CdpFedAvg has uploads, denominator" in said.sentence


def test_uploads_invented_on_an_attack_are_refused(plug_in):
    code = """
    from fedpriv.attacks.backdoor import Backdoor

    class Mine(Backdoor):
        def uploads(self, aggregation, clients, uploads):
            return -uploads
    """
    said = plug_in("attack", "Mine", code, "attack.trigger.writers=2")
    assert said.status == 2
    assert "attack: nothing calls Mine.uploads" in said.sentence
    assert "attack.trigger" in said.sentence


NEVER = {
    "an attribute of another level": (
        "algorithm",
        "from fedpriv.algorithms import DpFl\n\nclass Mine(DpFl):\n    noise_on_the_mean = True\n",
        "Mine.noise_on_the_mean",
    ),
    "a step that an own start leaves out": (
        "algorithm",
        """
        from fedpriv.algorithms import DpFl
        from fedpriv.algorithms.record_computation import RecordComputation
        from fedpriv.algorithms.server_steps import WeightedAverage
        from fedpriv.algorithms.trainer import Trainer

        class Mine(DpFl):
            def start(self, problem):
                data = problem.data
                samplings = [self.sampling_of(int(n)) for n in data.records_per_client]
                server = WeightedAverage(problem.model, data.records_per_client)
                work = RecordComputation(problem, samplings, self.local_steps, server)
                return Trainer(problem, work, self._client_optimizer(problem), server)

            def server_step(self, problem):
                return super().server_step(problem)
        """,
        "Mine.server_step",
    ),
    "a misspelt method": (
        "clipper",
        "from fedpriv.privacy.clippers import ConstantClipper\n\n"
        "class Mine(ConstantClipper):\n"
        "    def __init__(self):\n        super().__init__(1.0)\n\n"
        "    def factor(self, norms, clip_norms):\n        return norms\n",
        "did you mean factors?",
    ),
    "a statistic that nobody asks for": (
        "clipper",
        "from fedpriv.privacy.clippers import ConstantClipper\n\n"
        "class Mine(ConstantClipper):\n"
        "    def __init__(self):\n        super().__init__(1.0)\n\n"
        "    def statistic(self, norms, owners, clip_norms):\n        return None\n",
        "it needs query",
    ),
    "a schedule that listens to nothing": (
        "noise_schedule",
        "from fedpriv.privacy.noise_schedules import ConstantNoise\n\n"
        "class Mine(ConstantNoise):\n"
        "    def __init__(self):\n        super().__init__(4.0)\n\n"
        "    def observe(self, round_index, loss):\n        pass\n",
        "it needs loss_query",
    ),
    "a method called by itself alone": (
        "clipper",
        "from fedpriv.privacy.clippers import ConstantClipper\n\n"
        "class Mine(ConstantClipper):\n"
        "    def __init__(self):\n        super().__init__(1.0)\n\n"
        "    def aggregate(self, depth):\n        return depth and self.aggregate(depth - 1)\n",
        "Mine.aggregate",
    ),
    "a method of a server step": (
        "algorithm",
        """
        from fedpriv.algorithms import DpFl
        from fedpriv.algorithms.server_steps import WeightedAverage

        class Median(WeightedAverage):
            def aggregate(self, cohort, uploads):
                return uploads.values.median(0).values

        class Mine(DpFl):
            def server_step(self, problem):
                return Median(problem.model, problem.data.records_per_client)
        """,
        "server step: nothing calls Median.aggregate",
    ),
}


@pytest.mark.few(4)
@pytest.mark.parametrize("name", NEVER)
def test_what_nothing_calls_is_refused(name, plug_in, tmp_path):
    group, code, sentence = NEVER[name]
    said = plug_in(group, "Mine", code)
    assert said.status == 2
    assert "nothing calls" in said.sentence
    assert sentence in said.sentence
    assert not (tmp_path / "run" / "metrics.csv").exists()


def test_a_method_that_own_code_calls_is_not_refused(plug_in):
    code = """
    import numpy as np

    from fedpriv.algorithms import DpFl
    from fedpriv.algorithms.server_steps import WeightedAverage

    class Median(WeightedAverage):
        weight = 0.5

        def aggregate(self, uploads):
            return uploads.values.median(0).values

        def apply(self, cohort, uploads):
            self.model.flat.add_(self.aggregate(uploads))

    class Mine(DpFl):
        decay: float = 0.5

        @property
        def factor(self):
            return self.decay

        def server_step(self, problem):
            assert self.factor
            return Median(problem.model, problem.data.records_per_client)

        def caveats(self):
            return ()

        def own_caveats(self):
            return ("mine",)

        def records_per_step(self, records):
            return records

        def _own(self):
            return None
    """
    said = plug_in("algorithm", "Mine", code)
    assert said.status == 0, said.err
