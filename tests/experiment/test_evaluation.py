"""Who benefits: the accuracy of each class, of each client, and of the worst tenth of the clients."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from fedpriv.data.federated import FederatedData
from fedpriv.data.records import Records
from fedpriv.engine import FlatModel
from fedpriv.experiment.evaluation import accuracy_of_clients, evaluate

WRONG_ON_CLASS_1 = torch.tensor([0, 2, 2])  # what is predicted for an input of each class


def records(labels: list[int]) -> Records:
    """Inputs that are the one-hot labels."""
    targets = torch.tensor(labels)
    return Records(nn.functional.one_hot(targets, 3).float(), targets)


@pytest.fixture
def context() -> SimpleNamespace:
    """Three clients with labels 0 0 0 1, 1 and 2, a model that is wrong on label 1, tests of 0 0 1."""
    model = nn.Linear(3, 3, bias=False)
    model.weight.data = nn.functional.one_hot(WRONG_ON_CLASS_1, 3).float().T
    clients = [np.array([0, 1, 2, 3]), np.array([4]), np.array([5])]
    train = records([0, 0, 0, 1, 1, 2])
    data = FederatedData(train, clients, None, records([0, 0, 1]), 3, (3,))
    return SimpleNamespace(data=data, model=FlatModel(model), attack=None)


def test_a_client_without_test_records_is_measured_by_its_labels(context):
    found = evaluate(context, diagnostics=True)
    assert accuracy_of_clients(context.data) == "accuracy_by_labels"
    assert found.class_accuracy == [1.0, 0.0, None]  # nobody tests class 2
    np.testing.assert_allclose(found.client_accuracy, [0.75, 0.0, np.nan])
    assert found.worst_decile == 0.0


def test_a_client_with_test_records_of_its_own_is_measured_on_these(context):
    context.data = replace(context.data, test_clients=np.array([2, -1, 2]))
    found = evaluate(context, diagnostics=True)
    assert accuracy_of_clients(context.data) == "own_accuracy"
    np.testing.assert_allclose(found.client_accuracy, [np.nan, np.nan, 0.5])
    assert found.worst_decile == 0.5


def test_the_worst_tenth_is_rounded_up_and_has_no_attackers(context):
    many = [np.array([i]) for i in range(12)]
    train = records([1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1])
    context.data = replace(context.data, train=train, clients=many)
    assert evaluate(context, diagnostics=True).worst_decile == 0.0  # of two
    context.attack = SimpleNamespace(test=None, attackers=np.array([11]))
    assert evaluate(context, diagnostics=True).worst_decile == 0.5


def test_without_diagnostics_no_client_is_measured(context):
    found = evaluate(context, diagnostics=False)
    assert (found.client_accuracy, found.worst_decile) == (None, None)
    assert found.class_accuracy == [1.0, 0.0, None]


def test_records_without_a_label_have_no_accuracy_by_labels(context):
    sequences = Records(torch.zeros(2, 4), torch.ones(2, 4, dtype=torch.long))
    assert accuracy_of_clients(replace(context.data, train=sequences)) is None


RUN = (
    "train",
    "algorithm=cdp_fedavg",
    "rounds=2",
    "evaluation_interval=1",
    "partition=iid",
    "partition.clients=20",
    "runtime.plots=false",
    "runtime.progress=none",
    "runtime.run_dir=run",
)


def test_the_last_round_has_a_row_for_every_client_and_the_summary_the_worst(command, tmp_path):
    assert command(*RUN).status == 0
    clients = pd.read_csv(tmp_path / "run" / "clients.csv")
    last = clients[clients["round"] == 2]
    assert last["client"].tolist() == [*range(20)]
    assert last["gradient_norm"].notna().sum() < 20  # of participants alone
    worst = np.sort(last["accuracy_by_labels"])[:2].mean()
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["worst_decile_accuracy_by_labels"] == pytest.approx(worst)
    assert "clients.csv and, of the worst tenth" in (tmp_path / "run" / "privacy.txt").read_text()


@pytest.mark.thorough
@pytest.mark.parametrize("discreet", ["publish=true", "runtime.diagnostics=false"])
def test_what_is_measured_of_clients_is_in_no_folder_without_diagnostics(
    discreet, command, tmp_path
):
    said = command(*RUN, discreet)
    assert said.status == 0, said.err
    for path in (tmp_path / "run").rglob("*"):
        if path.is_file() and path.name != "checkpoint.pt":  # which has the key without a value
            assert b"worst_decile" not in path.read_bytes()
            assert b"by_labels" not in path.read_bytes()
