"""Every planted mistake is found, by the check that is about it."""

from __future__ import annotations

import inspect
import math

import numpy as np
import planted
import pytest
from loops import for_each
from planted import CLIENTS, COPIES, RECORDS

from fedpriv.algorithms import augmented
from fedpriv.algorithms.base import UnsampledReports
from fedpriv.common.errors import ConfigError
from fedpriv.common.secret_streams import standard_normals
from fedpriv.privacy.clippers import QuantileClipper
from fedpriv.privacy.clippers.quantile import BIT_SENSITIVITY
from fedpriv.privacy.core import noise
from fedpriv.privacy.core.sampling import WholeData
from fedpriv.privacy.mechanisms import GRADIENT, GaussianQuery, OpenRound, joint
from fedpriv.tools.verify.context import SAMPLES

pytestmark = pytest.mark.usefixtures("unpublished")
QUANTILE = ("clipper=quantile", "clipper.initial_clip_norm=0.1", "clipper.bit_noise=8")


def own_work(name: str) -> tuple[str, ...]:
    return (*RECORDS, "algorithm._target_=planted.OwnWork", f"+algorithm.computation={name}")


def own_client_work(name: str) -> tuple[str, ...]:
    return (*CLIENTS, "algorithm._target_=planted.OwnClientWork", f"+algorithm.computation={name}")


def about(found: list[str], kind: str) -> bool:
    return any(one.startswith(kind) for one in found)


PLANTED = [
    thing
    for thing in vars(planted).values()
    if inspect.isclass(thing)
    and thing.__module__ == planted.__name__
    and thing.__base__ is not object
]


@for_each("mistake", PLANTED)
def test_a_mistake_is_planted_where_fedpriv_has_a_method(mistake):
    """A method that overrides nothing any more would plant nothing, and a check would prove nothing."""
    source = inspect.getsource(mistake)
    for name, value in vars(mistake).items():
        if inspect.isfunction(value) and f"self.{name}(" not in source:
            assert any(hasattr(base, name) for base in mistake.__mro__[1:]), name


# ---- clipping


@pytest.mark.few(1)
@pytest.mark.parametrize("computation", ["NoClipping", "ClipsTheMean"])
def test_records_that_are_not_clipped_one_by_one(caught_by, computation):
    assert about(caught_by("sensitivity", *own_work(computation)), "sensitivity: gradient_sum")


@pytest.mark.thorough
def test_copies_of_an_image_that_are_clipped_one_by_one(caught_by):
    found = caught_by("sensitivity", *own_work("CopiesAsRecords"), *COPIES, rounds=2)
    assert about(found, "sensitivity: gradient_sum: huge")


@pytest.mark.thorough
def test_copies_of_an_image_that_depend_on_who_else_is_in_the_lot(caught_by, monkeypatch):
    """Were draws those of a place in the lot, one record less would move the copies of those behind it."""
    draw = augmented.draws_of_copies

    def by_place(streams, records, lot, *more):
        return draw(streams, np.arange(len(records)), np.arange(len(lot)), *more)

    monkeypatch.setattr(augmented, "draws_of_copies", by_place)
    assert about(caught_by("sensitivity", *RECORDS, *COPIES, rounds=2), "sensitivity: gradient_sum")


@pytest.mark.few(1)
@pytest.mark.parametrize("computation", ["PerLayer", "TrustsClients"])
def test_uploads_that_the_server_does_not_clip(caught_by, computation):
    assert about(
        caught_by("sensitivity", *own_client_work(computation)), "sensitivity: gradient_sum: upload"
    )


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["dp_fl", "cdp_fedavg"])
def test_layers_whose_sensitivity_is_said_to_be_that_of_the_largest(
    caught_by, monkeypatch, algorithm
):
    """The clip norm of one layer is not what all of them together move the sum by."""
    monkeypatch.setattr(
        "fedpriv.privacy.clippers.step_clip.whole_norms",
        lambda limits: limits if limits.dim() == 1 else limits.amax(1),
    )
    own = CLIENTS[1:] if algorithm == "cdp_fedavg" else RECORDS[1:]
    found = caught_by(
        "sensitivity", f"algorithm={algorithm}", *own, "model=mlp", "clipper=per_layer"
    )
    assert about(found, "sensitivity: gradient_sum")


