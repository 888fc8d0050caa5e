"""An aggregation rule sees released uploads, and nothing else: held with the median, and faults planted."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from rules import EVERY, PRIVATE

from fedpriv.aggregation.run_rule import RunRule
from fedpriv.algorithms.server_steps import ServerStep
from fedpriv.algorithms.upload_computation import UploadComputation
from fedpriv.common.config import compose
from fedpriv.common.secret_streams import standard_normals
from fedpriv.privacy.core.names import REPLACE_ONE
from fedpriv.privacy.mechanisms import GRADIENT, OpenRound, Released, Unprotected
from fedpriv.tools.verify.subject import Subject
from fedpriv.tools.verify.variations import adversarial


class Rows:
    """What was released in a run, and what a rule was handed."""

    def __init__(self, monkeypatch):
        self.released: list[tuple[np.ndarray, object, torch.Tensor]] = []
        self.handed: list[tuple[np.ndarray, torch.Tensor, torch.Tensor]] = []
        self.noise: list[tuple[torch.Tensor, torch.Tensor]] = []
        self.charged: list[tuple] = []
        release, combine, close = OpenRound.release, RunRule.combine, OpenRound.close

        def noted_release(opened, answers):
            exact = answers[GRADIENT].values.clone()
            streams = opened._streams_of(opened._query(GRADIENT)) if opened._groups else []
            visible = release(opened, answers)
            values = visible[GRADIENT].values.clone()
            self.released.append((opened.cohort, type(visible[GRADIENT]), values))
            if streams:
                normals = standard_normals(streams, values.shape[1])
                std = torch.as_tensor(opened.noise_std(GRADIENT))
                self.noise.append(((values - exact) / std[:, None], normals))
            return visible

        def noted_combine(rule, clients, uploads, weights):
            self.handed.append((clients.copy(), uploads.clone(), weights.clone()))
            return combine(rule, clients, uploads, weights)

        def noted_close(opened):
            found = close(opened)
            self.charged.append(found)
            return found

        monkeypatch.setattr(OpenRound, "release", noted_release)
        monkeypatch.setattr(RunRule, "combine", noted_combine)
        monkeypatch.setattr(OpenRound, "close", noted_close)

    def assert_in_the_ledger(self, private: bool) -> None:
        """Each row handed to the rule is a released value of its client, times one public number, or an
        upload of a run without privacy."""
        assert len(self.released) == 3
        handed = self.handed[-3:]  # before them stand made-up uploads
        for (clients, rows, weights), (cohort, kind, values) in zip(
            handed, self.released, strict=True
        ):
            assert kind is (Released if private else Unprotected)
            assert np.array_equal(clients, cohort)
            assert rows.shape == values.shape
            assert float(weights.sum()) == pytest.approx(1.0)
            for row, value in zip(rows.double(), values.double(), strict=True):
                factor = (row @ value) / (value @ value)
                torch.testing.assert_close(row, factor * value, rtol=2e-6, atol=1e-9)
        if private:
            for (clients, _, _), releases in zip(handed, self.charged[-3:], strict=True):
                assert sorted(np.concatenate([r.clients for r in releases])) == clients.tolist()


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "name", [name for name in EVERY if name not in ("dp_scaffold", "naseri_ldp")]
)
def test_a_rule_sees_what_is_in_the_ledger_and_nothing_else(name, combined, monkeypatch):
    rows = Rows(monkeypatch)
    more = ("algorithm.optimizer=sgd",) if name == "fedavg" else ()
    said = combined(*EVERY[name], *more)
    assert said.status == 0, said.err
    rows.assert_in_the_ledger(private=name in PRIVATE)


def plant_uploads_without_noise(monkeypatch) -> None:
    """Let the rule be handed the clipped uploads as they were before the noise."""
    clipped, mean = UploadComputation.compute_cohort, UploadComputation.mean

    def kept(computation, local_step, changes, clip):
        found = clipped(computation, local_step, changes, clip)
        computation.planted = found.answer.values.clone()
        return found

    monkeypatch.setattr(UploadComputation, "compute_cohort", kept)
    monkeypatch.setattr(
        UploadComputation,
        "mean",
        lambda computation, _, cohort: mean(computation, computation.planted, cohort),
    )


def test_the_comparison_finds_an_upload_that_nobody_noised(combined, monkeypatch):
    """Planted: the rule is handed the clipped uploads as they were before the noise."""
    plant_uploads_without_noise(monkeypatch)
    rows = Rows(monkeypatch)
    assert combined(*PRIVATE["ldp_fedsgd"]).status == 0
    with pytest.raises(AssertionError):
        rows.assert_in_the_ledger(private=True)


def test_a_row_that_is_no_visible_value_is_stopped(combined, monkeypatch):
    whole = ServerStep.average
    monkeypatch.setattr(
        ServerStep, "average", lambda step, cohort, uploads: whole(step, cohort, uploads.values)
    )
    said = combined(*PRIVATE["ldp_fedsgd"])
    assert said.status == 1
    assert "the server step takes released or public values" in said.sentence


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["dp_fl", "ldp_fedsgd", "ldp_fedsgd of five", "dp_fl_server"])
def test_each_honest_client_s_noise_is_drawn_from_its_own_key(name, combined, monkeypatch):
    rows = Rows(monkeypatch)
    assert combined(*PRIVATE[name]).status == 0
    assert len(rows.noise) == 3
    for added, normals in rows.noise:
        assert len(added) > 1
        torch.testing.assert_close(added.double(), normals, rtol=0, atol=1e-3)
        assert len({tuple(row[:5].tolist()) for row in normals}) == len(normals)


PINNED = {
    "dp_fl": ("algorithm=dp_fl", "algorithm.local_steps=2"),
    "dp_scaffold": PRIVATE["dp_scaffold"],
    "ldp_fedsgd": PRIVATE["ldp_fedsgd"],
}


@pytest.fixture
def pinned(plugins, monkeypatch):
    """(overrides) → the rows that a rule is handed on the run's own data, and on other data, pinned to the
    releases of the first."""

    def rows(*overrides: str) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        monkeypatch.syspath_prepend(str(plugins))
        config = compose(
            [*overrides, "aggregation=my_median", "partition.clients=4"], plugins / "yamls"
        )
        subject = Subject(config, rounds=3)
        seen: list[torch.Tensor] = []
        combine = RunRule.combine

        def noted(rule, clients, uploads, weights):
            seen.append(uploads.clone())
            return combine(rule, clients, uploads, weights)

        monkeypatch.setattr(RunRule, "combine", noted)
        reference = subject.run()
        one = seen[-3:]
        (other_data, *_) = adversarial(subject, REPLACE_ONE)
        differ: list[bool] = []

        def see(place, values):
            differ.append(not torch.equal(values, reference.seen[place].values))

        recording = subject.run(variation=other_data, pinned=reference, see=see)
        assert recording.failure is None
        assert any(differ)
        return one, seen[-3:]

    return rows


@pytest.mark.parametrize("name", PINNED)
def test_what_a_rule_is_handed_follows_from_the_releases_alone(name, pinned):
    """Also where local steps and optimisers stand between a release and the rule."""
    for one, other in zip(*pinned(*PINNED[name]), strict=True):
        assert torch.equal(one, other)


def test_pinned_runs_find_an_upload_that_nobody_noised(pinned, monkeypatch):
    """Planted as above."""
    plant_uploads_without_noise(monkeypatch)
    ones, others = pinned(*PINNED["ldp_fedsgd"])
    assert not all(torch.equal(one, other) for one, other in zip(ones, others, strict=True))
