"""Plug-ins that say one thing and do another, written as a user would: stopped, or charged for what they do.

Python's types stop no malice: code that runs in the process can write what it likes. These are mistakes.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import torch

from fedpriv.models import Logistic
from fedpriv.privacy.accountants import PldAccountant
from fedpriv.privacy.core.events import parse_event

QUANTILE = (
    "clipper=quantile",
    "clipper.initial_clip_norm=1.0",
    "clipper.bit_noise=2.0",
    "clipper.split=false",
)


@pytest.fixture
def epsilon(tmp_path):
    """The sound ε of the run, by its ledger."""

    def compute(name: str = "run") -> float:
        ledger = pd.read_csv(tmp_path / name / "ledger.csv")
        events = [parse_event(text) for text in ledger["event_sound"]]
        counts = dict(zip(events, ledger["draws_per_client"], strict=True))
        return PldAccountant().epsilon_of(counts, 1e-5, "add_or_remove")

    return compute


def nothing_was_applied(folder: Path) -> bool:
    """The run left the state of its beginning and no row."""
    state = torch.load(folder / "checkpoint.pt", weights_only=False)
    rows = (folder / "metrics.csv").read_text().splitlines()
    return state["round"] == 0 and len(rows) == 1 and not (folder / "summary.json").exists()


# ---- less than is released


def test_a_mechanism_that_does_not_announce_the_clip_statistic_is_stopped(plug_in, tmp_path):
    said = plug_in(
        "algorithm",
        "LeavesOut",
        """
        from fedpriv.algorithms import DpFl
        from fedpriv.privacy.mechanisms import GRADIENT, Mechanism

        class Forgets(Mechanism):
            def joint(self, sampling, noise_multiplier, round_index):
                return super().joint(sampling, noise_multiplier, round_index).only(GRADIENT)

        class LeavesOut(DpFl):
            def mechanism(self, clipper, schedule):
                return Forgets(self, clipper, schedule)
        """,
        *QUANTILE,
    )
    assert said.status == 1
    assert "round 1 released clip_statistic, which was not announced" in said.sentence
    assert nothing_was_applied(tmp_path / "run")


# ---- less noise than announced


def test_a_query_that_adds_less_noise_than_it_announces_is_stopped(plug_in, tmp_path):
    said = plug_in(
        "algorithm",
        "Silent",
        """
        import dataclasses

        from fedpriv.algorithms import DpFl
        from fedpriv.privacy.mechanisms import GaussianQuery, JointQuery, Mechanism

        class HalfNoise(GaussianQuery):
            def release(self, answer, noise):
                half = dataclasses.replace(self, noise_multiplier=self.noise_multiplier / 2)
                return half._add(answer, noise)

            def _add(self, answer, noise):
                return GaussianQuery.release(self, answer, noise)

        class Halves(Mechanism):
            def joint(self, sampling, noise_multiplier, round_index):
                joint = super().joint(sampling, noise_multiplier, round_index)
                made = [HalfNoise(**dataclasses.asdict(query)) for query in joint.queries]
                return JointQuery(joint.sampling, tuple(made))

        class Silent(DpFl):
            def mechanism(self, clipper, schedule):
                return Halves(self, clipper, schedule)
        """,
        "noise_schedule.noise_multiplier=4",
    )
    assert said.status == 1
    assert "noise of standard deviation 2, less than the 4" in said.sentence
    assert nothing_was_applied(tmp_path / "run")


# ---- a query about other records than the sample's


def test_a_query_about_all_records_is_charged_without_the_sampling_of_lots(
    plug_in, tmp_path, epsilon
):
    said = plug_in(
        "noise_schedule",
        "AsksForLosses",
        """
        from fedpriv.privacy.mechanisms import GaussianQuery
        from fedpriv.privacy.noise_schedules import ConstantNoise, LossQuery

        class AsksForLosses(ConstantNoise):
            def __init__(self):
                super().__init__(4.0)

            @property
            def loss_query(self):
                return LossQuery(GaussianQuery("training_loss", 8.0, replaced=1.0), bound=5.0)
        """,
        "accountant=pld",
        "algorithm.sample_rate=0.1",
    )
    assert said.status == 0, said.err
    ledger = pd.read_csv(tmp_path / "run" / "ledger.csv").set_index("queries")
    assert ledger.loc["gradient_sum=4", "event_sound"] == "Poisson(q=0.1, Gaussian(z=4.0))"
    assert ledger.loc["training_loss=8", "event_sound"] == "Gaussian(z=8.0)"
    assert (ledger["draws_per_client"] == 6).all()
    within_the_lot = {parse_event("Poisson(q=0.1, Gaussian(z=3.5777087639996634))"): 6}
    assert epsilon() > 2 * PldAccountant().epsilon_of(within_the_lot, 1e-5, "add_or_remove")


# ---- something else than what a mechanism released


OWN_NOISE = """
import torch

from fedpriv.algorithms import DpFl
from fedpriv.algorithms.trainer import RoundOutcome, Trainer
from fedpriv.privacy.mechanisms import Unprotected


