"""Cohorts and lots of algorithms of the user's own: by chance alone, or nothing leaves."""

from __future__ import annotations

import json

import pytest
import torch

EIGHT = ("partition=iid", "partition.clients=8")
CONSTANT = ("noise_schedule=constant",)
SOME = (*EIGHT, "algorithm.participation=sampled", "algorithm.clients_per_round=3")


@pytest.fixture
def nothing_was_applied(tmp_path):
    def check() -> bool:
        state = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=False)
        return state["round"] == 0 and not (tmp_path / "run" / "summary.json").exists()

    return check


BY_LOSS = """
import numpy as np

from fedpriv.algorithms import {base}


class Picks({base}):
    def start(self, context):
        self.context = context
        return super().start(context)

    def cohort(self, streams, round_index, eligible):
        if not hasattr(self, "context"):
            return super().cohort(streams, round_index, eligible)
        data = self.context.data
        losses = [
            self.context.model.evaluate(data.train.inputs[own], data.train.targets[own])[0]
            for own in data.clients
        ]
        return np.sort(np.argsort(losses)[-3:])
"""


@pytest.mark.parametrize(
    ("base", "name", "overrides"),
    [
        ("dp_fl", "DpFl", SOME),
        ("cdp_fedavg", "CdpFedAvg", (*EIGHT, "algorithm.client_rate=0.4")),
        ("ldp_fedsgd", "LdpFedSgd", (*EIGHT, *CONSTANT, "algorithm.clients_per_round=3")),
    ],
)
def test_clients_chosen_by_their_private_loss_are_refused(
    base, name, overrides, plug_in, nothing_was_applied
):
    said = plug_in("algorithm", "Picks", BY_LOSS.format(base=name), *overrides, base=base)
    assert said.status == 1
    assert "round 1: Picks.cohort chose other clients than fedpriv's sampler draws" in said.sentence
    assert "client_sampling" in said.sentence
    assert nothing_was_applied()


def test_an_eligible_client_that_is_struck_from_the_list_is_missed(plug_in):
    code = """
    from fedpriv.algorithms import DpFl

    class Strikes(DpFl):
        def cohort(self, streams, round_index, eligible):
            eligible[0] = False
            return super().cohort(streams, round_index, eligible)
    """
    said = plug_in("algorithm", "Strikes", code, *EIGHT)
    assert said.status == 1
    assert "Strikes.cohort chose other clients" in said.sentence


def test_a_cohort_that_is_what_the_sampler_draws_runs(plug_in):
    code = """
    from fedpriv.algorithms import DpFl

    class Looks(DpFl):
        def cohort(self, streams, round_index, eligible):
            return super().cohort(streams, round_index, eligible)
    """
    assert plug_in("algorithm", "Looks", code, *SOME).status == 0


SAMPLES = """
from fedpriv.algorithms import CdpFedAvg
from fedpriv.privacy.core.sampling import FixedSizeSampling, PoissonSampling


class Samples(CdpFedAvg):
    def client_sampling(self, clients):
        {body}
"""


def test_a_cohort_drawn_by_another_sampling_than_is_charged_is_refused(
    plug_in, nothing_was_applied
):
    code = SAMPLES.format(body="return PoissonSampling(0.9)")
    said = plug_in(
        "algorithm", "Samples", code, *EIGHT, "algorithm.client_rate=0.1", base="cdp_fedavg"
    )
    assert said.status == 1
    assert (
        "PoissonSampling(sample_rate=0.9) and is charged for PoissonSampling(sample_rate=0.1)"
        in (said.sentence)
    )
    assert nothing_was_applied()


def test_a_sampling_that_changes_once_the_run_has_begun_is_refused(plug_in):
    code = """
    from fedpriv.algorithms import DpFl
    from fedpriv.privacy.core.sampling import FixedSizeSampling

    class Grows(DpFl):
        context = None

        def start(self, context):
            self.context = context
            return super().start(context)

        def client_sampling(self, clients):
            return FixedSizeSampling(clients, 2 if self.context is None else 3)
    """
    said = plug_in("algorithm", "Grows", code, *EIGHT)
    assert said.status == 1
    assert "Grows.client_sampling is another one than before the first round" in said.sentence


