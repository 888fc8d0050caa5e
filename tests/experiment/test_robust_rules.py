"""Robust rules in whole runs, resumed and shared; and the root of FLTrust, which is public."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from rule_runs import RULES
from rules import PRIVATE

import fedpriv
from fedpriv.aggregation import MultiKrum
from fedpriv.aggregation.run_rule import RunRule
from fedpriv.aggregation.vectors import Vectors, share_out
from fedpriv.algorithms.public_root import PublicRoot
from fedpriv.algorithms.upload_computation import UploadComputation
from fedpriv.algorithms.uploads import Gradients, LocalChanges
from fedpriv.common.config import compose
from fedpriv.data.digits import Digits
from fedpriv.experiment.assemble import make_context
from fedpriv.experiment.build import build_parts
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.variations import adversarial

SMALL = ("partition.clients=8", "rounds=4", "epsilon=null", "runtime.threads=1")
LOCAL = (*PRIVATE["ldp_fedsgd"], *SMALL)
CASES = {
    **{rule: (f"aggregation={rule}",) for rule in RULES},
    "all steps": ("aggregation=trimmed_mean", "aggregation.before=[bucketing,nnm,arc]",
                  "aggregation.tolerated=1"),
}  # fmt: skip
FIRST = ("foolsgold", "fltrust", "all steps")


@pytest.mark.thorough
@pytest.mark.parametrize("case", sorted(CASES, key=lambda case: case not in FIRST))
def test_a_run_interrupted_and_resumed_is_the_whole_run(case, train, tmp_path, assert_same_run):
    """Centered clipping and FoolsGold remember; buckets, coordinates and noise follow from the round."""
    whole = train(*LOCAL, *CASES[case], name="whole")
    model = torch.load(whole.folder / "model.pt")
    assert all(value.isfinite().all() for value in model.values())
    stop, folder = tmp_path / "stop", tmp_path / "begun"
    words = [*LOCAL, *CASES[case], f"runtime.run_dir={folder}", f"runtime.stop_file={stop}"]
    words += ["runtime.progress=none", "runtime.plots=false"]
    begun = fedpriv.run(
        fedpriv.compose(words), on_round=lambda row: row["round"] == 2 and stop.touch()
    )
    assert begun.stop_reason == "interrupted"
    stop.unlink()
    fedpriv.run(fedpriv.compose([*words, f"resume={folder}"]))
    assert_same_run(folder, whole.folder)


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("algorithm", "attack"),
    [("fedavg", "sign_flip"), ("fedsgd", "gaussian"), ("dp_fl", "sign_flip")],
)
def test_a_rule_stays_nearer_to_the_run_without_an_attack_than_the_mean(algorithm, attack, train):
    """Of 10 clients 3 attack: multi-Krum with f = 3 stays nearer to the run without an attack."""
    quiet = ("noise_schedule=none",) if algorithm == "dp_fl" else ()
    common = (f"algorithm={algorithm}", *quiet, "algorithm.optimizer=sgd", "partition=iid", "paired=robust",
              "partition.clients=10", "rounds=6", "epsilon=null")  # fmt: skip
    attacked = (*common, f"attack={attack}", "attack.attackers=3")

    def weights(*overrides: str, name: str) -> torch.Tensor:
        model = torch.load(train(*overrides, name=name).folder / "model.pt")
        return torch.cat([value.flatten() for value in model.values()])

    honest = weights(*common, name="honest")
    mean = weights(*attacked, name="mean")
    rule = ("aggregation=multi_krum", "aggregation.tolerated=3")
    robust = weights(*attacked, *rule, name="robust")
    assert (robust - honest).norm() < (mean - honest).norm()


# ---- the root of FLTrust


def test_the_root_belongs_to_no_client_and_the_statement_names_it(train):
    run = train(*PRIVATE["dp_fl"], *SMALL, "aggregation=fltrust")
    statement = " ".join((run.folder / "privacy.txt").read_text().split())
    assert (
        "validation records that the aggregation rule trains on are treated as public" in statement
    )
    parts = build_parts(compose([*PRIVATE["dp_fl"], *SMALL, "aggregation=fltrust"]))
    data = make_context(parts, torch.device("cpu")).data
    assert len(data.validation) == Digits().validation_records
    held = np.concatenate(data.clients)
    assert len(held) + len(data.validation) == Digits().train_records
    assert len(data.train) == len(held)


def test_epsilon_is_that_of_the_mean_on_as_many_records(train):
    facts = []
    for rule in ("fltrust", "krum"):
        folder = train(*LOCAL, f"aggregation={rule}", name=rule).folder
        facts.append(json.loads((folder / "privacy.json").read_text())["epsilon_sound"])
    assert facts[0] == facts[1]


def test_an_audit_which_trains_with_the_mean_is_refused(command, train):
    folder = train(*PRIVATE["dp_fl"], *SMALL, "aggregation=fltrust").folder
    said = command("audit", "membership", str(folder))
    assert said.status == 2
    assert "aggregation must be another for an audit, got fltrust" in said.sentence


def test_no_key_names_other_records(command):
    for key in ("root", "path"):
        said = command("train", *LOCAL, "aggregation=fltrust", f"+aggregation.{key}=train")
        assert said.status == 2
        assert key in said.sentence


@pytest.fixture
def pinned_results(monkeypatch):
    """(overrides) → what a rule returned on the run's data, and on other data with the same releases."""

    def of(*overrides: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        subject = Subject(compose([*overrides, "partition.clients=4"]), rounds=3)
        returned: list[torch.Tensor] = []
        combine = RunRule.combine

        def noted(rule, clients, uploads, weights):
            returned.append(combine(rule, clients, uploads, weights))
            return returned[-1]

        monkeypatch.setattr(RunRule, "combine", noted)
        reference = subject.run()
        one = returned[-3:]
        (other_data, *_) = adversarial(subject, REPLACE_ONE)
        recording = subject.run(variation=other_data, pinned=reference)
        assert recording.failure is None
        return one, returned[-3:]

    return of


FLTRUST = (*PRIVATE["ldp_fedsgd"], "aggregation=fltrust")


def test_what_fltrust_returns_follows_from_releases_and_public_records(pinned_results):
    for one, other in zip(*pinned_results(*FLTRUST), strict=True):
        assert one.any()
        assert torch.equal(one, other)


def test_a_private_root_is_found(pinned_results, monkeypatch):
    """Planted: the server trains its root on records of clients."""

    def private(root, records, steps, learning_rate):
        train = root._context.data.train
        training = LocalChanges(root._context, steps, None, learning_rate)
        return training.of_records(train.inputs, train.targets) / -learning_rate

    monkeypatch.setattr(PublicRoot, "__call__", private)
    ones, others = pinned_results(*FLTRUST)
    assert not all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


@pytest.mark.few(1)
@pytest.mark.parametrize("rule", ["multi_krum", "flame", "foolsgold"])
def test_what_a_rule_selects_follows_from_releases_alone(rule, pinned_results):
    chosen = (*PRIVATE["ldp_fedsgd"], f"aggregation={rule}", "aggregation.tolerated=0")
    for one, other in zip(*pinned_results(*chosen), strict=True):
        assert torch.equal(one, other)


def test_a_selection_by_uploads_without_noise_is_found(pinned_results, monkeypatch):
    """Planted: multi-Krum ranks clients by their uploads before the noise, and averages released ones."""
    clipped, raw = UploadComputation.compute_cohort, []

    def kept(computation, local_step, changes, clip):
        found = clipped(computation, local_step, changes, clip)
        raw.append(found.answer.values.clone())
        return found

    def selected(rule, vectors, of_round):
        best = Vectors(raw[-1]).squared_distances.sum(axis=1).argsort()[:2]
        return vectors.combination(share_out(best, len(vectors)))

    monkeypatch.setattr(UploadComputation, "compute_cohort", kept)
    monkeypatch.setattr(MultiKrum, "aggregate", selected)
    chosen = (*PRIVATE["ldp_fedsgd"], "aggregation=multi_krum", "aggregation.tolerated=0")
    ones, others = pinned_results(*chosen)
    assert not all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))