class OwnNoise(Trainer):
    def round(self, opened):
        model, work = self.context.model, self.computation
        uploads = torch.randn(len(opened.cohort), model.size)
        self.server.apply(opened.cohort, {uploads})
        nothing = model.flat.new_zeros(0)
        return RoundOutcome(0.0, 0.0, 0, True, nothing.numpy(), nothing, nothing.long())


class Own(DpFl):
    def start(self, context):
        trainer = super().start(context)
        return OwnNoise(context, trainer.computation, trainer._optimizer, trainer.server)
"""


def test_noise_of_ones_own_is_refused_by_the_server_step(plug_in, tmp_path):
    said = plug_in("algorithm", "Own", OWN_NOISE.replace("{uploads}", "uploads"))
    assert said.status == 1
    assert "the server step takes released or public values" in said.sentence
    assert "got a Tensor" in said.sentence
    assert nothing_was_applied(tmp_path / "run")


def test_noise_of_ones_own_said_to_be_unprotected_is_no_release_that_was_announced(
    plug_in, tmp_path
):
    said = plug_in("algorithm", "Own", OWN_NOISE.replace("{uploads}", "Unprotected(uploads)"))
    assert said.status == 1
    assert "round 1 did not release 1 samples of each client" in said.sentence
    assert nothing_was_applied(tmp_path / "run")


def test_a_raw_upload_in_the_weights_is_refused(plug_in, tmp_path):
    said = plug_in(
        "algorithm",
        "Own",
        """
        from fedpriv.algorithms import DpFl
        from fedpriv.algorithms.record_computation import RecordComputation

        class Adds(RecordComputation):
            def compute_cohort(self, local_step, changes, clip):
                found = super().compute_cohort(local_step, changes, clip)
                self.context.model.flat.add_(found.answer.values.sum(0), alpha=-0.01)
                return found

        class Own(DpFl):
            def start(self, context):
                trainer = super().start(context)
                trainer.computation.__class__ = Adds
                return trainer
        """,
    )
    assert said.status == 1
    assert "the global weights were changed outside the server step" in said.sentence
    assert nothing_was_applied(tmp_path / "run")


def test_local_training_in_place_on_the_weights_handed_out_is_refused(plug_in, tmp_path):
    """Each client would start from what the clients before it made of their records."""
    said = plug_in(
        "algorithm",
        "Own",
        """
        import torch

        from fedpriv.algorithms import CdpFedAvg
        from fedpriv.algorithms.uploads import UploadBatch

        class InPlace:
            sign, replaces = -1, False

            def __init__(self, context):
                self.context = context

            def of(self, round_index, clients):
                data = self.context.data
                records = [data.train.subset(data.clients[k]) for k in clients]
                rows = [self.of_records(own.inputs, own.targets) for own in records]
                return UploadBatch(torch.stack(rows), torch.zeros(len(rows)), 1)

            def of_records(self, inputs, targets):
                model = self.context.model
                weights = model.flat
                start = weights.clone()
                losses = model.loss(model(inputs), targets).mean()
                gradients = torch.autograd.grad(losses, model.parameters())
                weights -= 0.1 * torch.cat([g.flatten() for g in gradients])
                return weights - start

        class Own(CdpFedAvg):
            def uploads(self, context):
                return InPlace(context)
        """,
        base="cdp_fedavg",
    )
    assert said.status == 1, said
    assert "the global weights were changed outside the server step" in said.sentence
    assert nothing_was_applied(tmp_path / "run")


# ---- a sensitivity below what the values can do


CLIPPER = """
import torch

from fedpriv.privacy.clippers import ConstantClipper
from fedpriv.privacy.mechanisms import GaussianQuery


class Mine(ConstantClipper):
    def __init__(self):
        super().__init__(0.001)

    def factors(self, norms, clip_norms):
        return torch.ones_like(norms)  # "clips" nothing
"""
ASKS = """
    def query(self, round_index, noise_multiplier):
        return GaussianQuery("clip_statistic", noise_multiplier)

    def statistic(self, norms, owners, clip_norms):
        total = torch.zeros(len(clip_norms)).index_add(0, owners, norms)
        return total
"""


def test_a_clipper_that_does_not_clip_is_cut_to_its_clip_norm(plug_in, tmp_path):
    said = plug_in(
        "clipper", "Mine", CLIPPER, "noise_schedule.noise_multiplier=0.001", "algorithm.optimizer=sgd",
        "algorithm.learning_rate=1",
    )  # fmt: skip
    assert said.status == 0
    rows = pd.read_csv(tmp_path / "run" / "clients.csv")
    assert (rows["gradient_norm"] > 0.01).all()  # before clipping
    weights = torch.load(tmp_path / "run" / "checkpoint.pt", weights_only=False)["training"][
        "weights"
    ]
    initial = Logistic(seed=0).build((64,), 10)
    start = torch.cat([p.detach().reshape(-1) for p in initial.parameters()])
    # six steps along means of gradients of norm at most C, over a few more records than expected
    assert 0 < (weights - start).norm() < 6 * 2 * 0.001


def test_a_statistic_that_is_no_bounded_one_is_refused(plug_in, tmp_path):
    said = plug_in("clipper", "Mine", CLIPPER + ASKS)
    assert said.status == 1
    assert "statistic must return a bounded statistic" in said.sentence
    assert nothing_was_applied(tmp_path / "run")
