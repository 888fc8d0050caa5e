"""When a run stops tells nothing that was not released: records that are not finite do not stop it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch

from fedpriv.algorithms.losses import ReportedLoss
from fedpriv.data import federated
from fedpriv.data.records import Records
from fedpriv.privacy.mechanisms import TRAINING_LOSS, GaussianQuery, Mechanism
from fedpriv.privacy.noise_schedules import LossQuery, NoiseSchedule

FEW = ("partition=iid", "partition.clients=8", "rounds=12", "epsilon=null")
RUNS = {
    "cdp_fedavg": ("algorithm=cdp_fedavg", "algorithm.client_rate=0.1", *FEW),
    "naseri_cdp": ("algorithm=naseri_cdp", "algorithm.client_rate=0.1", *FEW),
    "ldp_fedsgd": ("algorithm=ldp_fedsgd", *FEW),
    "dp_fl": ("algorithm=dp_fl", *FEW),
    "wei_cdp": ("algorithm=wei_cdp", *FEW, "epsilon=50", "delta=0.01"),
}


@pytest.fixture
def poison(monkeypatch):
    """(clients, value): their records hold this value in every run from now on."""
    original = federated.federate

    def poisoned(clients, value):
        def federate(*args, **kwargs):
            data = original(*args, **kwargs)
            inputs = data.train.inputs.clone()
            for client in clients:
                inputs[data.clients[client]] = value
            return replace(data, train=Records(inputs, data.train.targets))

        monkeypatch.setattr(federated, "federate", federate)

    return poisoned


@pytest.mark.few(1)
@pytest.mark.parametrize(
    ("name", "value"),
    [*((name, float("nan")) for name in RUNS), ("cdp_fedavg", float("inf")), ("cdp_fedavg", 1e38)],
)
def test_a_client_whose_records_are_not_finite_does_not_stop_a_run(name, value, poison, train):
    """DP-FedAvg of 8 clients, q = .1: a cohort of that client alone stopped 29 of 30 runs with it and none
    without, at a stated epsilon of .752."""
    poison([3], value)
    result = train(*RUNS[name])
    assert result.stop_reason == "rounds"
    assert result.summary["rounds"] == 12
    model = torch.load(result.folder / "model.pt", weights_only=True)
    assert all(values.isfinite().all() for values in model.values())


@pytest.mark.few(1)
@pytest.mark.parametrize("name", RUNS)
def test_not_even_if_there_is_no_finite_record_at_all(name, poison, train):
    poison(range(8), float("nan"))
    assert train(*RUNS[name]).stop_reason == "rounds"


def test_a_loss_that_is_not_a_number_is_answered_as_the_largest(poison, train):
    """CRD asks clients for their noised loss: NaN passed through the clamp, reached the schedule and
    stopped the run."""
    poison([3], float("nan"))
    result = train(
        "algorithm=wei_crd", "noise_schedule.trigger=noised", "noise_schedule.loss_noise_multiplier=5",
        "partition=iid", "partition.clients=8", "rounds=6", "epsilon=50", "delta=0.01",
    )  # fmt: skip
    assert result.stop_reason in ("rounds", "schedule")
    assert pd.read_csv(result.folder / "metrics.csv")["reported_loss"].notna().all()


class Asking(NoiseSchedule):
    """Asks the clients for their losses, each cut at 2, without noise."""

    loss_query = LossQuery(GaussianQuery(TRAINING_LOSS, 0.0), bound=2.0)

    def noise_multiplier(self, round_index):
        return 4.0


def reported(context) -> float:
    """The signal that the schedule reads of clients 0 and 1."""
    mechanism = Mechanism(context.mechanism.algorithm, context.clipper, Asking())
    mechanism.join(context.data.records_per_client)
    opened = mechanism.open(mechanism.announce(0), np.array([0, 1]), context.streams)
    return ReportedLoss(context, Asking.loss_query, "client").ask(opened).values


def test_the_public_penalty_is_added_to_what_is_released(digits_context):
    """Summed before the noise in single precision, a large one let a record move the answer 29 times as far
    as was declared."""
    context = digits_context
    context.model.module.weight_decay = 1e9
    context.model.weight_decay = 1e9
    context.model.loss = lambda outputs, targets: torch.full((len(outputs),), 0.5)
    first = reported(context)
    moved = iter((0.5, 0.5 + 1e-6))
    context.model.loss = lambda outputs, targets: torch.full(
        (len(outputs),), next(moved), dtype=torch.float64
    )
    second = reported(context)
    assert first > 1e5
    assert second - first == pytest.approx(5e-7, rel=0.05)


def test_what_a_client_holds_leaves_the_uploads_of_others_alone(digits_context):
    """One record that is not finite had all clients computed again by another rule: records of 1e25, finite,
    then counted as zero."""
    from fedpriv.algorithms.uploads import Gradients

    context = digits_context
    inputs = context.data.train.inputs.clone()
    for own in context.data.clients:
        inputs[own[0]] = 1e25
    context.data = replace(context.data, train=Records(inputs, context.data.train.targets))
    everyone = np.arange(8)
    clean = Gradients(1.0, context).of(0, everyone).uploads
    poisoned = inputs.clone()
    poisoned[context.data.clients[0][1]] = float("nan")
    context.data = replace(context.data, train=Records(poisoned, context.data.train.targets))
    found = Gradients(1.0, context).of(0, everyone).uploads
    moved = (found - clean)[1:].norm(dim=1) / clean[1:].norm(dim=1)
    assert (moved < 1e-5).all()  # computed alone, a client's sum may be rounded otherwise
    assert found[0].isfinite().all()


def test_a_label_that_no_model_has_is_refused_before_the_run():
    """It ended a run in the round that drew its record."""
    import fedpriv
    from fedpriv.common.errors import DataError
    from fedpriv.data.digits import Digits
    from fedpriv.data.partitions import Iid

    class Mislabelled(Digits):
        def load(self):
            loaded = super().load()
            loaded.train.targets[5] = 77
            return loaded

    assert fedpriv is not None
    with pytest.raises(DataError, match="digits: targets must be in 0 … 9, got 0 … 77"):
        federated.federate(Mislabelled(), Iid(4), validation=False, seed=0)


def test_losses_stay_between_zero_and_the_bound(digits_context):
    """The sensitivity b/n is that of numbers in [0, b]: a model's own loss may be anything."""
    context = digits_context
    answers = []
    for loss in (-5.0, 0.5, 9.0, float("nan"), float("inf"), -float("inf")):
        context.model.loss = lambda outputs, targets, loss=loss: torch.full((len(outputs),), loss)
        answers.append(reported(context))
    assert answers == [0.0, 0.5, 2.0, 2.0, 2.0, 0.0]


@pytest.fixture
def digits_context():
    import fedpriv
    from fedpriv.experiment.assemble import make_context
    from fedpriv.experiment.build import build_parts

    parts = build_parts(fedpriv.compose(["algorithm=ldp_fedsgd", *FEW]))
    return make_context(parts, torch.device("cpu"))


def test_the_engine_proves_its_rules_on_records_that_read_no_data(train, monkeypatch):
    """Else what stands in the first lot could change the engine, or stop the run."""
    from fedpriv.engine.base import BlockEngine

    seen = []
    original = BlockEngine._prove

    def noted(self, inputs, targets):
        seen.append(len(targets))
        return original(self, inputs, targets)

    monkeypatch.setattr(BlockEngine, "_prove", noted)
    for name in ("dp_fl", "ldp_fedsgd"):
        train(*RUNS[name], name=name)
    assert seen == [3, 4, 3, 4]