@pytest.mark.parametrize("name", ["ldp_fedsgd", "wei_cdp", "wei_cdp of weights", "dp_fl"])
def test_the_root_is_what_a_client_with_these_records_would_send(name, monkeypatch):
    """A gradient, weights, or a change of weights: as the algorithm's clients upload."""
    chosen = ("epsilon=null", "rounds=2", "partition.clients=4", "aggregation=fltrust")
    roots, trusted = [], PublicRoot.__call__

    def noted(root, *arguments):
        found, context = trusted(root, *arguments), root._context
        public, algorithm = context.data.validation, context.mechanism.algorithm
        every = np.linspace(0, len(public) - 1, 100).astype(np.int64)
        inputs, targets = public.inputs[every], public.targets[every]
        if algorithm.unit == "client":
            wanted = algorithm.uploads(context).of_records(inputs, targets)
        else:
            wanted = Gradients(1.0, context).of_records(inputs, targets) * -algorithm.learning_rate
        roots.append((found, wanted))
        return found

    monkeypatch.setattr(PublicRoot, "__call__", noted)
    Subject(compose([*PRIVATE[name], *chosen]), rounds=2).run()
    assert len(roots) == 2
    for found, wanted in roots:
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-6)


# ---- refusals before the first round


@pytest.mark.parametrize(
    ("overrides", "wanted"),
    [
        (
            ("aggregation=krum", "aggregation.tolerated=3"),
            "aggregation.tolerated must be at most 2: krum needs n > 2f + 2, and a round has n = 8 uploads, "
            "got 3",
        ),
        (
            ("aggregation=median", "algorithm.clients_per_round=4", "aggregation.tolerated=0.5"),
            "aggregation.tolerated must be at most 1: median needs n > 2f, and a round has n = 4 uploads, "
            "got 0.5 (f = 2)",
        ),
        (
            ("aggregation=trimmed_mean", "partition.clients=1"),
            "aggregation must be mean: trimmed_mean needs n > 2f, and a round has n = 1 and f = 1",
        ),
        (
            ("aggregation=foolsgold", "aggregation.before=[bucketing]"),
            "aggregation.before must be no bucketing with foolsgold",
        ),
    ],
)
def test_what_no_round_can_do_is_refused_in_one_sentence(overrides, wanted, command):
    said = command("train", *LOCAL, *overrides)
    assert said.status == 2
    assert wanted in said.sentence


def test_clients_that_only_the_data_count_are_refused_too(command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"{user},{user % 3},{'ab'[user % 2]}\n" for user in range(40) for _ in range(9))
    (tmp_path / "table.csv").write_text("user,x,y\n" + rows)
    table = ("dataset=csv", "dataset.path=table.csv", "dataset.label=y", "dataset.user=user",
             "dataset.ranges={x: [0, 9]}", "partition=natural")  # fmt: skip
    said = command("train", "algorithm=fedavg", *table, "rounds=1", "aggregation=krum",
                   "aggregation.tolerated=30")  # fmt: skip
    assert said.status == 2
    assert "krum needs n > 2f + 2, and a round has n = " in said.sentence
