"""Runs on synthetic users: the plan draws no record, and the statement says that nobody is protected."""

from __future__ import annotations

import json

import pytest

import fedpriv
from fedpriv.common.errors import ConfigError
from fedpriv.data.federated import federate
from fedpriv.data.synthetic import SyntheticDataset
from fedpriv.experiment.build import build_parts
from fedpriv.experiment.preflight import refuse_unusable_data


@pytest.mark.few(1)
@pytest.mark.parametrize("dataset", ["synthetic", "synthetic_text"])
def test_the_statement_of_a_run_says_that_the_records_belong_to_no_person(dataset, tmp_path):
    small = ("model.hidden=4", "model.embedding=4") if dataset == "synthetic_text" else ()
    config = fedpriv.compose(
        [
            f"dataset={dataset}", "algorithm=cdp_fedavg", "partition=natural", "dataset.users=30",
            "rounds=1", "runtime.plots=false", f"runtime.output_dir={tmp_path}", *small,
        ]
    )  # fmt: skip
    facts = json.loads((fedpriv.run(config).folder / "privacy.json").read_text())
    assert any("they belong to no person" in caveat for caveat in facts["caveats"])


@pytest.mark.parametrize("validation", ["constant", "validation_decay"])
def test_a_dry_run_knows_the_sizes_of_clients_without_drawing_a_record(monkeypatch, validation):
    config = fedpriv.compose(
        [
            "dataset=synthetic", "algorithm=dp_fl", "dataset.users=50", "dataset.records_per_user=2",
            "dataset.most_records_per_user=9", f"noise_schedule={validation}",
            "noise_schedule.noise_multiplier=3",
        ]
    )  # fmt: skip
    parts, known = build_parts(config), {}
    data = federate(
        parts.dataset, parts.partition, validation=parts.reads_validation, seed=parts.split_seed
    )
    monkeypatch.setattr(SyntheticDataset, "load", lambda _: pytest.fail("drawn"))
    refuse_unusable_data(parts, config, known, download=False)
    (planned,) = known.values()
    assert planned.records_per_client.tolist() == data.records_per_client.tolist()


def test_a_wrong_number_of_users_is_refused_by_its_key():
    with pytest.raises(ConfigError, match=r"^dataset\.most_records_per_user must be null or >= 10"):
        build_parts(fedpriv.compose(["dataset=synthetic", "dataset.most_records_per_user=3"]))