# ---- noise


@pytest.fixture
def scaled_noise(monkeypatch):
    """(factor of the gradient's noise, which says it is whole)."""
    release = GaussianQuery.release

    def plant(factor):
        def less(self, answer, noising):
            by = factor() if callable(factor) else factor
            if self.name != GRADIENT:
                return release(self, answer, noising)
            true = answer.sensitivity.double()
            answer.sensitivity = true * by
            std = release(self, answer, noising)
            answer.sensitivity = true
            return std / by

        monkeypatch.setattr(GaussianQuery, "release", less)

    return plant


def test_less_noise_than_is_charged(caught_by, scaled_noise):
    scaled_noise(0.95)
    assert "noise: std of gradient_sum ÷ the ledger's" in caught_by(
        "noise", *RECORDS, samples=SAMPLES, rounds=1
    )


@pytest.mark.thorough
def test_noise_divided_by_the_root_of_the_number_of_clients(caught_by, scaled_noise):
    scaled_noise(1 / math.sqrt(24))
    found = caught_by("noise, leaving", *CLIENTS)
    assert "noise: std of gradient_sum ÷ the ledger's" in found
    assert "noise: ÷ what one client moves, in the weights" in found


@pytest.mark.thorough
def test_noise_scaled_by_the_next_clip_norm(caught_by, scaled_noise, monkeypatch):
    statistic, ratio = QuantileClipper.statistic, [1.0]

    def told(self, norms, owners, clip_norms):
        answer = statistic(self, norms, owners, clip_norms)
        share = float(answer.values.mean()) / max(1, len(norms)) + BIT_SENSITIVITY
        ratio[0] = math.exp(-self.quantile_learning_rate * (share - self.target_quantile))
        return answer

    monkeypatch.setattr(QuantileClipper, "statistic", told)
    scaled_noise(lambda: ratio[0])
    found = caught_by("same noise", *CLIENTS, *QUANTILE, samples=300)
    assert about(found, "noise: the same with")


@pytest.mark.thorough
def test_planted_noise_that_is_left_out_late_in_a_run(caught_by, monkeypatch):
    """In the last round alone."""
    add = OpenRound._noise

    def none_late(self, name, query, answer):
        exact = answer.values.clone()
        std = add(self, name, query, answer)
        if self.round_index == 39:
            answer.values.copy_(exact)
        return std

    monkeypatch.setattr(OpenRound, "_noise", none_late)
    overrides = ("algorithm=cdp_fedavg", *CLIENTS[1:], "rounds=40", "epsilon=8")
    assert "noise: gradient_sum: worst round of 7" in caught_by("noise", *overrides, later=True)


# ---- independence


@pytest.fixture
def streams_of(monkeypatch):
    """(a change of the names under which a round's noise is drawn)."""
    original = OpenRound._streams_of

    def plant(change):
        def streams(self, query, of_reports=False):
            return change(self, query, lambda: original(self, query, of_reports))

        monkeypatch.setattr(OpenRound, "_streams_of", streams)

    return plant


def test_clients_that_share_noise(caught_by, streams_of):
    streams_of(
        lambda self, query, real: [
            self.streams.noise(query.name, self.round_index) for _ in self.cohort
        ]
    )
    assert "independence: gradient_sum: over clients" in caught_by("noise", *RECORDS)


def test_the_same_noise_twice(caught_by, streams_of):
    def again(self, query, real):
        t, self.round_index = self.round_index, self.round_index // 2
        try:
            return real()
        finally:
            self.round_index = t

    streams_of(again)
    assert "independence: gradient_sum: over rounds and steps" in caught_by("noise", *CLIENTS)