LOTS = """
import numpy as np
import torch

from fedpriv.algorithms import {base}
from fedpriv.algorithms.record_computation import RecordComputation


class Picks(RecordComputation):
    def _lots(self, local_step):
        context = self.context
        lots = [{lot} for client in local_step.cohort]
        records = context.data.train.{read}(np.concatenate(lots))
        sizes = torch.tensor([len(lot) for lot in lots])
        return records, torch.repeat_interleave(torch.arange(len(local_step.cohort)), sizes)


class Own({base}):
    def start(self, context):
        trainer = super().start(context)
        trainer.computation.__class__ = Picks
        return trainer
"""
RATE = "algorithm.sample_rate=0.1"


@pytest.mark.parametrize(
    ("lot", "sentence"),
    [
        ("context.data.clients[client][:20]", "records outside the lots"),
        ("context.data.clients[client]", "and left out 0 of those in them"),
        ("np.zeros(0, dtype=np.int64)", "read 0 records outside the lots"),
    ],
)
def test_records_outside_the_charged_lots_are_refused(lot, sentence, plug_in, nothing_was_applied):
    code = LOTS.format(base="DpFl", lot=lot, read="subset")
    said = plug_in("algorithm", "Own", code, *EIGHT, RATE)
    assert said.status == 1
    assert "round 1, step 1: Own read" in said.sentence
    assert sentence in said.sentence
    assert nothing_was_applied()


def test_the_same_lot_again_in_a_later_step_is_refused(plug_in):
    """Two steps on one lot are charged as steps on two."""
    lot = (
        "__import__('fedpriv.privacy.core.sampling', fromlist=['x']).sample_lot(context.streams, "
        "self._samplings[client], context.data.clients[client], local_step.round_index, 0, client)"
    )
    code = LOTS.format(base="DpFl", lot=lot, read="subset")
    assert plug_in("algorithm", "Own", code, *EIGHT, RATE).status == 0
    said = plug_in("algorithm", "Own", code, *EIGHT, RATE, "algorithm.local_steps=2",
                   "runtime.run_dir=steps")  # fmt: skip
    assert said.status == 1
    assert "round 1, step 2: Own read" in said.sentence


def test_a_lot_drawn_at_another_rate_than_is_charged_is_refused(plug_in):
    code = """
    from fedpriv.algorithms import DpFl
    from fedpriv.privacy.core.sampling import PoissonSampling

    class Later(DpFl):
        begun = False

        def sampling_of(self, records):
            return PoissonSampling(0.9 if self.begun else 0.1)

        def start(self, context):
            self.begun = True
            return super().start(context)
    """
    said = plug_in("algorithm", "Later", code, *EIGHT)
    assert said.status == 1
    assert "round 1, step 1: Later read" in said.sentence


OWN_SAMPLING = """
from dataclasses import dataclass

import numpy as np

from fedpriv.algorithms import DpFl
from fedpriv.privacy.core.sampling import PoissonSampling


@dataclass(frozen=True)
class Mine(PoissonSampling):
    def sample(self, stream, count):
        return np.union1d([0], super().sample(stream, count))


class Own(DpFl):
    def sampling_of(self, records):
        return Mine(self.sample_rate)
"""


def test_a_sampling_of_ones_own_has_no_second_draw_and_the_statement_says_so(plug_in, tmp_path):
    assert plug_in("algorithm", "Own", OWN_SAMPLING, *EIGHT).status == 0
    caveats = json.loads((tmp_path / "run" / "privacy.json").read_text())["caveats"]
    assert any("Mine" in one and "not drawn a second time" in one for one in caveats)
    text = " ".join((tmp_path / "run" / "privacy.txt").read_text().split())
    assert "not drawn a second time" in text
