"""Sums of buckets: shipped ones pass, and faults planted in them are caught."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fedpriv.algorithms import client_computation
from fedpriv.algorithms.upload_computation import UploadComputation
from fedpriv.common.config import compose
from fedpriv.privacy.mechanisms import OpenRound
from fedpriv.tools.verify.checks import Verification
from fedpriv.tools.verify.context import Context
from fedpriv.tools.verify.subject import Subject, keep_global_generators
from fedpriv.tools.verify.table import Check, failed, judged

pytestmark = pytest.mark.usefixtures("unpublished")

CENTRAL = (
    "algorithm=cdp_fedavg",
    "algorithm.client_rate=0.5",
    "partition=iid",
    "partition.clients=12",
    "aggregation=bucketed_median",
)


def checks_of_sensitivity(*overrides: str) -> list[Check]:
    """Return the checks of a unit that is replaced; those of noise take most of a verification."""
    with keep_global_generators():
        context = Context(Subject(compose(overrides), 0, 3), 200)
        checks = judged(list(Verification(context)._sensitivity()))
    assert checks
    return checks


def sensitivity(*overrides: str) -> list[str]:
    return [check.name for check in failed(checks_of_sensitivity(*overrides))]


@pytest.mark.thorough
@pytest.mark.parametrize("overrides", [
    (*CENTRAL, "clipper=quantile"),
    ("algorithm=ddp_fedavg", *CENTRAL[2:]),
    ("algorithm=dp_fl_server", *CENTRAL[2:]),
    ("algorithm=naseri_cdp", *CENTRAL[1:]),
])  # fmt: skip
def test_shipped_algorithms_pass(caught, overrides):
    assert caught(*overrides) == []


@pytest.mark.thorough
def test_a_client_in_another_bucket_is_tried():
    checks = checks_of_sensitivity(*CENTRAL)
    names = {check.name for check in checks}
    assert any("in another bucket" in name for name in names), names
    assert failed(checks) == []


@pytest.mark.thorough
def test_buckets_that_are_cut_from_the_realised_cohort(monkeypatch):
    """Planted: the cohort is permuted and cut into equal parts, so an absent client moves the others."""

    def cut(streams, buckets, round_index, step, clients):
        order = streams.sampling("bucket", round_index).permutation(len(clients))
        return (order * buckets // max(1, len(order))).astype(np.int64)

    monkeypatch.setattr(client_computation, "sample_buckets", cut)
    assert sensitivity(*CENTRAL)


@pytest.mark.thorough
def test_realised_bucket_sizes_as_divisors(monkeypatch):
    """Planted: each bucket's sum is divided by the number of its clients."""
    compute = UploadComputation.compute

    def divided(computation, state):
        answer = compute(computation, state)
        places = computation.buckets_of(state.local_step)
        sizes = torch.bincount(places, minlength=computation.buckets).clamp_min(1)
        expected = computation.denominator(state.local_step.cohort) / computation.buckets
        answer.sums.view(computation.buckets, -1).mul_(expected / sizes[:, None])
        return answer

    monkeypatch.setattr(UploadComputation, "compute", divided)
    assert sensitivity(*CENTRAL)


@pytest.mark.thorough
def test_the_median_first_and_the_noise_after(monkeypatch):
    """Planted: noise is added to the median of exact bucket means."""
    release = OpenRound.release

    def median_first(opened, answers):
        from fedpriv.privacy.mechanisms import GRADIENT

        values = answers[GRADIENT].values
        if values.shape == (1, 5 * 650):
            sums = values.view(5, -1)
            sums[:] = sums.median(dim=0).values
        return release(opened, answers)

    monkeypatch.setattr(OpenRound, "release", median_first)
    assert sensitivity(*CENTRAL)


@pytest.mark.thorough
def test_clients_that_are_added_to_two_buckets(monkeypatch):
    """Planted: a client's upload is in its bucket and in the next one, at full size."""
    from fedpriv.algorithms import upload_computation

    add = upload_computation._add_to_sums

    def twice(sums, uploads, factors, places, parts):
        add(sums, uploads, factors, places, parts)
        add(sums, uploads, factors, (places + 1) % len(sums), parts)

    monkeypatch.setattr(upload_computation, "_add_to_sums", twice)
    assert sensitivity(*CENTRAL)


@pytest.mark.thorough
def test_a_client_at_the_size_of_its_bucket_is_caught_elsewhere(monkeypatch):
    """Planted: bucket 3 counts three times; a client that is not in it shows nothing until it is moved."""
    from fedpriv.algorithms import upload_computation

    add = upload_computation._add_to_sums

    def uneven(sums, uploads, factors, places, parts):
        weights = torch.where(places == 3, 3.0, 1.0).to(factors)
        add(sums, uploads, factors * weights.view(-1, *[1] * (factors.ndim - 1)), places, parts)

    monkeypatch.setattr(upload_computation, "_add_to_sums", uneven)
    assert sensitivity(*CENTRAL)