def test_noise_that_is_correlated_over_rounds(caught_by, streams_of, monkeypatch):
    class Both(tuple):
        __slots__ = ()

    def with_the_one_before(self, query, real):
        now = real()
        self.round_index -= 1
        before = real()
        self.round_index += 1
        return [Both(pair) for pair in zip(now, before, strict=True)]

    def normals(streams, size):
        now, before = (standard_normals([pair[i] for pair in streams], size) for i in (0, 1))
        return 0.9 * now + math.sqrt(1 - 0.9**2) * before

    streams_of(with_the_one_before)
    monkeypatch.setattr(noise, "standard_normals", normals)
    found = caught_by("noise", *CLIENTS)
    assert found == [
        "independence: gradient_sum: over rounds and steps",
        "independence: gradient_sum: 3 vectors of clients and rounds",
    ]


# ---- sampling


def test_lots_that_are_not_sampled_as_charged(caught_by):
    found = caught_by(
        "sampling",
        *RECORDS,
        "algorithm._target_=planted.OwnSampling",
        "+algorithm.how=BlockSampling",
    )
    assert "sampling: lots: runs" in found


def test_a_sampler_that_goes_through_a_shuffled_order(caught_by, monkeypatch):
    def in_turn(streams, sampling, records, t, step, client):
        order = streams.sampling("order", client).permutation(len(records))
        half = len(records) // 2
        return records[sorted(order[:half] if t % 2 else order[half:])]

    monkeypatch.setattr("fedpriv.algorithms.run_context.sample_lot", in_turn)
    found = caught_by("sampling", *RECORDS)
    assert "sampling: lots: sizes" in found
    assert "sampling: lots: rounds" in found


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("when", "found"),
    [("start", []), ("round", ["outside: an interrupted run, resumed", "sampling: cohorts"])],
)
def test_cohorts_that_need_what_a_run_sets(caught_by, when, found):
    """At the start it is there; what a round sets is told in a sentence."""
    own = ("algorithm._target_=planted.CohortOfState", f"+algorithm.when={when}")
    assert caught_by("resumed, sampling", *CLIENTS, *own) == found


# ---- what else moves


@pytest.mark.few(1)
@pytest.mark.parametrize("computation", ["RealisedLots", "RegularisedByTheLot", "KeepsUnclipped"])
def test_what_is_done_with_a_release_depends_on_records(caught_by, computation):
    more = ("algorithm.optimizer=adam",) if computation == "KeepsUnclipped" else ()
    found = caught_by("outside", *own_work(computation), *more)
    assert about(found, "outside: with other lots, cohorts and noise")


def test_a_run_that_ends_at_what_is_not_finite(caught_by):
    found = caught_by("sensitivity", *own_work("StopsAtNotFinite"))
    assert "sensitivity: not a number" in found


def test_a_clip_norm_that_follows_what_nobody_is_asked(caught):
    found = caught(*RECORDS, "clipper._target_=planted.Peeks")
    assert about(found, "charge: the run")  # it keeps private norms in factors, which stops the run


def test_batch_norm_is_refused_and_else_found(caught_by, monkeypatch):
    overrides = (*RECORDS, "model._target_=planted.BatchNormModel")
    with pytest.raises(ConfigError, match="running follows from the records"):
        caught_by("outside", *overrides)
    monkeypatch.setattr("fedpriv.experiment.assemble._probe_model", lambda *_: None)
    found = caught_by("outside", *overrides)
    assert about(found, "outside: ")


def test_a_release_that_the_ledger_does_not_get(caught_by, monkeypatch):
    close = OpenRound.close
    monkeypatch.setattr(OpenRound, "close", lambda self: close(self) if self.round_index else ())
    assert "charge: gradient_sum in the ledger" in caught_by("charge", *CLIENTS)


@pytest.mark.thorough
def test_reports_charged_as_if_they_came_or_not(caught_by, monkeypatch):
    """A report that is seen to come differs by twice the clip norm, whatever the other one is."""
    joint._event.cache_clear()
    monkeypatch.setattr(UnsampledReports, "sampling_of", lambda self, records: WholeData())
    found = caught_by(
        "leaving, sensitivity",
        "algorithm=ldp_fedsgd",
        "partition.clients=6",
        "noise_schedule=constant",
    )
    joint._event.cache_clear()
    assert about(found, "sensitivity: ")
    assert about(found, "noise: ÷ what one client moves")
